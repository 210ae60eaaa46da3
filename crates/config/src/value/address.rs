//! Addresses, networks and address ranges.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

use super::{ValueError, written_as_text};

/// A network: an address with host bits of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(IpNet);

impl Prefix {
    /// The network of this prefix length that contains an address.
    pub fn of(net: IpNet) -> Self {
        Self(net.trunc())
    }

    /// The network in the type of the crate `ipnet`.
    pub fn net(&self) -> IpNet {
        self.0
    }

    /// The network if the network is IPv4. `None` for IPv6.
    pub fn ipv4(&self) -> Option<Ipv4Net> {
        match self.0 {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        }
    }
}

impl FromStr for Prefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let net: IpNet = text.parse().map_err(|_| ValueError::Prefix(text.into()))?;
        if net.addr() != net.network() {
            return Err(ValueError::HostBits {
                text: text.into(),
                network: net.trunc(),
            });
        }
        Ok(Self(net))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(Prefix, "a network such as \"192.0.2.0/24\"");

/// An address of the gateway with the prefix length of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceAddress(IpNet);

impl InterfaceAddress {
    /// The address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Network of the link.
    pub fn network(&self) -> Prefix {
        Prefix::of(self.0)
    }

    /// Address and prefix length.
    pub fn net(&self) -> IpNet {
        self.0
    }
}

impl FromStr for InterfaceAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let net: IpNet = text.parse().map_err(|_| ValueError::Prefix(text.into()))?;
        if net.prefix_len() == 0 {
            return Err(ValueError::LinkOfAll(text.into()));
        }
        // RFC 3021: both addresses of a /31 are host addresses. RFC 4291, section 2.6.1: the lowest address of an IPv6
        // link is anycast.
        let host = match net {
            IpNet::V4(net) => net.prefix_len() >= 31 || (net.addr() != net.network() && net.addr() != net.broadcast()),
            IpNet::V6(net) => net.prefix_len() >= 127 || net.addr() != net.network(),
        };
        if !host {
            return Err(ValueError::NotAHost(text.into()));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(
    InterfaceAddress,
    "an address with prefix length such as \"192.0.2.1/24\""
);

/// An inclusive range of IPv4 addresses. A range is written as one address, as `first-last`, or as a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl AddressRange {
    /// Creates a range. `None` if `last` is less than `first`.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Lowest address.
    pub fn first(&self) -> Ipv4Addr {
        self.first
    }

    /// Highest address.
    pub fn last(&self) -> Ipv4Addr {
        self.last
    }

    /// Number of addresses.
    pub fn count(&self) -> u64 {
        u64::from(u32::from(self.last)) - u64::from(u32::from(self.first)) + 1
    }

    /// Whether the range contains an address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Intersection of two ranges.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }
}

impl FromStr for AddressRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::AddressRange(text.into());
        if text.contains('/') {
            let net: Ipv4Net = text.parse().map_err(|_| wrong())?;
            if net.addr() != net.network() {
                return Err(ValueError::HostBits {
                    text: text.into(),
                    network: IpNet::V4(net.trunc()),
                });
            }
            return Ok(Self {
                first: net.network(),
                last: net.broadcast(),
            });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = first.trim().parse().map_err(|_| wrong())?;
        let last = last.trim().parse().map_err(|_| wrong())?;
        Self::new(first, last).ok_or_else(|| ValueError::Reversed(text.into()))
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

written_as_text!(
    AddressRange,
    "an address, range or prefix such as \"198.51.100.1-198.51.100.9\""
);

/// A unicast Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Creates an address from its bytes in network byte order. `None` for a group address or all zeros.
    pub fn of(bytes: [u8; 6]) -> Option<Self> {
        (bytes != [0; 6] && bytes[0] & 1 == 0).then_some(Self(bytes))
    }

    /// Bytes of the address in network byte order.
    pub fn bytes(&self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for Mac {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Mac(text.into());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Self::of(bytes).ok_or_else(|| ValueError::MacNotUnicast(text.into()))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

written_as_text!(Mac, "an Ethernet address such as \"02:00:00:00:00:01\"");
