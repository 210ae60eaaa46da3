//! IPv4 and IPv6 addresses as numbers in host byte order.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Index of an interface in the configuration.
pub type InterfaceIndex = u16;

/// An IPv4 or IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// IPv4 address.
    V4(u32),
    /// IPv6 address.
    V6(u128),
}

impl Address {
    /// Length of the address in bits: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Address::V4(_) => 32,
            Address::V6(_) => 128,
        }
    }

    /// Whether the address can belong to a host on a link: it is not unspecified, loopback, multicast or limited
    /// broadcast. Addresses of 240.0.0.0/4 are accepted as host addresses, because a configuration may use them.
    pub fn is_host(self) -> bool {
        match IpAddr::from(self) {
            IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_multicast() && !v4.is_broadcast() && !v4.is_loopback(),
            IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_loopback() && !v6.is_multicast(),
        }
    }

    /// Whether the address is IPv6 link-local (fe80::/10).
    pub fn is_link_local(self) -> bool {
        matches!(self, Address::V6(bits) if bits >> 118 == 0xfe80 >> 6)
    }

    /// The address as a 128-bit number. An IPv4 address is in the low 32 bits.
    #[inline(always)]
    pub fn number(self) -> u128 {
        match self {
            Address::V4(bits) => bits as u128,
            Address::V6(bits) => bits,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Address::V4(v4.to_bits()),
            IpAddr::V6(v6) => Address::V6(v6.to_bits()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address {
            Address::V4(bits) => Ipv4Addr::from_bits(bits).into(),
            Address::V6(bits) => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

/// A prefix: the set of addresses with the same first `length` bits. The stored address has host bits of 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: Address,
    length: u8,
}

impl Prefix {
    /// The prefix of all IPv4 addresses.
    pub const ALL_V4: Self = Self {
        address: Address::V4(0),
        length: 0,
    };

    /// The prefix of `length` bits that contains `address`. A length above the address length is reduced to the address
    /// length.
    pub fn new(address: Address, length: u8) -> Self {
        use sluice_table::prefix::Address as _;
        let length = length.min(address.bits());
        let address = match address {
            Address::V4(bits) => Address::V4(bits.masked(length)),
            Address::V6(bits) => Address::V6(bits.masked(length)),
        };
        Self { address, length }
    }

    /// First address of the prefix.
    pub fn address(self) -> Address {
        self.address
    }

    /// Length of the prefix in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the prefix contains `address`.
    pub fn contains(self, address: Address) -> bool {
        address.bits() == self.address.bits() && Prefix::new(address, self.length) == self
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
