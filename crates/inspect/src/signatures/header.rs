//! Parses the rule header: action, protocol, source and destination.

use std::collections::HashMap;

use super::error::nearest;
use super::{Dialect, RuleError, Variables, services};
use crate::signature::{Action, Addresses, FlowState, Header, Ports, Protocol, Service, Side};

/// Actions with which a rule begins. `log` rules are reported like alerts, because both leave a record. A reject
/// notifies client and server, even if the rule names only one of them.
const ACTIONS: &[(&str, Action)] = &[
    ("alert", Action::Alert),
    ("log", Action::Alert),
    ("pass", Action::Pass),
    ("drop", Action::Drop),
    ("sdrop", Action::Drop),
    ("block", Action::Drop),
    ("reject", Action::Reject),
    ("rejectsrc", Action::Reject),
    ("rejectdst", Action::Reject),
    ("rejectboth", Action::Reject),
];

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedHeader {
    pub action: Action,
    pub header: Header,
    /// Flow state that the protocol implies: `tcp-pkt` and `tcp-stream`.
    pub flow: FlowState,
}

/// Parses headers. Each set of addresses or ports is evaluated only once.
pub(super) struct HeaderParser<'v> {
    variables: &'v Variables,
    dialect: Dialect,
    addresses: HashMap<Box<str>, Addresses>,
    ports: HashMap<Box<str>, Ports>,
}

pub(super) fn action(word: &str) -> Result<Action, RuleError> {
    ACTIONS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, action)| *action)
        .ok_or_else(|| RuleError::Unknown {
            written: word.into(),
            hint: ACTIONS
                .iter()
                .map(|(name, _)| *name)
                .find(|name| nearest(word, [*name].into_iter()).is_some()),
        })
}

impl<'v> HeaderParser<'v> {
    pub fn new(variables: &'v Variables, dialect: Dialect) -> HeaderParser<'v> {
        HeaderParser {
            variables,
            dialect,
            addresses: HashMap::new(),
            ports: HashMap::new(),
        }
    }

    /// Parses a header, or returns the part that is invalid.
    pub fn read(&mut self, text: &str) -> Result<ParsedHeader, (Box<str>, RuleError)> {
        let words = words(text);
        let first = words.first().copied().unwrap_or_default();
        let action = action(first).map_err(|why| (first.into(), why))?;
        let name = *words.get(1).ok_or_else(|| (text.into(), RuleError::NotAHeader))?;
        let (protocol, services, flow) = self.protocol(name).map_err(|why| (name.into(), why))?;
        let (source, destination, bidirectional) = match words[..] {
            // Snort 3 rules may omit addresses and ports if the service is sufficient.
            [_, _] if self.dialect == Dialect::Snort3 => (Side::default(), Side::default(), false),
            [_, _, from, from_ports, arrow, to, to_ports] => {
                let bidirectional = match arrow {
                    "->" => false,
                    "<>" => true,
                    _ => return Err((arrow.into(), RuleError::Direction(arrow.into()))),
                };
                (self.side(from, from_ports)?, self.side(to, to_ports)?, bidirectional)
            }
            _ => return Err((text.into(), RuleError::NotAHeader)),
        };
        let services = services.into();
        Ok(ParsedHeader {
            action,
            flow,
            header: Header {
                protocol,
                source,
                destination,
                bidirectional,
                services,
            },
        })
    }

    fn protocol(&self, name: &str) -> Result<(Protocol, Vec<Service>, FlowState), RuleError> {
        let of_packets = |stream| FlowState {
            stream: Some(stream),
            ..FlowState::default()
        };
        let (protocol, flow) = match (name, self.dialect) {
            ("ip", _) => (Protocol::Ip, FlowState::default()),
            ("tcp", _) => (Protocol::Tcp, FlowState::default()),
            ("udp", _) => (Protocol::Udp, FlowState::default()),
            ("icmp", _) => (Protocol::Icmp, FlowState::default()),
            ("tcp-pkt", Dialect::Suricata) => (Protocol::Tcp, of_packets(false)),
            ("tcp-stream", Dialect::Suricata) => (Protocol::Tcp, of_packets(true)),
            // Packets with invalid headers are dropped before rules are evaluated, so `pkthdr` matches the same packets
            // as `ip`.
            ("pkthdr", Dialect::Suricata) => (Protocol::Ip, of_packets(false)),
            ("sctp", Dialect::Suricata) => (Protocol::Number(132), FlowState::default()),
            (_, Dialect::Snort2) => {
                return Err(RuleError::Unknown {
                    written: name.into(),
                    hint: None,
                });
            }
            _ => {
                let services = services::identified_services(name, self.dialect)?;
                return Ok((Protocol::Application, services, FlowState::default()));
            }
        };
        Ok((protocol, Vec::new(), flow))
    }

    fn side(&mut self, addresses: &str, ports: &str) -> Result<Side, (Box<str>, RuleError)> {
        let known = match self.addresses.get(addresses) {
            Some(known) => known.clone(),
            None => {
                let read = self
                    .variables
                    .addresses(addresses)
                    .map_err(|why| (addresses.into(), why))?;
                self.addresses.insert(addresses.into(), read.clone());
                read
            }
        };
        let known_ports = match self.ports.get(ports) {
            Some(known) => known.clone(),
            None => {
                let read = self.variables.ports(ports).map_err(|why| (ports.into(), why))?;
                self.ports.insert(ports.into(), read.clone());
                read
            }
        };
        Ok(Side {
            addresses: known,
            ports: known_ports,
        })
    }
}

/// Splits at blanks; a list in brackets is one word, even if it contains blanks.
fn words(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut words) = (0_i32, None, Vec::new());
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if byte.is_ascii_whitespace() && depth <= 0 {
            words.extend(start.take().map(|start| &text[start..place]));
        } else {
            start.get_or_insert(place);
        }
    }
    words.extend(start.map(|start| &text[start..]));
    words
}
