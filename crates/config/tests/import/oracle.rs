//! Evaluates an iptables listing and the imported rules independently for the same packet.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use sluice_config::Checked;
use sluice_config::filter::{FilterRule, MacSelection};
use sluice_config::schema::{Action, RejectWith, Verdict};
use sluice_filter::Field;

/// A packet that opens a flow.
#[derive(Clone, Debug)]
pub struct Header {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub ports: (u16, u16),
    pub message: (u8, u8),
    pub flags: u8,
    /// Fragment kind. 0 is an unfragmented packet, 1 a first fragment, 2 a later fragment.
    pub fragment: u8,
    pub dscp: u8,
    /// TTL when the packet is received.
    pub ttl: u8,
    pub ecn: u8,
    /// Last byte of the source MAC address. The address begins with 02:00:00:00:00.
    pub mac: u8,
    pub length: u16,
    pub interfaces: [&'static str; 2],
}

/// Output interface of packets to the gateway itself.
pub const GATEWAY: &str = "gateway";

impl Header {
    fn is_to_gateway(&self) -> bool {
        self.interfaces[1] == GATEWAY
    }

    /// TTL that Linux's chains match. Linux has already decremented the TTL of a forwarded packet.
    fn seen_ttl(&self) -> u8 {
        self.ttl - u8::from(!self.is_to_gateway())
    }
}

/// Verdict on a packet, and the number of rules that have counted or logged the packet before the verdict.
pub type Fate = (&'static str, usize);

/// Result for a packet, evaluated from the text of the listing.
pub fn listed(text: &str, header: &Header) -> Fate {
    let mut chains: HashMap<&str, Vec<Vec<&str>>> = HashMap::new();
    let mut policy = "accept";
    let first = if header.is_to_gateway() { "INPUT" } else { "FORWARD" };
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            [declared, "DROP", ..] if declared.strip_prefix(':') == Some(first) => policy = "drop",
            ["-A", chain, rest @ ..] => chains.entry(chain).or_default().push(rest.to_vec()),
            _ => {}
        }
    }
    let mut counted = 0;
    let verdict = chain(&chains, first, header, &mut counted);
    (verdict.unwrap_or(policy), counted)
}

fn chain(
    chains: &HashMap<&str, Vec<Vec<&str>>>,
    name: &str,
    header: &Header,
    counted: &mut usize,
) -> Option<&'static str> {
    for rule in chains.get(name).into_iter().flatten() {
        let (matches, target) = matches(rule, header);
        if !matches {
            continue;
        }
        match target {
            ["-j", "ACCEPT"] => return Some("accept"),
            ["-j", "DROP"] => return Some("drop"),
            ["-j", "REJECT", "--reject-with", "tcp-reset"] => return Some("reset"),
            [
                "-j",
                "REJECT",
                "--reject-with",
                "icmp-admin-prohibited" | "icmp6-adm-prohibited",
            ] => {
                return Some("prohibited");
            }
            ["-j", "REJECT"] => return Some("unreachable"),
            ["-j", "RETURN"] => return None,
            [] | ["-j", "LOG"] => *counted += 1,
            ["-j", other] => {
                if let Some(verdict) = chain(chains, other, header, counted) {
                    return Some(verdict);
                }
            }
            ["-g", other] => return chain(chains, other, header, counted),
            other => panic!("{other:?}"),
        }
    }
    None
}

