//! Numbering of the MAC addresses in rules. A packet's addresses are mapped to numbers once, and matchers compare the
//! numbers.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::FilterError;
use crate::{Address, Field, Rule};

/// Condition on a MAC address: the address is in the list, or the list is empty. A packet without an Ethernet header
/// satisfies only a condition with an empty list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacCondition {
    /// Whether the condition is negated.
    pub not: bool,
    /// The listed addresses.
    pub of: Vec<[u8; 6]>,
}

/// All MAC addresses in rules, in ascending order.
#[derive(Debug, Default)]
pub struct MacTable(Box<[[u8; 6]]>);

impl MacTable {
    /// Number of every address that no rule contains. Number 0 means that the packet has no Ethernet header.
    const OTHER: u32 = 1;
    /// Number of the first address in the table.
    const FIRST: u32 = 2;
    /// Maximum number of addresses in the table.
    const MAX: usize = (Field::SourceMac.last_named() - Self::FIRST) as usize;

    /// Collects the addresses of all conditions.
    pub fn new<'r>(named: impl Iterator<Item = &'r MacCondition>) -> Result<Self, FilterError> {
        let all: BTreeSet<[u8; 6]> = named.flat_map(|macs| macs.of.iter().copied()).collect();
        match all.len() > Self::MAX {
            true => Err(FilterError::TooManyMacs(all.len())),
            false => Ok(Self(all.into_iter().collect())),
        }
    }

    /// Whether the rules contain no MAC addresses. Without MAC addresses in rules, packets need no lookup of their MAC
    /// addresses.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of an address in an Ethernet header, for [`Field::SourceMac`] and [`Field::DestinationMac`].
    pub fn number(&self, mac: [u8; 6]) -> u32 {
        match self.0.binary_search(&mac) {
            Ok(place) => Self::FIRST + place as u32,
            Err(_) => Self::OTHER,
        }
    }

    /// Ranges of numbers that satisfy a condition, each as its first and its last number.
    fn numbers(&self, macs: &MacCondition) -> Vec<(u32, u32)> {
        let named: BTreeSet<u32> = macs.of.iter().map(|&mac| self.number(mac)).collect();
        if !macs.not {
            return named.into_iter().map(|number| (number, number)).collect();
        }
        let (mut free, mut others) = (Self::OTHER, Vec::new());
        for number in named {
            if free < number {
                others.push((free, number - 1));
            }
            free = number + 1;
        }
        others.push((free, Field::SourceMac.last_named()));
        others
    }

    /// The hyperrectangles of a rule, to which the rule's conditions on source and destination MAC address are added.
    pub fn hyperrectangles<'b, A: Address>(
        &self,
        hyperrectangles: &'b [Rule<A>],
        macs: &[MacCondition; 2],
    ) -> Cow<'b, [Rule<A>]> {
        let mut found = Cow::Borrowed(hyperrectangles);
        for (field, macs) in [Field::SourceMac, Field::DestinationMac].into_iter().zip(macs) {
            if macs.of.is_empty() {
                continue;
            }
            let numbers = self.numbers(macs);
            let of = |one: &Rule<A>| -> Vec<Rule<A>> {
                let with = |&(first, last)| one.clone().with(field, first, last);
                // `with` can't fail, because no range is reversed or exceeds the field.
                numbers.iter().filter_map(|range| with(range).ok()).collect()
            };
            found = found.iter().flat_map(of).collect::<Vec<_>>().into();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn macs(not: bool, of: &[u8]) -> MacCondition {
        let of = of.iter().map(|&last| [2, 0, 0, 0, 0, last]).collect();
        MacCondition { not, of }
    }

    #[test]
    fn stations_that_rules_name_have_numbers_and_others_share_one() {
        let (all, twice) = (macs(false, &[7, 1]), macs(true, &[7]));
        let stations = MacTable::new([&all, &twice].into_iter()).unwrap();
        let number = |last| stations.number([2, 0, 0, 0, 0, last]);
        assert_eq!([1, 2, 1, 3], [0, 1, 2, 7].map(number));
        assert_eq!(vec![(2, 2), (3, 3)], stations.numbers(&all));
        assert_eq!(vec![(1, 2), (4, 65_535)], stations.numbers(&twice));
        assert_eq!(vec![(1, 1), (4, 65_535)], stations.numbers(&macs(true, &[7, 1])));
        assert!(
            MacTable::new([&MacCondition::default()].into_iter())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn stations_beyond_the_numbers_that_there_are_are_refused() {
        let of = |count: u32| {
            let mac = |number: u32| {
                let [_, a, b, c] = number.to_be_bytes();
                [2, 0, 0, a, b, c]
            };
            let macs = MacCondition {
                not: false,
                of: (0..count).map(mac).collect(),
            };
            MacTable::new([&macs].into_iter()).map(|stations| stations.0.len())
        };
        assert_eq!(Ok(65_533), of(65_533));
        assert_eq!(Err(FilterError::TooManyMacs(65_534)), of(65_534));
    }
}
