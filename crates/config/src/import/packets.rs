//! Sets of packets that a line matches. The sets are hyperrectangles, with a set of values for each field.

use std::collections::BTreeMap;

pub use super::fields::Field;
use super::ranges::Ranges;

/// Connection tracking states of a packet.
pub mod state {
    /// The packet belongs to no flow and can't open a flow.
    pub const INVALID: u128 = 0;
    /// The packet opens a flow.
    pub const NEW: u128 = 1;
    /// The packet belongs to a flow.
    pub const ESTABLISHED: u128 = 2;
    /// The packet is related to a flow.
    pub const RELATED: u128 = 3;
    /// The packet is not tracked.
    pub const UNTRACKED: u128 = 4;
}

/// The last MAC address, as a number.
pub const LAST_MAC: u128 = (1 << 48) - 1;

/// Fields that later fragments do not contain.
pub const OF_THE_FIRST: [Field; 4] = [Field::SourcePort, Field::DestinationPort, Field::Message, Field::Flags];

/// Address or port of a packet that is looked up in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
}

impl End {
    /// Field that contains this address or port.
    pub fn field(self) -> Field {
        match self {
            Self::Source => Field::Source,
            Self::Destination => Field::Destination,
            Self::SourcePort => Field::SourcePort,
            Self::DestinationPort => Field::DestinationPort,
        }
    }

    /// The corresponding address or port of a reply, in which source and destination are exchanged.
    fn of_answer(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
            Self::SourcePort => Self::DestinationPort,
            Self::DestinationPort => Self::SourcePort,
        }
    }
}

/// Packets of one family whose fields are all in the given sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Whether the packets are IPv6.
    pub v6: bool,
    fields: [Option<Ranges>; Field::ALL.len()],
    /// Conditions on changeable sets: whether an address or port of the packet must be in the set, or must not be in
    /// it.
    members: BTreeMap<(End, String), bool>,
}

impl Packets {
    /// All packets of a family.
    pub fn all(v6: bool) -> Self {
        Self {
            v6,
            fields: Default::default(),
            members: BTreeMap::new(),
        }
    }

    /// Largest possible value of a field.
    pub fn max(&self, field: Field) -> u128 {
        if let Some(last) = field.last() {
            return last;
        }
        match field {
            Field::Source | Field::Destination if self.v6 => u128::MAX,
            Field::Source | Field::Destination => u128::from(u32::MAX),
            Field::Protocol | Field::Flags => 255,
            Field::SourceMac | Field::DestinationMac => LAST_MAC,
            Field::State => 4,
            _ => 65_535,
        }
    }

    /// Values of a field. `None` if all values are included.
    pub fn get(&self, field: Field) -> Option<&Ranges> {
        self.fields[field as usize].as_ref()
    }

    /// Values of a field.
    pub fn values(&self, field: Field) -> Ranges {
        let all = || Ranges::of(0, self.max(field));
        self.get(field).cloned().unwrap_or_else(all)
    }

    /// The packets of this set, but with the given values of one field.
    pub fn with(&self, field: Field, values: &Ranges) -> Self {
        let mut other = self.clone();
        let all = Ranges::of(0, self.max(field));
        let values = values.and(&all);
        other.fields[field as usize] = (values != all).then_some(values);
        other
    }

    /// Restricts the packets to those whose address or port `end` is in a changeable set. If `is_in` is false, the
    /// address or port must not be in the set. Returns `None` if the restriction contradicts another condition.
    pub fn member(&self, set: &str, end: End, is_in: bool) -> Option<Self> {
        let mut other = Self::all(self.v6);
        other.members.insert((end, set.to_owned()), is_in);
        // Later fragments do not contain the field, so they never match.
        if OF_THE_FIRST.contains(&end.field()) {
            other = other.with(Field::Fragment, &Ranges::of(0, 1));
        }
        self.and(&other)
    }

    /// Conditions on changeable sets.
    pub fn members(&self) -> impl Iterator<Item = (End, &str, bool)> {
        self.members
            .iter()
            .map(|((end, set), is_in)| (*end, set.as_str(), *is_in))
    }

