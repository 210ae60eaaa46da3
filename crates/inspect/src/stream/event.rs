//! Events in TCP connections that rules can test, with Suricata's names.

use sluice_wire::named;

use super::Exception;

named! {
    /// An event in a TCP connection that rules can test.
    pub enum StreamEvent {
        OutOfWindow "est_packet_out_of_window" "A sequence number is outside the window of its receiver.";
        Gap "reassembly_seq_gap" "A stream continues after a gap, without the missing data.";
        Differs "reassembly_overlap_different_data" "Retransmitted data differs from the original data.";
        Retransmission "pkt_retransmission" "A segment contains only retransmitted data.";
        Handshake "3whs_wrong_seq_wrong_ack" "Data arrived before both ends had agreed on the initial sequence \
             numbers.";
    }
}

impl StreamEvent {
    /// Returns the event that has this name in rules.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|event| event.name() == name)
    }

    /// The event that an exception causes, if any.
    pub fn of(exception: Exception) -> Option<Self> {
        match exception {
            Exception::OutOfWindow => Some(Self::OutOfWindow),
            Exception::Handshake => Some(Self::Handshake),
            _ => None,
        }
    }
}
