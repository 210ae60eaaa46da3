//! Sets that change while rules name them, and what rules ask of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::address_set::full_length;
pub use super::address_set::{AddressSet, SetFull};
pub use super::port_set::PortSet;

/// What a set has: of addresses, networks of their full length alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// The addresses of a prefix.
    Network(IpAddr, u8),
    /// Ports from a first to a last one.
    Ports(u16, u16),
}

/// What elements of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// Single addresses.
    Addresses,
    /// Prefixes.
    Networks,
    /// Ports.
    Ports,
}

/// A set of any kind.
#[derive(Debug)]
pub enum ElementSet {
    /// Of single addresses.
    Addresses(AddressSet),
    /// Of networks.
    Networks(AddressSet),
    /// Of ports.
    Ports(PortSet),
}

impl From<AddressSet> for ElementSet {
    fn from(set: AddressSet) -> Self {
        Self::Addresses(set)
    }
}

impl From<PortSet> for ElementSet {
    fn from(set: PortSet) -> Self {
        Self::Ports(set)
    }
}

macro_rules! either {
    ($set:expr, $of:ident => $what:expr) => {
        match $set {
            ElementSet::Addresses($of) | ElementSet::Networks($of) => $what,
            ElementSet::Ports($of) => $what,
        }
    };
}

impl ElementSet {
    /// An empty one of at most so many elements.
    pub fn new(kind: ElementKind, size: usize) -> Self {
        match kind {
            ElementKind::Addresses => Self::Addresses(AddressSet::new(size, None)),
            ElementKind::Networks => Self::Networks(AddressSet::new(size, None)),
            ElementKind::Ports => Self::Ports(PortSet::new(size, None)),
        }
    }

    /// What its elements are.
    pub fn kind(&self) -> ElementKind {
        match self {
            Self::Addresses(_) => ElementKind::Addresses,
            Self::Networks(_) => ElementKind::Networks,
            Self::Ports(_) => ElementKind::Ports,
        }
    }

    /// How many elements there may be.
    pub fn size(&self) -> usize {
        either!(self, set => set.size())
    }

    /// How long elements stay where nothing else is said.
    pub fn timeout(&self) -> Option<Duration> {
        either!(self, set => set.timeout())
    }

    /// Let elements that come from now on stay so long.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        either!(self, set => set.set_timeout(timeout));
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        either!(self, set => set.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes an element of this kind.
    pub fn accepts(&self, element: Element) -> bool {
        match (self, element) {
            (Self::Addresses(_), Element::Network(address, length)) => length == full_length(address),
            (Self::Networks(_), Element::Network(..)) | (Self::Ports(_), Element::Ports(..)) => true,
            _ => false,
        }
    }

    /// Addresses of packets that were not added, as the set was full or somebody else changed it.
    pub fn refused(&self) -> u64 {
        match self {
            Self::Addresses(set) | Self::Networks(set) => set.refused(),
            Self::Ports(_) => 0,
        }
    }

    /// Add an element for a time, or for ever, or prolong its time; how many are new. What it does not take is left out.
    ///
    /// # Errors
    /// There is no room.
    pub fn add(&self, element: Element, timeout: Option<Duration>, now: u64) -> Result<usize, SetFull> {
        match (self, element) {
            _ if !self.accepts(element) => Ok(0),
            (Self::Addresses(set) | Self::Networks(set), Element::Network(address, length)) => {
                set.add_network((address, length), timeout, now).map(usize::from)
            }
            (Self::Ports(set), Element::Ports(first, last)) => set.add(first..=last, timeout, now),
            _ => Ok(0),
        }
    }

    /// Remove an element; how many were there.
    pub fn remove(&self, element: Element) -> usize {
        match (self, element) {
            (Self::Addresses(set) | Self::Networks(set), Element::Network(address, length)) => {
                set.remove_network((address, length)).into()
            }
            (Self::Ports(set), Element::Ports(first, last)) if first <= last => set.remove(first..=last),
            _ => 0,
        }
    }

    /// Remove all; how many there were.
    pub fn flush(&self) -> usize {
        either!(self, set => set.flush())
    }

    /// Remove those whose time is over. Call it now and then.
    pub fn expire(&self, now: u64) {
        either!(self, set => set.expire(now));
    }

    /// All elements in order, each with the nanoseconds that are left to it, if these are limited.
    pub fn elements(&self, now: u64) -> Vec<(Element, Option<u64>)> {
        match self {
            Self::Addresses(set) | Self::Networks(set) => {
                let elements = set.elements(now).into_iter();
                let element = |((address, length), left)| (Element::Network(address, length), left);
                elements.map(element).collect()
            }
            Self::Ports(set) => {
                let elements = set.elements(now).into_iter();
                elements
                    .map(|((first, last), left)| (Element::Ports(first, last), left))
                    .collect()
            }
        }
    }

    /// Add the elements of another of the same kind, as far as they fit.
    pub fn copy(&self, other: &Self) {
        match (self, other) {
            (Self::Addresses(set), Self::Addresses(other))
            | (Self::Networks(set), Self::Addresses(other) | Self::Networks(other)) => set.copy(other),
            (Self::Ports(set), Self::Ports(other)) => set.copy(other),
            _ => {}
        }
    }

    /// Whether an address is in it.
    #[inline]
    fn contains_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Addresses(set) | Self::Networks(set) if set.contains(address))
    }

    /// Whether a port is in it.
    #[inline]
    fn contains_port(&self, port: u16) -> bool {
        matches!(self, Self::Ports(set) if set.contains(port))
    }

    /// A packet adds its address.
    pub(super) fn add_by_packet(&self, address: IpAddr, now: u64) {
        if let Self::Addresses(set) | Self::Networks(set) = self {
            set.add_by_packet(address, now);
        }
    }
}

/// A set that a rule names: the same where it is the very set.
#[derive(Clone, Debug)]
pub struct SharedSet(pub Arc<ElementSet>);

impl PartialEq for SharedSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedSet {}

/// What a rule asks of an address or a port: that it is in a set, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// It is not.
    pub not: bool,
    /// The set.
    pub set: SharedSet,
}

impl Membership {
    /// Whether an address is as asked.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.set.0.contains_address(address) != self.not
    }

    /// Whether a port is as asked. A packet without ports has none that is, nor one that is not.
    pub fn matches_port(&self, port: u32) -> bool {
        u16::try_from(port).is_ok_and(|port| self.set.0.contains_port(port) != self.not)
    }
}
