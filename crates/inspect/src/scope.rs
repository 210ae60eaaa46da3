//! Matches the header of a rule against the endpoints of a packet.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::evaluate::PacketFields;
use crate::signature::{
    Addresses, Bits, Condition, FlowState, Header, Ports, Protocol, Service, Side, Signature, Toward,
};

/// Endpoints of a packet or segment, with inside addresses, and the state of its flow.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source and destination port; 0 if the protocol has no ports.
    pub ports: [u16; 2],
    /// IP protocol number.
    pub protocol: u8,
    /// Whether the packet goes to the server or to the client.
    pub toward: Toward,
    /// Whether client and server have sent packets.
    pub established: bool,
    /// The application, if identified.
    pub service: Option<Service>,
}

impl Endpoints {
    /// Endpoints of a packet in the opposite direction.
    pub fn reversed(&self) -> Self {
        let [from, to] = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            ports: [to, from],
            toward: match self.toward {
                Toward::Server => Toward::Client,
                Toward::Client => Toward::Server,
            },
            ..*self
        }
    }
}

/// Precheck of 16 bytes that excludes most rules. The precheck compares direction, connection state, protocol, TCP flags, and
/// the lowest and highest ports.
#[derive(Clone, Copy, Debug)]
pub struct HeaderPrecheck {
    /// Lowest and highest source port, then lowest and highest destination port.
    ports: [[u16; 2]; 2],
    /// Bit 1: towards the server; bit 2: towards the client.
    toward: u8,
    /// Bit 1: not established; bit 2: established.
    established: u8,
    /// Lowest and highest protocol number of the IP header.
    protocols: [u8; 2],
    /// Mask of the tested TCP flags, and the required values of these flags.
    flags: [u8; 2],
    /// TCP flags of which at least one must be set; 0 disables the test.
    any_flag: u8,
    /// Bits of the rule: [`BIDIRECTIONAL`] if the rule is bidirectional, and [`OF_SERVICE`] if it names applications, which
    /// replace the ports after identification.
    marks: u8,
}

const BIDIRECTIONAL: u8 = 1;
const OF_SERVICE: u8 = 2;

impl HeaderPrecheck {
    /// Builds the precheck of a rule.
    pub fn of(signature: &Signature) -> Self {
        let header = &signature.header;
        let mut protocols = [0, u8::MAX];
        let (mut flags, mut any_flag) = ([0; 2], 0);
        for condition in &signature.conditions {
            match condition {
                Condition::IpProtocol {
                    numbers,
                    negated: false,
                } => protocols = [*numbers.start(), *numbers.end()],
                Condition::Flags(required) => {
                    let requires = required.flags & !required.ignored;
                    match required.mode {
                        Bits::Exactly => flags = [!required.ignored, requires],
                        Bits::All => flags = [requires, requires],
                        Bits::None => flags = [requires, 0],
                        Bits::Any => any_flag = requires,
                    }
                }
                _ => {}
            }
        }
        let span = |ports: &Ports| match (ports.0.first(), ports.0.last()) {
            // A rule with only an application in its header matches on every port until the application is identified.
            (Some(first), Some(last)) if !header.is_application_only() => [*first.start(), *last.end()],
            _ => [0, u16::MAX],
        };
        let bidirectional = if header.bidirectional { BIDIRECTIONAL } else { 0 };
        let of_service = if header.services.is_empty() { 0 } else { OF_SERVICE };
        Self {
            ports: [span(&header.source.ports), span(&header.destination.ports)],
            toward: match signature.flow.direction {
                Some(Toward::Server) => 1,
                Some(Toward::Client) => 2,
                None => 3,
            },
            established: match signature.flow.established {
                Some(false) => 1,
                Some(true) => 2,
                None => 3,
            },
            protocols,
            flags,
            any_flag,
            marks: bidirectional | of_service,
        }
    }

    /// Whether the rule may match a packet between these endpoints.
    #[inline(always)]
    pub fn may_match(&self, ends: &Endpoints, facts: &PacketFields) -> bool {
        let toward = match ends.toward {
            Toward::Server => 1,
            Toward::Client => 2,
        };
        let [first, last] = self.protocols;
        let [counts, flags] = self.flags;
        let has = facts.tcp.map_or(0, |tcp| tcp.flags);
        let [from, to] = ends.ports;
        let ports = self.may_match_ports([from, to])
            | (self.marks & BIDIRECTIONAL != 0 && self.may_match_ports([to, from]))
            | (self.marks & OF_SERVICE != 0 && ends.service.is_some());
        ports
            & (self.toward & toward != 0)
            & (self.established & (1 + u8::from(ends.established)) != 0)
            & (first..=last).contains(&facts.ip.protocol)
            & (has & counts == flags)
            & ((self.any_flag == 0) | (has & self.any_flag != 0))
    }

