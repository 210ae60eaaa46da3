//! Reasons for which a route feed ignores messages.

use sluice_wire::named;

named! {
    /// Why a route feed ignores a message. Each reason has a counter.
    #[derive(PartialOrd, Ord)]
    pub enum Refused {
        Malformed "malformed"
            "The message is cut short, or says something that cannot be.";
        Message "message"
            "A message about something else than routes and next hops.";
        Family "family"
            "A route of neither IPv4 nor IPv6.";
        Table "table"
            "A route of another routing table than the router's.";
        Own "own"
            "A route that Sluice itself gave to the kernel.";
        Connected "connected"
            "A route that the kernel derived from an address: Sluice derives it itself.";
        Kind "kind"
            "A route of a kind that does not forward: local, broadcast, multicast.";
        Condition "condition"
            "A route for some sources, or some types of service, alone.";
        Encapsulation "encapsulation"
            "A next hop that wraps packets or labels them.";
        OtherFamily "other-family"
            "A route of IPv6 by a gateway of IPv4.";
        Interface "interface"
            "A next hop on an interface that the router has not.";
        Gateway "gateway"
            "A next hop without a gateway, or one that is link-local, where interfaces mean nothing: they are another host's.";
        Placeholder "placeholder-gateway"
            "FRR before 10.6 has 169.254.0.1 in the place of a gateway of IPv6, unless it tells next hops as objects: \
             leave `fpm use-next-hop-groups` on.";
        NextHop "next-hop"
            "A next hop that was not told of before.";
        NextHops "next-hops"
            "No next hop that can be used, or more than 64.";
        Quota "quota"
            "The router has as many learned routes as its quota allows.";
        Sets "sets"
            "The router has as many different sets of next hops as it may.";
        Bridging "bridging"
            "A next hop for Ethernet frames, not for routes.";
    }
}
