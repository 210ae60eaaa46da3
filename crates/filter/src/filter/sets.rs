//! Sets that can change while rules refer to them, and the conditions of rules that refer to sets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::address_set::full_length;
pub use super::address_set::{AddressSet, SetFull};
pub use super::port_set::PortSet;

/// An element of a set. In sets of addresses, an element is a network of full prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// The addresses of a prefix.
    Network(IpAddr, u8),
    /// Ports, as first and last port.
    Ports(u16, u16),
}

/// Kind of a set's elements.
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
    /// A set of single addresses.
    Addresses(AddressSet),
    /// A set of networks.
    Networks(AddressSet),
    /// A set of ports.
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
    /// Creates an empty set with this maximum number of elements.
    pub fn new(kind: ElementKind, size: usize) -> Self {
        match kind {
            ElementKind::Addresses => Self::Addresses(AddressSet::new(size, None)),
            ElementKind::Networks => Self::Networks(AddressSet::new(size, None)),
            ElementKind::Ports => Self::Ports(PortSet::new(size, None)),
        }
    }

    /// Kind of the elements.
    pub fn kind(&self) -> ElementKind {
        match self {
            Self::Addresses(_) => ElementKind::Addresses,
            Self::Networks(_) => ElementKind::Networks,
            Self::Ports(_) => ElementKind::Ports,
        }
    }

    /// Maximum number of elements.
    pub fn size(&self) -> usize {
        either!(self, set => set.size())
    }

    /// Default timeout of elements.
    pub fn timeout(&self) -> Option<Duration> {
        either!(self, set => set.timeout())
    }

    /// Sets the default timeout of elements that are added from now on.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        either!(self, set => set.set_timeout(timeout));
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        either!(self, set => set.len())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the set can hold an element of this kind.
    pub fn accepts(&self, element: Element) -> bool {
        match (self, element) {
            (Self::Addresses(_), Element::Network(address, length)) => length == full_length(address),
            (Self::Networks(_), Element::Network(..)) | (Self::Ports(_), Element::Ports(..)) => true,
            _ => false,
        }
    }

    /// Number of addresses that packets failed to add, because the set was full or locked.
    pub fn refused(&self) -> u64 {
        match self {
            Self::Addresses(set) | Self::Networks(set) => set.refused(),
            Self::Ports(_) => 0,
        }
    }

    /// Adds an element, or updates its timeout. Without a timeout the element does not expire. Returns the number of
    /// new elements. Elements of a kind that the set can't hold are ignored.
    ///
    /// # Errors
    /// The set is full.
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

    /// Removes an element. Returns the number of removed elements.
    pub fn remove(&self, element: Element) -> usize {
        match (self, element) {
            (Self::Addresses(set) | Self::Networks(set), Element::Network(address, length)) => {
                set.remove_network((address, length)).into()
            }
            (Self::Ports(set), Element::Ports(first, last)) if first <= last => set.remove(first..=last),
            _ => 0,
        }
    }

    /// Removes all elements. Returns their number.
    pub fn flush(&self) -> usize {
        either!(self, set => set.flush())
    }

    /// Removes expired elements. The function must be called periodically.
    pub fn expire(&self, now: u64) {
        either!(self, set => set.expire(now));
    }

    /// All elements in order, each with its remaining lifetime in nanoseconds if it expires.
    pub fn elements(&self, now: u64) -> Vec<(Element, Option<u64>)> {
        match self {
            Self::Addresses(set) | Self::Networks(set) => {
                let elements = set.elements(now).into_iter();
                let element = |((address, length), remaining)| (Element::Network(address, length), remaining);
                elements.map(element).collect()
            }
            Self::Ports(set) => {
                let elements = set.elements(now).into_iter();
                elements
                    .map(|((first, last), remaining)| (Element::Ports(first, last), remaining))
                    .collect()
            }
        }
    }

    /// Adds the elements of another set of the same kind, as long as this set has space.
    pub fn copy(&self, other: &Self) {
        match (self, other) {
            (Self::Addresses(set), Self::Addresses(other))
            | (Self::Networks(set), Self::Addresses(other) | Self::Networks(other)) => set.copy(other),
            (Self::Ports(set), Self::Ports(other)) => set.copy(other),
            _ => {}
        }
    }

    /// Whether the set contains an address.
    #[inline]
    fn contains_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Addresses(set) | Self::Networks(set) if set.contains(address))
    }

    /// Whether the set contains a port.
    #[inline]
    fn contains_port(&self, port: u16) -> bool {
        matches!(self, Self::Ports(set) if set.contains(port))
    }

    /// Adds a packet's address with the default timeout.
    pub(super) fn add_by_packet(&self, address: IpAddr, now: u64) {
        if let Self::Addresses(set) | Self::Networks(set) = self {
            set.add_by_packet(address, now);
        }
    }
}

/// Reference of a rule to a set. Two references are equal only if they refer to the same set object.
#[derive(Clone, Debug)]
pub struct SharedSet(pub Arc<ElementSet>);

impl PartialEq for SharedSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedSet {}

/// Condition of a rule: an address or a port must be in a set, or must not be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Whether the condition is negated.
    pub not: bool,
    /// The set that the condition refers to.
    pub set: SharedSet,
}

impl Membership {
    /// Whether an address satisfies the condition.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.set.0.contains_address(address) != self.not
    }

    /// Whether a port satisfies the condition. A packet without ports satisfies neither a condition on ports nor its
    /// negation.
    pub fn matches_port(&self, port: u32) -> bool {
        u16::try_from(port).is_ok_and(|port| self.set.0.contains_port(port) != self.not)
    }
}
