//! Which sessions and neighbours a request is about.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Endpoint, Neighbour, Session};

/// Why a filter could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not an address, prefix or port.
    #[error("`{0}` is no endpoint: write 192.0.2.1, 192.0.2.0/24, 192.0.2.1:443, [2001:db8::1]:443 or :443")]
    Endpoint(String),
    /// Not a protocol.
    #[error("`{0}` is no protocol: write tcp, udp, icmp, icmpv6 or a number from 0 to 255")]
    Protocol(String),
}

/// Text in the API and on the command line.
macro_rules! text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// An address or prefix, a port, or both: `192.0.2.0/24`, `192.0.2.1:443`, `[2001:db8::1]:443`, `:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointFilter {
    /// Addresses that match; any where not given.
    pub net: Option<IpNet>,
    /// Port, or identifier of an ICMP query, that matches; any where not given.
    pub port: Option<u16>,
}

impl EndpointFilter {
    /// Whether an endpoint matches.
    pub fn matches(&self, endpoint: &Endpoint) -> bool {
        self.net.is_none_or(|net| net.contains(&endpoint.address)) && self.port.is_none_or(|port| port == endpoint.port)
    }
}

impl FromStr for EndpointFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError::Endpoint(text.to_owned());
        let net = |text: &str| match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => text.parse::<IpNet>().map_err(|_| wrong()),
        };
        let port = |text: &str| text.parse::<u16>().map(Some).map_err(|_| wrong());
        if let Some(bracketed) = text.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']').ok_or_else(wrong)?;
            let port = match rest.strip_prefix(':') {
                Some(rest) => port(rest)?,
                None if rest.is_empty() => None,
                None => return Err(wrong()),
            };
            return Ok(Self {
                net: Some(net(address)?),
                port,
            });
        }
        match text.split_once(':') {
            Some(("", rest)) if !rest.contains(':') => Ok(Self {
                net: None,
                port: port(rest)?,
            }),
            Some((address, rest)) if !rest.contains(':') => Ok(Self {
                net: Some(net(address)?),
                port: port(rest)?,
            }),
            _ => Ok(Self {
                net: Some(net(text)?),
                port: None,
            }),
        }
    }
}

impl fmt::Display for EndpointFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.net, self.port) {
            (Some(net @ IpNet::V6(_)), Some(port)) => write!(f, "[{net}]:{port}"),
            (Some(net), Some(port)) => write!(f, "{net}:{port}"),
            (Some(net), None) => net.fmt(f),
            (None, Some(port)) => write!(f, ":{port}"),
            (None, None) => f.write_str("0.0.0.0/0"),
        }
    }
}

text!(EndpointFilter);

/// A protocol above IP, by IANA's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    const NAMES: [(&'static str, u8); 4] = [("icmp", 1), ("tcp", 6), ("udp", 17), ("icmpv6", 58)];
}

impl FromStr for Protocol {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let named = Self::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, number)| *number);
        let number = named.or_else(|| text.parse().ok());
        number.map(Self).ok_or_else(|| FilterError::Protocol(text.to_owned()))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

text!(Protocol);

/// Which sessions: those that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SessionFilter {
    /// The inside host, before translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<EndpointFilter>,
    /// What the outside sees in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<EndpointFilter>,
    /// The other host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<EndpointFilter>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The interface towards the inside host or the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl SessionFilter {
    /// Whether a session matches.
    pub fn matches(&self, session: &Session) -> bool {
        let endpoint =
            |filter: &Option<EndpointFilter>, endpoint| filter.as_ref().is_none_or(|filter| filter.matches(endpoint));
        endpoint(&self.inside, &session.inside)
            && endpoint(&self.outside, &session.outside)
            && endpoint(&self.remote, &session.remote)
            && self.protocol.is_none_or(|protocol| protocol == session.protocol)
            && self.interface.as_ref().is_none_or(|name| {
                session.inside_interface.as_ref() == Some(name) || session.outside_interface.as_ref() == Some(name)
            })
    }

    /// Whether it matches every session.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A page of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SessionQuery {
    /// The inside host, before translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<EndpointFilter>,
    /// What the outside sees in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<EndpointFilter>,
    /// The other host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<EndpointFilter>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The interface towards the inside host or the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Most entries of the page; the server may give fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl SessionQuery {
    /// The first page of what a filter names.
    pub fn new(filter: &SessionFilter) -> Self {
        let SessionFilter {
            inside,
            outside,
            remote,
            protocol,
            interface,
        } = filter.clone();
        Self {
            inside,
            outside,
            remote,
            protocol,
            interface,
            cursor: None,
            limit: None,
        }
    }

    /// The filter alone. A query string has no nested structures, so that the fields stand here once more.
    pub fn filter(&self) -> SessionFilter {
        let Self {
            inside,
            outside,
            remote,
            protocol,
            interface,
            ..
        } = self.clone();
        SessionFilter {
            inside,
            outside,
            remote,
            protocol,
            interface,
        }
    }
}

/// Which neighbours: those that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NeighbourFilter {
    /// The address or network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<EndpointFilter>,
    /// The interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl NeighbourFilter {
    /// Whether a neighbour matches.
    pub fn matches(&self, neighbour: &Neighbour) -> bool {
        let address = self.address.and_then(|filter| filter.net);
        address.is_none_or(|net| net.contains(&neighbour.address))
            && self.interface.as_ref().is_none_or(|name| *name == neighbour.interface)
    }

    /// Whether it matches every neighbour.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A page of neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NeighbourQuery {
    /// The address or network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<EndpointFilter>,
    /// The interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl NeighbourQuery {
    /// The first page of what a filter names.
    pub fn new(filter: &NeighbourFilter) -> Self {
        let NeighbourFilter { address, interface } = filter.clone();
        Self {
            address,
            interface,
            cursor: None,
        }
    }

    /// The filter alone.
    pub fn filter(&self) -> NeighbourFilter {
        NeighbourFilter {
            address: self.address,
            interface: self.interface.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_filter_written_is_read_again() {
        for text in [
            "192.0.2.1/32",
            "192.0.2.0/24",
            "192.0.2.1/32:443",
            "[2001:db8::1/128]:443",
            ":443",
            "::/0",
        ] {
            assert_eq!(text, text.parse::<EndpointFilter>().unwrap().to_string());
        }
        assert_eq!(
            "192.0.2.1/32:80",
            "192.0.2.1:80".parse::<EndpointFilter>().unwrap().to_string()
        );
        assert_eq!(
            "2001:db8::1/128",
            "2001:db8::1".parse::<EndpointFilter>().unwrap().to_string()
        );
    }

    #[test]
    fn endpoint_filter_malformed_is_refused() {
        for text in [
            "",
            "x",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:70000",
            "[::1",
            "[::1]x",
            "1.2.3.4:5:6",
        ] {
            assert_eq!(Err(FilterError::Endpoint(text.into())), text.parse::<EndpointFilter>());
        }
    }

    #[test]
    fn protocol_by_name_and_number_is_the_same() {
        assert_eq!("udp".parse::<Protocol>(), "17".parse());
        assert_eq!("132", Protocol(132).to_string());
        assert_eq!(Err(FilterError::Protocol("256".into())), "256".parse::<Protocol>());
    }
}
