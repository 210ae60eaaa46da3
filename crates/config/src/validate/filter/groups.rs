//! Resolves address and port groups, and the lists that refer to them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;

use super::MAX_RULE_COMBINATIONS;
use crate::filter::Selection;
use crate::problem::FilterProblem;
use crate::read::{Step, place};
use crate::schema::{Filter, SetType};
use crate::validate::Check;
use crate::value::{Addresses, OneOrMore, OrNot, Ports};

/// Maximum nesting depth of groups.
const DEPTH: usize = 16;

pub(super) const ADDRESSES: &str = "addresses";
pub(super) const PORTS: &str = "ports";

/// Ranges of groups by name.
pub(super) type Resolved<V> = HashMap<String, Vec<(V, V)>>;

/// Resolved groups.
pub(in crate::validate) struct Groups {
    pub(super) addresses: Resolved<IpAddr>,
    pub(super) ports: Resolved<u16>,
    /// Names of sets of addresses and networks, and names of sets of ports.
    sets: [Vec<String>; 2],
}

impl Groups {
    /// These groups without sets, for conditions that do not support sets.
    pub(in crate::validate) fn without_sets(self) -> Self {
        Self {
            sets: Default::default(),
            ..self
        }
    }

    /// The set in a list, with its sign. `None` if the list contains no set.
    fn set_of<M: Member>(&self, description: &str, list: &OneOrMore<OrNot<M>>) -> Option<OrNot<String>> {
        let sets = &self.sets[usize::from(description == PORTS)];
        let name = |one: &OrNot<M>| {
            let name = one.value.group().filter(|&name| sets.iter().any(|set| set == name))?;
            Some(OrNot {
                not: one.not,
                value: name.to_owned(),
            })
        };
        list.0.iter().find_map(name)
    }
}

/// A member of a list: a range or a group.
pub(super) trait Member: Clone {
    type Value: Copy;
    fn group(&self) -> Option<&str>;
    fn range(&self) -> Option<(Self::Value, Self::Value)>;
    /// Complement of ranges: other addresses of the same families, or other numbers.
    fn others(ranges: Vec<(Self::Value, Self::Value)>) -> Vec<(Self::Value, Self::Value)>;
}

/// Complement of ranges between a first and a last value. `next` returns the value after or before a value.
fn others<T: Copy + Ord>(
    mut ranges: Vec<(T, T)>,
    first: T,
    last: T,
    next: impl Fn(T, bool) -> Option<T>,
) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let (mut from, mut found) = (Some(first), Vec::new());
    for (start, end) in ranges {
        let Some(free) = from else { break };
        if let Some(before) = next(start, false).filter(|before| free <= *before) {
            found.push((free, before));
        }
        from = next(end, true).map(|behind| behind.max(free));
    }
    found.extend(from.filter(|from| *from <= last).map(|from| (from, last)));
    found
}

/// Addresses of one family that are not in the ranges.
fn other_addresses(ranges: &[(IpAddr, IpAddr)], v6: bool) -> Vec<(IpAddr, IpAddr)> {
    let Some(named) = Selection::addresses(ranges, v6) else {
        return Vec::new();
    };
    let (first, last) = match v6 {
        true => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into()),
        false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
    };
    let step = |up: bool| {
        move |number: u128| {
            if up {
                number.checked_add(1)
            } else {
                number.checked_sub(1)
            }
        }
    };
    others(named, first, last, |address: IpAddr, up| match address {
        IpAddr::V4(address) => {
            let number = step(up)(address.to_bits().into())?;
            Some(Ipv4Addr::from_bits(u32::try_from(number).ok()?).into())
        }
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(step(up)(address.to_bits())?).into()),
    })
}

/// Ports or interface numbers that are not in the ranges.
pub(super) fn other_numbers(ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    others(ranges, u16::MIN, u16::MAX, |port, up| {
        if up { port.checked_add(1) } else { port.checked_sub(1) }
    })
}

macro_rules! member {
    ($member:ident, $value:ty, $others:expr) => {
        impl Member for $member {
            type Value = $value;
            fn group(&self) -> Option<&str> {
                match self {
                    Self::Group(name) => Some(name),
                    Self::Range(..) => None,
                }
            }
            fn range(&self) -> Option<($value, $value)> {
                match self {
                    Self::Group(_) => None,
                    Self::Range(first, last) => Some((*first, *last)),
                }
            }
            fn others(ranges: Vec<($value, $value)>) -> Vec<($value, $value)> {
                $others(ranges)
            }
        }
    };
}

member!(Addresses, IpAddr, |ranges: Vec<_>| {
    [false, true]
        .into_iter()
        .flat_map(|v6| other_addresses(&ranges, v6))
        .collect()
});
member!(Ports, u16, other_numbers);

