//! Rules: what is translated, and how. The most specific one that matches decides, whatever the order they were written in.
//!
//! Source rules are found by where a packet comes from and by which interface it leaves, destination rules by what it is
//! addressed to and by which interface it came; destination rules are asked first, source rules about the result (P4,
//! section 2.2). Longer prefixes come before shorter ones, then a port before none, a protocol before any, an interface
//! before any.

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

/// Set in the context of rules about what the host of a virtual router sends itself; the router's number is below it.
pub const FROM_HOST: Context = 1 << 16;

/// Addresses that share their first `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// The first address.
    pub address: A,
    /// Length in bits.
    pub length: u8,
}

impl<A: Address> Prefix<A> {
    /// One address.
    pub fn host(address: A) -> Self {
        let length = A::BITS;
        Self { address, length }
    }

    #[inline(always)]
    fn host_bits(self) -> u128 {
        let bits = u32::from(A::BITS - self.length.min(A::BITS));
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }

    /// Is the address one of them?
    #[inline(always)]
    pub fn contains(self, address: A) -> bool {
        (address.number() ^ self.address.number()) & !self.host_bits() == 0
    }

    /// The last address.
    pub fn last(self) -> A {
        A::from_number(self.address.number() | self.host_bits())
    }

    /// The address at the place in this prefix that `address` has in one as long.
    #[inline(always)]
    pub fn same_place(self, address: A) -> A {
        let bits = self.host_bits();
        A::from_number(self.address.number() & !bits | address.number() & bits)
    }
}

/// A rule's number, among the source rules or the destination rules of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

impl RuleId {
    /// As many rules are possible, of either kind.
    pub const MAX: u32 = 1 << 20;
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Translate the source of what comes from `inside` and leaves through `outside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceRule<A> {
    /// Context of the inside key.
    pub context: Context,
    /// Inside addresses.
    pub inside: Prefix<A>,
    /// IP protocol; any where none is named.
    pub protocol: Option<u8>,
    /// Inside port; any where none is named.
    pub port: Option<u16>,
    /// Interface that the packet leaves through; any where none is named.
    pub outside: Option<u16>,
    /// What becomes of the source.
    pub action: SourceAction<A>,
}

impl<A: Address> SourceRule<A> {
    /// A rule for all that comes from some addresses.
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

/// What becomes of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceAction<A> {
    /// An address and port of a pool.
    Pool(PoolIndex),
    /// One to one: the address at the same place in a prefix as long. In a rule its first address, in a decision the one.
    Static(A),
    /// It stays.
    Exempt,
}

/// Translate the destination of what is addressed to `external`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DestinationRule<A> {
    /// Context of the outside key.
    pub context: Context,
    /// IP protocol; any where none is named.
    pub protocol: Option<u8>,
    /// The addresses as outside sees them.
    pub external: Prefix<A>,
    /// First and last port; all where none are named.
    pub ports: Option<(u16, u16)>,
    /// Interface that the packet comes in by; any where none is named. What comes in by a named one is led to its target at
    /// once: it does not turn back at an outside address first.
    pub inbound: Option<u16>,
    /// What becomes of the destination.
    pub action: DestinationAction<A>,
}

impl<A: Address> DestinationRule<A> {
    /// A rule for all that is addressed to some addresses.
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

/// What becomes of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DestinationAction<A> {
    /// An inside host, and its port of the first port; the others follow. The same ports where none is named.
    Host(A, Option<u16>),
    /// A host of a set, and its port as of a single one.
    Hosts(HostSetIndex, Option<u16>),
    /// One to one: the address at the same place in a prefix as long, of which this is the first.
    Static(A),
    /// Neither destination nor source is translated (RFC 6888, REQ-6).
    Exempt,
}

/// Where a destination rule sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<A> {
    /// Inside address.
    pub address: A,
    /// Inside port.
    pub port: u16,
}

/// What destination rules say of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<A> {
    /// It is sent elsewhere.
    To(Target<A>),
    /// It is sent to a host of a set, and to this port of it.
    Among(HostSetIndex, u16),
    /// It is not translated at all.
    Exempt,
}