    #[inline(always)]
    fn may_match_ports(&self, ports: [u16; 2]) -> bool {
        let [[from, from_end], [to, to_end]] = self.ports;
        (from..=from_end).contains(&ports[0]) & (to..=to_end).contains(&ports[1])
    }
}

/// Maximum number of ports of a selective rule header.
const MAX_INDEXED_PORTS: usize = 1_024;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

impl Header {
    /// Whether the header matches these endpoints.
    pub fn matches(&self, ends: &Endpoints) -> bool {
        self.protocol.matches(ends.protocol) && self.matches_service(ends) && self.matches_sides(ends)
    }

    /// Whether the rule may match a packet with any ports: it is bidirectional, or names an application that may run on
    /// any port.
    fn is_anywhere(&self) -> bool {
        self.bidirectional || self.services.iter().any(|service| service.is_identified())
    }

    /// Whether the header names so few ports that they exclude most packets.
    pub fn has_ports(&self) -> bool {
        let names = |side: &Side| {
            (1..=MAX_INDEXED_PORTS).contains(&side.ports.0.iter().map(RangeInclusive::len).sum::<usize>())
        };
        !self.is_anywhere() && !self.is_application_only() && (names(&self.source) || names(&self.destination))
    }

    /// Whether the header matches this source and destination port.
    pub fn matches_ports(&self, [from, to]: [u16; 2]) -> bool {
        self.is_anywhere() || self.source.ports.contains(from) && self.destination.ports.contains(to)
    }

    /// Whether the application is the only condition of the header.
    pub fn is_application_only(&self) -> bool {
        self.protocol == Protocol::Application
    }

    /// The ports select the rule until the application is identified; afterwards the application selects the rule.
    fn matches_service(&self, ends: &Endpoints) -> bool {
        match ends.service {
            _ if self.services.is_empty() => true,
            Some(service) => self.services.contains(&service),
            None => self.protocol != Protocol::Application,
        }
    }

    fn matches_sides(&self, ends: &Endpoints) -> bool {
        // A rule for an application also matches on other ports once the application is identified.
        let any_port = !self.services.is_empty() && ends.service.is_some();
        let [from, to] = ends.ports;
        let one_way = |first: IpAddr, first_port, second: IpAddr, second_port| {
            self.source.contains(first, first_port, any_port)
                && self.destination.contains(second, second_port, any_port)
        };
        one_way(ends.source, from, ends.destination, to)
            || self.bidirectional && one_way(ends.destination, to, ends.source, from)
    }
}

impl FlowState {
    /// Whether the direction and state match a packet.
    pub fn matches(&self, ends: &Endpoints) -> bool {
        self.direction.is_none_or(|toward| toward == ends.toward)
            && self
                .established
                .is_none_or(|established| established == ends.established)
    }
}

