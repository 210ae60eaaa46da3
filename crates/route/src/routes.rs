//! Which routes a virtual router has: derived from its interfaces' addresses, and configured.

use std::collections::BTreeMap;

use crate::rib::{MAX_HOPS, Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use crate::{Address, Balance, DropKind, HopSet, InterfaceIndex, NextHop, Prefix};

/// An interface of a virtual router.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its place in the configuration's order.
    pub index: InterfaceIndex,
    /// The gateway's addresses on it, each with the length of its network.
    pub addresses: Vec<(Address, u8)>,
}

impl Interface {
    /// Whether `address` is one of the gateway's on this interface.
    pub fn owns(&self, address: Address) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Whether `address` lies in one of the interface's networks; IPv6 link-local always does.
    pub fn is_on_link(&self, address: Address) -> bool {
        address.is_link_local()
            || self
                .addresses
                .iter()
                .any(|(own, length)| Prefix::new(*own, *length).contains(address))
    }

    /// Whether a neighbour can have this address: a host's, on the link, not the gateway's own, and not a
    /// network's broadcast address.
    pub fn has_neighbour(&self, address: Address) -> bool {
        let broadcast = self
            .addresses
            .iter()
            .any(|(own, length)| broadcasts(*own, *length).contains(&Some(address)));
        address.is_host() && self.is_on_link(address) && !self.owns(address) && !broadcast
    }

    /// The gateway's address to use as source towards `address` (RFC 1122 section 3.3.4.3): one of the same
    /// network where there is one, otherwise the first of the family that is not link-local.
    pub fn source_towards(&self, address: Address) -> Option<Address> {
        let same = |(own, length): &&(Address, u8)| Prefix::new(*own, *length).contains(address);
        let family = |own: &Address| own.bits() == address.bits();
        let own = || self.addresses.iter().map(|(own, _)| *own).filter(|own| family(own));
        let near = self.addresses.iter().find(same).map(|(own, _)| *own);
        near.or_else(|| own().find(|own| own.is_link_local() == address.is_link_local()))
            .or_else(|| own().next())
    }
}

/// Network and broadcast address of an IPv4 network; none in IPv6 and where it has at most two addresses
/// (RFC 3021).
fn broadcasts(own: Address, length: u8) -> [Option<Address>; 2] {
    match own {
        Address::V4(bits) if (1..31).contains(&length) => {
            let host = u32::MAX >> length;
            [Some(Address::V4(bits & !host)), Some(Address::V4(bits | host))]
        }
        _ => [None, None],
    }
}

/// How a configured route goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By a gateway on an attached network; the interface must be named where the gateway is link-local.
    Gateway {
        /// Its address.
        address: Address,
        /// Its interface, where it is stated.
        interface: Option<InterfaceIndex>,
    },
    /// By a gateway on the link of this interface, whatever networks it has.
    OnLink {
        /// Its address.
        address: Address,
        /// Its interface.
        interface: InterfaceIndex,
    },
    /// By a gateway that is found by the attached networks or the router's own routes, and followed as these change.
    Recursive(Address),
    /// Destinations are on the link of this interface themselves.
    Attached(InterfaceIndex),
    /// Nowhere.
    Refused(DropKind),
}

/// A way of a configured route. Those to one prefix at one distance are one route, of which each flow takes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// How they are reached.
    pub via: Via,
    /// Its share among the ways, at least 1.
    pub weight: u8,
    /// Administrative distance, at least 1: the lowest that leads anywhere is used.
    pub distance: u8,
    /// What stays on one of the ways.
    pub balance: Balance,
}

impl Route {
    /// A route that has one way, and comes before all that are learned.
    pub const fn new(prefix: Prefix, via: Via) -> Self {
        Self {
            prefix,
            via,
            weight: 1,
            distance: STATIC,
            balance: Balance::Flow,
        }
    }
}

/// Distance of what interfaces are attached to.
const CONNECTED: u8 = 0;

/// Distance of a configured route that says nothing else.
pub const STATIC: u8 = 1;

