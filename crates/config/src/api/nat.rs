//! Types of translation: which outside ports belong to whom.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{EndpointFilter, Protocol};

/// Which mappings, blocks and shares: those that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MappingFilter {
    /// The inside host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<EndpointFilter>,
    /// What the outside sees in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<EndpointFilter>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl MappingFilter {
    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The outside ports that an inside address of a deterministic pool has, used or not (RFC 7422).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Share {
    /// The pool.
    pub pool: String,
    /// The inside address.
    pub inside: IpAddr,
    /// How many ports, of each protocol.
    pub ports: u32,
    /// Which.
    pub spans: Vec<Span>,
}

/// Ports of an outside address from a first to a last one, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Span {
    /// The outside address.
    pub address: IpAddr,
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
    /// Distance from one port to the next: 1 where all between belong to it.
    pub step: u16,
}

impl Span {
    /// Ports of one address as spans. They are in ascending order.
    pub fn of(address: IpAddr, ports: &[u16]) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        for &port in ports {
            match spans.last_mut() {
                // Of two ports nobody knows yet how far the third is.
                Some(span) if span.first == span.last => (span.step, span.last) = (port - span.last, port),
                Some(span) if port - span.last == span.step => span.last = port,
                _ => spans.push(Self {
                    address,
                    first: port,
                    last: port,
                    step: 1,
                }),
            }
        }
        spans
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            first,
            last,
            step,
        } = self;
        match address {
            IpAddr::V4(address) => write!(f, "{address}:{first}")?,
            IpAddr::V6(address) => write!(f, "[{address}]:{first}")?,
        }
        match (first == last, step) {
            (true, _) => Ok(()),
            (false, 1) => write!(f, "-{last}"),
            (false, _) => write!(f, "-{last} by {step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_ports_are_as_few_as_their_steps() {
        let text = |ports: &[u16]| {
            let spans = Span::of("192.0.2.1".parse().unwrap(), ports);
            spans.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!("", text(&[]));
        assert_eq!("192.0.2.1:7", text(&[7]));
        assert_eq!("192.0.2.1:7-9", text(&[7, 8, 9]));
        assert_eq!(
            "192.0.2.1:7-65527 by 14",
            text(&(7..=65535).step_by(14).collect::<Vec<_>>())
        );
        assert_eq!("192.0.2.1:1-3 192.0.2.1:5-6", text(&[1, 2, 3, 5, 6]));
        assert_eq!("192.0.2.1:1-9 by 4 192.0.2.1:10", text(&[1, 5, 9, 10]));
    }
}
