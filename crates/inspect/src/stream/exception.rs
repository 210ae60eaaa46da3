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
    Midstream "midstream" Pass "Data of a connection without an observed handshake";
    Handshake "handshake" DropPacket
        "Data, or a SYN with data, before both ends have agreed on the initial sequence numbers";
    GapFull "gap-full" DropPacket
        "A segment after a gap, without memory to buffer the segment until the gap is filled";
    BeyondWindow "beyond-window" DropPacket
        "Retransmitted data that can't be compared with the original: in a skipped gap, or of a one-way or reset \
         connection";
    BeyondEnd "beyond-end" DropPacket "Data beyond the FIN of its stream";
    OutOfWindow "out-of-window" DropPacket "A sequence number outside the receiver's window";
    NoMemory "no-memory" DropPacket
        "No memory for another connection, or for the unacknowledged data of a connection";
    SourceFull "source-full" DropPacket
        "A flow, or data to buffer, of a source that already uses its maximum share of the memory";
    BadChecksum "bad-checksum" DropPacket "A segment with a wrong checksum, which its receiver would discard";
    Malformed "malformed" DropPacket "A TCP header that is inconsistent with its segment";
    Closed "closed" DropPacket "A segment of a connection that is closed";
    ParserFull "parser-full" DropFlow "A message for which no parser or decoder is free";
    TooLong "too-long" Pass "A message with a field that is longer, or nested deeper, than the parser's limit";
    Work "budget" DropFlow "More decoding or evaluation than the budget of a packet, or of a flow relative to its \
         bytes";
    DecodeAnomaly "decode-anomaly" Pass "A message that hosts decode differently";
    PendingRulesFull "pending-rules-full" DropFlow
        "A partial match of a rule, while the table of pending rules is full";
    Unparsable "unparsable" DropPacket
        "On a bridge: a frame that is not valid IP, or carries IP in an encapsulation that is not decoded, so that \
         rules can't inspect it";
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
