//! Conditions of classes in a form in which they can be checked for a whole burst at once, field by field.

use sluice_filter::{Address, Field, Range, Rule};

/// A field whose values of all packets of a burst are stored one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Column {
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// IP protocol.
    Protocol,
    /// Length of the datagram in bytes.
    Length,
    /// Differentiated services code point.
    Dscp,
    /// Explicit congestion notification.
    Ecn,
    /// TTL or hop limit.
    Ttl,
}

impl Column {
    /// Number of columns.
    pub const COUNT: usize = Self::Ttl as usize + 1;
}

/// A field with one value for all whole TCP and UDP packets that arrive on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// ICMP type and code, which the packets lack.
    Message,
    /// Fragment state.
    Fragment,
    /// VLAN identifier.
    Vlan,
    /// Number of the input interface.
    Incoming,
    /// Number of the output interface.
    Outgoing,
    /// Context.
    Context,
}

/// Where the value of a field is found.
enum Place {
    Column(Column),
    Constant(Constant),
    /// Other fields.
    Elsewhere,
}

impl Place {
    fn of(field: Field) -> Self {
        match field {
            Field::SourcePort => Self::Column(Column::SourcePort),
            Field::DestinationPort => Self::Column(Column::DestinationPort),
            Field::Protocol => Self::Column(Column::Protocol),
            Field::Length => Self::Column(Column::Length),
            Field::Dscp => Self::Column(Column::Dscp),
            Field::Ecn => Self::Column(Column::Ecn),
            Field::Ttl => Self::Column(Column::Ttl),
            Field::Message => Self::Constant(Constant::Message),
            Field::Fragment => Self::Constant(Constant::Fragment),
            Field::Vlan => Self::Constant(Constant::Vlan),
            Field::Incoming => Self::Constant(Constant::Incoming),
            Field::Outgoing => Self::Constant(Constant::Outgoing),
            Field::Context => Self::Constant(Constant::Context),
            Field::Flags | Field::SourceMac | Field::DestinationMac => Self::Elsewhere,
        }
    }
}

/// The conditions of a hyperrectangle on whole TCP and UDP packets. Conditions that match every value are left out.
#[derive(Clone, Debug, Default)]
pub struct Conditions<A> {
    /// Source addresses.
    pub source: Option<Range<A>>,
    /// Destination addresses.
    pub destination: Option<Range<A>>,
    /// For each compared column: the smallest value, and how much larger a value may be.
    pub columns: Vec<(Column, u16, u16)>,
    /// For each compared constant: its values.
    pub constants: Vec<(Constant, Range<u32>)>,
}

impl<A: Address> Conditions<A> {
    /// The conditions of a rule. `None` if the rule has other conditions.
    pub fn of(rule: &Rule<A>) -> Option<Self> {
        let is_any = |range: &Range<A>| (range.first, range.last) == (A::default(), A::LAST);
        let mut conditions = Self {
            source: Some(rule.source).filter(|range| !is_any(range)),
            destination: Some(rule.destination).filter(|range| !is_any(range)),
            ..Self::default()
        };
        for field in Field::ALL.into_iter().filter(|field| !rule.is_any(*field)) {
            let range = rule.get(field);
            match Place::of(field) {
                Place::Column(column) => {
                    // A condition may be on the value that a packet without ports has; these packets all have ports.
                    let first = u16::try_from(range.first).ok()?;
                    let last = u16::try_from(range.last).unwrap_or(u16::MAX);
                    conditions.columns.push((column, first, last - first));
                }
                Place::Constant(constant) => conditions.constants.push((constant, range)),
                Place::Elsewhere => return None,
            }
        }
        Some(conditions)
    }
}
