//! Pauses of the lane: after a burst of which it could take little, it leaves the next bursts of the port to the graph.

/// Number of ports with a pause of their own. Ports whose numbers have equal remainders share a pause.
pub(super) const PORTS: usize = 16;

/// Decides whether the lane tries the packets of a port. If most packets of a burst have no session, for example in a
/// flood, the lane is not tried for some bursts: the graph would repeat its work.
#[derive(Clone, Copy, Default)]
pub(super) struct Pause {
    /// Remaining bursts for which the lane is not tried.
    bursts: u8,
}

impl Pause {
    /// Number of bursts in a pause.
    const LENGTH: u8 = 7;

    /// Whether to try the next burst.
    #[inline(always)]
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.bursts == 0;
        self.bursts = self.bursts.saturating_sub(1);
        is_over
    }

    /// Starts a pause if the lane has taken less than a quarter of many packets.
    #[inline(always)]
    pub(super) fn observe(&mut self, taken: usize, packets: usize) {
        if 4 * taken < packets && packets >= MANY {
            self.bursts = Self::LENGTH;
        }
    }
}

/// Number of packets in a burst from which a pause may follow.
const MANY: usize = 8;
