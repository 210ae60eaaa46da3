//! Rule sets: generated like P1's, or from files.

use std::path::Path;

use sluice_filter::{Field, Range, Rule, parse_classbench};

use super::Failure;
use super::trace_file::contents;
use super::traces::{CLIENTS, SERVERS, SERVICE, client, server};
use crate::rig::frames::Random;

pub struct Set {
    pub name: String,
    pub rules: Vec<Rule<u32>>,
    /// Whether the rule set comes from a file.
    pub is_file: bool,
}

impl Set {
    /// Read a file in the format of ClassBench, possibly compressed.
    pub fn of_file(path: &Path) -> Result<Self, Failure> {
        let bytes = contents(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{}: no text", path.display()))?;
        let rules = parse_classbench(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if rules.is_empty() {
            return Err(format!("{}: no rule", path.display()).into());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.split('.').next().unwrap_or_default().to_string();
        Ok(Self {
            name,
            rules,
            is_file: true,
        })
    }

    /// Generates rules similar to those of P1, which P1 does not publish (`web-filter`). Most rules allow hosts and
    /// small networks to reach single ports of single hosts. The last rule allows clients to reach servers; linear
    /// search compares it last.
    pub fn of_paper(count: usize) -> Self {
        let mut random = Random(0x2014_0603);
        let mut rules = Vec::new();
        while rules.len() + 1 < count {
            // Hosts of the traffic also occur in many rules, but with ports that their traffic does not use.
            let ours = random.below(4) == 0;
            let source = match ours {
                true => network(client(random.below(CLIENTS.into())), 0),
                false => network(0x0a10_0000 | random.below(1 << 20), random.below(5) * 2),
            };
            let destination = match ours || random.below(3) == 0 {
                true => network(server(random.below(SERVERS.into())), 0),
                false => network(0xc612_0000 | random.below(1 << 12), 0),
            };
            let port = match ours {
                true => 1024 + random.below(64_512),
                false => [22, 25, 53, 80, 110, 143, 443, 993, 3306, 8080][random.below(10) as usize],
            };
            let protocol = if port == 53 { 17 } else { 6 };
            let rule = Rule::any()
                .between(source, destination)
                .and_then(|rule| rule.with(Field::DestinationPort, port, port))
                .and_then(|rule| rule.with(Field::Protocol, protocol, protocol));
            rules.extend(rule);
        }
        let clients = Range {
            first: client(0),
            last: client(CLIENTS - 1),
        };
        let servers = Range {
            first: server(0),
            last: server(SERVERS - 1),
        };
        let last = Rule::any()
            .between(clients, servers)
            .and_then(|rule| rule.with(Field::DestinationPort, SERVICE, SERVICE))
            .and_then(|rule| rule.with(Field::Protocol, 6, 6));
        rules.extend(last);
        Self {
            name: "web-filter".into(),
            rules,
            is_file: false,
        }
    }
}

/// The network of an address with `hosts` host bits.
fn network(address: u32, hosts: u32) -> Range<u32> {
    let hosts = (1 << hosts) - 1;
    Range {
        first: address & !hosts,
        last: address | hosts,
    }
}
