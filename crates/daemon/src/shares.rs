//! Computes the outside ports of deterministic NAT (RFC 7422), in both directions, for the running configuration or a
//! configuration file. With a file, queries are possible long after the configuration was active.

use std::net::IpAddr;
use std::path::Path;

use sluice_config::api::{EndpointFilter, MappingFilter, Share, Span};
use sluice_config::config::Pool;
use sluice_config::memory::EntryBytes;
use sluice_config::{Config, Machine};
use sluice_nat::deterministic::PortSet as Dealt;
use sluice_nat::{Address as _, Plan};

use crate::{DaemonError, load, lowering};

/// Maximum number of ports and inside addresses that are examined for one page of a list.
const WORK: u32 = 1 << 20;

/// Deterministic pools of a configuration.
#[derive(Debug)]
pub struct Shares(Vec<(String, Plan<u32>)>);

impl Shares {
    /// Deterministic pools of a valid configuration.
    pub fn of(config: &Config) -> Self {
        let plan = |pool: &Pool| Some((pool.name.clone(), lowering::plan(pool)?));
        Self(config.pools.iter().filter_map(plan).collect())
    }

    /// Deterministic pools of a configuration file. The file may have been written for a different machine.
    ///
    /// # Errors
    /// The file can't be read, or the configuration is invalid.
    pub fn of_file(path: &Path) -> Result<Self, DaemonError> {
        let machine = Machine {
            cores: (0..=load::MAX_CORES).collect(),
            memory: u64::MAX,
            entry: EntryBytes::default(),
        };
        Ok(Self::of(&load::checked(path, machine)?.checked.config))
    }

    /// Up to `limit` shares that match, and the cursor of the next page. The first page has cursor 0. A page may be
    /// empty, because the amount of work per page is limited.
    pub fn list(&self, filter: &MappingFilter, cursor: u64, limit: usize) -> (Vec<Share>, Option<u64>) {
        let mut found = Vec::new();
        let mut work = WORK;
        let (first, mut subscriber) = ((cursor >> 32) as usize, cursor as u32);
        for (at, (name, plan)) in self.0.iter().enumerate().skip(first) {
            if filter.pool.as_ref().is_some_and(|pool| pool != name) {
                continue;
            }
            let (from, to) = candidates(plan, filter);
            for number in from.max(subscriber)..to {
                if found.len() == limit || work == 0 {
                    return (found, Some((at as u64) << 32 | u64::from(number)));
                }
                work -= 1;
                let Some(share) = plan.outside(plan.inside_addresses().0 + number) else {
                    continue;
                };
                if share.address().is_none_or(|address| matches(&share, address, filter)) {
                    work = work.saturating_sub(share.count());
                    let ports = spans(&share);
                    if share.address().is_some() || spreads(&share, &ports, filter) {
                        found.push(Share {
                            pool: name.clone(),
                            inside: share.inside().display(),
                            ports: share.count(),
                            spans: ports,
                        });
                    }
                }
            }
            subscriber = 0;
        }
        (found, None)
    }

    /// Log lines that a change of the configuration writes.
    pub(crate) fn records(&self, time: &str) -> Vec<String> {
        self.0.iter().map(|(_, plan)| plan.record(time)).collect()
    }
}

/// Range of inside address numbers that contains all matches.
fn candidates(plan: &Plan<u32>, filter: &MappingFilter) -> (u32, u32) {
    let (first, last) = plan.inside_addresses();
    let range = |from: u32, to: u32| match from.max(first) <= to.min(last) {
        true => (from.max(first) - first, to.min(last) - first + 1),
        false => (0, 0),
    };
    // An outside address and port belong to exactly one inside address.
    if let Some(EndpointFilter {
        net: Some(ipnet::IpNet::V4(net)),
        port: Some(port),
    }) = filter.outside
        && net.prefix_len() == 32
    {
        return match plan.inside(net.addr().to_bits(), port) {
            Some(owner) => range(owner, owner),
            None => (0, 0),
        };
    }
    match filter.inside.as_ref().and_then(|inside| inside.net) {
        Some(ipnet::IpNet::V4(net)) => range(net.network().to_bits(), net.broadcast().to_bits()),
        Some(ipnet::IpNet::V6(_)) => (0, 0),
        None => range(first, last),
    }
}

