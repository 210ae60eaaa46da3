//! Reasons for which a route feed ignores messages.

use sluice_wire::named;

named! {
    /// Why a route feed ignores a message. Each reason has a counter.
    #[derive(PartialOrd, Ord)]
    pub enum Refused {
        Malformed "malformed"
            "The message is truncated or contains invalid values.";
        Message "message"
            "The message is about neither routes nor next hops.";
        Family "family"
            "The route belongs to neither IPv4 nor IPv6.";
        Table "table"
            "The route is in a routing table other than the router's.";
        Own "own"
            "The route was added to the kernel by Sluice itself.";
        Connected "connected"
            "The kernel derived the route from an interface address, as Sluice does itself.";
        Kind "kind"
            "The type of the route is not for forwarding: local, broadcast or multicast.";
        Condition "condition"
            "The route applies only to some sources or types of service.";
        Encapsulation "encapsulation"
            "The next hop encapsulates or labels packets.";
        OtherFamily "other-family"
            "The route is IPv6, but its gateway is IPv4.";
        Interface "interface"
            "The next hop is on an interface that does not belong to the router.";
        Gateway "gateway"
            "The next hop has no gateway or a link-local gateway, and the interface of the peer, which is another \
             host, is not valid here.";
        Placeholder "placeholder-gateway"
            "FRR before 10.6 sends 169.254.0.1 in place of an IPv6 gateway, unless it sends next hops as objects: \
             keep `fpm use-next-hop-groups` enabled.";
        NextHop "next-hop"
            "The route refers to a next hop that was not received before.";
        NextHops "next-hops"
            "The route has no usable next hop, or more than 64 next hops.";
        Quota "quota"
            "The router reached its maximum number of learned routes.";
        Sets "sets"
            "The router reached its maximum number of different sets of next hops.";
        Bridging "bridging"
            "The next hop is for Ethernet frames, not for routes.";
    }
}
