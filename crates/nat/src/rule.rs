//! Rules: what is translated. A list, asked in order of specificity, whatever the order it was written in.

use core::net::IpAddr;
use core::ops::Range;
use std::collections::{BTreeSet, HashMap};

use sluice_wire::Context;
use thiserror::Error;

use crate::ports::PortClass;
use crate::{Address, PoolIndex, Pools, Tuple};

/// Addresses that share their first `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix<A> {
    /// The first address.
    pub address: A,
    /// Length in bits.
    pub length: u8,
}

impl<A: Address> Prefix<A> {
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
}

/// Translate the source of what comes from `inside` and leaves through `outside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRule<A> {
    /// Context of the inside key.
    pub context: Context,
    /// Inside addresses.
    pub inside: Prefix<A>,
    /// Interface that the packet leaves through; any where none is named.
    pub outside: Option<u16>,
    /// Where outside addresses and ports come from.
    pub pool: PoolIndex,
}

/// Translate the destination of what is addressed to `external`: static port forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationRule<A> {
    /// Context of the outside key.
    pub context: Context,
    /// IP protocol; any where none is named.
    pub protocol: Option<u8>,
    /// The address as outside sees it.
    pub external: A,
    /// First and last port; all where none are named.
    pub ports: Option<(u16, u16)>,
    /// The inside address.
    pub target: A,
    /// Inside port of the first port; the others follow. The same ports where none is named.
    pub target_port: Option<u16>,
}

/// Where a destination rule sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<A> {
    /// Inside address.
    pub address: A,
    /// Inside port.
    pub port: u16,
}

/// Why rules are refused. Rules are counted from 0 in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// A prefix longer than an address.
    #[error("source rule {rule}: /{length} is longer than an address")]
    TooLong {
        /// The rule.
        rule: usize,
        /// Its prefix length.
        length: u8,
    },
    /// A prefix with bits set behind its length.
    #[error("source rule {rule}: {address}/{length} has bits set behind its length")]
    HostBits {
        /// The rule.
        rule: usize,
        /// Its address.
        address: IpAddr,
        /// Its prefix length.
        length: u8,
    },
    /// A pool that does not exist.
    #[error("source rule {rule} names pool {pool}, which does not exist")]
    UnknownPool {
        /// The rule.
        rule: usize,
        /// The pool.
        pool: PoolIndex,
    },
    /// Two source rules with the same prefix and interface.
    #[error("source rules {rule} and {other} match the same packets")]
    SameSource {
        /// The one.
        rule: usize,
        /// The other.
        other: usize,
    },
    /// Ports without a protocol that has them.
    #[error("destination rule {rule} names ports, but not TCP or UDP")]
    PortsWithoutProtocol {
        /// The rule.
        rule: usize,
    },
    /// A port range that is empty, or whose target ports pass 65535.
    #[error("destination rule {rule}: ports {first}-{last} are no range, or the target's pass 65535")]
    BadPorts {
        /// The rule.
        rule: usize,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// A target port without ports that it begins.
    #[error("destination rule {rule} names a target port, but no ports")]
    TargetPortAlone {
        /// The rule.
        rule: usize,
    },
    /// Two destination rules of which neither is the more specific one.
    #[error("destination rules {rule} and {other} overlap, and neither is within the other")]
    SameDestination {
        /// The one.
        rule: usize,
        /// The other.
        other: usize,
    },
    /// A destination rule for an address and port that a pool lends.
    #[error("destination rule {rule} forwards {address} port {first}-{last}, which pool {pool} lends")]
    Lent {
        /// The rule.
        rule: usize,
        /// Its external address.
        address: IpAddr,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
        /// The pool.
        pool: PoolIndex,
    },
}

/// Source rules that are compared one after the other; more are found by their prefix.
const FEW: usize = 8;

/// Where the source rules of a prefix lie in the list, by context, length and address.
#[derive(Clone, Debug, Default)]
struct Index {
    /// Lengths of prefixes that rules have, longest first.
    lengths: Box<[u8]>,
    places: HashMap<(Context, u8, u128), Range<usize>>,
}

