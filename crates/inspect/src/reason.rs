//! Drop reasons, skip reasons and limits of inspection.

use crate::stream::Exception;

macro_rules! reasons {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// Why inspection drops a packet. Each reason has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $help] $name,)*
        }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// Description of the reason for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Reason::$name => $help,)* }
            }
        }
    };
}

reasons! {
    Signature "signature"
        "A rule that drops or rejects matched with this packet.";
    FlowDropped "flow-dropped"
        "A packet of a flow that a rule or an exception had ended before.";
    FragmentOverlap "inspection-fragment-overlap"
        "A fragment that overlaps another of its datagram, and every other of that datagram (RFC 5722).";
    FragmentCopy "inspection-fragment-copy"
        "A fragment that came twice while its datagram was put together: the first one counts.";
    FragmentMisfit "inspection-fragment-misfit"
        "A fragment of a datagram whose fragments don't agree on where it ends, or where its headers are.";
    FragmentsFull "inspection-fragments-full"
        "A fragment, with as many datagrams, fragments or bytes waiting to be put together as may.";
    FragmentOverdue "inspection-fragment-overdue"
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
    Work "inspection-work"
        "A packet with more to decode or to evaluate than it, or its flow for its bytes, may cause.";
    DecodeAnomaly "inspection-decode-anomaly"
        "A packet of a message that hosts read differently, so that what was searched may not be what its receiver takes.";
    WaitingFull "inspection-waiting-full"
        "A rule found a part of what it asks for, and there was no place to note that it waits for the rest.";
}

macro_rules! skipped {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// Why inspection forwards a packet of an inspected class without inspecting it. Each reason has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Skipped {
            $(#[doc = $help] $name,)*
        }

        impl Skipped {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[Skipped] = &[$(Skipped::$name),*];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Skipped::$name => $text,)* }
            }

            /// Description of the reason for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Skipped::$name => $help,)* }
            }
        }
    };
}

skipped! {
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
    WaitingFull "waiting-full" "With no place to note that a rule waits for more.";
}

macro_rules! limits {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// A limit that was reached. State was evicted, but no packet is dropped or skipped because of it alone. Each
        /// limit has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Limit {
            $(#[doc = $help] $name,)*
        }

        impl Limit {
            /// Every limit, in the order of their numbers.
            pub const ALL: &[Limit] = &[$(Limit::$name),*];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$name => $text,)* }
            }

            /// Description of the limit for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Limit::$name => $help,)* }
            }
        }
    };
}

limits! {
    FlowsGaveWay "flows-gave-way"
        "Flows whose clients had answered nothing, as with forged sources, and that gave way to others: flows are all in use.";
    PartialMatchesGaveWay "partial-matches-gave-way"
        "Rules of whose contents the first lay further back than is kept, and that were forgotten: too many wait for the others.";
    FragmentsGaveWay "fragments-gave-way"
        "Datagrams in fragments that gave way to others: fragments or fragment-bytes are all in use.";
}

/// Counts of reached limits or anomalies, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<const N: usize> {
    counts: [u64; N],
    reported: [u64; N],
    /// Some counts have not been reported yet.
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

    /// Reports the counts since the last report: number and count.
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
            Exception::WaitingFull => Self::WaitingFull,
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
            Exception::WaitingFull => Self::WaitingFull,
            // For a frame that belongs to no flow yet, the fault of the frame itself is reported.
            Exception::Unparsable => Self::Malformed,
        }
    }
}
