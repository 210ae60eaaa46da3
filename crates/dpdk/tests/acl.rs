//! Tests of rte_acl against a comparison with each rule.

use std::ops::RangeInclusive;

use crate::support::on_each_memory;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use sluice_dpdk::acl::{Acl, AclError, AclKey, AclRule, Prefix};

/// Source and destination address, source and destination port, and protocol of a packet.
type Tuple = (u32, u32, u16, u16, u8);
type Addresses = RangeInclusive<u32>;

/// A rule, and its address ranges.
fn rule() -> impl Strategy<Value = (AclRule, Addresses, Addresses)> {
    // Generate only a few different addresses and ports, so that rules overlap.
    let addresses = || {
        (0..16u32, 24..=32u32).prop_map(|(low, length)| {
            let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
            let first = (0x0a00_0000 | (low * 17)) & !hosts;
            first..=first | hosts
        })
    };
    let ports = || (0..200u16, 0..100u16).prop_map(|(first, more)| first..=first + more);
    let protocol = proptest::sample::select(vec![(0, 0), (6, 0xff), (17, 0xff), (4, 0xfc)]);
    (addresses(), addresses(), ports(), ports(), protocol).prop_map(|(source, destination, from, to, protocol)| {
        let prefix = |range: &Addresses| Prefix::of_range(*range.start(), *range.end()).expect("a prefix");
        let rule = AclRule {
            source: prefix(&source),
            destination: prefix(&destination),
            source_ports: from,
            destination_ports: to,
            protocol: protocol.0,
            protocol_mask: protocol.1,
        };
        (rule, source, destination)
    })
}

fn tuple() -> impl Strategy<Value = Tuple> {
    let address = || (0..256u32).prop_map(|low| 0x0a00_0000 | low);
    (address(), address(), 0..320u16, 0..320u16, 0..20u8)
}

/// Generated values, identical in every run.
fn some<S: Strategy>(strategy: S, count: usize) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    let mut draw = || strategy.new_tree(&mut runner).expect("a value").current();
    (0..count).map(|_| draw()).collect()
}

fn linear(rules: &[(AclRule, Addresses, Addresses)], tuple: &Tuple) -> Option<u32> {
    let (source, destination, from, to, protocol) = tuple;
    let holds = |(rule, sources, destinations): &(AclRule, Addresses, Addresses)| {
        sources.contains(source)
            && destinations.contains(destination)
            && rule.source_ports.contains(from)
            && rule.destination_ports.contains(to)
            && protocol & rule.protocol_mask == rule.protocol & rule.protocol_mask
    };
    rules.iter().position(holds).map(|number| number as u32)
}

#[test]
fn acl_finds_the_first_rule_as_linear_search_does() {
    on_each_memory("acl_finds_the_first_rule_as_linear_search_does", |scenario| {
        let eal = scenario.eal(128 << 20);
        let rules = some(rule(), 400);
        let plain: Vec<_> = rules.iter().map(|(rule, ..)| rule.clone()).collect();
        let acl = Acl::new(eal, &plain).unwrap_or_else(|error| panic!("{error}"));
        println!("{} instructions, {} bytes", acl.algorithm(), acl.bytes());
        let tuples = some(tuple(), 5_000);
        let key = |&(source, destination, from, to, protocol): &Tuple| {
            AclKey::new((source, from), (destination, to), protocol)
        };
        let keys: Vec<_> = tuples.iter().map(key).collect();
        let mut found = vec![Some(u32::MAX); keys.len()];
        acl.classify(&keys, &mut found);
        for (tuple, found) in tuples.iter().zip(&found) {
            assert_eq!(linear(&rules, tuple), *found, "{tuple:x?}");
        }
        let hits = found.iter().flatten().count();
        assert!((500..4_500).contains(&hits), "{hits} of {} were found", found.len());
        assert!(found.iter().flatten().any(|&number| number > 100));
    });
}

#[test]
fn acl_of_impossible_rules_is_refused() {
    on_each_memory("acl_of_impossible_rules_is_refused", |scenario| {
        let eal = scenario.eal(128 << 20);
        let refused = |rules: &[AclRule]| Acl::new(eal, rules).map(|_| ()).expect_err("refused");
        assert_eq!(AclError::Count { count: 0 }, refused(&[]));
        let (good, ..) = some(rule(), 1).remove(0);
        let bad = AclRule {
            source_ports: RangeInclusive::new(2, 1),
            ..good.clone()
        };
        assert_eq!(AclError::Reversed { rule: 1 }, refused(&[good, bad]));
    });
}