impl Index {
    /// Of rules of which those with one prefix lie together.
    fn new<A: Address>(rules: &[SourceRule<A>]) -> Self {
        if rules.len() <= FEW {
            return Self::default();
        }
        let mut index = Self {
            lengths: rules
                .iter()
                .map(|rule| rule.inside.length)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .rev()
                .collect(),
            places: HashMap::with_capacity(rules.len()),
        };
        for (place, rule) in rules.iter().enumerate() {
            let key = (rule.context, rule.inside.length, rule.inside.address.number());
            index.places.entry(key).or_insert(place..place).end = place + 1;
        }
        index
    }
}

/// Rules that have been checked, most specific first. Immutable: a change makes new ones.
#[derive(Clone, Debug)]
pub struct Rules<A> {
    source: Box<[SourceRule<A>]>,
    index: Index,
    destination: Box<[DestinationRule<A>]>,
    /// A bit for each port that some destination rule forwards.
    forwarded: Box<[u64; 1024]>,
}

impl<A: Address> Default for Rules<A> {
    fn default() -> Self {
        Self {
            source: Box::default(),
            index: Index::default(),
            destination: Box::default(),
            forwarded: Box::new([0; 1024]),
        }
    }
}

impl<A: Address> Rules<A> {
    /// Check the rules, each alone, against each other, and against the pools.
    pub fn new(
        source: &[SourceRule<A>],
        destination: &[DestinationRule<A>],
        pools: &Pools<A>,
    ) -> Result<Self, RuleError> {
        check_source(source, pools)?;
        check_destination(destination, pools)?;
        let mut forwarded = Box::new([0u64; 1024]);
        for (first, last) in destination.iter().map(ports) {
            for port in first..=last {
                forwarded[usize::from(port / 64)] |= 1 << (port % 64);
            }
        }
        let mut source: Box<[_]> = source.into();
        source.sort_by_key(|rule| {
            let inside = rule.inside;
            (
                core::cmp::Reverse(inside.length),
                rule.context,
                inside.address.number(),
                rule.outside.is_none(),
            )
        });
        let mut destination: Box<[_]> = destination.into();
        destination.sort_by_key(|rule| {
            let (first, last) = ports(rule);
            (rule.protocol.is_none(), last - first)
        });
        Ok(Self {
            index: Index::new(&source),
            source,
            destination,
            forwarded,
        })
    }

    /// Source rules, most specific first.
    pub fn source(&self) -> &[SourceRule<A>] {
        &self.source
    }

    /// Destination rules, most specific first.
    pub fn destination(&self) -> &[DestinationRule<A>] {
        &self.destination
    }

    /// May a destination rule match this port? A cheap no for most packets.
    #[inline(always)]
    pub fn maybe_forwarded(&self, port: u16) -> bool {
        self.forwarded[usize::from(port / 64)] >> (port % 64) & 1 != 0
    }

    /// Where the most specific destination rule sends the flow: exact protocol before any, few ports before many.
    #[inline]
    pub fn decide_destination<T: Tuple<Address = A>>(&self, key: &T, protocol: u8) -> Option<Target<A>> {
        let port = key.destination_port();
        if !self.maybe_forwarded(port) {
            return None;
        }
        let rule = self.destination.iter().find(|rule| {
            let (first, last) = ports(rule);
            rule.external == key.destination()
                && rule.context == key.context()
                && rule.protocol.is_none_or(|named| named == protocol)
                && first <= port
                && port <= last
        })?;
        let shift = rule.target_port.map_or(0, |target| target.wrapping_sub(ports(rule).0));
        Some(Target {
            address: rule.target,
            port: port.wrapping_add(shift),
        })
    }

