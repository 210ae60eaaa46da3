//! Value that the rule table stores with the key of a rule.

use sluice_table::qns::{self, Value4, Value6};

use super::{DestinationAction, HostSetIndex, RuleId, SourceAction};
use crate::{Address, PoolIndex};

/// Unpacked value of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleEntry<A> {
    /// Kind of action, with the flag [`INBOUND`]. The value is less than 256.
    kind: u8,
    /// First address of a prefix, or address of a single host.
    address: A,
    /// Pool index or port.
    number: u16,
    /// Rule number.
    rule: RuleId,
}

/// Representation of a family's addresses and rule values in a rule table.
pub trait Stored: Sized {
    /// Type of an address in the key of a rule table.
    type Number: qns::Address<Value = Self::Value>;
    /// Type of the packed value of a rule.
    type Value: Copy + Default + PartialEq + core::fmt::Debug + Send + Sync + 'static;

    /// Converts the address to its form in a key.
    fn stored(self) -> Self::Number;
    /// Packs the value of a rule.
    fn pack(entry: RuleEntry<Self>) -> Self::Value;
    /// Unpacks a packed value.
    fn unpack(value: Self::Value) -> RuleEntry<Self>;
}

/// Number of low bits of the rule number that are stored in the word of a value. The high bits are stored in the note
/// of the value, below the kind.
const LOW: u32 = 16;
const HIGH: u32 = 4;
const _: () = assert!(RuleId::MAX <= 1 << (LOW + HIGH) && Value4::NOTES >= 1 << (8 + HIGH));

impl Stored for u32 {
    type Number = u32;
    type Value = Value4;

    #[inline(always)]
    fn stored(self) -> u32 {
        self
    }

    #[inline(always)]
    fn pack(entry: RuleEntry<u32>) -> Value4 {
        let RuleId(rule) = entry.rule;
        Value4 {
            word: u64::from(entry.address) << 32 | u64::from(entry.number) << LOW | u64::from(rule & 0xffff),
            note: u16::from(entry.kind) << HIGH | (rule >> LOW) as u16,
        }
    }

    #[inline(always)]
    fn unpack(value: Value4) -> RuleEntry<u32> {
        RuleEntry {
            kind: (value.note >> HIGH) as u8,
            address: (value.word >> 32) as u32,
            number: (value.word >> LOW) as u16,
            rule: RuleId(u32::from(value.note & ((1 << HIGH) - 1)) << LOW | (value.word & 0xffff) as u32),
        }
    }
}

impl Stored for [u64; 2] {
    type Number = u128;
    type Value = Value6;

    #[inline(always)]
    fn stored(self) -> u128 {
        self.number()
    }

    #[inline(always)]
    fn pack(entry: RuleEntry<[u64; 2]>) -> Value6 {
        let [high, low] = entry.address;
        let rest = u64::from(entry.kind) << 48 | u64::from(entry.number) << 32 | u64::from(entry.rule.0);
        Value6([high, low, rest])
    }

    #[inline(always)]
    fn unpack(value: Value6) -> RuleEntry<[u64; 2]> {
        let [high, low, rest] = value.0;
        RuleEntry {
            kind: (rest >> 48) as u8,
            address: [high, low],
            number: (rest >> 32) as u16,
            rule: RuleId(rest as u32),
        }
    }
}

const EXEMPT: u8 = 0;
const STATIC: u8 = 1;
const POOL: u8 = 2;
/// Translate to a host, and keep the port.
const HOST: u8 = 2;
/// Translate to a host and to a given port.
const HOST_AND_PORT: u8 = 3;
/// Translate to a host of a set, and keep the port.
const HOSTS: u8 = 4;
const HOSTS_AND_PORT: u8 = 5;
/// Flag: the rule has an inbound interface.
const INBOUND: u8 = 1 << 7;

impl<A: Address> RuleEntry<A> {
    pub fn of_source(action: SourceAction<A>, rule: RuleId) -> Self {
        let (kind, address, number) = match action {
            SourceAction::Exempt => (EXEMPT, A::from_number(0), 0),
            SourceAction::Static(outside) => (STATIC, outside, 0),
            SourceAction::Pool(pool) => (POOL, A::from_number(0), pool),
        };
        Self {
            kind,
            address,
            number,
            rule,
        }
    }

    pub fn of_destination(action: DestinationAction<A>, rule: RuleId, inbound: bool) -> Self {
        let (kind, address, number) = match action {
            DestinationAction::Exempt => (EXEMPT, A::from_number(0), 0),
            DestinationAction::Static(inside) => (STATIC, inside, 0),
            DestinationAction::Host(target, None) => (HOST, target, 0),
            DestinationAction::Host(target, Some(port)) => (HOST_AND_PORT, target, port),
            DestinationAction::Hosts(set, None) => (HOSTS, A::from_number(set.into()), 0),
            DestinationAction::Hosts(set, Some(port)) => (HOSTS_AND_PORT, A::from_number(set.into()), port),
        };
        Self {
            kind: kind | if inbound { INBOUND } else { 0 },
            address,
            number,
            rule,
        }
    }

    #[inline(always)]
    pub fn rule(&self) -> RuleId {
        self.rule
    }

    #[inline(always)]
    pub fn source(&self) -> SourceAction<A> {
        match self.kind {
            EXEMPT => SourceAction::Exempt,
            STATIC => SourceAction::Static(self.address),
            _ => SourceAction::Pool(self.number as PoolIndex),
        }
    }

    fn set(&self) -> HostSetIndex {
        self.address.number() as HostSetIndex
    }

    /// Whether the rule has an inbound interface.
    #[inline(always)]
    pub fn is_inbound(&self) -> bool {
        self.kind & INBOUND != 0
    }

    #[inline(always)]
    pub fn destination(&self) -> DestinationAction<A> {
        match self.kind & !INBOUND {
            EXEMPT => DestinationAction::Exempt,
            STATIC => DestinationAction::Static(self.address),
            HOST => DestinationAction::Host(self.address, None),
            HOSTS => DestinationAction::Hosts(self.set(), None),
            HOSTS_AND_PORT => DestinationAction::Hosts(self.set(), Some(self.number)),
            _ => DestinationAction::Host(self.address, Some(self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds<A: Address>(address: A) {
        for rule in [0, 1, 0xffff, 0x1_0000, RuleId::MAX - 1].map(RuleId) {
            for action in [
                SourceAction::Exempt,
                SourceAction::Static(address),
                SourceAction::Pool(0xfffe),
            ] {
                let entry = A::unpack(A::pack(RuleEntry::of_source(action, rule)));
                assert_eq!((action, rule), (entry.source(), entry.rule()));
            }
            for action in [
                DestinationAction::Exempt,
                DestinationAction::Static(address),
                DestinationAction::Host(address, None),
                DestinationAction::Host(address, Some(0)),
                DestinationAction::Host(address, Some(65_535)),
                DestinationAction::Hosts(0, None),
                DestinationAction::Hosts(65_535, Some(65_535)),
            ] {
                for inbound in [false, true] {
                    let entry = A::unpack(A::pack(RuleEntry::of_destination(action, rule, inbound)));
                    assert_eq!(
                        (action, rule, inbound),
                        (entry.destination(), entry.rule(), entry.is_inbound())
                    );
                }
            }
        }
    }

    #[test]
    fn what_a_rule_says_is_kept_in_both_families() {
        holds(0xffff_fffe_u32);
        holds([u64::MAX, 1]);
    }
}
