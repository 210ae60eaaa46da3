//! Configured routes of a virtual router, and routes derived from its interface addresses.

use std::collections::BTreeMap;

use crate::rib::{MAX_HOPS, Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use crate::{Address, Balance, DropKind, HopSet, InterfaceIndex, NextHop, Prefix};

/// An interface of a virtual router.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Index in the configuration.
    pub index: InterfaceIndex,
    /// Addresses of the gateway on the interface, each with the prefix length of its network.
    pub addresses: Vec<(Address, u8)>,
}

impl Interface {
    /// Whether `address` is one of the gateway's addresses on this interface.
    pub fn owns(&self, address: Address) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Whether `address` is in a network of the interface. Always true for IPv6 link-local addresses.
    pub fn is_on_link(&self, address: Address) -> bool {
        address.is_link_local()
            || self
                .addresses
                .iter()
                .any(|(own, length)| Prefix::new(*own, *length).contains(address))
    }

    /// Whether a neighbour can have this address. The address must be a host address on the link. It must not be an
    /// address of the gateway or a broadcast address of a network.
    pub fn has_neighbour(&self, address: Address) -> bool {
        let broadcast = self
            .addresses
            .iter()
            .any(|(own, length)| broadcasts(*own, *length).contains(&Some(address)));
        address.is_host() && self.is_on_link(address) && !self.owns(address) && !broadcast
    }

    /// Source address for packets to `address` (RFC 1122, section 3.3.4.3): an address of the same network if possible,
    /// otherwise the first address of the family that is not link-local.
    pub fn source_for(&self, address: Address) -> Option<Address> {
        let same = |(own, length): &&(Address, u8)| Prefix::new(*own, *length).contains(address);
        let family = |own: &Address| own.bits() == address.bits();
        let own = || self.addresses.iter().map(|(own, _)| *own).filter(|own| family(own));
        let near = self.addresses.iter().find(same).map(|(own, _)| *own);
        near.or_else(|| own().find(|own| own.is_link_local() == address.is_link_local()))
            .or_else(|| own().next())
    }
}

/// Network and broadcast address of an IPv4 network. `None` for IPv6 networks, and for networks with at most two
/// addresses (RFC 3021).
fn broadcasts(own: Address, length: u8) -> [Option<Address>; 2] {
    match own {
        Address::V4(bits) if (1..31).contains(&length) => {
            let host = u32::MAX >> length;
            [Some(Address::V4(bits & !host)), Some(Address::V4(bits | host))]
        }
        _ => [None, None],
    }
}

/// Next hop of a configured route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A gateway in an attached network. A link-local gateway requires an interface.
    Gateway {
        /// Address of the gateway.
        address: Address,
        /// Interface of the gateway, if given.
        interface: Option<InterfaceIndex>,
    },
    /// A gateway on the link of this interface, inside or outside of the interface's networks.
    OnLink {
        /// Address of the gateway.
        address: Address,
        /// Interface of the gateway.
        interface: InterfaceIndex,
    },
    /// A gateway that is resolved through the attached networks or the router's other routes, and again when these
    /// change.
    Recursive(Address),
    /// The destinations are directly on the link of this interface.
    Attached(InterfaceIndex),
    /// Drop packets with this drop kind.
    Refused(DropKind),
}

/// A configured route with one next hop. Routes with equal prefix and distance form one multipath route. Each flow uses
/// one next hop of a multipath route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub prefix: Prefix,
    /// Next hop of the route.
    pub via: Via,
    /// Weight of the next hop in a multipath route, at least 1.
    pub weight: u8,
    /// Administrative distance, at least 1. The reachable route with the lowest distance is preferred.
    pub distance: u8,
    /// Balancing granularity of a multipath route.
    pub balance: Balance,
}

