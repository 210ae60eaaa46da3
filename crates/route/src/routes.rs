//! Which routes a virtual router has: derived from its interfaces' addresses, and configured.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Address, InterfaceIndex, NextHop, Prefix, Refusal};

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
    /// Destinations are on the link of this interface themselves.
    Attached(InterfaceIndex),
    /// Nowhere.
    Refused(Refusal),
}

/// A configured route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// How they are reached.
    pub via: Via,
}

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
    /// Two routes to the same prefix.
    #[error("route {0} is configured twice, or is that of an attached network")]
    RouteTwice(Prefix),
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
    /// A gateway of the other family.
    #[error("route {prefix}: gateway {gateway} is of the other address family")]
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

/// Routes of a virtual router, each with where it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSet {
    routes: BTreeMap<Prefix, NextHop>,
    configured: BTreeSet<Prefix>,
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
                    set.routes
                        .entry(prefix)
                        .or_insert(NextHop::Drop(Refusal::DirectedBroadcast));
                }
            }
        }
        let attached = set.clone();
        for route in configured {
            let next_hop = attached.next_hop(interfaces, route)?;
            if set.routes.insert(route.prefix, next_hop).is_some() {
                return Err(RouteError::RouteTwice(route.prefix));
            }
            set.configured.insert(route.prefix);
        }
        // 169.254.0.0/16
        let link_local = Prefix::new(Address::V4(0xa9fe_0000), 16);
        set.routes
            .entry(link_local)
            .or_insert(NextHop::Drop(Refusal::LinkLocal));
        Ok(set)
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
        if self.routes.insert(host, NextHop::Local(interface)).is_some() && !address.is_link_local() {
            return Err(RouteError::AddressTwice(address));
        }
        let network = Prefix::new(address, length);
        if length < address.bits() && !address.is_link_local() {
            let attached = NextHop::Attached(interface);
            if self
                .routes
                .insert(network, attached)
                .is_some_and(|before| before != attached)
            {
                return Err(RouteError::NetworkTwice(network));
            }
        }
        Ok(())
    }

    /// Where a configured route leads, by the attached networks.
    fn next_hop(&self, interfaces: &[Interface], route: &Route) -> Result<NextHop, RouteError> {
        let prefix = route.prefix;
        let of_router = |index| interfaces.iter().any(|interface| interface.index == index);
        let (gateway, stated) = match route.via {
            Via::Refused(refusal) => return Ok(NextHop::Drop(refusal)),
            Via::Attached(interface) if of_router(interface) => return Ok(NextHop::Attached(interface)),
            Via::Attached(interface) => return Err(RouteError::Interface { prefix, interface }),
            Via::Gateway { address, interface } => (address, interface),
        };
        if gateway.bits() != prefix.address().bits() {
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
        Ok(NextHop::Gateway {
            interface,
            address: gateway,
        })
    }

    /// All routes, by prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, NextHop)> + '_ {
        self.routes.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))
    }

    /// Whether the route to exactly this prefix was configured, and is not derived from an interface.
    pub fn is_configured(&self, prefix: Prefix) -> bool {
        self.configured.contains(&prefix)
    }

    /// Whether there is exactly this route.
    pub fn contains(&self, prefix: Prefix) -> bool {
        self.routes.contains_key(&prefix)
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}
