//! Drop reasons of routing. Each drop reason has a counter name and a help text.

use sluice_wire::named;

named! {
    /// Why routing drops a packet.
    pub enum Reason {
        NoRoute "no-route"
            "No route matches the destination, and there is no default route.";
        Blackhole "blackhole"
            "The route to the destination is a blackhole route: dropped without an ICMP error.";
        Unreachable "unreachable"
            "The route to the destination is an unreachable route: the sender gets an ICMP error.";
        Prohibited "prohibited"
            "The route to the destination is a prohibit route: the sender gets an ICMP error.";
        DirectedBroadcast "directed-broadcast"
            "The destination is the broadcast or network address of an attached network (RFC 2644).";
        TtlExceeded "ttl-exceeded"
            "The TTL or hop limit reached zero.";
        TooBig "too-big"
            "Longer than the MTU of the egress interface and not to be fragmented: the sender gets an ICMP error with the MTU.";
        SourceValidation "source-validation"
            "The ingress interface is not one that leads to the source address (BCP 38).";
        LinkLocal "link-local"
            "Addressed to or from a link-local address, which is never forwarded (RFC 3927 section 2.7, RFC 4291 section 2.5.6).";
        NeighbourUnresolved "neighbour-unresolved"
            "The next hop does not answer ARP or neighbour solicitations.";
        NeighbourTableFull "neighbour-table-full"
            "The neighbour table is full; raise its capacity.";
        NeighbourQuota "neighbour-quota"
            "The virtual router reached its limit of neighbours.";
        ParkedTooMany "parked-too-many"
            "The number of packets that wait for address resolution reached its limit.";
        ParkedReplaced "parked-replaced"
            "A newer packet replaced it in the queue of the same unresolved neighbour (RFC 4861, 7.2.2).";
        ParkedTooLong "parked-too-long"
            "Address resolution of the next hop timed out.";
    }
}