    /// The packets of this set, but with any value of one field.
    pub fn with_any(&self, field: Field) -> Self {
        let mut other = self.clone();
        other.fields[field as usize] = None;
        other.members.retain(|(end, _), _| end.field() != field);
        other
    }

    /// Restricts the packets to those whose field has a value of a set. If `inverted` is true, the value must not be in
    /// the set. Later fragments that do not contain the field don't match.
    pub fn only(&self, field: Field, values: &Ranges, inverted: bool) -> Self {
        let values = if inverted {
            values.not(self.max(field))
        } else {
            values.clone()
        };
        let narrowed = self.with(field, &self.values(field).and(&values));
        match OF_THE_FIRST.contains(&field) {
            true => narrowed.with(Field::Fragment, &self.values(Field::Fragment).and(&Ranges::of(0, 1))),
            false => narrowed,
        }
    }

    /// Whether no packets match.
    pub fn is_empty(&self) -> bool {
        self.fields.iter().flatten().any(Ranges::is_empty)
    }

    /// Whether all packets of the family match.
    pub fn is_all(&self) -> bool {
        self.fields.iter().all(Option::is_none) && self.members.is_empty()
    }

    /// Intersection of two sets of packets. `None` if the intersection is empty.
    pub fn and(&self, other: &Self) -> Option<Self> {
        if self.v6 != other.v6 {
            return None;
        }
        let mut both = self.clone();
        for (own, other) in both.fields.iter_mut().zip(&other.fields) {
            if let Some(other) = other {
                *own = Some(own.as_ref().map_or_else(|| other.clone(), |own| own.and(other)));
                if own.as_ref().is_some_and(Ranges::is_empty) {
                    return None;
                }
            }
        }
        for (member, is_in) in &other.members {
            if *both.members.entry(member.clone()).or_insert(*is_in) != *is_in {
                return None;
            }
        }
        Some(both)
    }

    /// Difference of two sets of packets, as hyperrectangles that don't overlap.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        if self.and(other).is_none() {
            return vec![self.clone()];
        }
        let mut inner = self.clone();
        let mut rest = Vec::new();
        for field in Field::ALL {
            let Some(values) = other.get(field) else { continue };
            let own = inner.values(field);
            let outer = own.without(values);
            if !outer.is_empty() {
                rest.push(inner.with(field, &outer));
            }
            inner = inner.with(field, &own.and(values));
        }
        for (member, is_in) in &other.members {
            if !inner.members.contains_key(member) {
                let mut outer = inner.clone();
                outer.members.insert(member.clone(), !is_in);
                rest.push(outer);
                inner.members.insert(member.clone(), *is_in);
            }
        }
        rest
    }

    /// Whether all packets of this set are in another set.
    pub fn within(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// Replies to the packets. Source and destination and the interfaces are exchanged, and fields that differ within a
    /// flow are not restricted.
    pub fn answers(&self) -> Self {
        let mut answers = self.of_flow();
        for (one, two) in [
            (Field::Source, Field::Destination),
            (Field::SourcePort, Field::DestinationPort),
            (Field::In, Field::Out),
        ] {
            answers.fields.swap(one as usize, two as usize);
        }
        let members = std::mem::take(&mut answers.members).into_iter();
        answers.members = members
            .map(|((end, set), is_in)| ((end.of_answer(), set), is_in))
            .collect();
        // The MAC addresses of a reply are unknown, because a neighbour on the output interface sends the reply.
        [Field::Message, Field::SourceMac, Field::DestinationMac]
            .into_iter()
            .fold(answers, |answers, field| answers.with_any(field))
    }

    /// Later packets of the flows that these packets open.
    pub fn of_flow(&self) -> Self {
        Field::HEADER
            .into_iter()
            .fold(self.with_any(Field::Flags), |packets, field| packets.with_any(field))
            .with(Field::Fragment, &Ranges::of(0, 0))
    }
}

/// Difference of hyperrectangles. `None` if the difference consists of more than `max` hyperrectangles.
pub fn remains(of: Vec<Packets>, without: &[Packets], max: usize) -> Option<Vec<Packets>> {
    let mut left = of;
    for other in without {
        left = left.iter().flat_map(|packets| packets.without(other)).collect();
        if left.len() > max {
            return None;
        }
    }
    Some(left)
}
