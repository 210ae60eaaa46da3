//! Drop reasons: one numbered list of the drop reasons of all crates.

use sluice_wire::{Fault, named};

named! {
    /// Reasons of the engine itself.
    pub enum EngineReason {
        NotOurMac "not-our-mac" "the destination MAC address does not belong to the gateway";
        UnknownVlan "unknown-vlan" "no interface is configured for these VLAN tags";
        NotIp "not-ip" "neither IPv4 nor IPv6, so that the inspection of the bridge can't inspect the packet";
        EncapsulatedIp "encapsulated-ip" "IP in an encapsulation (MPLS, PPPoE, MACsec and others) that the inspection \
             of the bridge does not decode";
        LongerThanMtu "longer-than-mtu" "longer than the MTU of the egress interface of the bridge";
        UnknownEthertype "unknown-ethertype" "neither IPv4, IPv6 nor ARP";
        NotForUs "not-for-us" "neighbour discovery for an address that does not belong to the gateway";
        Multicast "multicast" "multicast or broadcast that the gateway does not process";
        NoLocalService "no-local-service" "addressed to the gateway, which has no service on this port";
        PolicedNeighbour "policed-neighbour" "ARP or neighbour discovery above the configured rate";
        PolicedEcho "policed-echo" "ICMP echo to the gateway above the configured rate";
        PolicedOther "policed-other" "other traffic to the gateway above the configured rate";
        PuntPolicedRouting "punt-policed-routing" "routing protocol packets to a router's host above the configured rate";
        PuntPolicedBfd "punt-policed-bfd" "BFD packets to a router's host above the configured rate";
        PuntPolicedDhcp "punt-policed-dhcp" "DHCP packets to a router's host above the configured rate";
        PuntPolicedOther "punt-policed-other" "other packets to a router's host above the configured rate";
        PuntQueueFull "punt-queue-full" "the queue to the routers' hosts was full";
        SiteUnknown "site-unknown" "received on an interface of subscriber sites, but VLAN tags or address belong to \
             no site";
        SiteFamily "site-family" "received from a site, but not IPv4: sites have only IPv4 service";
        SiteAddressMissing "site-address-missing" "from a site without a public address";
        SiteAddressLost "site-address-lost" "to a session of a site that lost its public address, or of a terminal \
             that lost its private address";
        TerminalUnknown "terminal-unknown" "from a terminal without a lease for its source address";
        TerminalForged "terminal-forged" "from a source address that is leased to another terminal of the site";
        SitePolicedArp "site-policed-arp" "ARP from a site above the rate of the site";
        SitePolicedDhcp "site-policed-dhcp" "DHCP from a site above the rate of the site";
        SubscribersQueueFull "subscribers-queue-full" "the queue of DHCP and ARP packets to the subscriber service \
             was full";
        SessionsFull "sessions-full" "the session table of the shard was full; the new flow was refused";
        SessionClash "session-clash" "the translated flow has the same addresses and ports as another session";
        TransmitFull "transmit-full" "the device's transmit queue was full";
        DeviceGone "device-gone" "the device of the egress interface was removed";
        RateLimited "rate-limited" "above the rate of the virtual router or of the inter-router link";
        OverShare "over-share" "the worker was overloaded, and the virtual router had used its share";
        LinkOverShare "link-over-share" "the link was overloaded, and the egress interface had used its share";
        BufferQuota "buffer-quota" "the virtual router had its maximum number of parked packets";
        Shed "shed" "the ring to the next pipeline stage was full";
        MovingFull "moving-full" "too many packets arrived while their shard moved to another worker";
        HandoverFull "handover-full" "the hand-off ring to the worker of the shard was full";
        NoBuffer "no-buffer" "no free buffer for a packet that the gateway creates";
        FragmentsFull "fragments-full" "the table of fragmented datagrams was full";
        FragmentTimeout "fragment-timeout" "the first fragment of the datagram did not arrive in time";
        FragmentUnfit "fragment-unfit" "the packet can't be fragmented to the path MTU";
        ParkingFull "parking-full" "the table of packets parked for a neighbour or a fragment was full";
        SynsFull "unsolicited-syns-full" "the table of pending unsolicited SYNs was full";
        SynOvertaken "unsolicited-syn-overtaken" "an unsolicited SYN for a connection that was then opened from inside";
        PartialChecksum "partial-checksums" "a local sender left the checksum to offload, and the configuration refuses \
             such packets";
        DeviceRefused "device-refused" "the device delivered the frame in an unsupported form";
        InterfaceGone "interface-gone" "the egress interface is no longer configured";
        TooManyPasses "too-many-passes" "passed the maximum number of virtual routers, because their routes form a \
             loop";
        UnknownTunnel "unknown-tunnel" "addressed to a tunnel endpoint, but source, identifier or key match no tunnel";
        TunnelHeader "tunnel-header" "the tunnel header is truncated, malformed or uses an unsupported option, or has no payload";
        TunnelFragment "tunnel-fragment" "a fragment to a tunnel endpoint, which does not reassemble fragments";
        TunnelCongestion "tunnel-congestion" "the outer header is marked CE, but the inner packet is not ECN-capable \
             (RFC 6040)";
        PolicedKeepalive "policed-keepalive" "a GRE keepalive above the rate at which keepalives are answered";
        TunnelHeadroom "tunnel-headroom" "no headroom in the buffer for another tunnel header";
        ChainDrop "chain-drop" "dropped by a chain of the virtual router: see `sluice show graph`";
        ChainPoliced "chain-policed" "above the rate of a policer in a chain of the virtual router";
        Loop "loop" "passed the gateway more often than allowed";
        Forgotten "leaked" "no node forwarded or dropped the packet, which is a bug: please report it";
    }
}