impl Route {
    /// Creates a route with a single next hop and the default distance. The route is preferred over all learned routes.
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

/// Administrative distance of connected routes.
const CONNECTED: u8 = 0;

/// Default administrative distance of configured routes.
pub const STATIC: u8 = 1;

/// Why addresses or routes are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The address can't be an address of a host.
    #[error("{0} can't be an address of an interface")]
    NotAHost(Address),
    /// The address of an interface is a network address or a broadcast address.
    #[error("{0} is the network or broadcast address of its own network")]
    IsBroadcast(Address),
    /// The prefix length is not valid for the address.
    #[error("{address}/{length}: the prefix length must be between 1 and the address's length")]
    Length {
        /// Address with an invalid prefix length.
        address: Address,
        /// The invalid prefix length.
        length: u8,
    },
    /// Two interfaces of one router have the same address.
    #[error("{0} is configured twice in the same virtual router")]
    AddressTwice(Address),
    /// Two interfaces of one router have the same network.
    #[error("network {0} is attached to two interfaces of the same virtual router")]
    NetworkTwice(Prefix),
    /// The route has a duplicate next hop, combines a forwarding next hop with a drop, or has the prefix of an attached
    /// network and the default distance. A backup route to an attached network must have a higher distance.
    #[error("route {0} is configured twice, or duplicates the route of an attached network")]
    RouteTwice(Prefix),
    /// The route has too many next hops.
    #[error("route {0} has more than {MAX_HOPS} next hops")]
    TooManyNextHops(Prefix),
    /// No attached network contains the gateway.
    #[error("route {prefix}: gateway {gateway} is not in an attached network of the virtual router")]
    GatewayOffLink {
        /// Prefix of the route.
        prefix: Prefix,
        /// Gateway of the route.
        gateway: Address,
    },
    /// The gateway is an address of this router.
    #[error("route {prefix}: gateway {gateway} is an address of this virtual router itself")]
    GatewayIsLocal {
        /// Prefix of the route.
        prefix: Prefix,
        /// Gateway of the route.
        gateway: Address,
    },
    /// An IPv6 route has an IPv4 gateway.
    #[error("route {prefix}: gateway {gateway} is an IPv4 address")]
    GatewayFamily {
        /// Prefix of the route.
        prefix: Prefix,
        /// Gateway of the route.
        gateway: Address,
    },
    /// A link-local gateway is given without an interface.
    #[error("route {prefix}: gateway {gateway} is link-local, so the route needs an interface")]
    GatewayNeedsInterface {
        /// Prefix of the route.
        prefix: Prefix,
        /// Gateway of the route.
        gateway: Address,
    },
    /// The interface does not belong to this router.
    #[error("route {prefix}: interface {interface} does not belong to the virtual router")]
    Interface {
        /// Prefix of the route.
        prefix: Prefix,
        /// Index of the interface.
        interface: InterfaceIndex,
    },
}

/// Routes of a virtual router, each with its next hops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSet {
    /// Next hops by prefix and distance. Routes with a higher distance are backup routes.
    routes: BTreeMap<(Prefix, u8), Vec<WeightedNextHop>>,
}

