//! Drop reasons of translation.

use sluice_wire::named;

named! {
    /// Why translation drops a packet. Each reason has a separate counter.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Unsolicited "unsolicited"
            "A packet from outside to an address of a pool, without a session, mapping or rule for it.";
        PortsExhausted "ports-exhausted"
            "No outside port was free for a new session. Existing sessions are not affected.";
        ForgedSource "forged-source"
            "A packet from outside has a spoofed source, which is an outside address of the NAT.";
        UntranslatedInbound "untranslated-inbound"
            "A packet from outside to the untranslated address of an inside host, which the configuration does not allow.";
        NoHostUp "no-host-up"
            "A new flow for a destination rule with several hosts, none of which is up.";
        Filtered "filtered"
            "A packet from outside to a mapping, from a source that the filtering behaviour of the pool does not allow.";
        SubscriberPorts "subscriber-ports"
            "A subscriber reached its limit of outside ports or port blocks.";
        SubscriberSessions "subscriber-sessions"
            "A subscriber reached its limit of sessions.";
        SubscriberRate "subscriber-rate"
            "A subscriber reached its limit of new sessions per second.";
        PoolSessions "pool-sessions"
            "A pool reached its limit of sessions.";
        PoolRate "pool-rate"
            "A pool reached its limit of new sessions per second.";
        RouterSessions "router-sessions"
            "The virtual router reached its limit of sessions.";
        RouterRate "router-rate"
            "The virtual router reached its limit of new sessions per second.";
        SubscribersFull "subscribers-full"
            "The table of subscribers or of their port blocks is full. Existing entries are not affected.";
        MappingsFull "mappings-full"
            "The table of mappings is full. Existing mappings are not affected.";
        UnsupportedProtocol "unsupported-protocol"
            "A new flow has a protocol without ports or query identifier, and the pool does not translate this \
             protocol.";
        AddressTaken "protocol-address-taken"
            "A new flow without ports has the same outside address and remote host as the flow of another inside host.";
        NotOpening "tcp-not-opening"
            "A TCP segment other than a SYN, without a session.";
        IcmpErrorWithoutSession "icmp-error-without-session"
            "An ICMP error that quotes a packet without a session (RFC 5508, REQ-4 and REQ-5).";
        BadIcmpQuote "bad-icmp-quote"
            "An ICMP error whose quoted packet is too short, inconsistent, or has a wrong header checksum (RFC 5508, REQ-3).";
        SourceQuench "source-quench"
            "An ICMP source quench, which is deprecated (RFC 5508, REQ-10c; RFC 6633).";
        Truncated "truncated"
            "A packet too short for the header fields that NAT translates.";
    }
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
