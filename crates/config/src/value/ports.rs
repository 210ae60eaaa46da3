//! Ports, port ranges, and protocols with ports.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ValueError, written_as_text};

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// IANA protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl FromStr for Transport {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err(ValueError::Transport(text.into())),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// An inclusive range of ports. A range is written as one port or as `first-last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Creates a range. `None` if `last` is less than `first` or `first` is 0.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || last < first {
            None
        } else {
            Some(Self { first, last })
        }
    }

    /// Creates a range of one port. `None` for port 0.
    pub const fn one(port: u16) -> Option<Self> {
        Self::new(port, port)
    }

    /// Ports that are not well-known: 1024 to 65535.
    pub const UNPRIVILEGED: Self = Self {
        first: 1024,
        last: u16::MAX,
    };

    /// Lowest port.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// Highest port.
    pub const fn last(&self) -> u16 {
        self.last
    }

    /// Number of ports, 1 to 65,535.
    pub const fn count(&self) -> u16 {
        self.last - self.first + 1
    }

    /// Intersection of two ranges.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// A range of the same size that begins at `first`. `None` if the range would exceed port 65535.
    pub fn moved_to(&self, first: u16) -> Option<Self> {
        Self::new(first, first.checked_add(self.last - self.first)?)
    }
}

impl FromStr for PortRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |part: &str| part.trim().parse().ok().filter(|&port: &u16| port != 0);
        let (Some(first), Some(last)) = (port(first), port(last)) else {
            return Err(ValueError::Ports(text.into()));
        };
        Self::new(first, last).ok_or_else(|| ValueError::Reversed(text.into()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

written_as_text!(PortRange, "a port or a range such as \"1024-65535\"");

/// Port ranges in any order. Port ranges are written as one range or as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRanges(pub Vec<PortRange>);

impl PortRanges {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Range from the lowest to the highest port. `None` for an empty list.
    pub fn hull(&self) -> Option<PortRange> {
        let first = self.0.iter().map(PortRange::first).min()?;
        PortRange::new(first, self.0.iter().map(PortRange::last).max()?)
    }

    /// Ports that are not in `others`, as ascending ranges that neither overlap nor are adjacent.
    pub fn without(&self, others: &Self) -> Vec<PortRange> {
        let mut free: Vec<PortRange> = Vec::new();
        for port in self.merged() {
            let (mut from, last) = (u32::from(port.first), port.last);
            for other in others.merged() {
                let end = u32::from(other.first).min(u32::from(last) + 1);
                free.extend(
                    u16::try_from(from)
                        .ok()
                        .and_then(|from| PortRange::new(from, (end - 1) as u16)),
                );
                from = from.max(u32::from(other.last) + 1);
            }
            free.extend(u16::try_from(from).ok().and_then(|from| PortRange::new(from, last)));
        }
        free
    }

    /// These ports, as ascending ranges that neither overlap nor are adjacent.
    fn merged(&self) -> Vec<PortRange> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let mut merged: Vec<PortRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(before) if u32::from(range.first) <= u32::from(before.last) + 1 => {
                    before.last = before.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        merged
    }
}

impl From<PortRange> for PortRanges {
    fn from(range: PortRange) -> Self {
        Self(vec![range])
    }
}

impl Serialize for PortRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [range] => range.serialize(serializer),
            ranges => ranges.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PortRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = PortRanges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a range of ports such as \"1024-65535\", or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PortRanges, E> {
                let range: Result<PortRange, _> = text.parse();
                range
                    .map(PortRanges::from)
                    .map_err(|e| E::custom(format!("{e}\n{}", e.hint())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<PortRanges, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PortRanges, A::Error> {
                let mut ranges = Vec::new();
                while let Some(range) = list.next_element()? {
                    ranges.push(range);
                }
                Ok(PortRanges(ranges))
            }
        }

        deserializer.deserialize_any(Read)
    }
}

/// A port, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(u16);

impl Port {
    /// Port number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl FromStr for Port {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .ok()
            .filter(|&port| port != 0)
            .map(Self)
            .ok_or_else(|| ValueError::Port(text.into()))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(Port, "a port");

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> PortRanges {
        PortRanges(text.split_whitespace().map(|range| range.parse().unwrap()).collect())
    }

    #[test]
    fn port_ranges_without_others_are_what_remains() {
        let free = |ports, reserved| ranges(ports).without(&ranges(reserved));
        assert_eq!(ranges("1024-65535").0, free("1024-65535", ""));
        assert_eq!(
            ranges("1024-5003 5005-65534").0,
            free("1024-65535", "65535 5004 1-1023")
        );
        assert_eq!(ranges("1-9 30-40").0, free("30-40 1-5 6-9", "10-29"));
        assert_eq!(ranges("2-8").0, free("1-9", "9 1"));
        assert_eq!(ranges("").0, free("5-9", "1-6 7-65535"));
        assert_eq!(Some(PortRange { first: 1, last: 40 }), ranges("30-40 1-5").hull());
    }
}
