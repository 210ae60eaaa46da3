//! Drop reasons, skip reasons and limits of inspection.

use sluice_wire::named;

use crate::stream::Exception;

named! {
    /// Why inspection drops a packet. Each reason has its own counter.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Signature "signature"
            "A drop or reject rule matched this packet.";
        FlowDropped "flow-dropped"
            "A packet of a flow from which a drop rule or an exception policy already dropped a packet.";
        FragmentOverlap "inspection-fragment-overlap"
            "A fragment of a datagram with overlapping fragments: all its fragments are dropped (RFC 5722).";
        FragmentCopy "inspection-fragment-copy"
            "A duplicate fragment of a datagram in reassembly: the first copy is used.";
        FragmentInconsistent "inspection-fragment-inconsistent"
            "A fragment of a datagram whose fragments disagree about its end or its headers.";
        FragmentsFull "inspection-fragments-full"
            "A fragment above the limits of reassembly: datagrams, fragments or bytes.";
        FragmentTimeout "inspection-fragment-timeout"
            "A fragment of a datagram whose other fragments did not arrive in time.";
        FragmentRewritten "inspection-fragment-rewritten"
            "A fragmented TCP segment that retransmits different data: only unfragmented segments are normalised.";
        ParkingFull "inspection-parking-full"
            "No free buffer for a fragment in reassembly.";
        Overload "inspection-overload"
            "A packet of a class that is dropped while the worker is overloaded.";
        FlowsFull "inspection-full"
            "The table of inspected flows is full.";
        Midstream "stream-midstream"
            "Data of a connection whose handshake was not seen.";
        Handshake "stream-handshake"
            "Data, or a SYN with data, before the handshake has determined the sequence numbers.";
        GapFull "stream-gap-full"
            "A TCP segment after a gap, which can't be buffered because no memory is left: raise reassembly-bytes.";
        BeyondWindow "stream-beyond-window"
            "Retransmitted data that can't be compared with the original: in a skipped gap, or of a one-way or reset connection.";
        BeyondEnd "stream-beyond-end"
            "Data beyond the FIN of its stream.";
        OutOfWindow "stream-out-of-window"
            "A TCP sequence number outside the receiver's window.";
        NoMemory "stream-no-memory"
            "No memory for a stream or for its unacknowledged data: raise reassembly-bytes.";
        SourceFull "inspection-source-full"
            "A source reached its share of flows or of stream memory; other sources are not affected. Raise flows or \
             reassembly-bytes.";
        BadChecksum "stream-bad-checksum"
            "A packet with a wrong TCP, UDP or ICMP checksum, which its receiver would discard.";
        Malformed "stream-malformed"
            "A malformed TCP header.";
        Closed "stream-closed"
            "A TCP segment of a connection that is closed.";
        ParserFull "inspection-parser-full"
            "A packet of a message for which no parser or decoder was free: raise messages or decoders.";
        TooLong "inspection-too-long"
            "A packet of a message with a field that is longer or nested deeper than the parser's limit.";
        Work "inspection-budget"
            "A packet that exceeds the budget of decoding and rule evaluation of its flow.";
        DecodeAnomaly "inspection-decode-anomaly"
            "A packet of a message that hosts decode differently, so that inspected data and received data may differ.";
        PendingRulesFull "inspection-pending-rules-full"
            "A packet with a partial match of a rule, while the table of pending rules was full.";
    }
}

named! {
    /// Why a packet that is subject to inspection is forwarded uninspected. Each reason has its own counter.
    pub enum Skipped {
        Bypassed "bypassed" "Packet of a flow that bypasses inspection, after inspection or by policy.";
        Class "class" "First packet of a flow of a class that is not inspected; the following packets are counted as \
             `bypassed`.";
        Rule "rule" "Packet of a flow that a pass rule matched.";
        Encrypted "encrypted" "Packet after which a TLS connection is encrypted in both directions; the following \
             packets are counted as `bypassed`.";
        IcmpError "icmp-error" "ICMP error for an inspected flow.";
        Overload "overload" "Packet of a class that is bypassed or inspected in part while the worker is overloaded.";
        FailOpen "fail-open" "Packet on a bridge that fails open, while the flow table was full.";
        Invalid "invalid" "Malformed packet on a bridge: see `sluice show bridges`.";
        NotIp "not-ip" "Neither IPv4 nor IPv6, on a bridge.";
        Midstream "midstream" "Packet of a connection whose handshake was not seen.";
        Handshake "handshake" "Data before the handshake has determined the sequence numbers.";
        GapFull "gap-full" "Data after a gap, which can't be buffered because no memory is left.";
        BeyondWindow "beyond-window" "Retransmitted data that can't be compared with the original.";
        BeyondEnd "beyond-end" "Data beyond the FIN of its stream.";
        OutOfWindow "out-of-window" "Sequence number outside the receiver's window.";
        NoMemory "no-memory" "No memory for another flow or for its data.";
        SourceFull "source-full" "Packet of a source that reached its share of flows or buffered bytes.";
        BadChecksum "bad-checksum" "Wrong checksum.";
        Malformed "malformed" "Malformed header.";
        Closed "closed" "Packet of a connection that is closed.";
        ParserFull "parser-full" "Message for which no parser was free; the following packets are counted as \
             `bypassed`.";
        TooLong "too-long" "Message with a field longer than the parser's limit; the following packets are counted as \
             `bypassed`.";
        Work "budget" "Packet above the budget of decoding and evaluation; the following packets are counted as \
             `bypassed`.";
        DecodeAnomaly "decode-anomaly" "Message that hosts decode differently; the following packets are counted as \
             `bypassed`.";
        PendingRulesFull "pending-rules-full" "Packet with a partial match of a rule, while the table of pending \
             rules was full.";
    }
}

