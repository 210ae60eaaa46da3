//! Route offers for a prefix by origin, and results of route selection.

use crate::{Address, Balance, DropKind, InterfaceIndex, NextHop, Prefix, Time};

/// Maximum number of next hops in a set.
pub const MAX_HOPS: usize = 64;

/// Origin of an offer. An origin has one offer for each prefix. Exceptions: the kernel has one offer for each prefix
/// and metric, and the configuration one offer for each prefix and distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Origin {
    /// Interface addresses.
    Connected,
    /// The configuration.
    Static,
    /// A routing daemon, through FPM.
    Fpm,
    /// The kernel's table in the router's namespace.
    Kernel,
}

impl Origin {
    /// All origins. Among otherwise equal offers, an earlier origin is preferred.
    pub const ALL: [Origin; 4] = [Origin::Connected, Origin::Static, Origin::Fpm, Origin::Kernel];

    /// Name of the origin.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Connected => "connected",
            Origin::Static => "static",
            Origin::Fpm => "fpm",
            Origin::Kernel => "kernel",
        }
    }

    /// Whether the origin's routes are learned routes, which count against the quota.
    pub fn is_learned(self) -> bool {
        matches!(self, Origin::Fpm | Origin::Kernel)
    }

    /// Value that distinguishes the offers of one origin for a prefix.
    pub(super) fn which(self, distance: u8, metric: u32) -> u32 {
        match self {
            Origin::Static => distance.into(),
            Origin::Kernel => metric,
            Origin::Connected | Origin::Fpm => 0,
        }
    }

    pub(super) fn of(bits: u8) -> Self {
        Self::ALL[usize::from(bits & 3)]
    }
}

/// Next hop of an offer before resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferedNextHop {
    /// Drop packets with this drop kind.
    Drop(DropKind),
    /// Deliver packets to the gateway itself: the destination is an address of this interface.
    Local(InterfaceIndex),
    /// Send packets directly to the destination, which is on the link of this interface.
    Attached(InterfaceIndex),
    /// A gateway on the link of this interface, inside or outside of the interface's networks.
    Gateway {
        /// Output interface.
        interface: InterfaceIndex,
        /// Address of the gateway.
        address: Address,
    },
    /// A gateway that is resolved through the attached networks, or else through the router's other routes.
    Via(Address),
}

/// A next hop of an offer with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedNextHop {
    /// The next hop.
    pub next_hop: OfferedNextHop,
    /// Weight, at least 1.
    pub weight: u8,
    /// Balancing granularity. If any member has [`Balance::Host`], the whole set has [`Balance::Host`].
    pub balance: Balance,
}

impl WeightedNextHop {
    /// Creates a next hop with weight 1.
    pub fn new(next_hop: OfferedNextHop) -> Self {
        Self {
            next_hop,
            weight: 1,
            balance: Balance::Flow,
        }
    }
}

impl From<NextHop> for OfferedNextHop {
    fn from(hop: NextHop) -> Self {
        match hop {
            NextHop::Drop(refusal) => OfferedNextHop::Drop(refusal),
            NextHop::Local(interface) => OfferedNextHop::Local(interface),
            NextHop::Attached(interface) => OfferedNextHop::Attached(interface),
            NextHop::Gateway { interface, address } => OfferedNextHop::Gateway { interface, address },
        }
    }
}

/// A set of next hops that its owner can change for all routes of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub(super) u32);

/// Target of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Fixed next hops.
    Hops(&'a [WeightedNextHop]),
    /// The current next hops of a group.
    Group(Group),
}

/// A route offered for a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Origin of the offer.
    pub origin: Origin,
    /// Routing protocol (RTPROT) of the route; 0 if none.
    pub protocol: u8,
    /// Administrative distance; the lowest distance is preferred.
    pub distance: u8,
    /// Metric; among equal distances, the lowest metric is preferred.
    pub metric: u32,
    /// Next hops of the offer, or a group of next hops.
    pub target: Target<'a>,
}

impl Offer<'_> {
    /// Value that distinguishes the offer from other offers of its origin for the prefix.
    pub(super) fn which(&self) -> u32 {
        self.origin.which(self.distance, self.metric)
    }
}

/// Resolved next hops of a prefix, sorted, with their balancing granularity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSet(pub(super) Box<[(NextHop, u8)]>, pub(super) Balance);

impl ResolvedSet {
    /// Next hops with their weights: a single next hop of any kind, or up to [`MAX_HOPS`] forwarding next hops.
    pub fn members(&self) -> &[(NextHop, u8)] {
        &self.0
    }

    /// Balancing granularity of the set.
    pub fn balance(&self) -> Balance {
        self.1
    }
}

/// Receiver of the changes of published routes, in order.
pub trait Sink {
    /// Sets the next hops of a new or published prefix.
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet);
    /// Removes a prefix.
    fn remove(&mut self, prefix: Prefix);
}

/// Why an offer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// The router has reached its quota of learned routes.
    #[error(
        "the virtual router reached its limit of {0} learned routes: raise this limit, or filter routes in the \
         routing daemon"
    )]
    Quota(usize),
    /// The router has reached its maximum number of next-hop sets.
    #[error("the virtual router has more than {0} different sets of next hops")]
    Sets(usize),
    /// The number of next hops is 0 or too large.
    #[error("the route has {0} next hops, but 1 to {MAX_HOPS} next hops are possible")]
    Hops(usize),
    /// The group does not exist.
    #[error("the group of next hops does not exist")]
    Group,
}

/// Why a next hop is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresolvedReason {
    /// The output interface is down.
    Link,
    /// The router has no route to the gateway.
    Gateway,
    /// The next hop is the gateway of an uplink that is down.
    Uplink,
}

/// An offer in a listing.
#[derive(Clone, Debug)]
pub struct ListedRoute<'a> {
    /// Destination prefix.
    pub prefix: Prefix,
    /// Origin of the offer.
    pub origin: Origin,
    /// Routing protocol (RTPROT) of the route.
    pub protocol: u8,
    /// Administrative distance.
    pub distance: u8,
    /// Metric of the route.
    pub metric: u32,
    /// Next hops as offered.
    pub hops: &'a [WeightedNextHop],
    /// Resolved next hops; `None` if no next hop is reachable.
    pub resolved: Option<&'a ResolvedSet>,
    /// Whether the offer is selected.
    pub selected: bool,
    /// Whether the offer is stale: its origin has not announced the offer again since the start of the last replay.
    pub stale: bool,
    /// Time of the last change of the offer, with a resolution of one second.
    pub since: Time,
}
