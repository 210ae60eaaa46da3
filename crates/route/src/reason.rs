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
            "The packet exceeds the MTU of the egress interface and must not be fragmented: the sender gets an ICMP \
             error with the MTU.";
        SourceValidation "source-validation"
            "The source address is not reachable through the ingress interface (BCP 38).";
        LinkLocal "link-local"
            "The source or destination is a link-local address, for which packets are never forwarded (RFC 3927 \
             section 2.7, RFC 4291 section 2.5.6).";
        NeighbourUnresolved "neighbour-unresolved"
            "The next hop does not answer ARP or neighbour solicitations.";
        NeighbourTableFull "neighbour-table-full"
            "The neighbour table is full; raise its capacity.";
        NeighbourQuota "neighbour-quota"
            "The virtual router reached its limit of neighbours.";
        ParkedTooMany "parked-too-many"
            "The number of packets parked for address resolution reached its limit.";
        ParkedReplaced "parked-replaced"
            "A newer packet replaced this packet in the queue of an unresolved neighbour (RFC 4861, 7.2.2).";
        ParkedTooLong "parked-too-long"
            "Address resolution of the next hop timed out.";
    }
}