impl RouteSet {
    /// Creates the routes to the interfaces' addresses and networks, and the configured routes. Adds a drop route for
    /// 169.254.0.0/16, because IPv4 link-local packets must not be forwarded (RFC 3927, section 2.7).
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
            set.add_next_hop(route, next_hop(interfaces, route)?)?;
        }
        // Sort the next hops, so that equal sets in different order are equal.
        set.routes.values_mut().for_each(|hops| hops.sort_unstable());
        // 169.254.0.0/16. If another route has this prefix, the drop route is its backup. While the link of the other
        // route is down, the drop route keeps link-local packets from the default route.
        let link_local = Prefix::new(Address::V4(0xa9fe_0000), 16);
        let distance = if set.contains(link_local) { u8::MAX } else { CONNECTED };
        let refused = vec![WeightedNextHop::new(OfferedNextHop::Drop(DropKind::LinkLocal))];
        set.routes.entry((link_local, distance)).or_insert(refused);
        Ok(set)
    }

    /// Adds a route that is derived from interfaces. Returns the previous route.
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

    fn add_next_hop(&mut self, route: &Route, next_hop: OfferedNextHop) -> Result<(), RouteError> {
        let (prefix, distance) = (route.prefix, route.distance.max(STATIC));
        let is_refusal = |next_hop: OfferedNextHop| matches!(next_hop, OfferedNextHop::Drop(_));
        // An attached network may have a backup route for times when its link is down.
        let is_occupied = self.routes.get(&(prefix, CONNECTED)).is_some_and(|derived| {
            let is_attached = |hop: &WeightedNextHop| matches!(hop.next_hop, OfferedNextHop::Attached(_));
            distance == STATIC || !derived.iter().all(is_attached)
        });
        let hops = self.routes.entry((prefix, distance)).or_default();
        let collides =
            |hop: &WeightedNextHop| hop.next_hop == next_hop || is_refusal(hop.next_hop) || is_refusal(next_hop);
        if is_occupied || hops.iter().any(collides) {
            return Err(RouteError::RouteTwice(prefix));
        }
        if hops.len() == MAX_HOPS {
            return Err(RouteError::TooManyNextHops(prefix));
        }
        let weight = route.weight.max(1);
        let balance = route.balance;
        hops.push(WeightedNextHop {
            next_hop,
            weight,
            balance,
        });
        Ok(())
    }

    /// All routes as offers, sorted by prefix and distance.
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

    /// Next hops of each route if all links are up. Gateways that are reachable only by learned routes are omitted.
    pub fn next_hops(&self) -> impl Iterator<Item = HopSet> {
        self.routes.values().filter_map(|hops| {
            let members = hops
                .iter()
                .filter_map(|hop| Some((self.next_hop(hop.next_hop)?, hop.weight)));
            let set = HopSet::new(&members.collect::<Vec<_>>()).ok()?;
            let balance = hops.iter().map(|hop| hop.balance).max();
            Some(set.with_balance(balance.unwrap_or_default()))
        })
    }

    fn next_hop(&self, next_hop: OfferedNextHop) -> Option<NextHop> {
        Some(match next_hop {
            OfferedNextHop::Drop(refusal) => NextHop::Drop(refusal),
            OfferedNextHop::Local(interface) => NextHop::Local(interface),
            OfferedNextHop::Attached(interface) => NextHop::Attached(interface),
            OfferedNextHop::Gateway { interface, address } => NextHop::Gateway { interface, address },
            OfferedNextHop::Via(address) => {
                let covering = (0..=address.bits()).rev().map(|length| Prefix::new(address, length));
                let mut hops_of = covering.flat_map(|prefix| self.hops_of(prefix)).map(|hop| hop.next_hop);
                let on_link = hops_of.find_map(|next_hop| match next_hop {
                    OfferedNextHop::Attached(interface) => Some(interface),
                    _ => None,
                });
                let interface = on_link?;
                NextHop::Gateway { interface, address }
            }
        })
    }

    fn hops_of(&self, prefix: Prefix) -> impl Iterator<Item = &WeightedNextHop> {
        let of_prefix = self.routes.range((prefix, CONNECTED)..=(prefix, u8::MAX));
        of_prefix.flat_map(|(_, hops)| hops)
    }

    /// Whether a route to exactly this prefix exists.
    pub fn contains(&self, prefix: Prefix) -> bool {
        self.hops_of(prefix).next().is_some()
    }

    /// Number of routes. Routes to one prefix with different distances are counted separately.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Next hop of a configured route. If the route states no interface, the attached networks determine the interface.
fn next_hop(interfaces: &[Interface], route: &Route) -> Result<OfferedNextHop, RouteError> {
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
    // An IPv4 route may have an IPv6 gateway (RFC 8950), but not vice versa.
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
    // If networks of several interfaces contain the gateway, use the interface with the most specific network.
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
