//! Reasons for which translation drops a packet.

macro_rules! reasons {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// Reason for which translation drops a packet; each has its own counter.
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

            /// Description for the operator, in one sentence.
            pub fn help(self) -> &'static str {
                match self { $(Reason::$name => $help,)* }
            }
        }
    };
}

reasons! {
    Unsolicited "unsolicited"
        "A packet from outside to a pool's address that no session expects and no rule forwards.";
    PortsExhausted "ports-exhausted"
        "No outside port was free for a new session; the sessions that exist stay.";
    ForgedSource "forged-source"
        "A packet from outside whose source is an outside address of inside hosts: nobody outside has that.";
    UntranslatedInbound "untranslated-inbound"
        "A packet from outside to the own address of an inside host that is translated, where configuration lets none pass.";
    NoHostUp "no-host-up"
        "A new flow for hosts that a destination rule deals flows among, of which none is up.";
    Filtered "filtered"
        "A packet from outside to a mapped address and port, from where the pool's filtering does not let it in.";
    SubscriberPorts "subscriber-ports"
        "A subscriber wanted more outside ports or port blocks than its pool grants to one.";
    SubscriberSessions "subscriber-sessions"
        "A subscriber wanted more sessions than its pool grants to one.";
    SubscriberRate "subscriber-rate"
        "A subscriber opened sessions faster than its pool grants to one.";
    PoolSessions "pool-sessions"
        "A pool has as many sessions as it may have.";
    PoolRate "pool-rate"
        "Sessions of a pool were opened faster than it may take them.";
    RouterSessions "router-sessions"
        "The virtual router has as many sessions as it may have.";
    RouterRate "router-rate"
        "Sessions were opened faster than the virtual router may take them.";
    SubscribersFull "subscribers-full"
        "The table of subscribers or of their port blocks is full; those that exist stay.";
    MappingsFull "mappings-full"
        "The table of mappings is full; those that exist stay.";
    UnsupportedProtocol "unsupported-protocol"
        "A new flow of a protocol without ports or query identifier that its pool does not translate by address.";
    AddressTaken "protocol-address-taken"
        "A new flow of a protocol without ports, to a remote that another host behind the same outside address uses it to.";
    NotOpening "tcp-not-opening"
        "A TCP segment of no known session that does not open one.";
    IcmpErrorWithoutSession "icmp-error-without-session"
        "An ICMP error that quotes a packet of no known session (RFC 5508, REQ-4 and REQ-5).";
    BadIcmpQuote "bad-icmp-quote"
        "An ICMP error whose quoted packet is too short, inconsistent, or has a wrong header checksum (RFC 5508, REQ-3).";
    SourceQuench "source-quench"
        "A source quench of a session, which nobody obeys any more (RFC 5508, REQ-10c; RFC 6633).";
    Truncated "truncated"
        "A packet too short for the header fields that translation has to write.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_names_are_distinct_and_numbered_in_order() {
        for (number, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(number, *reason as usize);
            assert!(reason.help().ends_with('.'));
            assert_eq!(
                1,
                Reason::ALL.iter().filter(|other| other.name() == reason.name()).count()
            );
        }
    }
}