impl Check<'_> {
    /// Groups of a filter.
    pub(in crate::validate) fn groups_of(&mut self, filter: &Filter) -> Groups {
        Groups {
            addresses: self.groups(ADDRESSES, &filter.addresses),
            ports: self.groups(PORTS, &filter.ports),
            sets: [false, true].map(|ports| {
                let of = filter
                    .sets
                    .iter()
                    .filter(|(_, set)| (set.kind == SetType::Ports) == ports);
                of.map(|(name, _)| name.clone()).collect()
            }),
        }
    }

    /// Groups by name. Each group is resolved once.
    fn groups<M: Member>(
        &mut self,
        description: &'static str,
        groups: &IndexMap<String, OneOrMore<M>>,
    ) -> Resolved<M::Value> {
        let mut resolved = HashMap::new();
        for name in groups.keys() {
            self.group(description, name, groups, &mut resolved, &mut Vec::new());
        }
        resolved
    }

    /// Resolve a group and the groups that it contains. `within` is the path of groups that contain the group.
    fn group<'g, M: Member>(
        &mut self,
        description: &'static str,
        name: &'g str,
        groups: &'g IndexMap<String, OneOrMore<M>>,
        resolved: &mut Resolved<M::Value>,
        within: &mut Vec<&'g str>,
    ) {
        let (Some(members), false) = (groups.get(name), resolved.contains_key(name)) else {
            return;
        };
        let at = place!["filter", description, name];
        self.name(at, name);
        if members.is_empty() {
            self.refuse(at, FilterProblem::EmptyGroup(name.to_owned()));
        }
        self.in_range(at, "a depth of groups", within.len(), 0..=DEPTH);
        if within.len() > DEPTH {
            return;
        }
        // A group that is being resolved counts as empty, so that a group can't include itself.
        resolved.insert(name.to_owned(), Vec::new());
        within.push(name);
        for inner in members.0.iter().filter_map(Member::group) {
            match within.contains(&inner) {
                true => self.refuse(at, FilterProblem::GroupOfItself(inner.to_owned())),
                false => self.group(description, inner, groups, resolved, within),
            }
        }
        within.pop();
        let found = self.resolve(at, description, members, resolved);
        resolved.insert(name.to_owned(), found);
    }

    /// All ranges of a list, including those of its groups.
    fn resolve<M: Member>(
        &mut self,
        at: &[Step<'_>],
        description: &'static str,
        list: &OneOrMore<M>,
        groups: &Resolved<M::Value>,
    ) -> Vec<(M::Value, M::Value)> {
        let mut found = Vec::new();
        for member in &list.0 {
            match (member.range(), member.group().and_then(|name| groups.get(name))) {
                (Some(range), _) => found.push(range),
                (None, Some(group)) => found.extend(group),
                (None, None) => {
                    let known = groups.keys().cloned().collect();
                    let name = member.group().unwrap_or_default().to_owned();
                    self.refuse(
                        at,
                        FilterProblem::UnknownGroup {
                            name,
                            description,
                            known,
                        },
                    );
                }
            }
            // The limit is checked here because nested groups may multiply the number of ranges.
            if found.len() as u64 > MAX_RULE_COMBINATIONS {
                break;
            }
        }
        found
    }

    /// The set in a list. A set must be the only member of the list.
    pub(super) fn set_alone<M: Member>(
        &mut self,
        at: &[Step<'_>],
        description: &str,
        list: &OneOrMore<OrNot<M>>,
        groups: &Groups,
    ) -> Option<OrNot<String>> {
        let set = groups.set_of(description, list)?;
        if list.0.len() > 1 {
            self.refuse(at, FilterProblem::SetAmongOthers(set.value.clone()));
        }
        Some(OrNot {
            value: self.in_router(set.value),
            ..set
        })
    }

    /// Ranges of a list, or their complement.
    pub(super) fn selected_of<M: Member>(
        &mut self,
        at: &[Step<'_>],
        description: &'static str,
        list: &OneOrMore<OrNot<M>>,
        groups: &Resolved<M::Value>,
    ) -> Vec<(M::Value, M::Value)> {
        let (not, values) = self.sign(at, list);
        let named = self.resolve(at, description, &OneOrMore(values), groups);
        if !not || named.is_empty() {
            return named;
        }
        let others = M::others(named);
        if others.is_empty() {
            self.refuse(at, FilterProblem::NothingLeft);
        }
        others
    }

    /// Values of a list, and whether all values are negated.
    pub(super) fn sign<T: Clone>(&mut self, at: &[Step<'_>], list: &OneOrMore<OrNot<T>>) -> (bool, Vec<T>) {
        let not = list.0.first().is_some_and(|first| first.not);
        if list.0.iter().any(|one| one.not != not) {
            self.refuse(at, FilterProblem::MixedSigns);
        }
        (not, list.0.iter().map(|one| one.value.clone()).collect())
    }
}
