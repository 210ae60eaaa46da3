//! What origins offer for a prefix, and what becomes of it.

use crate::{Address, Balance, DropKind, InterfaceIndex, NextHop, Prefix, Time};

/// Most next hops of one set.
pub const MAX_HOPS: usize = 64;

/// Who offers a route. One origin has one offer for a prefix; the kernel one for each metric, the configuration one for
/// each distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Origin {
    /// Derived from the addresses of an interface.
    Connected,
    /// Configured.
    Static,
    /// A routing daemon, by FPM.
    Fpm,
    /// The kernel's table of the router's namespace.
    Kernel,
}

impl Origin {
    /// Every origin, in the order in which equal offers are preferred.
    pub const ALL: [Origin; 4] = [Origin::Connected, Origin::Static, Origin::Fpm, Origin::Kernel];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Connected => "connected",
            Origin::Static => "static",
            Origin::Fpm => "fpm",
            Origin::Kernel => "kernel",
        }
    }

    /// Whether its routes are learned, and so count against the quota.
    pub fn is_learned(self) -> bool {
        matches!(self, Origin::Fpm | Origin::Kernel)
    }

    /// What tells an offer from others of the same origin for a prefix.
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

/// Where one next hop of an offer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferedNextHop {
    /// Nowhere.
    Drop(DropKind),
    /// To the gateway itself: an address of this interface.
    Local(InterfaceIndex),
    /// To the destination itself, on the link of this interface.
    Attached(InterfaceIndex),
    /// To a gateway on the link of this interface, whatever networks are attached there.
    Gateway {
        /// The interface.
        interface: InterfaceIndex,
        /// The gateway's address.
        address: Address,
    },
    /// To a gateway that is found by the attached networks, or else by the router's own routes.
    Via(Address),
}

/// One next hop of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedNextHop {
    /// Where it leads.
    pub way: OfferedNextHop,
    /// Its share, at least 1.
    pub weight: u8,
    /// What stays on it beside others, by host where one of them says so.
    pub balance: Balance,
}

impl WeightedNextHop {
    /// A next hop of weight 1.
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

/// A set of next hops that its owner changes as one, for all routes that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub(super) u32);

/// What an offer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// These next hops.
    Hops(&'a [WeightedNextHop]),
    /// Those that the group has at the time.
    Group(Group),
}

/// An offer for a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Who makes it.
    pub origin: Origin,
    /// What told the origin, as the kernel numbers it (RTPROT); 0 where nothing did.
    pub protocol: u8,
    /// Administrative distance: the lowest is used.
    pub distance: u8,
    /// Metric: the lowest is used among equal distances.
    pub metric: u32,
    /// Where it leads.
    pub target: Target<'a>,
}

impl Offer<'_> {
    /// Which one it is of those that its origin has for a prefix.
    pub(super) fn which(&self) -> u32 {
        self.origin.which(self.distance, self.metric)
    }
}

/// Where a prefix leads after all, sorted by next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSet(pub(super) Box<[(NextHop, u8)]>, pub(super) Balance);

impl ResolvedSet {
    /// The next hops with their shares: one, or up to [`MAX_HOPS`] that forward.
    pub fn members(&self) -> &[(NextHop, u8)] {
        &self.0
    }

    /// What stays on one of them.
    pub fn balance(&self) -> Balance {
        self.1
    }
}

/// Takes what becomes of prefixes, in order.
pub trait Sink {
    /// A prefix leads here now; it may have led there before.
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet);
    /// A prefix leads nowhere any more.
    fn remove(&mut self, prefix: Prefix);
}

/// Why an offer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// The router has as many learned routes as it may.
    #[error("the router has its {0} learned routes: raise its quota, or filter in the daemon")]
    Quota(usize),
    /// The router has as many sets of next hops as it may.
    #[error("more than {0} different sets of next hops in one router")]
    Sets(usize),
    /// None, or too many.
    #[error("{0} next hops: a route has 1 to {MAX_HOPS}")]
    Hops(usize),
    /// There is no such group.
    #[error("no such group of next hops")]
    Group,
}

/// Why a next hop leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresolvedReason {
    /// Its interface is down.
    Link,
    /// No route leads to its gateway.
    Gateway,
    /// It is the gateway of an uplink that is down.
    Uplink,
}

/// An offer, as it is listed.
#[derive(Clone, Debug)]
pub struct ListedRoute<'a> {
    /// Destinations.
    pub prefix: Prefix,
    /// Who makes it.
    pub origin: Origin,
    /// What told the origin (RTPROT).
    pub protocol: u8,
    /// Administrative distance.
    pub distance: u8,
    /// Metric.
    pub metric: u32,
    /// Next hops as offered.
    pub hops: &'a [WeightedNextHop],
    /// Where they lead; nowhere where no next hop can be reached.
    pub resolved: Option<&'a ResolvedSet>,
    /// It is the one that is used.
    pub selected: bool,
    /// Not offered again since the last replay began.
    pub stale: bool,
    /// When it was offered as it is, to the second.
    pub since: Time,
}