/// Reason for which a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A fault that header validation has found.
    Wire(Fault),
    /// A decision of routing.
    Route(sluice_route::Reason),
    /// A decision of the packet filter.
    Filter(sluice_filter::Reason),
    /// A decision of address translation.
    Nat(sluice_nat::Reason),
    /// A decision of inspection.
    Inspect(sluice_inspect::Reason),
    /// A decision of the engine.
    Engine(EngineReason),
}

impl Reason {
    const ROUTE: usize = Fault::ALL.len();
    const NAT: usize = Self::ROUTE + sluice_route::Reason::ALL.len();
    const FILTER: usize = Self::NAT + sluice_nat::Reason::ALL.len();
    const INSPECT: usize = Self::FILTER + sluice_filter::Reason::ALL.len();
    const ENGINE: usize = Self::INSPECT + sluice_inspect::Reason::ALL.len();
    /// Number of drop reasons.
    pub const COUNT: usize = Self::ENGINE + EngineReason::ALL.len();

    /// Number of the reason, which is less than [`Reason::COUNT`].
    #[inline(always)]
    pub fn number(self) -> usize {
        match self {
            Self::Wire(r) => r as usize,
            Self::Route(r) => Self::ROUTE + r as usize,
            Self::Nat(r) => Self::NAT + r as usize,
            Self::Filter(r) => Self::FILTER + r as usize,
            Self::Inspect(r) => Self::INSPECT + r as usize,
            Self::Engine(r) => Self::ENGINE + r as usize,
        }
    }

    /// The reason with this number.
    pub fn numbered(number: usize) -> Option<Reason> {
        Self::all().nth(number)
    }

    /// All reasons, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Reason> {
        let wire = Fault::ALL.iter().map(|&r| Self::Wire(r));
        let route = sluice_route::Reason::ALL.iter().map(|&r| Self::Route(r));
        let nat = sluice_nat::Reason::ALL.iter().map(|&r| Self::Nat(r));
        let filter = sluice_filter::Reason::ALL.iter().map(|&r| Self::Filter(r));
        let inspect = sluice_inspect::Reason::ALL.iter().map(|&r| Self::Inspect(r));
        wire.chain(route)
            .chain(nat)
            .chain(filter)
            .chain(inspect)
            .chain(EngineReason::ALL.iter().map(|&r| Self::Engine(r)))
    }

    /// Name of the reason's counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire(r) => r.name(),
            Self::Route(r) => r.name(),
            Self::Nat(r) => r.name(),
            Self::Filter(r) => r.name(),
            Self::Inspect(r) => r.name(),
            Self::Engine(r) => r.name(),
        }
    }

    /// Description of the reason for operators, in one line.
    pub fn help(self) -> &'static str {
        match self {
            Self::Wire(r) => r.help(),
            Self::Route(r) => r.help(),
            Self::Nat(r) => r.help(),
            Self::Filter(r) => r.help(),
            Self::Inspect(r) => r.help(),
            Self::Engine(r) => r.help(),
        }
    }

    /// Name of the node that drops packets for this reason.
    pub fn node(self) -> &'static str {
        match self {
            Self::Wire(_) => "parse",
            Self::Route(_) => "forward",
            Self::Nat(_) => "slow-path",
            Self::Filter(_) => "filter",
            Self::Inspect(_) => "inspect",
            Self::Engine(_) => "engine",
        }
    }
}

impl From<Fault> for Reason {
    fn from(r: Fault) -> Self {
        Self::Wire(r)
    }
}
impl From<sluice_route::Reason> for Reason {
    fn from(r: sluice_route::Reason) -> Self {
        Self::Route(r)
    }
}
impl From<sluice_filter::Reason> for Reason {
    fn from(r: sluice_filter::Reason) -> Self {
        Self::Filter(r)
    }
}
impl From<sluice_nat::Reason> for Reason {
    fn from(r: sluice_nat::Reason) -> Self {
        Self::Nat(r)
    }
}
impl From<sluice_inspect::Reason> for Reason {
    fn from(r: sluice_inspect::Reason) -> Self {
        Self::Inspect(r)
    }
}
impl From<EngineReason> for Reason {
    fn from(r: EngineReason) -> Self {
        Self::Engine(r)
    }
}
