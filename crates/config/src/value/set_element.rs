//! Elements of filter sets that can change at run time.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use serde::{Deserialize, Serialize};

use super::{Addresses, Ports, ValueError};

/// Element type of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetType {
    /// Single addresses, of both families.
    #[default]
    Addresses,
    /// Prefixes, of both families. A range is split into prefixes.
    Networks,
    /// Ports.
    Ports,
}

/// A set element: a prefix, an address, an address range, a port or a port range. An element is written as
/// `192.0.2.0/24`, `192.0.2.1`, `192.0.2.1-192.0.2.9`, `80` or `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetElement {
    /// Addresses from the first to the last, both of the same family.
    Addresses(IpAddr, IpAddr),
    /// Ports from the first to the last.
    Ports(u16, u16),
}

impl SetElement {
    /// Prefixes that together form the address range. Empty for ports.
    pub fn networks(&self) -> Vec<IpNet> {
        match *self {
            Self::Addresses(IpAddr::V4(first), IpAddr::V4(last)) => {
                Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect()
            }
            Self::Addresses(IpAddr::V6(first), IpAddr::V6(last)) => {
                Ipv6Subnets::new(first, last, 0).map(IpNet::V6).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Number of elements that this value occupies in a set of a type. `None` if the set can't contain the value.
    pub fn count(&self, kind: SetType) -> Option<usize> {
        match (*self, kind) {
            (Self::Addresses(first, last), SetType::Addresses) => (first == last).then_some(1),
            (Self::Addresses(..), SetType::Networks) => Some(self.networks().len()),
            (Self::Ports(first, last), SetType::Ports) => Some(usize::from(last - first) + 1),
            _ => None,
        }
    }
}

impl FromStr for SetElement {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::SetElement(text.into());
        if text.contains(['.', ':']) {
            return match text.parse()? {
                Addresses::Range(first, last) => Ok(Self::Addresses(first, last)),
                Addresses::Group(_) => Err(wrong()),
            };
        }
        match text.parse() {
            Ok(Ports::Range(first, last)) => Ok(Self::Ports(first, last)),
            Err(reversed @ ValueError::Reversed(_)) => Err(reversed),
            Ok(Ports::Group(_)) | Err(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for SetElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Addresses(first, last) => Addresses::Range(first, last).fmt(f),
            Self::Ports(first, last) => Ports::Range(first, last).fmt(f),
        }
    }
}

impl From<IpNet> for SetElement {
    fn from(net: IpNet) -> Self {
        Self::Addresses(net.network(), net.broadcast())
    }
}

super::written_as_text!(SetElement, "an element such as \"192.0.2.1\", \"192.0.2.0/24\" or 80");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_elements_are_written_as_they_were_read() {
        for text in [
            "192.0.2.1",
            "192.0.2.0/24",
            "2001:db8::/32",
            "192.0.2.1-192.0.2.9",
            "80",
            "0-65535",
        ] {
            assert_eq!(
                Ok(text.to_owned()),
                text.parse::<SetElement>().map(|read| read.to_string())
            );
        }
        for text in ["@a", "192.0.2.1/24", "9-1", "65536", "http", "", "@2001:db8::"] {
            assert!(text.parse::<SetElement>().is_err(), "{text}");
        }
    }

    #[test]
    fn set_elements_count_as_what_they_are_made_of() {
        let counts = |text: &str| {
            let element: SetElement = text.parse().unwrap();
            [SetType::Addresses, SetType::Networks, SetType::Ports].map(|kind| element.count(kind))
        };
        assert_eq!([Some(1), Some(1), None], counts("192.0.2.1"));
        assert_eq!([None, Some(1), None], counts("0.0.0.0/0"));
        assert_eq!([None, Some(1), None], counts("::/0"));
        // The range consists of the prefixes .1, .2-.3, .4-.7 and .8.
        assert_eq!([None, Some(4), None], counts("192.0.2.1-192.0.2.8"));
        assert_eq!([None, None, Some(65_536)], counts("0-65535"));
    }
}
