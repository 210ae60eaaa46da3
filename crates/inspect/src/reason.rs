//! Why inspection drops a packet.

use sluice_wire::named;

use crate::stream::Exception;

named! {
    /// Why inspection drops a packet: each is a counter of its own.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Signature "signature"
            "A rule that drops or rejects matched with this packet.";
        FlowDropped "flow-dropped"
            "A packet of a flow that a rule or an exception had ended before.";
        FragmentOverlap "inspection-fragment-overlap"
            "A fragment that overlaps another of its datagram, and every other of that datagram (RFC 5722).";
        FragmentCopy "inspection-fragment-copy"
            "A fragment that came twice while its datagram was put together: the first one counts.";
        FragmentInconsistent "inspection-fragment-inconsistent"
            "A fragment of a datagram whose fragments don't agree on where it ends, or where its headers are.";
        FragmentsFull "inspection-fragments-full"
            "A fragment, with as many datagrams, fragments or bytes waiting to be put together as may.";
        FragmentTimeout "inspection-fragment-timeout"
            "A fragment of a datagram of which others did not come in time.";
        FragmentRewritten "inspection-fragment-rewritten"
            "A fragment of a TCP segment that differs from what was sent before: only whole ones are put right.";
        ParkingFull "inspection-parking-full"
            "No buffer to wait in, for a fragment.";
        Overload "inspection-overload"
            "A packet of a class that is dropped while its worker is overloaded.";
        FlowsFull "inspection-full"
            "No place to inspect another flow.";
        Midstream "stream-midstream"
            "Data of a connection whose beginning was not seen.";
        Handshake "stream-handshake"
            "Data, or a SYN with data, while the sides did not agree on where the stream begins.";
        GapFull "stream-gap-full"
            "A TCP segment ahead of a gap, with no memory left to keep its bytes: enlarge reassembly-bytes.";
        BeyondWindow "stream-beyond-window"
            "Data sent again that is not there to compare: of a gap that was given up, or of a connection without answers or that was reset.";
        BeyondEnd "stream-beyond-end"
            "Data behind the end of its stream.";
        OutOfWindow "stream-out-of-window"
            "A TCP sequence number that the window of its receiver does not reach.";
        NoMemory "stream-no-memory"
            "No place for the data of a stream, or for more that its receiver has not acknowledged: enlarge reassembly-bytes.";
        SourceFull "inspection-source-full"
            "A flow, or data to keep, of a source that has as much as one source may have: others go on. Enlarge flows or reassembly-bytes.";
        BadChecksum "stream-bad-checksum"
            "A packet whose TCP, UDP or ICMP checksum is wrong: its receiver would not take it.";
        Malformed "stream-malformed"
            "A TCP header that does not fit its segment.";
        Closed "stream-closed"
            "A TCP segment of a connection that is no longer kept.";
        ParserFull "inspection-parser-full"
            "A packet of a message that there is no place to parse, or no decoder for: enlarge messages or decoders.";
        TooLong "inspection-too-long"
            "A packet of a message with a part that is longer, or deeper, than is parsed and searched.";
        Work "inspection-budget"
            "A packet with more to decode or to evaluate than it, or its flow for its bytes, may cause.";
        DecodeAnomaly "inspection-decode-anomaly"
            "A packet of a message that hosts read differently, so that what was searched may not be what its receiver takes.";
        PendingRulesFull "inspection-pending-rules-full"
            "A rule found a part of what it asks for, and there was no place to note that it waits for the rest.";
    }
}

named! {
    /// Why a packet of what is inspected goes on uninspected: each is a counter of its own.
    pub enum Skipped {
        Left "left" "Of a flow that had left inspection: found clean, or by policy.";
        Class "class" "The first packet of a flow of a class that is not inspected; the others are `left`.";
        Rule "rule" "Of a flow that a rule lets pass.";
        Encrypted "encrypted" "The packet with which a connection of TLS is encrypted both ways; the rest of its flow is `left`.";
        IcmpError "icmp-error" "An ICMP error about an inspected flow, which is none of its data.";
        Overload "overload" "Of a class that is bypassed, or inspected less, while its worker is overloaded.";
        FailOpen "fail-open" "Over a bridge that fails open, where there was no place for another flow.";
        Invalid "invalid" "Not to be parsed, over a bridge: `show bridges` names what is wrong with it.";
        NotIp "not-ip" "Neither IPv4 nor IPv6, over a bridge.";
        Midstream "midstream" "Of a connection whose beginning was not seen.";
        Handshake "handshake" "Data while the sides did not agree on where the stream begins.";
        GapFull "gap-full" "Ahead of a gap, with no memory left to keep it.";
        BeyondWindow "beyond-window" "Sent again, and not there to compare.";
        BeyondEnd "beyond-end" "Behind the end of its stream.";
        OutOfWindow "out-of-window" "With a sequence number that the window of its receiver does not reach.";
        NoMemory "no-memory" "No place for another flow, or for its data.";
        SourceFull "source-full" "Of a source that has its share of the flows, or of the bytes that are kept.";
        BadChecksum "bad-checksum" "With a wrong checksum.";
        Malformed "malformed" "With a header that does not fit.";
        Closed "closed" "Of a connection that is no longer kept.";
        ParserFull "parser-full" "Of a message that there is no place to parse; the rest of its flow is `left`.";
        TooLong "too-long" "Of a message with a part that is longer than is parsed; the rest of its flow is `left`.";
        Work "work" "With more to decode or to evaluate than it may cause; the rest of its flow is `left`.";
        DecodeAnomaly "decode-anomaly" "Of a message that hosts read differently; the rest of its flow is `left`.";
        PendingRulesFull "pending-rules-full" "With no place to note that a rule waits for more.";
    }
}

named! {
    /// A limit that was reached: something gave way, and no packet is dropped or skipped for it by itself. Each is a
    /// counter of its own.
    pub enum Limit {
        FlowsEvicted "flows-evicted"
            "Flows whose clients had answered nothing, as with forged sources, and that gave way to others: flows are all in use.";
        PartialMatchesEvicted "partial-matches-evicted"
            "Rules of whose contents the first lay further back than is kept, and that were forgotten: too many wait for the others.";
        FragmentsEvicted "fragments-evicted"
            "Datagrams in fragments that gave way to others: fragments or fragment-bytes are all in use.";
    }
}

/// How often limits were reached and anomalies were met, by the number of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<const N: usize> {
    counts: [u64; N],
    reported: [u64; N],
    /// Something was counted that is not told.
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
    /// One more of a number.
    pub fn add(&mut self, number: usize) {
        self.counts[number] += 1;
        self.any = true;
    }

    /// How many of a number.
    pub fn count(&self, number: usize) -> u64 {
        self.counts[number]
    }

    /// Tell what was counted since the last time: number, and how many.
    #[inline(always)]
    pub fn report(&mut self, tell: impl FnMut(usize, u64)) {
        if self.any {
            self.report_all(tell);
        }
    }

    #[cold]
    fn report_all(&mut self, mut tell: impl FnMut(usize, u64)) {
        self.any = false;
        for (number, (count, told)) in self.counts.iter().zip(&mut self.reported).enumerate() {
            let more = count - std::mem::replace(told, *count);
            if more > 0 {
                tell(number, more);
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
            // Of a frame that belongs to no flow yet: the fault itself is its reason.
            Exception::Unparsable => Self::Malformed,
        }
    }
}
