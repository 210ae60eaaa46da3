//! Counts received packets by interface.

use crate::features::context::NodeContext;
use crate::packet::io::PortIndex;

/// Counts the received frames and bytes of an interface. The counts are added to the interface's counters when a frame
/// of a different interface follows.
pub(in crate::nodes) struct ReceiveTally {
    pub interface: u16,
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl ReceiveTally {
    /// Starts counting on a port. Packets that belong to no interface are counted for the port's untagged interface,
    /// or, if it has none, for its first VLAN interface.
    pub fn of(ctx: &NodeContext<'_, '_>, port: PortIndex) -> Self {
        let snapshot = ctx.snapshot;
        let untagged = snapshot.untagged.get(port as usize).copied().flatten();
        let any = || {
            snapshot
                .interfaces
                .iter()
                .position(|i| i.port == port)
                .map(|i| i as u16)
        };
        Self {
            interface: untagged.or_else(any).unwrap_or(0),
            frames: 0,
            bytes: 0,
        }
    }

    /// Starts counting on an interface, with counts of 0.
    pub fn at(interface: u16) -> Self {
        Self {
            interface,
            frames: 0,
            bytes: 0,
        }
    }

    #[inline(always)]
    pub fn count(&mut self, ctx: &NodeContext<'_, '_>, interface: u16, bytes: u64) {
        if interface != self.interface {
            self.flush(ctx);
            self.interface = interface;
        }
        self.frames += 1;
        self.bytes += bytes;
    }
    pub fn flush(&mut self, ctx: &NodeContext<'_, '_>) {
        if let Some(counters) = ctx.counters.interfaces.get(self.interface as usize) {
            counters.received.add(self.frames);
            counters.received_bytes.add(self.bytes);
        }
        (self.frames, self.bytes) = (0, 0);
    }
}