    /// The pool of the most specific source rule: longest prefix, then a named interface before any. Asked with
    /// the key as destination rules left it, and the interface that the packet leaves through.
    #[inline]
    pub fn decide_source<T: Tuple<Address = A>>(&self, key: &T, interface: u16) -> Option<PoolIndex> {
        let leaves = |rule: &&SourceRule<A>| rule.outside.is_none_or(|named| named == interface);
        if self.source.len() <= FEW {
            let inside = |rule: &&SourceRule<A>| rule.inside.contains(key.source()) && rule.context == key.context();
            let rule = self.source.iter().filter(inside).find(leaves)?;
            return Some(rule.pool);
        }
        self.index.lengths.iter().find_map(|&length| {
            let prefix = Prefix {
                address: key.source(),
                length,
            };
            let address = key.source().number() & !prefix.host_bits();
            let places = self.index.places.get(&(key.context(), length, address))?;
            let rules = self.source.get(places.clone())?;
            rules.iter().find(leaves).map(|rule| rule.pool)
        })
    }
}

/// First and last port of a destination rule.
#[inline(always)]
fn ports<A>(rule: &DestinationRule<A>) -> (u16, u16) {
    rule.ports.unwrap_or((0, u16::MAX))
}

fn check_source<A: Address>(rules: &[SourceRule<A>], pools: &Pools<A>) -> Result<(), RuleError> {
    let mut keys: Vec<_> = Vec::with_capacity(rules.len());
    for (
        rule,
        &SourceRule {
            context,
            inside,
            outside,
            pool,
        },
    ) in rules.iter().enumerate()
    {
        let length = inside.length;
        if length > A::BITS {
            return Err(RuleError::TooLong { rule, length });
        }
        if inside.address.number() & inside.host_bits() != 0 {
            return Err(RuleError::HostBits {
                rule,
                address: inside.address.display(),
                length,
            });
        }
        if pools.get(pool).is_none_or(|pool| pool.addresses() == 0) {
            return Err(RuleError::UnknownPool { rule, pool });
        }
        keys.push((context, inside, outside, rule));
    }
    keys.sort_unstable();
    for pair in keys.windows(2) {
        if let [(a, b, c, rule), (d, e, f, other)] = pair
            && (a, b, c) == (d, e, f)
        {
            return Err(RuleError::SameSource {
                rule: *rule,
                other: *other,
            });
        }
    }
    Ok(())
}

fn check_destination<A: Address>(rules: &[DestinationRule<A>], pools: &Pools<A>) -> Result<(), RuleError> {
    let mut keys: Vec<_> = Vec::with_capacity(rules.len());
    for (rule, named) in rules.iter().enumerate() {
        let (first, last) = ports(named);
        if named.ports.is_some() && !matches!(named.protocol, Some(6 | 17)) {
            return Err(RuleError::PortsWithoutProtocol { rule });
        }
        if named.ports.is_none() && named.target_port.is_some() {
            return Err(RuleError::TargetPortAlone { rule });
        }
        if last < first
            || named
                .target_port
                .is_some_and(|target| u32::from(target) + u32::from(last - first) > 65_535)
        {
            return Err(RuleError::BadPorts { rule, first, last });
        }
        let shares = named
            .protocol
            .is_none_or(|number| PortClass::of(number, A::BITS).is_some());
        if shares && let Some(pool) = pools.lends(named.external, first, last) {
            return Err(RuleError::Lent {
                rule,
                address: named.external.display(),
                first,
                last,
                pool,
            });
        }
        keys.push(((named.context, named.external, named.protocol), first, last, rule));
    }
    // By first port, the wider range before those within it: a stack of open ranges finds every crossing.
    keys.sort_unstable_by_key(|&(key, first, last, rule)| (key, first, core::cmp::Reverse(last), rule));
    let mut open: Vec<_> = Vec::new();
    for (key, first, last, rule) in keys {
        while open
            .last()
            .is_some_and(|&(other, _, end, _)| other != key || end < first)
        {
            open.pop();
        }
        if let Some(&(_, start, end, other)) = open.last()
            && (last > end || (first, last) == (start, end))
        {
            return Err(RuleError::SameDestination {
                rule: other,
                other: rule,
            });
        }
        open.push((key, first, last, rule));
    }
    Ok(())
}
