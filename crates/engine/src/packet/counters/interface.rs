//! Counters of a worker for an interface.

use super::declaration::{CounterKind, Label, LabelValues, NamedCounter, Unit, counters};
use super::{Counter, Reason};

counters! {
    /// Counters of one worker for one interface. For the sums over all interfaces, `received + originated + unparked =
    /// sent + dropped + to-host + parked`.
    InterfaceCounters of InterfaceCounters labels ["interface", "worker"] names InterfaceNames {}

    Total Packets received = "received", "frames received from the device";
    Total Bytes received_bytes = "received-bytes", "bytes of received frames, without check sequence";
    Total Packets sent = "sent", "frames sent to the device";
    Total Bytes sent_bytes = "sent-bytes", "bytes of sent frames, without check sequence";
    Total Packets originated = "originated", "packets created by the gateway, counted on the interface of the packet or event that caused them";
    Total Packets dropped = "dropped", "packets dropped, counted on their ingress interface", InterfaceCounters::all_drops;
    Total Packets to_host = "to-host", "packets delivered to the gateway itself: neighbour discovery, echo requests, ICMP to its addresses";
    Total Packets parked = "parked", "packets parked, for example for address resolution or a first fragment";
    Total Packets unparked = "unparked", "parked packets that continued through the graph";
    Total Packets drops by reason: Reason = "dropped-by-reason", "packets dropped, by reason: `sluice show drops`";
    Total Packets exempted by reason: Reason = "exempted-by-reason", "packets that a bridge forwarded in spite of a drop reason: `sluice show bridges`";
}

impl InterfaceCounters {
    /// Counts a drop, on the interface on which the packet was received.
    #[inline(always)]
    pub fn drop(&self, reason: Reason) {
        self.drops.add(reason.number(), 1);
    }

    /// Counts several drops for one reason.
    #[inline(always)]
    pub fn drop_many(&self, reason: Reason, count: u64) {
        self.drops.add(reason.number(), count);
    }

    /// Counts a packet that a bridge forwards in spite of a fault. The count belongs to the interface on which the
    /// packet was received.
    pub fn count_exempted(&self, reason: Reason) {
        self.exempted.add(reason.number(), 1);
    }

    /// Number of packets that were forwarded in spite of this fault.
    pub fn exempted(&self, reason: Reason) -> u64 {
        self.exempted.get(reason.number())
    }

    /// Number of drops for a reason.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops.get(reason.number())
    }

    /// Number of drops for all reasons.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}