named! {
    /// A limit of inspection that was reached. The affected operation is given up; the limit alone neither drops nor
    /// skips a packet. Each limit has its own counter.
    pub enum Limit {
        FlowsEvicted "flows-evicted"
            "Half-open flows (typical of forged sources) that were evicted because the flow table was full.";
        PartialMatchesEvicted "partial-matches-evicted"
            "Partial matches that were evicted because too many rules were pending; the content that matched first \
             precedes the buffered data.";
        FragmentsEvicted "fragments-evicted"
            "Datagrams evicted from reassembly because the limit `fragments` or `fragment-bytes` was reached.";
    }
}

/// Counts of reached limits or anomalies, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<const N: usize> {
    counts: [u64; N],
    reported: [u64; N],
    /// Whether any count has increased since the last report.
    any: bool,
}

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        Self {
            counts: [0; N],
            reported: [0; N],
            any: false,
        }
    }
}

impl<const N: usize> Tally<N> {
    /// Adds one to the count of a number.
    pub fn add(&mut self, number: usize) {
        self.counts[number] += 1;
        self.any = true;
    }

    /// The count of a number.
    pub fn count(&self, number: usize) -> u64 {
        self.counts[number]
    }

    /// Reports the counts since the last report. `report` receives each number with its count.
    #[inline(always)]
    pub fn report(&mut self, report: impl FnMut(usize, u64)) {
        if self.any {
            self.report_all(report);
        }
    }

    #[cold]
    fn report_all(&mut self, mut report: impl FnMut(usize, u64)) {
        self.any = false;
        for (number, (count, reported)) in self.counts.iter().zip(&mut self.reported).enumerate() {
            let more = count - std::mem::replace(reported, *count);
            if more > 0 {
                report(number, more);
            }
        }
    }
}

impl From<Exception> for Skipped {
    fn from(exception: Exception) -> Self {
        match exception {
            Exception::Midstream => Self::Midstream,
            Exception::Handshake => Self::Handshake,
            Exception::GapFull => Self::GapFull,
            Exception::BeyondWindow => Self::BeyondWindow,
            Exception::BeyondEnd => Self::BeyondEnd,
            Exception::OutOfWindow => Self::OutOfWindow,
            Exception::NoMemory => Self::NoMemory,
            Exception::SourceFull => Self::SourceFull,
            Exception::BadChecksum => Self::BadChecksum,
            Exception::Malformed => Self::Malformed,
            Exception::Closed => Self::Closed,
            Exception::ParserFull => Self::ParserFull,
            Exception::TooLong => Self::TooLong,
            Exception::Work => Self::Work,
            Exception::DecodeAnomaly => Self::DecodeAnomaly,
            Exception::PendingRulesFull => Self::PendingRulesFull,
            Exception::Unparsable => Self::Invalid,
        }
    }
}

impl From<Exception> for Reason {
    fn from(exception: Exception) -> Self {
        match exception {
            Exception::Midstream => Self::Midstream,
            Exception::Handshake => Self::Handshake,
            Exception::GapFull => Self::GapFull,
            Exception::BeyondWindow => Self::BeyondWindow,
            Exception::BeyondEnd => Self::BeyondEnd,
            Exception::OutOfWindow => Self::OutOfWindow,
            Exception::NoMemory => Self::NoMemory,
            Exception::SourceFull => Self::SourceFull,
            Exception::BadChecksum => Self::BadChecksum,
            Exception::Malformed => Self::Malformed,
            Exception::Closed => Self::Closed,
            Exception::ParserFull => Self::ParserFull,
            Exception::TooLong => Self::TooLong,
            Exception::Work => Self::Work,
            Exception::DecodeAnomaly => Self::DecodeAnomaly,
            Exception::PendingRulesFull => Self::PendingRulesFull,
            // For a frame that belongs to no flow yet, the error in the frame itself is reported.
            Exception::Unparsable => Self::Malformed,
        }
    }
}
