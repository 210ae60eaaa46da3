//! Translation rules. The most specific matching rule applies, independent of the order in the configuration.
//!
//! Source rules match source address and output interface; destination rules match destination address and input
//! interface. Destination rules are evaluated first, and source rules are evaluated for the translated packet (P4,
//! section 2.2). Specificity is compared in this order: longer prefix, port before no port, protocol before any
//! protocol, interface before any interface.

mod changes;
mod check;
mod editor;
mod entry;
mod forwarded;
mod hits;
mod hosts;
mod rules;

use core::fmt;

use sluice_wire::Context;

pub use self::changes::Changed;
pub use self::check::RuleError;
pub use self::entry::Stored;
pub use self::hosts::{Balance, HostSet, HostSetIndex, HostState, SetHost};
pub use self::rules::{RuleMatch, Rules};
use crate::{Address, PoolIndex};

/// Context flag of rules for packets from the host stack of a virtual router. The lower bits contain the router's
/// number.
pub const FROM_HOST: Context = 1 << 16;

/// A prefix: the set of addresses with the same first `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// First address of the prefix.
    pub address: A,
    /// Length of the prefix in bits.
    pub length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of a single address.
    pub fn host(address: A) -> Self {
        let length = A::BITS;
        Self { address, length }
    }

    #[inline(always)]
    fn host_bits(self) -> u128 {
        let bits = u32::from(A::BITS - self.length.min(A::BITS));
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }

    /// Whether the prefix contains the address.
    #[inline(always)]
    pub fn contains(self, address: A) -> bool {
        (address.number() ^ self.address.number()) & !self.host_bits() == 0
    }

    /// Last address of the prefix.
    pub fn last(self) -> A {
        A::from_number(self.address.number() | self.host_bits())
    }

    /// The address of this prefix with the host bits of `address`. `address` belongs to a different prefix of equal
    /// length.
    #[inline(always)]
    pub fn with_host_bits_of(self, address: A) -> A {
        let bits = self.host_bits();
        A::from_number(self.address.number() & !bits | address.number() & bits)
    }
}

/// Rule number. A rule number is unique among the source rules, or among the destination rules, of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

impl RuleId {
    /// Maximum number of source rules, and of destination rules.
    pub const MAX: u32 = 1 << 20;
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Translates the source of packets from `inside` that leave through `outside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceRule<A> {
    /// Context of the inside key.
    pub context: Context,
    /// Inside addresses.
    pub inside: Prefix<A>,
    /// IP protocol; `None` matches any.
    pub protocol: Option<u8>,
    /// Inside port; `None` matches any.
    pub port: Option<u16>,
    /// Output interface; `None` matches any.
    pub outside: Option<u16>,
    /// Action on the source.
    pub action: SourceAction<A>,
}

impl<A: Address> SourceRule<A> {
    /// A rule for all packets from a prefix.
    pub fn of(inside: Prefix<A>, action: SourceAction<A>) -> Self {
        Self {
            context: 0,
            inside,
            protocol: None,
            port: None,
            outside: None,
            action,
        }
    }
}

/// Action of a source rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceAction<A> {
    /// Translate to an address and port of a pool.
    Pool(PoolIndex),
    /// Translate one to one, to the address with the same host bits in a prefix of equal length. In a rule, the value
    /// is the first address of the target prefix. In a match result, the value is the translated address.
    Static(A),
    /// Leave the source unchanged.
    Exempt,
}

/// Translates the destination of packets to `external`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DestinationRule<A> {
    /// Context of the outside key.
    pub context: Context,
    /// IP protocol; `None` matches any.
    pub protocol: Option<u8>,
    /// External addresses, which are visible from outside.
    pub external: Prefix<A>,
    /// First and last external port; `None` matches all ports.
    pub ports: Option<(u16, u16)>,
    /// Input interface; `None` matches any. With an input interface, packets are sent directly to their target, without
    /// hairpinning at an outside address.
    pub inbound: Option<u16>,
    /// Action on the destination.
    pub action: DestinationAction<A>,
}

impl<A: Address> DestinationRule<A> {
    /// A rule for all packets to a prefix.
    pub fn of(external: Prefix<A>, action: DestinationAction<A>) -> Self {
        Self {
            context: 0,
            protocol: None,
            external,
            ports: None,
            inbound: None,
            action,
        }
    }
}

/// Action of a destination rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DestinationAction<A> {
    /// Translate to an inside host. The port is the target of the first external port; further ports follow
    /// consecutively. `None` keeps the ports.
    Host(A, Option<u16>),
    /// Translate to a host of a set. The port has the meaning described for [`DestinationAction::Host`].
    Hosts(HostSetIndex, Option<u16>),
    /// Translate one to one, to the address with the same host bits in a prefix of equal length. The value is the first
    /// address of that prefix.
    Static(A),
    /// Translate neither the destination nor the source (RFC 6888, REQ-6).
    Exempt,
}

/// Target of a destination rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<A> {
    /// Inside address.
    pub address: A,
    /// Inside port.
    pub port: u16,
}

/// Result of matching destination rules with a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<A> {
    /// Translate the destination to this target.
    To(Target<A>),
    /// Translate the destination to a host of this set, with this port.
    Among(HostSetIndex, u16),
    /// Don't translate the flow.
    Exempt,
}