/// Returns whether a rule matches, and the words after its conditions.
fn matches<'r, 't>(rule: &'r [&'t str], header: &Header) -> (bool, &'r [&'t str]) {
    let mut at = 0;
    let (mut all, mut negated) = (true, false);
    while at < rule.len() {
        let value = rule.get(at + 1).copied().unwrap_or_default();
        let has_ports = header.fragment != 2 && matches!(header.protocol, 6 | 17);
        let ports = |own: &[u16]| {
            let within = |part: &str| {
                let (first, last) = part.split_once(':').unwrap_or((part, part));
                let (first, last): (u16, u16) = (first.parse().unwrap(), last.parse().unwrap());
                own.iter().any(|port| (first..=last).contains(port))
            };
            value.split(',').any(within)
        };
        // Whether the packet has the field, whether the condition is satisfied, and the number of words of the
        // condition.
        let (has, is, used) = match rule[at] {
            "!" => {
                negated = true;
                at += 1;
                continue;
            }
            "-m" => (true, true, 2),
            "-s" => (true, net(value).contains(&header.source), 2),
            "-d" => (true, net(value).contains(&header.destination), 2),
            "-i" => (true, header.interfaces[0] == value, 2),
            "-o" => (true, header.interfaces[1] == value, 2),
            "-p" => (true, header.protocol == number(value), 2),
            "-f" => (true, header.fragment == 2, 1),
            "--src-range" => (true, between(value, header.source), 2),
            "--sport" | "--sports" => (has_ports, ports(&[header.ports.0]), 2),
            "--dport" | "--dports" => (has_ports, ports(&[header.ports.1]), 2),
            "--ports" => (has_ports, ports(&[header.ports.0, header.ports.1]), 2),
            "--icmp-type" | "--icmpv6-type" => {
                let (kind, code) = value.split_once('/').unwrap_or((value, ""));
                let is = header.message.0 == kind.parse::<u8>().unwrap()
                    && (code.is_empty() || header.message.1 == code.parse::<u8>().unwrap());
                (header.fragment != 2, is, 2)
            }
            "--syn" => (has_ports, header.flags & 0x17 == 2, 1),
            "--tcp-flags" => {
                let set = rule[at + 2];
                (has_ports, header.flags & bits(value) == bits(set), 3)
            }
            "--dscp" => (true, header.dscp == u8::from_str_radix(&value[2..], 16).unwrap(), 2),
            "--ttl-eq" | "--hl-eq" => (true, header.seen_ttl() == value.parse::<u8>().unwrap(), 2),
            "--ttl-lt" | "--hl-lt" => (true, header.seen_ttl() < value.parse::<u8>().unwrap(), 2),
            "--ttl-gt" | "--hl-gt" => (true, header.seen_ttl() > value.parse::<u8>().unwrap(), 2),
            "--ecn-ip-ect" => (true, header.ecn == value.parse::<u8>().unwrap(), 2),
            "--mac-source" => (true, value == format!("02:00:00:00:00:{:02x}", header.mac), 2),
            "--length" => {
                let (first, last) = value.split_once(':').unwrap();
                let within = first.parse::<u16>().unwrap()..=last.parse::<u16>().unwrap();
                (true, within.contains(&header.length), 2)
            }
            "--ctstate" => (true, value.split(',').any(|state| state == "NEW"), 2),
            _ => return (all, &rule[at..]),
        };
        all &= has && is != negated;
        negated = false;
        at += used;
    }
    (all, &[])
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn number(protocol: &str) -> u8 {
    match protocol {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "ipv6-icmp" => 58,
        other => other.parse().unwrap(),
    }
}

fn between(text: &str, address: IpAddr) -> bool {
    let (first, last) = text.split_once('-').unwrap();
    (first.parse::<IpAddr>().unwrap()..=last.parse().unwrap()).contains(&address)
}

fn bits(names: &str) -> u8 {
    let bit = |name: &str| match name {
        "FIN" => 1,
        "SYN" => 2,
        "RST" => 4,
        "ACK" => 16,
        "NONE" => 0,
        other => panic!("{other}"),
    };
    names.split(',').map(bit).sum()
}

/// Result for a packet, evaluated from the rules of a configuration.
pub fn configured(checked: &Checked, header: &Header) -> Fate {
    let Some(filter) = &checked.config.document.filter else {
        return ("accept", 0);
    };
    let mut counted = 0;
    for rule in checked
        .config
        .filter
        .iter()
        .filter(|rule| selects(rule, checked, header))
    {
        let verdict = match (rule.action, rule.with) {
            (Action::Accept, _) => "accept",
            (Action::Drop, _) => "drop",
            (Action::Reject, RejectWith::Reset) => "reset",
            (Action::Reject, RejectWith::Prohibited) => "prohibited",
            (Action::Reject, RejectWith::PortUnreachable) => "unreachable",
            (Action::Count | Action::Log, _) => {
                counted += 1;
                continue;
            }
            (Action::RateLimit | Action::SetMark | Action::SetDscp | Action::SetEcn | Action::AddToSet, _) => {
                panic!("no listing says so")
            }
        };
        return (verdict, counted);
    }
    let default = match filter.default {
        _ if header.is_to_gateway() => "accept",
        Verdict::Accept => "accept",
        Verdict::Drop | Verdict::Reject => "drop",
    };
    (default, counted)
}

fn mac(selection: &MacSelection, own: u8) -> bool {
    let is_named = selection.of.iter().any(|mac| mac.bytes() == [2, 0, 0, 0, 0, own]);
    selection.of.is_empty() || is_named != selection.not
}

fn selects(rule: &FilterRule, checked: &Checked, header: &Header) -> bool {
    let selection = &rule.selection;
    let v6 = header.source.is_ipv6();
    let address = |ranges: &[(IpAddr, IpAddr)], own: IpAddr| {
        ranges.is_empty()
            || ranges
                .iter()
                .any(|(first, last)| first.is_ipv6() == v6 && (*first..=*last).contains(&own))
    };
    let has_ports = header.fragment != 2 && matches!(header.protocol, 6 | 17);
    let port = |ranges: &[(u16, u16)], own: u16| {
        ranges.is_empty() || has_ports && ranges.iter().any(|(first, last)| (*first..=*last).contains(&own))
    };
    let field = |field, own: u32| {
        let values = selection.values(field);
        values.is_empty() || values.iter().any(|(first, last)| (*first..=*last).contains(&own))
    };
    let interface = |ranges: &[(u16, u16)], own: &str| {
        let number = checked
            .config
            .interfaces
            .iter()
            .position(|interface| interface.name == own);
        // The numbers of interfaces that do not occur in the listing are higher than the numbers of listed interfaces.
        let number = number.unwrap_or(usize::from(u16::MAX)) as u16;
        ranges.is_empty() || ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
    };
    let message = u16::from(header.message.0) << 8 | u16::from(header.message.1);
    let of_family = &selection.messages[usize::from(v6)];
    let messages = selection.messages.iter().all(Vec::is_empty)
        || header.protocol == if v6 { 58 } else { 1 }
            && header.fragment != 2
            && of_family
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&message));
    selection.concerns(v6)
        && address(&selection.sources, header.source)
        && address(&selection.destinations, header.destination)
        && (selection.protocols.is_empty() || selection.protocols.contains(&header.protocol))
        && port(&selection.source_ports, header.ports.0)
        && port(&selection.destination_ports, header.ports.1)
        && messages
        && selection
            .flags
            .is_none_or(|flags| header.protocol == 6 && header.fragment != 2 && header.flags & flags.of == flags.set)
        && field(Field::Fragment, header.fragment.into())
        && field(Field::Dscp, header.dscp.into())
        && field(Field::Ecn, header.ecn.into())
        && field(Field::Length, header.length.into())
        && field(Field::Ttl, header.ttl.into())
        && mac(&selection.macs[0], header.mac)
        && interface(&selection.incoming, header.interfaces[0])
        && match header.is_to_gateway() {
            true => selection.gateway,
            false => {
                (!selection.gateway || !selection.outgoing.is_empty())
                    && interface(&selection.outgoing, header.interfaces[1])
            }
        }
}
