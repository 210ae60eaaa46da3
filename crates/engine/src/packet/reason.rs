//! Drop reasons: one numbered list, composed from the crates that decide.

use sluice_wire::Fault;

/// Declares an enum of counted items, each with its name and one line of help.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal, $help:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $(#[doc = $help] $variant),+ }
        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$variant),+];
            /// Name of the counter.
            pub fn name(self) -> &'static str { match self { $($name::$variant => $text),+ } }
            /// Description for an operator, in one line.
            pub fn help(self) -> &'static str { match self { $($name::$variant => $help),+ } }
        }
    };
}

pub(crate) use named;

named! {
    /// Reasons of the engine itself.
    Own {
        NotOurMac = "not-our-mac", "destination MAC address belongs to somebody else";
        UnknownVlan = "unknown-vlan", "no interface is configured for these VLAN tags";
        NotIp = "not-ip", "on a bridge that inspects: neither IPv4 nor IPv6, so that nothing looks into it";
        EncapsulatedIp = "encapsulated-ip", "on a bridge that inspects: a tag or a header that hides IP and is not read: MPLS, PPPoE, MACsec and others";
        LongerThanMtu = "longer-than-mtu", "over a bridge: longer than the MTU of the interface that it is to leave by";
        UnknownEthertype = "unknown-ethertype", "neither IPv4, IPv6 nor ARP";
        NotForUs = "not-for-us", "neighbour discovery about an address of somebody else";
        Multicast = "multicast", "multicast or broadcast that the gateway does not take part in";
        NoLocalService = "no-local-service", "addressed to the gateway, where nothing listens";
        PolicedNeighbour = "policed-neighbour", "ARP or neighbour discovery above the configured rate";
        PolicedEcho = "policed-echo", "ICMP echo to the gateway above the configured rate";
        PolicedOther = "policed-other", "other traffic to the gateway above the configured rate";
        PuntPolicedRouting = "punt-policed-routing", "routing protocols for a router's host above the configured rate";
        PuntPolicedBfd = "punt-policed-bfd", "BFD for a router's host above the configured rate";
        PuntPolicedDhcp = "punt-policed-dhcp", "DHCP for a router's host above the configured rate";
        PuntPolicedRest = "punt-policed-rest", "other traffic for a router's host above the configured rate";
        PuntQueueFull = "punt-queue-full", "more came for routers' hosts than the queue to them holds";
        SiteUnknown = "site-unknown", "from an interface of subscribers' sites, and of none of these";
        SiteFamily = "site-family", "not IPv4: sites are served over IPv4 alone";
        SiteAddressMissing = "site-address-missing", "from a site that has no public address yet, or none any more";
        SiteAddressLost = "site-address-lost", "to a session of a site that has lost the public address, or the terminal its private one";
        TerminalUnknown = "terminal-unknown", "from a terminal to which its site's address is not leased";
        TerminalForged = "terminal-forged", "from the address of another terminal of the site";
        SitePolicedArp = "site-policed-arp", "ARP above what a site may send";
        SitePolicedDhcp = "site-policed-dhcp", "DHCP above what a site may send";
        SubscribersQueueFull = "subscribers-queue-full", "more DHCP and ARP of sites came than the queue to who serves them holds";
        SessionsFull = "sessions-full", "session table of the shard is full; the new flow was refused";
        SessionClash = "session-clash", "the translated flow has the same addresses and ports as another session";
        TransmitFull = "transmit-full", "the device's transmit queue was full";
        DeviceGone = "device-gone", "the device of the egress interface was removed, and is not back";
        RateLimited = "rate-limited", "more came for the router than its rate, or went over the virtual link than its rate";
        OverShare = "over-share", "more came than the worker can deal with, and the router has had its share";
        LinkOverShare = "link-over-share", "more was to leave by the link than it takes, and the interface has had its share";
        BufferQuota = "buffer-quota", "as many packets of the router wait as may";
        Shed = "shed", "the ring to the next stage of the pipeline was full: more came than the stages take";
        MovingFull = "moving-full", "more packets than can wait came while their shard went to another worker";
        HandoverFull = "handover-full", "the ring to the worker in charge was full";
        NoBuffer = "no-buffer", "no buffer left to make a packet in";
        FragmentsFull = "fragments-full", "more datagrams in fragments under way than the table holds";
        FragmentTimeout = "fragment-timeout", "the first fragment of the datagram did not come in time";
        FragmentUnfit = "fragment-unfit", "packet can't be cut to the path's MTU";
        ParkingFull = "parking-full", "no more packets can wait for a neighbour or a fragment";
        SynsFull = "unsolicited-syns-full", "no more SYNs that nobody expects can wait for their answer";
        SynOvertaken = "unsolicited-syn-overtaken", "a SYN that nobody expected, whose connection was then opened from inside";
        LeftToOffload = "left-to-offload", "checksum left to offload by a local sender, refused by configuration";
        DeviceRefused = "device-refused", "frame from the device in a form that can't be used";
        InterfaceGone = "interface-gone", "the egress interface is no longer configured";
        TooManyPasses = "too-many-passes", "passed as many virtual routers as a packet may: their routes lead in a circle, or on and on";
        UnknownTunnel = "unknown-tunnel", "for an end of tunnels, from somebody or with an identifier or key that none of them has";
        TunnelHeader = "tunnel-header", "header of a tunnel is cut short, wrong, or asks for what is not done, or nothing that it carries is behind it";
        TunnelFragment = "tunnel-fragment", "for an end of a tunnel, in fragments, which are not put together";
        TunnelCongestion = "tunnel-congestion", "congestion was met in a tunnel, and the sender inside would not understand (RFC 6040)";
        PolicedKeepalive = "policed-keepalive", "GRE keepalives of a tunnel's other end, more than are answered";
        TunnelHeadroom = "tunnel-headroom", "no room in front of the packet for the header of one more tunnel";
        ChainDrop = "chain-drop", "a chain of its router says so: `sluice show graph`";
        ChainPoliced = "chain-policed", "above a rate that a chain of its router polices";
        Loop = "loop", "more passes through the gateway than allowed";
        Forgotten = "forgotten", "a node left it nowhere: a bug, please report";
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Found by header validation.
    Wire(Fault),
    /// Decided by routing.
    Route(sluice_route::Reason),
    /// Decided by the packet filter.
    Filter(sluice_filter::Reason),
    /// Decided by address translation.
    Nat(sluice_nat::Reason),
    /// Decided by inspection.
    Inspect(sluice_inspect::Reason),
    /// Decided by the engine.
    Own(Own),
}

impl Reason {
    const ROUTE: usize = Fault::ALL.len();
    const NAT: usize = Self::ROUTE + sluice_route::Reason::ALL.len();
    const FILTER: usize = Self::NAT + sluice_nat::Reason::ALL.len();
    const INSPECT: usize = Self::FILTER + sluice_filter::Reason::ALL.len();
    const OWN: usize = Self::INSPECT + sluice_inspect::Reason::ALL.len();
    /// Number of drop reasons.
    pub const COUNT: usize = Self::OWN + Own::ALL.len();

    /// Number of the reason, below [`Reason::COUNT`].
    #[inline(always)]
    pub fn number(self) -> usize {
        match self {
            Self::Wire(r) => r as usize,
            Self::Route(r) => Self::ROUTE + r as usize,
            Self::Nat(r) => Self::NAT + r as usize,
            Self::Filter(r) => Self::FILTER + r as usize,
            Self::Inspect(r) => Self::INSPECT + r as usize,
            Self::Own(r) => Self::OWN + r as usize,
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
            .chain(Own::ALL.iter().map(|&r| Self::Own(r)))
    }

    /// Name of the reason's counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire(r) => r.name(),
            Self::Route(r) => r.name(),
            Self::Nat(r) => r.name(),
            Self::Filter(r) => r.name(),
            Self::Inspect(r) => r.name(),
            Self::Own(r) => r.name(),
        }
    }

    /// Description of the reason for an operator, in one line.
    pub fn help(self) -> &'static str {
        match self {
            Self::Wire(r) => r.help(),
            Self::Route(r) => r.help(),
            Self::Nat(r) => r.help(),
            Self::Filter(r) => r.help(),
            Self::Inspect(r) => r.help(),
            Self::Own(r) => r.help(),
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
            Self::Own(_) => "engine",
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
impl From<Own> for Reason {
    fn from(r: Own) -> Self {
        Self::Own(r)
    }
}