/// Whether a share on one outside address matches. The inside host has all ports of the share.
fn matches(share: &Dealt<'_, u32>, address: u32, filter: &MappingFilter) -> bool {
    filter.outside.as_ref().is_none_or(|outside| {
        outside.net.is_none_or(|net| net.contains(&address.display()))
            && outside.port.is_none_or(|port| share.index_of(address, port).is_some())
    })
}

/// Whether a share on several outside addresses matches.
fn spreads(share: &Dealt<'_, u32>, spans: &[Span], filter: &MappingFilter) -> bool {
    let mut addresses = spans.iter().filter_map(|span| match span.address {
        IpAddr::V4(address) => Some(address.to_bits()),
        IpAddr::V6(_) => None,
    });
    addresses.any(|address| matches(share, address, filter))
}

fn spans(share: &Dealt<'_, u32>) -> Vec<Span> {
    let mut all: Vec<_> = share.iter().collect();
    all.sort_unstable();
    let of_one = |ports: &[(u32, u16)]| {
        let address = ports.first().map_or(0, |port| port.0).display();
        Span::of(address, &ports.iter().map(|port| port.1).collect::<Vec<_>>())
    };
    all.chunk_by(|one, other| one.0 == other.0).flat_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> (tempfile::TempDir, Shares) {
        let text = r#"
[interfaces.a]
device = "null:"
[nat.pools.example]
addresses = ["192.0.2.1"]
block = { size = 64 }
deterministic = { inside = "198.51.100.1-198.51.100.14", compression = 14, dynamic = 2 }
[nat.pools.staggered]
addresses = ["192.0.2.16/31"]
ports = "1000-1099"
deterministic = { inside = "10.0.0.0/29", compression = 4, algorithm = "staggered" }
[nat.pools.other]
addresses = ["192.0.2.20"]
"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).unwrap();
        let shares = Shares::of_file(&path).unwrap_or_else(|error| panic!("{error}"));
        (folder, shares)
    }

    fn selected(inside: Option<&str>, outside: Option<&str>) -> Vec<String> {
        let read = |text: Option<&str>| text.map(|text| text.parse().unwrap());
        let filter = MappingFilter {
            inside: read(inside),
            outside: read(outside),
            ..MappingFilter::default()
        };
        let (found, next) = shares().1.list(&filter, 0, 100);
        assert_eq!(None, next);
        let line = |share: Share| format!("{} {} {}", share.pool, share.inside, share.spans[0]);
        found.into_iter().map(line).collect()
    }

    #[test]
    fn rfc7422_both_functions_are_answered_of_a_file() {
        let second = "example 198.51.100.2 192.0.2.1:5056-9087";
        assert_eq!(vec![second], selected(Some("198.51.100.2"), None));
        assert_eq!(vec![second], selected(None, Some("192.0.2.1:9087")));
        assert_eq!(Vec::<String>::new(), selected(None, Some("192.0.2.1:57472")));
        assert_eq!(Vec::<String>::new(), selected(Some("198.51.100.15"), None));
        let fifth = "staggered 10.0.0.4 192.0.2.17:1000-1096 by 4";
        assert_eq!(vec![fifth], selected(None, Some("192.0.2.17:1096")));
        assert_eq!(vec![fifth], selected(Some("10.0.0.4/30"), Some(":1004")));
        assert_eq!(4, selected(None, Some("192.0.2.16")).len());
        assert_eq!(14 + 8, selected(None, None).len());
    }

    #[test]
    fn shares_listed_in_parts_are_all() {
        let (_folder, shares) = shares();
        let (mut cursor, mut insides) = (0, Vec::new());
        loop {
            let (found, next) = shares.list(&MappingFilter::default(), cursor, 3);
            assert!(found.len() <= 3);
            insides.extend(found.into_iter().map(|share| share.inside));
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let mut expected: Vec<IpAddr> = (1..=14).map(|last| IpAddr::from([198, 51, 100, last])).collect();
        expected.extend((0..8).map(|last| IpAddr::from([10, 0, 0, last])));
        assert_eq!(expected, insides);
    }

    #[test]
    fn rfc7422_record_of_each_pool_is_a_line() {
        let expected = [
            "[now]:198.51.100.1-198.51.100.14:32:192.0.2.1:32:2:4032:0:1-1023:14",
            "[now]:10.0.0.0:29:192.0.2.16:31:0:25:1:1-999,1100-65535:4",
        ];
        assert_eq!(expected.map(str::to_owned).to_vec(), shares().1.records("now"));
    }
}