impl Service {
    /// Whether application identification detects this service by its payload, on any port.
    pub fn is_identified(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl Protocol {
    /// Whether the protocol includes this IP protocol number.
    pub fn matches(self, number: u8) -> bool {
        match self {
            Self::Ip => true,
            Self::Tcp => number == TCP,
            Self::Udp => number == UDP,
            Self::Icmp => matches!(number, ICMP | ICMPV6),
            Self::Number(own) => own == number,
            Self::Application => matches!(number, TCP | UDP),
        }
    }
}

impl Side {
    fn contains(&self, address: IpAddr, port: u16, any_port: bool) -> bool {
        (any_port || self.ports.contains(port)) && self.addresses.contains(address)
    }
}

impl Addresses {
    /// Whether the set contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        (self.within.is_empty() || self.within.iter().any(|prefix| prefix.contains(&address)))
            && !self.without.iter().any(|prefix| prefix.contains(&address))
    }
}

impl Ports {
    /// Whether the set contains a port.
    pub fn contains(&self, port: u16) -> bool {
        let after = self.0.partition_point(|range| *range.end() < port);
        self.0.is_empty() || self.0.get(after).is_some_and(|range| range.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Endpoints {
        Endpoints {
            source: "10.0.0.1".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            ports: [40_000, 80],
            protocol: TCP,
            toward: Toward::Server,
            established: true,
            service: None,
        }
    }

    fn header() -> Header {
        let addresses = |within: &str| Addresses {
            within: [within.parse().unwrap()].into(),
            ..Addresses::default()
        };
        let ports = Ports([80..=81, 8080..=8080].into());
        Header {
            protocol: Protocol::Tcp,
            source: Side {
                addresses: addresses("10.0.0.0/8"),
                ports: Ports::default(),
            },
            destination: Side {
                ports,
                ..Side::default()
            },
            bidirectional: false,
            services: Box::default(),
        }
    }

    #[test]
    fn header_is_about_addresses_and_ports_on_their_sides() {
        assert!(header().matches(&ends()));
        assert!(!header().matches(&Endpoints {
            ports: [40_000, 82],
            ..ends()
        }));
        assert!(header().matches(&Endpoints {
            ports: [40_000, 8080],
            ..ends()
        }));
        assert!(!header().matches(&Endpoints {
            source: "11.0.0.1".parse().unwrap(),
            ..ends()
        }));
        assert!(!header().matches(&Endpoints {
            protocol: UDP,
            ..ends()
        }));
        let turned = Endpoints {
            source: ends().destination,
            destination: ends().source,
            ports: [80, 40_000],
            ..ends()
        };
        assert!(!header().matches(&turned));
        assert!(
            Header {
                bidirectional: true,
                ..header()
            }
            .matches(&turned)
        );
    }

    #[test]
    fn addresses_without_some_are_all_others() {
        let without = Addresses {
            without: ["10.1.0.0/16".parse().unwrap()].into(),
            ..Addresses::default()
        };
        assert!(without.contains("10.2.0.1".parse().unwrap()) && !without.contains("10.1.0.1".parse().unwrap()));
        assert!(without.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn application_decides_once_it_is_known() {
        let http = Header {
            services: [Service::Http].into(),
            ..header()
        };
        let on = |port, service| Endpoints {
            ports: [40_000, port],
            service,
            ..ends()
        };
        assert!(http.matches(&on(80, None)) && !http.matches(&on(9000, None)));
        assert!(http.matches(&on(9000, Some(Service::Http))) && !http.matches(&on(80, Some(Service::Tls))));
        let named = Header {
            protocol: Protocol::Application,
            ..http
        };
        assert!(!named.matches(&on(80, None)) && named.matches(&on(80, Some(Service::Http))));
    }

    #[test]
    fn outline_rules_out_no_packet_that_the_rule_is_about() {
        use crate::evaluate::{IpFields, TcpFields};
        use crate::signatures::{Classes, Dialect, Variables, read};
        let rules = "
            alert tcp any any -> any any (msg:\"m\"; flags:S; sid:1;)
            alert tcp any any -> any any (msg:\"m\"; flags:S,12; sid:2;)
            alert tcp any any -> any any (msg:\"m\"; flags:+SA; sid:3;)
            alert tcp any any -> any any (msg:\"m\"; flags:*SA; sid:4;)
            alert tcp any any -> any any (msg:\"m\"; flags:!S; sid:5;)
            alert tcp any any -> any any (msg:\"m\"; flags:0; sid:6;)
            alert ip any any -> any any (msg:\"m\"; ip_proto:6; sid:7;)
            alert ip any any -> any any (msg:\"m\"; ip_proto:!6; sid:8;)
            alert ip any any -> any any (msg:\"m\"; ip_proto:>17; sid:9;)";
        let read = read(
            rules.as_bytes(),
            Dialect::Suricata,
            &Variables::default(),
            &Classes::default(),
        );
        assert_eq!(9, read.signatures.len());
        let (mut held, mut out) = (0, 0);
        for rule in &read.signatures {
            let outline = HeaderPrecheck::of(rule);
            for (protocol, flags) in [6, 17, 47]
                .into_iter()
                .flat_map(|protocol| (0..=255).map(move |flags| (protocol, flags)))
            {
                let ip = IpFields {
                    protocol,
                    ..IpFields::default()
                };
                let facts = PacketFields {
                    ip,
                    tcp: (protocol == TCP).then_some(TcpFields {
                        flags,
                        ..TcpFields::default()
                    }),
                    ..PacketFields::default()
                };
                let ends = Endpoints { protocol, ..ends() };
                let holds =
                    rule.header.matches(&ends) && rule.conditions.iter().all(|condition| facts.holds(condition));
                let may = outline.may_match(&ends, &facts);
                assert!(may || !holds, "{}: {protocol} {flags:#x}", rule.id.signature);
                held += u32::from(holds);
                out += u32::from(!may);
            }
        }
        assert!(held > 500 && out > 2_000, "{held} {out}");
    }
}
