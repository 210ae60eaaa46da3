//! Ranges of addresses, ports and other numbers, or names of groups of them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::{ValueError, written_as_text};

/// A range of addresses, or the name of an address group. The range or name is written as an address, as `first-last`,
/// as a prefix, or as `@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// From the first to the last address, both of the same family.
    Range(IpAddr, IpAddr),
    /// Name of an address group.
    Group(String),
}

impl FromStr for Addresses {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some(name) = text.strip_prefix('@') {
            return Ok(Self::Group(name.into()));
        }
        let wrong = || ValueError::Addresses(text.into());
        if let Some((first, last)) = text.split_once('-') {
            let (first, last): (IpAddr, IpAddr) = match (first.trim().parse(), last.trim().parse()) {
                (Ok(first), Ok(last)) => (first, last),
                _ => return Err(wrong()),
            };
            return match first.is_ipv4() == last.is_ipv4() {
                true if first <= last => Ok(Self::Range(first, last)),
                true => Err(ValueError::Reversed(text.into())),
                false => Err(ValueError::Families(text.into())),
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Range(address, address));
        }
        let net: IpNet = text.parse().map_err(|_| wrong())?;
        if net.addr() != net.network() {
            let network = net.trunc();
            return Err(ValueError::HostBits {
                text: text.into(),
                network,
            });
        }
        Ok(Self::Range(net.network(), net.broadcast()))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "@{name}"),
            Self::Range(first, last) if first == last => first.fmt(f),
            Self::Range(first, last) => match prefix_of(*first, *last) {
                Some(net) => net.fmt(f),
                None => write!(f, "{first}-{last}"),
            },
        }
    }
}

/// The prefix that consists of exactly these addresses. `None` if the addresses do not form a prefix.
fn prefix_of(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let max = if first.is_ipv4() { 32 } else { 128 };
    let nets = (0..=max).filter_map(|length| IpNet::new(first, length).ok());
    nets.into_iter()
        .find(|net| (net.network(), net.broadcast()) == (first, last))
}

written_as_text!(Addresses, "addresses such as \"192.0.2.0/24\", or \"@group\"");

/// A range of ports (including 0), or the name of a port group. The range or name is written as a port, as
/// `first-last`, or as `@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// From the first to the last port.
    Range(u16, u16),
    /// Name of a port group.
    Group(String),
}

impl FromStr for Ports {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.strip_prefix('@') {
            Some(name) => Ok(Self::Group(name.into())),
            None => {
                let Numbers { first, last } = Numbers::read(text).ok_or_else(|| ValueError::Ports(text.into()))?;
                match first > last {
                    true => Err(ValueError::Reversed(text.into())),
                    false => Ok(Self::Range(first, last)),
                }
            }
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "@{name}"),
            Self::Range(first, last) => Numbers {
                first: *first,
                last: *last,
            }
            .fmt(f),
        }
    }
}

written_as_text!(Ports, "ports such as 80 or \"1024-65535\", or \"@group\"");

/// A range of numbers. A range is written as one number or as `first-last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// First number.
    pub first: u16,
    /// Last number of the range, which is included.
    pub last: u16,
}

impl Numbers {
    fn read(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(Self { first, last })
    }
}

impl FromStr for Numbers {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let read = Self::read(text).ok_or_else(|| ValueError::Numbers(text.into()))?;
        match read.first > read.last {
            true => Err(ValueError::Reversed(text.into())),
            false => Ok(read),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

written_as_text!(Numbers, "a number or a range of numbers");