/// Why addresses or routes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// An address that no host can have.
    #[error("{0} can't be an address of an interface")]
    NotAHost(Address),
    /// A network's own address, or its broadcast address, as an interface's.
    #[error("{0} is the network or broadcast address of its own network")]
    IsBroadcast(Address),
    /// A length that the address does not have.
    #[error("{address}/{length}: the prefix length must be between 1 and the address's length")]
    Length {
        /// The address.
        address: Address,
        /// The length.
        length: u8,
    },
    /// The same address twice in one router.
    #[error("{0} is configured twice in the same virtual router")]
    AddressTwice(Address),
    /// The same network on two interfaces of one router.
    #[error("network {0} is attached to two interfaces of the same virtual router")]
    NetworkTwice(Prefix),
    /// The same way twice, one beside a refusal, or a route to an attached network that is no backup of it.
    #[error("route {0} is configured twice, or is that of an attached network")]
    RouteTwice(Prefix),
    /// Too many ways.
    #[error("route {0} has more than {MAX_HOPS} ways")]
    Ways(Prefix),
    /// The gateway is on no attached network.
    #[error("route {prefix}: gateway {gateway} is on no attached network of the virtual router")]
    GatewayOffLink {
        /// The route.
        prefix: Prefix,
        /// Its gateway.
        gateway: Address,
    },
    /// The gateway is this router.
    #[error("route {prefix}: gateway {gateway} is an address of this virtual router itself")]
    GatewayIsLocal {
        /// The route.
        prefix: Prefix,
        /// Its gateway.
        gateway: Address,
    },
    /// A gateway of IPv4 for IPv6.
    #[error("route {prefix}: gateway {gateway} is of IPv4")]
    GatewayFamily {
        /// The route.
        prefix: Prefix,
        /// Its gateway.
        gateway: Address,
    },
    /// A link-local gateway without interface.
    #[error("route {prefix}: gateway {gateway} is link-local; name its interface")]
    GatewayNeedsInterface {
        /// The route.
        prefix: Prefix,
        /// Its gateway.
        gateway: Address,
    },
    /// The interface is not in this router.
    #[error("route {prefix}: interface {interface} does not belong to the virtual router")]
    Interface {
        /// The route.
        prefix: Prefix,
        /// The interface.
        interface: InterfaceIndex,
    },
}

/// Routes of a virtual router, each with its ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSet {
    /// By distance too: one that is configured at a greater one stands behind the others.
    routes: BTreeMap<(Prefix, u8), Vec<WeightedNextHop>>,
}

impl RouteSet {
    /// Routes to the interfaces' addresses and networks, the configured ones, and none to IPv4 link-local addresses
    /// (RFC 3927 section 2.7) unless one of these leads there.
    pub fn new(interfaces: &[Interface], configured: &[Route]) -> Result<Self, RouteError> {
        let mut set = Self::default();
        for interface in interfaces {
            for (address, length) in &interface.addresses {
                set.add_address(interface.index, *address, *length)?;
            }
        }
        for interface in interfaces {
            for (address, length) in &interface.addresses {
                for broadcast in broadcasts(*address, *length).into_iter().flatten() {
                    let prefix = Prefix::new(broadcast, broadcast.bits());
                    if !set.contains(prefix) {
                        set.derive(prefix, NextHop::Drop(DropKind::DirectedBroadcast));
                    }
                }
            }
        }
        for route in configured {
            set.add_next_hop(route, way(interfaces, route)?)?;
        }
        // Sets are told apart by the order of their ways; that of the file means nothing.
        set.routes.values_mut().for_each(|hops| hops.sort_unstable());
        // 169.254.0.0/16. Behind what leads there, so that a link that is down leaves it to no default route.
        let link_local = Prefix::new(Address::V4(0xa9fe_0000), 16);
        let distance = if set.contains(link_local) { u8::MAX } else { CONNECTED };
        let refused = vec![WeightedNextHop::new(OfferedNextHop::Drop(DropKind::LinkLocal))];
        set.routes.entry((link_local, distance)).or_insert(refused);
        Ok(set)
    }

    /// A route of the interfaces' own; what was there before.
    fn derive(&mut self, prefix: Prefix, next_hop: NextHop) -> Option<Vec<WeightedNextHop>> {
        let hops = vec![WeightedNextHop::new(next_hop.into())];
        self.routes.insert((prefix, CONNECTED), hops)
    }

    fn add_address(&mut self, interface: InterfaceIndex, address: Address, length: u8) -> Result<(), RouteError> {
        if !address.is_host() {
            return Err(RouteError::NotAHost(address));
        }
        if length == 0 || length > address.bits() {
            return Err(RouteError::Length { address, length });
        }
        if broadcasts(address, length).contains(&Some(address)) {
            return Err(RouteError::IsBroadcast(address));
        }
        let host = Prefix::new(address, address.bits());
        if self.derive(host, NextHop::Local(interface)).is_some() && !address.is_link_local() {
            return Err(RouteError::AddressTwice(address));
        }
        let network = Prefix::new(address, length);
        if length < address.bits() && !address.is_link_local() {
            let before = self.derive(network, NextHop::Attached(interface));
            if before.is_some_and(|before| before != [WeightedNextHop::new(OfferedNextHop::Attached(interface))]) {
                return Err(RouteError::NetworkTwice(network));
            }
        }
        Ok(())
    }

    fn add_next_hop(&mut self, route: &Route, way: OfferedNextHop) -> Result<(), RouteError> {
        let (prefix, distance) = (route.prefix, route.distance.max(STATIC));
        let is_refusal = |way: OfferedNextHop| matches!(way, OfferedNextHop::Drop(_));
        // An attached network may have a way for the time that its link is down.
        let is_taken = self.routes.get(&(prefix, CONNECTED)).is_some_and(|derived| {
            let is_attached = |hop: &WeightedNextHop| matches!(hop.way, OfferedNextHop::Attached(_));
            distance == STATIC || !derived.iter().all(is_attached)
        });
        let hops = self.routes.entry((prefix, distance)).or_default();
        let collides = |hop: &WeightedNextHop| hop.way == way || is_refusal(hop.way) || is_refusal(way);
        if is_taken || hops.iter().any(collides) {
            return Err(RouteError::RouteTwice(prefix));
        }
        if hops.len() == MAX_HOPS {
            return Err(RouteError::Ways(prefix));
        }
        let weight = route.weight.max(1);
        let balance = route.balance;
        hops.push(WeightedNextHop { way, weight, balance });
        Ok(())
    }

