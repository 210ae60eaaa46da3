//! IP addresses with a zone.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// An address of another host. A link-local address may have a zone, which is the interface of its link (RFC 4007,
/// section 11): `fe80::1%wan`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopedAddress {
    address: IpAddr,
    zone: Option<String>,
}

impl ScopedAddress {
    /// The address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The zone, which is the name of an interface in the configuration.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

impl From<IpAddr> for ScopedAddress {
    fn from(address: IpAddr) -> Self {
        Self { address, zone: None }
    }
}

impl FromStr for ScopedAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (address, zone) = match text.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ValueError::Address(text.into()))?;
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        match zone {
            Some(_) if !is_link_local => Err(ValueError::ZoneOfAll(text.into())),
            Some("") => Err(ValueError::ZoneMissing(text.into())),
            _ => Ok(Self {
                address,
                zone: zone.map(str::to_owned),
            }),
        }
    }
}

impl fmt::Display for ScopedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.address),
            None => self.address.fmt(f),
        }
    }
}

written_as_text!(ScopedAddress, "an address such as \"192.0.2.1\" or \"fe80::1%wan\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_address_has_its_interface_and_is_written_as_it_was_read() {
        for text in ["fe80::1%wan", "fe80::1%vlan%7", "fe80::1", "2001:db8::1", "192.0.2.1"] {
            assert_eq!(
                Ok(text.to_owned()),
                text.parse::<ScopedAddress>().map(|read| read.to_string())
            );
        }
        let read: ScopedAddress = "febf::1%wan".parse().unwrap();
        assert_eq!((Some("wan"), true), (read.zone(), read.address().is_ipv6()));
    }

    #[test]
    fn zone_of_an_address_that_needs_none_and_one_without_a_name_are_refused() {
        let of = |text: &str| text.parse::<ScopedAddress>();
        for text in ["2001:db8::1%wan", "169.254.0.1%wan", "fec0::1%wan"] {
            assert_eq!(Err(ValueError::ZoneOfAll(text.into())), of(text));
        }
        assert_eq!(Err(ValueError::ZoneMissing("fe80::1%".into())), of("fe80::1%"));
        for text in ["%wan", "gateway", "fe80::1 %wan"] {
            assert_eq!(Err(ValueError::Address(text.into())), of(text));
        }
    }
}
