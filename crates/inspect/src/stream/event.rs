//! Events in TCP connections that rules can test, with Suricata's names.

use sluice_wire::named;

use super::Exception;

named! {
    /// An event in a TCP connection that rules can test.
    pub enum StreamEvent {
        OutOfWindow "est_packet_out_of_window" "A sequence number that the window of its receiver does not reach.";
        Gap "reassembly_seq_gap" "A stream goes on without data that did not come.";
        Differs "reassembly_overlap_different_data" "Data sent again that differs from what was sent before.";
        Retransmission "pkt_retransmission" "Data sent again, and nothing new.";
        Handshake "3whs_wrong_seq_wrong_ack" "Data while the sides do not agree on where the stream begins.";
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
