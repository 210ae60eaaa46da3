//! Offers of routes for a prefix by their origins, and the results of route selection.

use crate::{Address, Balance, DropKind, InterfaceIndex, NextHop, Prefix, Time};

/// Maximum number of next hops per set.
pub const MAX_HOPS: usize = 64;

/// Origin of an offer. An origin has one offer per prefix; the kernel has one per metric, and the configuration one per
/// distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Origin {
    /// Derived from an interface's addresses.
    Connected,
    /// Configuration.
    Static,
    /// A routing daemon, through FPM.
    Fpm,
    /// The kernel's table in the router's namespace.
    Kernel,
}

impl Origin {
    /// Every origin, in the order of preference among equal offers.
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

    /// Whether its routes are learned, and therefore count against the quota.
    pub fn is_learned(self) -> bool {
        matches!(self, Origin::Fpm | Origin::Kernel)
    }

    /// Value that distinguishes offers of the same origin for a prefix.
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
    /// Packets are dropped.
    Drop(DropKind),
    /// The gateway itself: an address of this interface.
    Local(InterfaceIndex),
    /// The destination itself, on the link of this interface.
    Attached(InterfaceIndex),
    /// A gateway on the link of this interface, whatever networks are attached there.
    Gateway {
        /// Output interface.
        interface: InterfaceIndex,
        /// Address of the gateway.
        address: Address,
    },
    /// A gateway that is resolved through the attached networks, or otherwise through the router's own routes.
    Via(Address),
}

/// A next hop of an offer with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedNextHop {
    /// The next hop.
    pub way: OfferedNextHop,
    /// Weight, at least 1.
    pub weight: u8,
    /// Unit of traffic that stays on one next hop of the set; by host if any member requests that.
    pub balance: Balance,
}

impl WeightedNextHop {
    /// Create a next hop of weight 1.
    pub fn new(way: OfferedNextHop) -> Self {
        Self {
            way,
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

/// A set of next hops that its owner changes at once for all routes that use it.
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
    /// Protocol from which the origin has the route (RTPROT); 0 if none.
    pub protocol: u8,
    /// Administrative distance; the lowest is preferred.
    pub distance: u8,
    /// Metric; the lowest is preferred among equal distances.
    pub metric: u32,
    /// Target.
    pub target: Target<'a>,
}

impl Offer<'_> {
    /// Value that distinguishes the offer from others of its origin for the prefix.
    pub(super) fn which(&self) -> u32 {
        self.origin.which(self.distance, self.metric)
    }
}

/// Resolved next hops of a prefix, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSet(pub(super) Box<[(NextHop, u8)]>, pub(super) Balance);

impl ResolvedSet {
    /// Next hops with weights: a single one, or up to [`MAX_HOPS`] that forward.
    pub fn members(&self) -> &[(NextHop, u8)] {
        &self.0
    }

    /// Unit of traffic that stays on one next hop.
    pub fn balance(&self) -> Balance {
        self.1
    }
}

/// Receiver of route changes, in order.
pub trait Sink {
    /// Set the next hops of a prefix, which may have had others before.
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet);
    /// Remove a prefix.
    fn remove(&mut self, prefix: Prefix);
}

/// Why an offer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// The router has reached its quota of learned routes.
    #[error("the router has its {0} learned routes: raise its quota, or filter in the daemon")]
    Quota(usize),
    /// The router has reached its maximum number of next-hop sets.
    #[error("more than {0} different sets of next hops in one router")]
    Sets(usize),
    /// There are no or too many next hops.
    #[error("{0} next hops: a route has 1 to {MAX_HOPS}")]
    Hops(usize),
    /// The group does not exist.
    #[error("no such group of next hops")]
    Group,
}

/// Why a next hop is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresolvedReason {
    /// Its interface is down.
    Link,
    /// No route to its gateway exists.
    Gateway,
    /// It is the gateway of an uplink that is down.
    Uplink,
}

/// An offer in a listing.
#[derive(Clone, Debug)]
pub struct ListedRoute<'a> {
    /// Destination prefix.
    pub prefix: Prefix,
    /// Origin of the offer.
    pub origin: Origin,
    /// Protocol from which the origin has the route (RTPROT).
    pub protocol: u8,
    /// Administrative distance.
    pub distance: u8,
    /// Metric.
    pub metric: u32,
    /// Next hops as offered.
    pub hops: &'a [WeightedNextHop],
    /// Resolved next hops; `None` if none is reachable.
    pub resolved: Option<&'a ResolvedSet>,
    /// Whether it is the selected offer.
    pub selected: bool,
    /// Whether it was not offered again since the last replay began.
    pub stale: bool,
    /// Time of the last change of the offer, with a precision of a second.
    pub since: Time,
}
