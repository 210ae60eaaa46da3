//! Detects whether only one router uses a queue, although other routers share the port.

use sluice_route::RouterIndex;

/// Nanoseconds without packets after which a router counts as absent. This time is longer than the hello interval of
/// routing protocols.
const SILENCE: u64 = 15_000_000_000;

/// Routers that have recently sent packets to a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentSenders {
    last: Option<RouterIndex>,
    /// Time until which a second router counts as present.
    until: u64,
}

impl RecentSenders {
    /// Records the routers of a burst's packets. Returns whether only one router has sent packets recently.
    pub fn observe(&mut self, routers: impl Iterator<Item = RouterIndex>, now: u64) -> bool {
        for router in routers {
            if self.last.is_some_and(|last| last != router) {
                self.until = now.saturating_add(SILENCE);
            }
            self.last = Some(router);
        }
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn company_one_router_is_alone_until_another_comes_and_again_after_its_silence() {
        let mut senders = RecentSenders::default();
        let mut see = |routers: &[RouterIndex], now| senders.observe(routers.iter().copied(), now);
        assert_eq!([true; 3], [see(&[], 0), see(&[3], 1), see(&[3], 2 * SILENCE)]);
        let now = 3 * SILENCE;
        assert_eq!(
            [false; 3],
            [see(&[3, 4], now), see(&[4], now + 1), see(&[4], now + SILENCE - 1)]
        );
        assert_eq!([true, false], [see(&[4], now + SILENCE), see(&[3], now + SILENCE)]);
    }
}
