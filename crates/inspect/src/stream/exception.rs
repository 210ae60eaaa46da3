//! Exceptions of the stream reassembly and their policies. Each exception has a counter and a policy.

/// Policy for a segment that can't be inspected as the continuation of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Drop this segment and all later segments of its flow.
    DropFlow,
    /// Drop this segment, and inspect the following segments.
    DropPacket,
    /// Forward this segment without inspection, and inspect the following segments, if possible from the end of this
    /// segment on.
    Pass,
    /// Forward the segment, and bypass inspection for later packets of its flow.
    Bypass,
}

macro_rules! exceptions {
    ($($name:ident $key:literal $policy:ident $help:literal;)*) => {
        /// Why a segment can't be inspected as the continuation of its stream.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Exception {
            $(#[doc = $help] $name,)*
        }

        impl Exception {
            /// All exceptions, in the order of their numbers.
            pub const ALL: &[Exception] = &[$(Exception::$name),*];

            /// Name of the exception in the configuration, and name of its counter.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Exception::$name => $key,)*
                }
            }

            /// Description of the exception.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Exception::$name => $help,)*
                }
            }

            /// Default policy.
            pub const fn policy(self) -> Policy {
                match self {
                    $(Exception::$name => Policy::$policy,)*
                }
            }
        }
    };
}

exceptions! {
    Midstream "midstream" Pass "Data of a connection whose beginning was not seen";
    Handshake "handshake" DropPacket
        "Data, or a SYN with data, while the sides do not agree on where the stream begins";
    GapFull "gap-full" DropPacket
        "A segment ahead of a gap, and no memory to keep its bytes until the gap is filled";
    BeyondWindow "beyond-window" DropPacket
        "Data sent again that is not there to compare: of a gap that was given up, or of a connection without answers or that was reset";
    BeyondEnd "beyond-end" DropPacket "Data behind the end of its stream";
    OutOfWindow "out-of-window" DropPacket "A sequence number that the receiver's window does not reach";
    NoMemory "no-memory" DropPacket
        "No place for another connection, or for the data of one that its receiver has not acknowledged";
    SourceFull "source-full" DropPacket
        "A flow, or data to keep, of a source that has as much of the pool as one source may have";
    BadChecksum "bad-checksum" DropPacket "A segment whose checksum is wrong: its receiver would not take it";
    Malformed "malformed" DropPacket "A header that does not fit its segment";
    Closed "closed" DropPacket "A segment of a connection that is no longer kept";
    ParserFull "parser-full" DropFlow "A message that there is no place to parse, or no decoder for";
    TooLong "too-long" Pass "A message with a part that is longer, or deeper, than is parsed and searched";
    Work "budget" DropFlow "More to decode or to evaluate than a packet, or a flow for its bytes, may cause";
    DecodeAnomaly "decode-anomaly" Pass "A message that hosts read differently";
    PendingRulesFull "pending-rules-full" DropFlow
        "A rule has found a part of what it asks for, and there is no place to note that it waits for the rest";
    Unparsable "unparsable" DropPacket
        "Over a bridge: a frame that is no valid IP, or hides IP in what is not read, so that no rule can look into it";
}

/// Number of exceptions.
pub const EXCEPTIONS: usize = Exception::ALL.len();

/// Policy of each exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies([Policy; EXCEPTIONS]);

impl Policies {
    /// Policy of an exception.
    #[inline(always)]
    pub fn of(&self, exception: Exception) -> Policy {
        self.0[exception as usize]
    }

    /// Replaces the policy of an exception.
    #[must_use]
    pub fn with(mut self, exception: Exception, policy: Policy) -> Self {
        self.0[exception as usize] = policy;
        self
    }
}

impl Default for Policies {
    fn default() -> Self {
        let mut policies = [Policy::DropPacket; EXCEPTIONS];
        for exception in Exception::ALL {
            policies[*exception as usize] = exception.policy();
        }
        Self(policies)
    }
}

/// Counters of the stream segments of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Segments with new bytes in order.
    pub fresh: u64,
    /// Number of released bytes, which are new and in order.
    pub released: u64,
    /// Segments that contain no new bytes.
    pub repeats: u64,
    /// Segments that differed from released bytes and were rewritten.
    pub rewritten: u64,
    /// Segments beyond a gap, which are forwarded and queued.
    pub ahead: u64,
    /// Number of released bytes that were queued beyond a gap, or that were the later part of a long segment.
    /// `released` includes these bytes.
    pub kept: u64,
    /// Segments whose urgent pointer was cleared.
    pub urgent: u64,
    /// Number of missing bytes that streams skipped because of [`Policy::Pass`].
    pub skipped: u64,
    exceptions: [u64; EXCEPTIONS],
}

impl StreamCounters {
    /// Number of segments that raised an exception.
    #[inline(always)]
    pub fn count_of(&self, exception: Exception) -> u64 {
        self.exceptions[exception as usize]
    }

    /// Counts an exception.
    #[inline(always)]
    pub(super) fn count(&mut self, exception: Exception) {
        self.exceptions[exception as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_unless_configured_are_those_of_the_list() {
        let policies = Policies::default().with(Exception::Midstream, Policy::DropFlow);
        for exception in Exception::ALL {
            let expected = match exception {
                Exception::Midstream => Policy::DropFlow,
                other => other.policy(),
            };
            assert_eq!(
                expected,
                policies.of(*exception),
                "{}: {}",
                exception.key(),
                exception.help()
            );
        }
    }
}
