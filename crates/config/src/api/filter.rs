//! Selection of sessions and neighbours in a request.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Endpoint, Flow, Neighbour, Session};
use crate::value::Protocol;

/// Why a filter can't be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is not an address, prefix or port.
    #[error("`{0}` is not an endpoint: write 192.0.2.1, 192.0.2.0/24, 192.0.2.1:443, [2001:db8::1]:443 or :443")]
    Endpoint(String),
    /// The text is not an address or a prefix.
    #[error("`{0}` is not an address: write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32")]
    Net(String),
}

/// Implements the textual form of a type, for the API and the command line.
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

/// An address or a prefix: `192.0.2.1`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetFilter(pub IpNet);

impl NetFilter {
    /// Whether an address matches.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for NetFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let net = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse());
        net.map(Self).map_err(|_| FilterError::Net(text.to_owned()))
    }
}

impl fmt::Display for NetFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text!(NetFilter);

/// An address or prefix, a port, or both: `192.0.2.0/24`, `192.0.2.1:443`, `[2001:db8::1]:443`, `:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointFilter {
    /// Addresses that match. If absent, every address matches.
    pub net: Option<IpNet>,
    /// Port or ICMP identifier that matches. If absent, every port and identifier matches.
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
        let net = |text: &str| text.parse::<NetFilter>().map(|NetFilter(net)| net).map_err(|_| wrong());
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

/// Selection of sessions that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SessionFilter {
    /// Address or network, in either direction, before or after translation.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NetFilter>,
    /// Port or ICMP identifier, in either direction, before or after translation.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Inside address, network or port, before translation: 10.0.0.1, 10.0.0.0/8, 10.0.0.1:5000, `[2001:db8::1]:5000`, :5000.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<EndpointFilter>,
    /// Outside address, network or port, after translation.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<EndpointFilter>,
    /// Address, network or port of the remote host.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<EndpointFilter>,
    /// Protocol: tcp, udp, icmp, icmpv6 or a number.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Interface on the inside or the outside.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// All inside hosts of the subscriber with this inside address.
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<IpAddr>,
    /// Subscriber site of the inside host.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Pool of the outside address.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// nDPI's name of the application, or of the protocol that carries it: Google, TLS, TLS.Google.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Virtual router.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

impl SessionFilter {
    /// Whether a session matches. Each inside address counts as a separate subscriber.
    pub fn matches(&self, session: &Session) -> bool {
        let endpoint =
            |filter: &Option<EndpointFilter>, endpoint| filter.as_ref().is_none_or(|filter| filter.matches(&endpoint));
        let Flow {
            source,
            destination,
            source_port,
            destination_port,
            ..
        } = session.forward;
        let reverse = &session.reverse;
        let addresses = [source, destination, reverse.source, reverse.destination];
        let ports = [
            source_port,
            destination_port,
            reverse.source_port,
            reverse.destination_port,
        ];
        self.address
            .is_none_or(|net| addresses.iter().any(|address| net.matches(*address)))
            && self.port.is_none_or(|port| ports.contains(&port))
            && endpoint(&self.inside, session.inside())
            && endpoint(&self.outside, session.outside())
            && endpoint(&self.remote, session.remote())
            && self.protocol.is_none_or(|protocol| protocol == session.protocol)
            && self.interface.as_ref().is_none_or(|name| {
                session.inside_interface.as_ref() == Some(name) || session.outside_interface.as_ref() == Some(name)
            })
            && self.router.as_ref().is_none_or(|name| *name == session.router)
            && self
                .subscriber
                .is_none_or(|subscriber| session.inside().address == subscriber)
            && self
                .site
                .as_ref()
                .is_none_or(|site| session.site.as_ref() == Some(site))
            && self
                .pool
                .as_ref()
                .is_none_or(|pool| session.pool.as_ref() == Some(pool))
            && self.application.as_ref().is_none_or(|wanted| {
                let known = session.application.as_deref().unwrap_or_default();
                let mut parts = [known].into_iter().chain(known.split('.'));
                parts.any(|part| part.eq_ignore_ascii_case(wanted))
            })
    }

    /// Whether the filter has no conditions, so that every session matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Selection of neighbours that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NeighbourFilter {
    /// Address or network.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NetFilter>,
    /// Interface of the link.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Virtual router.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

impl NeighbourFilter {
    /// Whether a neighbour matches.
    pub fn matches(&self, neighbour: &Neighbour) -> bool {
        self.address.is_none_or(|net| net.matches(neighbour.address))
            && self.interface.as_ref().is_none_or(|name| *name == neighbour.interface)
            && self.router.as_ref().is_none_or(|name| *name == neighbour.router)
    }

    /// Whether the filter has no conditions, so that every neighbour matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Position in a list, which selects a page. A query string contains the position together with a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Position {
    /// `next` of the previous page. If absent, the first page is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of entries per page. A response may contain fewer entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::UnknownProtocol;

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
        assert_eq!("133", Protocol(133).to_string());
        assert_eq!("sctp", Protocol(132).to_string());
        assert_eq!(Err(UnknownProtocol("256".into())), "256".parse::<Protocol>());
    }
}
