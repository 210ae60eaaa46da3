//! DPDK's rte_acl as a matcher of the benchmark.

use std::hint::black_box;
use std::time::Instant;

use sluice_dpdk::EalRequirements;
use sluice_dpdk::acl::{Acl, AclError, AclKey, AclRule, Prefix};
use sluice_dpdk::eal::{Eal, Memory};
use sluice_filter::{Field, Header, Range, Rule};

use super::Failure;
use super::timing::{BATCH, Costs};
use crate::rows::Row;

/// DPDK memory per rule in bytes: sets of 20,000 rules needed up to 16 KB per rule.
const BYTES_PER_RULE: usize = 32 << 10;
/// Minimum amount of DPDK memory.
const LEAST: usize = 256 << 20;

/// A rule set compiled by rte_acl.
pub struct RteAcl {
    acl: Acl,
    build: f64,
    memory: &'static str,
}

impl RteAcl {
    /// Compiles rules. Returns an error if a rule uses criteria other than prefixes, ports and protocol, or if there is
    /// not enough memory.
    pub fn new(rules: &[Rule<u32>]) -> Result<Self, Failure> {
        let needs = EalRequirements {
            bytes: (rules.len() * BYTES_PER_RULE).max(LEAST),
            ..EalRequirements::default()
        };
        let eal = Eal::start(&needs)?;
        let plain: Vec<AclRule> = rules.iter().map(plain).collect::<Result<_, _>>()?;
        let begin = Instant::now();
        let acl = Acl::new(eal, &plain)?;
        let build = begin.elapsed().as_secs_f64() * 1e3;
        let memory = match eal.memory() {
            Memory::Hugepages => "hugepages",
            Memory::Ordinary { .. } => "ordinary pages",
        };
        Ok(Self { acl, build, memory })
    }

    /// Index of the first matching rule for each key, as found by rte_acl.
    pub fn found(&self, keys: &[AclKey]) -> Vec<Option<u32>> {
        let mut found = vec![None; keys.len()];
        self.acl.classify(keys, &mut found);
        found
    }

    pub fn one_more(&self, costs: &mut Costs, keys: &[AclKey]) {
        let mut found = [None; BATCH];
        costs.run(keys.len(), |batch| {
            self.acl.classify(&keys[batch], &mut found);
            black_box(&found);
        });
    }

    /// Adds the matcher's name and memory size to a row.
    pub fn onto(&self, row: Row, rules: usize) -> Row {
        let row = row.key("algorithm", self.acl.algorithm()).key("pages", self.memory);
        let row = row.figure("build_ms", &[self.build]);
        super::timing::sized(row, self.acl.bytes(), rules)
    }
}

/// Converts headers to keys for rte_acl; returns an error if a header has no ports.
pub fn keys(headers: &[Header<u32>]) -> Result<Vec<AclKey>, Failure> {
    let key = |header: &Header<u32>| {
        let port = |field| u16::try_from(header.get(field)).map_err(|_| "rte_acl knows no packets without ports");
        let source = (header.source(), port(Field::SourcePort)?);
        let destination = (header.destination(), port(Field::DestinationPort)?);
        Ok(AclKey::new(source, destination, header.get(Field::Protocol) as u8))
    };
    headers.iter().map(key).collect()
}

fn plain(rule: &Rule<u32>) -> Result<AclRule, AclError> {
    let prefix = |range: Range<u32>| Prefix::of_range(range.first, range.last);
    let ports = |field: Field| {
        let Range { first, last } = rule.get(field);
        first as u16..=last.min(field.last_named()) as u16
    };
    let protocol = rule.get(Field::Protocol).first as u8;
    Ok(AclRule {
        source: prefix(rule.source)?,
        destination: prefix(rule.destination)?,
        source_ports: ports(Field::SourcePort),
        destination_ports: ports(Field::DestinationPort),
        protocol,
        protocol_mask: if rule.is_any(Field::Protocol) { 0 } else { 0xff },
    })
}