    /// All routes by prefix, and by distance among those to one, as they are offered.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Offer<'_>)> {
        self.routes.iter().map(|((prefix, distance), hops)| {
            let offer = Offer {
                origin: match *distance {
                    CONNECTED => Origin::Connected,
                    _ => Origin::Static,
                },
                protocol: 0,
                distance: *distance,
                metric: 0,
                target: Target::Hops(hops),
            };
            (*prefix, offer)
        })
    }

    /// What each route leads to as long as all links are up, but for gateways that learned routes alone lead to.
    pub fn next_hops(&self) -> impl Iterator<Item = HopSet> {
        self.routes.values().filter_map(|hops| {
            let members = hops
                .iter()
                .filter_map(|hop| Some((self.next_hop(hop.way)?, hop.weight)));
            let set = HopSet::new(&members.collect::<Vec<_>>()).ok()?;
            let balance = hops.iter().map(|hop| hop.balance).max();
            Some(set.with_balance(balance.unwrap_or_default()))
        })
    }

    fn next_hop(&self, way: OfferedNextHop) -> Option<NextHop> {
        Some(match way {
            OfferedNextHop::Drop(refusal) => NextHop::Drop(refusal),
            OfferedNextHop::Local(interface) => NextHop::Local(interface),
            OfferedNextHop::Attached(interface) => NextHop::Attached(interface),
            OfferedNextHop::Gateway { interface, address } => NextHop::Gateway { interface, address },
            OfferedNextHop::Via(address) => {
                let covering = (0..=address.bits()).rev().map(|length| Prefix::new(address, length));
                let mut ways = covering.flat_map(|prefix| self.ways(prefix)).map(|hop| hop.way);
                let on_link = ways.find_map(|way| match way {
                    OfferedNextHop::Attached(interface) => Some(interface),
                    _ => None,
                });
                let interface = on_link?;
                NextHop::Gateway { interface, address }
            }
        })
    }

    fn ways(&self, prefix: Prefix) -> impl Iterator<Item = &WeightedNextHop> {
        let of_prefix = self.routes.range((prefix, CONNECTED)..=(prefix, u8::MAX));
        of_prefix.flat_map(|(_, hops)| hops)
    }

    /// Whether there is a route to exactly this prefix.
    pub fn contains(&self, prefix: Prefix) -> bool {
        self.ways(prefix).next().is_some()
    }

    /// Number of routes; those to one prefix at several distances are several.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Where a configured route leads, by the attached networks.
fn way(interfaces: &[Interface], route: &Route) -> Result<OfferedNextHop, RouteError> {
    let prefix = route.prefix;
    let of_router = |index| interfaces.iter().any(|interface| interface.index == index);
    let (gateway, stated) = match route.via {
        Via::Refused(refusal) => return Ok(OfferedNextHop::Drop(refusal)),
        Via::Attached(interface) if of_router(interface) => return Ok(OfferedNextHop::Attached(interface)),
        Via::Attached(interface) => return Err(RouteError::Interface { prefix, interface }),
        Via::Gateway { address, interface } => (address, interface),
        Via::OnLink { address, interface } => (address, Some(interface)),
        Via::Recursive(address) => (address, None),
    };
    // IPv4 goes by gateways of IPv6, too (RFC 8950).
    if gateway.bits() < prefix.address().bits() {
        return Err(RouteError::GatewayFamily { prefix, gateway });
    }
    if let Some(interface) = stated.filter(|index| !of_router(*index)) {
        return Err(RouteError::Interface { prefix, interface });
    }
    if interfaces.iter().any(|interface| interface.owns(gateway)) {
        return Err(RouteError::GatewayIsLocal { prefix, gateway });
    }
    if gateway.is_link_local() && stated.is_none() {
        return Err(RouteError::GatewayNeedsInterface { prefix, gateway });
    }
    match route.via {
        Via::Recursive(address) => return Ok(OfferedNextHop::Via(address)),
        Via::OnLink { address, interface } => return Ok(OfferedNextHop::Gateway { interface, address }),
        _ => {}
    }
    let reaches = |interface: &&Interface| {
        stated.is_none_or(|index| index == interface.index) && interface.has_neighbour(gateway)
    };
    // The most specific network decides where several interfaces' overlap.
    let nearest = interfaces.iter().filter(reaches).max_by_key(|interface| {
        let own = interface
            .addresses
            .iter()
            .filter(|(own, length)| Prefix::new(*own, *length).contains(gateway));
        own.map(|(_, length)| *length).max()
    });
    let interface = nearest.ok_or(RouteError::GatewayOffLink { prefix, gateway })?.index;
    Ok(OfferedNextHop::Gateway {
        interface,
        address: gateway,
    })
}
