//! Why inspection drops a packet.

use crate::stream::Exception;

macro_rules! reasons {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// Why inspection drops a packet: each is a counter of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $help] $name,)*
        }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The counter's name.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// What it means, in a sentence for the operator.
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
    Covered "segment-covered"
        "A TCP segment of which every byte was held already, ahead of a gap.";
    Fragment "inspection-fragment"
        "A fragment of a datagram of an inspected flow: fragments are not put together for inspection.";
    FlowsFull "inspection-full"
        "No place to inspect another flow.";
    Midstream "stream-midstream"
        "Data of a connection whose beginning was not seen.";
    Handshake "stream-handshake"
        "Data, or a SYN with data, while the sides did not agree on where the stream begins.";
    GapFull "stream-gap-full"
        "A TCP segment ahead of a gap, with as many held as may be.";
    GapOverdue "stream-gap-overdue"
        "A TCP segment held ahead of a gap that was not filled in time.";
    BeyondWindow "stream-beyond-window"
        "Data sent again that is not acknowledged and no longer there to compare: enlarge the window.";
    BeyondEnd "stream-beyond-end"
        "Data behind the end of its stream.";
    OutOfWindow "stream-out-of-window"
        "A TCP sequence number that no window reaches.";
    NoMemory "stream-no-memory"
        "No place for the data of another stream.";
    BadChecksum "stream-bad-checksum"
        "A TCP segment whose checksum is wrong: its receiver would not take it.";
    Malformed "stream-malformed"
        "A TCP header that does not fit its segment.";
    Closed "stream-closed"
        "A TCP segment of a connection that is no longer kept.";
}

impl From<Exception> for Reason {
    fn from(exception: Exception) -> Self {
        match exception {
            Exception::Midstream => Self::Midstream,
            Exception::Handshake => Self::Handshake,
            Exception::GapFull => Self::GapFull,
            Exception::GapOverdue => Self::GapOverdue,
            Exception::BeyondWindow => Self::BeyondWindow,
            Exception::BeyondEnd => Self::BeyondEnd,
            Exception::OutOfWindow => Self::OutOfWindow,
            Exception::NoMemory => Self::NoMemory,
            Exception::BadChecksum => Self::BadChecksum,
            Exception::Malformed => Self::Malformed,
            Exception::Closed => Self::Closed,
        }
    }
}
