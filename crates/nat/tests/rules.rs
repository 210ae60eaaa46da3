//! Tests of rules: selection by specificity, reasons for rejected rules, and modifications during lookups.

use core::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use sluice_nat::rule::{
    Destination, DestinationAction, DestinationRule, Prefix, RuleError, RuleId, Rules, SourceAction, SourceRule, Target,
};
use sluice_nat::{Address, Pool, PoolIndex, Pools};
use sluice_wire::Tuple4;

const EXTERNAL: u32 = 0xcb00_7101;
const SERVER: u32 = 0x0a00_0005;

fn pools() -> Pools<u32> {
    let pool = |k: u32| Pool::new(0xc633_6400 + k, 0xc633_6400 + k);
    Pools::new(&[pool(0), pool(1), pool(2)]).unwrap()
}

fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

fn prefix(text: &str) -> Prefix<u32> {
    let (address, length) = text.split_once('/').unwrap();
    Prefix {
        address: v4(address),
        length: length.parse().unwrap(),
    }
}

fn source(address: u32, length: u8, outside: Option<u16>, pool: PoolIndex) -> SourceRule<u32> {
    SourceRule {
        outside,
        ..SourceRule::of(Prefix { address, length }, SourceAction::Pool(pool))
    }
}

fn forward(protocol: Option<u8>, ports: Option<(u16, u16)>, target_port: Option<u16>) -> DestinationRule<u32> {
    DestinationRule {
        protocol,
        ports,
        ..DestinationRule::of(Prefix::host(EXTERNAL), DestinationAction::Host(SERVER, target_port))
    }
}

fn to(port: u16) -> Tuple4 {
    Tuple4 {
        source: 1,
        destination: EXTERNAL,
        source_port: 5,
        destination_port: port,
        context: 0,
    }
}

fn from(address: u32, port: u16) -> Tuple4 {
    Tuple4 {
        source: address,
        source_port: port,
        ..Tuple4::default()
    }
}

/// The pool to which the source of a flow is translated.
fn pool_of(rules: &Rules<u32>, key: &Tuple4, protocol: u8, interface: u16) -> Option<PoolIndex> {
    match rules.match_source(key, protocol, interface)?.action {
        SourceAction::Pool(pool) => Some(pool),
        other => panic!("{other:?}"),
    }
}

fn target_of(rules: &Rules<u32>, key: &Tuple4, protocol: u8) -> Option<(u32, u16)> {
    match rules.match_destination(key, protocol, 0)?.action {
        Destination::To(Target { address, port }) => Some((address, port)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn quick_nat_figure_4_misses_the_host_and_hits_the_network_without_a_port() {
    // The example of P4, Fig. 4: TCP from 192.168.88.32:1234 to 103.235.46.39:80.
    let packet = Tuple4 {
        source: v4("192.168.88.32"),
        destination: v4("103.235.46.39"),
        source_port: 1234,
        destination_port: 80,
        context: 0,
    };
    let rule = |inside, port, pool| SourceRule {
        port,
        protocol: Some(6),
        ..SourceRule::of(prefix(inside), SourceAction::Pool(pool))
    };
    let others = [
        rule("192.168.88.33/32", None, 0),
        rule("192.168.88.32/32", Some(80), 0),
        rule("192.168.88.0/24", Some(1235), 0),
        rule("192.168.0.0/16", None, 0),
    ];
    let rules = Rules::new(&others, &[], &pools()).unwrap();
    assert_eq!(
        Some(RuleId(3)),
        rules.match_source(&packet, 6, 1).map(|decided| decided.rule)
    );
    let network = rules.add_source(&rule("192.168.88.0/24", None, 1), &pools()).unwrap();
    assert_eq!(
        Some(network),
        rules.match_source(&packet, 6, 1).map(|decided| decided.rule)
    );
    assert_eq!(None, rules.match_destination(&packet, 6, 0));
    // A host rule is preferred over shorter prefixes, and for equal prefixes a rule with a port over one without.
    rules
        .add_source(&rule("192.168.88.0/24", Some(1234), 2), &pools())
        .unwrap();
    assert_eq!(Some(2), pool_of(&rules, &packet, 6, 1));
    rules.add_source(&rule("192.168.88.32/32", None, 0), &pools()).unwrap();
    assert_eq!(Some(0), pool_of(&rules, &packet, 6, 1));
}

#[test]
fn source_rules_any_order_decide_by_specificity() {
    let mut rules = vec![
        source(0, 0, None, 0),
        source(0x0a00_0000, 8, None, 1),
        source(0x0a00_0000, 8, Some(3), 2),
        source(0x0a01_0000, 16, None, 0),
    ];
    for _ in 0..rules.len() {
        rules.rotate_left(1);
        let valid = Rules::new(&rules, &[], &pools()).unwrap();
        let decide = |address, interface| pool_of(&valid, &from(address, 5), 17, interface);
        assert_eq!(Some(0), decide(0xc0a8_0001, 3));
        assert_eq!(Some(1), decide(0x0a00_0001, 2));
        assert_eq!(Some(2), decide(0x0a00_0001, 3));
        assert_eq!(Some(0), decide(0x0a01_0001, 3));
        let elsewhere = Tuple4 {
            context: 7,
            ..from(0x0a00_0001, 5)
        };
        assert_eq!(None, valid.match_source(&elsewhere, 17, 3));
    }
}

#[test]
fn source_one_to_one_keeps_the_place_within_the_prefix() {
    let rule = SourceRule::of(prefix("10.1.2.0/24"), SourceAction::Static(v4("203.0.113.0")));
    let exempt = SourceRule::of(prefix("10.1.2.128/25"), SourceAction::Exempt);
    let rules = Rules::new(&[rule, exempt], &[], &pools()).unwrap();
    let what = |address| {
        rules
            .match_source(&from(v4(address), 5), 47, 1)
            .map(|decided| decided.action)
    };
    assert_eq!(Some(SourceAction::Static(v4("203.0.113.7"))), what("10.1.2.7"));
    assert_eq!(Some(SourceAction::Exempt), what("10.1.2.130"));
    assert_eq!(None, what("10.1.3.7"));
}

#[test]
fn destination_rules_any_order_decide_by_specificity() {
    let to_host = |host, rule: DestinationRule<u32>, port| DestinationRule {
        inbound: None,
        action: DestinationAction::Host(host, port),
        ..rule
    };
    let mut rules = vec![
        to_host(1, forward(None, None, None), None),
        to_host(2, forward(Some(6), None, None), None),
        to_host(3, forward(Some(6), Some((8000, 8999)), None), Some(1000)),
        to_host(4, forward(Some(6), Some((8080, 8080)), None), Some(80)),
        to_host(5, forward(Some(6), Some((8070, 8090)), None), None),
        to_host(6, forward(None, Some((8085, 8085)), None), None),
        to_host(6, forward(None, Some((53, 53)), None), None),
    ];
    for _ in 0..rules.len() {
        rules.rotate_left(1);
        let valid = Rules::new(&[], &rules, &pools()).unwrap();
        let decide = |port, protocol| target_of(&valid, &to(port), protocol);
        assert_eq!(Some((1, 8080)), decide(8080, 17));
        assert_eq!(Some((2, 22)), decide(22, 6));
        assert_eq!(Some((3, 1091)), decide(8091, 6));
        assert_eq!(Some((5, 8081)), decide(8081, 6));
        assert_eq!(Some((4, 80)), decide(8080, 6));
        // For equal ports, a rule with a protocol is more specific. A port is more specific than a protocol.
        assert_eq!(Some((5, 8085)), decide(8085, 6));
        assert_eq!(Some((6, 8085)), decide(8085, 17));
        assert_eq!(Some((6, 53)), decide(53, 6));
        // Rules with ports don't match protocols without ports.
        assert_eq!(Some((1, 53)), decide(53, 1));
    }
}

#[test]
fn rfc6888_req6_chosen_destinations_are_not_translated() {
    let networks = [
        DestinationRule::of(prefix("192.0.2.0/24"), DestinationAction::Exempt),
        DestinationRule {
            protocol: Some(17),
            ports: Some((5060, 5061)),
            ..DestinationRule::of(prefix("0.0.0.0/0"), DestinationAction::Exempt)
        },
    ];
    let rules = Rules::new(&[], &networks, &pools()).unwrap();
    let exempt = |address, port, protocol| {
        let key = Tuple4 {
            destination: v4(address),
            ..to(port)
        };
        rules.match_destination(&key, protocol, 0).map(|decided| decided.action) == Some(Destination::Exempt)
    };
    assert!(exempt("192.0.2.77", 80, 6));
    assert!(!exempt("192.0.3.77", 80, 6));
    assert!(exempt("192.0.3.77", 5061, 17));
    assert!(!exempt("192.0.3.77", 5061, 6));
    assert!(!rules.maybe_forwarded(v4("192.0.2.77"), 80));
}

#[test]
fn maybe_forwarded_ports_of_no_rule_are_denied() {
    let valid = Rules::new(&[], &[forward(Some(6), Some((443, 445)), None)], &pools()).unwrap();
    let forwarded: Vec<u16> = (0..=u16::MAX)
        .filter(|&port| valid.maybe_forwarded(EXTERNAL, port))
        .collect();
    assert_eq!(vec![443, 444, 445], forwarded);
    assert_eq!(None, target_of(&valid, &to(442), 6));
    assert_eq!(None, target_of(&valid, &to(443), 17));
    let elsewhere = Tuple4 {
        destination: 9,
        ..to(443)
    };
    assert_eq!(None, target_of(&valid, &elsewhere, 6));
}

#[test]
fn gateway_stands_in_for_single_addresses_and_those_one_to_one() {
    let network = |text| prefix(text);
    let rules = [
        forward(Some(6), Some((80, 80)), None),
        forward(Some(6), Some((443, 443)), None),
        DestinationRule::of(network("203.0.113.64/26"), DestinationAction::Static(v4("10.0.0.64"))),
        DestinationRule::of(network("0.0.0.0/0"), DestinationAction::Host(SERVER, None)),
        DestinationRule::of(network("203.0.113.9/32"), DestinationAction::Exempt),
    ];
    // No pools, because the catch-all rule conflicts with every pool.
    let rules = Rules::new(&[], &rules, &Pools::default()).unwrap();
    let stands_in = |rules: &Rules<u32>, address| rules.proxies_for(0, v4(address));
    assert!(stands_in(&rules, "203.0.113.1"));
    assert!(stands_in(&rules, "203.0.113.127"));
    assert!(!stands_in(&rules, "203.0.113.128"));
    assert!(!stands_in(&rules, "203.0.113.9"));
    rules.remove_destination(RuleId(0)).unwrap();
    assert!(stands_in(&rules, "203.0.113.1"));
    rules.remove_destination(RuleId(1)).unwrap();
    assert!(!stands_in(&rules, "203.0.113.1"));
}

#[test]
fn source_rules_faults_are_refused_by_name() {
    let check = |rules: &[SourceRule<u32>]| Rules::new(rules, &[], &pools()).unwrap_err();
    let rule = RuleId(0);
    assert_eq!(
        RuleError::TooLong { rule, length: 33 },
        check(&[source(0, 33, None, 0)])
    );
    let expected = RuleError::HostBits {
        rule,
        address: 0x0a00_0001.display(),
        length: 8,
    };
    assert_eq!(expected, check(&[source(0x0a00_0001, 8, None, 0)]));
    let outside = SourceRule::of(prefix("10.0.0.0/8"), SourceAction::Static(0x0a00_0001));
    assert_eq!(expected, check(&[outside]));
    assert_eq!(
        RuleError::UnknownPool { rule, pool: 3 },
        check(&[source(0, 0, None, 3)])
    );
    let port_of_icmp = SourceRule {
        protocol: Some(1),
        port: Some(8),
        ..source(0, 0, None, 0)
    };
    assert_eq!(RuleError::PortsWithoutProtocol { rule }, check(&[port_of_icmp]));
    let expected = RuleError::SameSource { rule, other: RuleId(2) };
    assert_eq!(
        expected,
        check(&[source(0, 0, None, 0), source(0, 0, Some(1), 0), source(0, 0, None, 1)])
    );
}

#[test]
fn destination_rules_faults_are_refused_by_name() {
    let check = |rules: &[DestinationRule<u32>]| Rules::new(&[], rules, &pools()).unwrap_err();
    let rule = RuleId(0);
    assert_eq!(
        RuleError::PortsWithoutProtocol { rule },
        check(&[forward(Some(47), Some((80, 80)), None)])
    );
    assert_eq!(
        RuleError::TargetPortAlone { rule },
        check(&[forward(Some(6), None, Some(80))])
    );
    let expected = RuleError::BadPorts {
        rule,
        first: 80,
        last: 81,
    };
    assert_eq!(expected, check(&[forward(Some(6), Some((80, 81)), Some(65_535))]));
    let both = [RuleId(0), RuleId(1)].map(|id| id);
    let expected = RuleError::SameDestination {
        rule: both[0],
        other: both[1],
    };
    let same = [
        [
            forward(Some(6), Some((85, 95)), None),
            forward(Some(6), Some((80, 90)), None),
        ],
        [
            forward(Some(6), Some((85, 95)), None),
            forward(Some(6), Some((85, 95)), None),
        ],
        [
            forward(Some(6), Some((85, 85)), None),
            forward(Some(6), Some((85, 85)), None),
        ],
        [forward(Some(6), None, None), forward(Some(6), None, None)],
    ];
    for rules in same {
        assert_eq!(expected, check(&rules));
    }
}

#[test]
fn destination_rule_of_a_lent_port_is_refused() {
    let allocated = DestinationRule {
        external: Prefix::host(0xc633_6401),
        ..forward(Some(6), Some((8080, 8080)), None)
    };
    let expected = RuleError::Allocated {
        rule: RuleId(0),
        address: 0xc633_6401.display(),
        first: 8080,
        last: 8080,
        pool: 1,
    };
    let checked = |rule: DestinationRule<u32>| Rules::new(&[], &[rule], &pools()).map(|_| ());
    assert_eq!(Err(expected.clone()), checked(allocated));
    let around = DestinationRule {
        external: Prefix {
            address: 0xc633_6401 & !3,
            length: 30,
        },
        ..allocated
    };
    assert!(matches!(checked(around), Err(RuleError::Allocated { .. })));
    let below = DestinationRule {
        ports: Some((80, 443)),
        ..allocated
    };
    assert_eq!(Ok(()), checked(below));
    let tunnel = DestinationRule {
        protocol: Some(47),
        ports: None,
        ..allocated
    };
    assert_eq!(Ok(()), checked(tunnel));
    let exempt = DestinationRule {
        inbound: None,
        action: DestinationAction::Exempt,
        ..allocated
    };
    assert_eq!(Ok(()), checked(exempt));
}

#[test]
fn rule_that_is_refused_leaves_nothing_behind() {
    let rules = Rules::new(&[], &[forward(Some(6), Some((80, 90)), None)], &pools()).unwrap();
    rules
        .add_destination(&forward(Some(6), Some((85, 95)), None), &pools())
        .unwrap_err();
    assert!(!rules.maybe_forwarded(EXTERNAL, 95));
    assert_eq!(None, target_of(&rules, &to(95), 6));
    assert_eq!(1, rules.destinations(9).len());
}

#[test]
fn hits_of_a_rule_go_on_under_another_number_and_end_with_it() {
    let before = Rules::new(&[source(0, 0, None, 0), source(0, 8, None, 1)], &[], &pools()).unwrap();
    before.count_source(RuleId(0), 5);
    before.count_source(RuleId(1), 7);
    let after = Rules::new(&[source(0, 8, None, 1), source(0, 0, None, 2)], &[], &pools()).unwrap();
    after.adopt_hits(&before);
    let hits: Vec<_> = after.sources(9).into_iter().map(|(id, _, hits)| (id.0, hits)).collect();
    assert_eq!(vec![(0, 7), (1, 0)], hits);
    after.remove_source(RuleId(0)).unwrap();
    let again = after.add_source(&source(0, 8, None, 1), &pools()).unwrap();
    assert_eq!(RuleId(0), again);
    assert!(after.sources(9).iter().all(|&(_, _, hits)| hits == 0));
}

/// Random addresses in nested prefixes.
fn address() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0x0a00_0000u32, 0x0a00_0100, 0x0a01_0203, 0x0a80_0000, 0xc0a8_0101])
}

fn some_prefix() -> impl Strategy<Value = Prefix<u32>> {
    (address(), 0u8..=32).prop_map(|(address, length)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        Prefix {
            address: address & mask,
            length,
        }
    })
}

fn protocol() -> impl Strategy<Value = Option<u8>> {
    prop::option::of(prop::sample::select(vec![6u8, 17]))
}

/// A random rule. The test adds the rule, or removes it if it exists.
fn source_rule() -> impl Strategy<Value = SourceRule<u32>> {
    let action = prop_oneof![
        (0u16..3).prop_map(SourceAction::Pool),
        Just(SourceAction::Exempt),
        Just(SourceAction::Static(0)),
    ];
    let parts = (
        some_prefix(),
        protocol(),
        prop::option::of(0u16..3),
        prop::option::of(0u16..3),
        0u32..2,
        action,
    );
    parts.prop_map(|(inside, protocol, port, outside, context, action)| SourceRule {
        context,
        inside,
        protocol,
        port,
        outside,
        action,
    })
}

fn destination_rule() -> impl Strategy<Value = DestinationRule<u32>> {
    let action = prop_oneof![
        (any::<u32>(), prop::option::of(100u16..105)).prop_map(|(host, port)| DestinationAction::Host(host, port)),
        (0u16..3, prop::option::of(100u16..105)).prop_map(|(set, port)| DestinationAction::Hosts(set, port)),
        Just(DestinationAction::Exempt),
        Just(DestinationAction::Static(0)),
    ];
    let ports = prop::option::of((0u16..6, 0u16..4).prop_map(|(first, more)| (first, first + more)));
    let inbound = prop::option::of(0u16..3);
    let parts = (some_prefix(), protocol(), ports, inbound, 0u32..2, action);
    parts.prop_map(|(external, protocol, ports, inbound, context, action)| {
        let action = match action {
            DestinationAction::Host(host, _) if ports.is_none() => DestinationAction::Host(host, None),
            DestinationAction::Hosts(set, _) if ports.is_none() => DestinationAction::Hosts(set, None),
            action => action,
        };
        DestinationRule {
            context,
            protocol,
            external,
            ports,
            inbound,
            action,
        }
    })
}

/// Random address, port, protocol, interface and context of a packet.
fn queried() -> impl Strategy<Value = (u32, u16, u8, u16, u32)> {
    let address = (address(), 0u32..4).prop_map(|(address, low)| address | low);
    (
        address,
        0u16..10,
        prop::sample::select(vec![1u8, 6, 17]),
        0u16..4,
        0u32..2,
    )
}

/// The action of the most specific source rule, found by a linear search.
fn listed_source(rules: &[SourceRule<u32>], queried: (u32, u16, u8, u16, u32)) -> Option<SourceAction<u32>> {
    let (address, port, protocol, interface, context) = queried;
    let matching = rules.iter().filter(|rule| {
        rule.context == context
            && rule.inside.contains(address)
            && rule.port.is_none_or(|named| named == port && protocol != 1)
            && rule.protocol.is_none_or(|named| named == protocol)
            && rule.outside.is_none_or(|named| named == interface)
    });
    let best = matching.max_by_key(|rule| {
        let named = [rule.port.is_some(), rule.protocol.is_some(), rule.outside.is_some()];
        (rule.inside.length, named)
    })?;
    Some(match best.action {
        SourceAction::Static(first) => {
            let outside = Prefix {
                address: first,
                length: best.inside.length,
            };
            SourceAction::Static(outside.with_host_bits_of(address))
        }
        action => action,
    })
}

fn listed_destination(rules: &[DestinationRule<u32>], queried: (u32, u16, u8, u16, u32)) -> Option<Destination<u32>> {
    let (address, port, protocol, interface, context) = queried;
    let matching = rules.iter().filter(|rule| {
        rule.context == context
            && rule.external.contains(address)
            && rule
                .ports
                .is_none_or(|(first, last)| protocol != 1 && (first..=last).contains(&port))
            && rule.protocol.is_none_or(|named| named == protocol)
            && rule.inbound.is_none_or(|named| named == interface)
    });
    let best = matching.max_by_key(|rule| {
        let width = rule.ports.map_or(0, |(first, last)| last - first);
        (
            rule.external.length,
            rule.ports.is_some(),
            rule.protocol.is_some(),
            rule.inbound.is_some(),
            core::cmp::Reverse(width),
        )
    })?;
    let to = |address, port| Destination::To(Target { address, port });
    Some(match best.action {
        DestinationAction::Exempt => Destination::Exempt,
        DestinationAction::Host(host, None) => to(host, port),
        DestinationAction::Host(host, Some(first)) => to(host, first + (port - best.ports.unwrap().0)),
        DestinationAction::Hosts(set, None) => Destination::Among(set, port),
        DestinationAction::Hosts(set, Some(first)) => Destination::Among(set, first + (port - best.ports.unwrap().0)),
        DestinationAction::Static(first) => {
            let inside = Prefix {
                address: first,
                length: best.external.length,
            };
            to(inside.with_host_bits_of(address), port)
        }
    })
}

proptest! {
    #[test]
    fn source_rules_added_and_removed_decide_as_each_compared(
        edits in prop::collection::vec((source_rule(), any::<bool>()), 1..60),
        queried in prop::collection::vec(queried(), 1..40),
    ) {
        let rules = Rules::default();
        let mut list: Vec<(RuleId, SourceRule<u32>)> = Vec::new();
        for (rule, stays) in edits {
            match rules.add_source(&rule, &pools()) {
                Ok(id) => list.push((id, rule)),
                Err(RuleError::SameSource { rule: other, .. }) => {
                    prop_assert!(list.iter().any(|(id, _)| *id == other));
                    if !stays {
                        rules.remove_source(other);
                        list.retain(|(id, _)| *id != other);
                    }
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        let left: Vec<_> = list.iter().map(|(_, rule)| *rule).collect();
        let flows: Vec<_> = queried.iter().map(|&(address, port, protocol, interface, context)| {
            (Tuple4 { context, ..from(address, port) }, protocol, interface)
        }).collect();
        let mut together = vec![None; flows.len()];
        rules.match_sources(&flows, &mut together);
        for ((queried, (key, protocol, interface)), batched) in queried.into_iter().zip(&flows).zip(together) {
            let decided = rules.match_source(key, *protocol, *interface);
            prop_assert_eq!(listed_source(&left, queried), decided.map(|decided| decided.action));
            prop_assert_eq!(decided, batched);
        }
    }

    #[test]
    fn destination_rules_added_and_removed_decide_as_each_compared(
        edits in prop::collection::vec((destination_rule(), any::<bool>()), 1..60),
        queried in prop::collection::vec(queried(), 1..40),
    ) {
        let rules = Rules::default();
        let mut list: Vec<(RuleId, DestinationRule<u32>)> = Vec::new();
        for (rule, stays) in edits {
            match rules.add_destination(&rule, &Pools::default()) {
                Ok(id) => list.push((id, rule)),
                Err(RuleError::SameDestination { rule: other, .. }) => {
                    prop_assert!(list.iter().any(|(id, _)| *id == other));
                    if !stays {
                        rules.remove_destination(other);
                        list.retain(|(id, _)| *id != other);
                    }
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        let left: Vec<_> = list.iter().map(|(_, rule)| *rule).collect();
        let flows: Vec<_> = queried.iter().map(|&(address, port, protocol, interface, context)| {
            (Tuple4 { context, destination: address, ..to(port) }, protocol, interface)
        }).collect();
        let mut together = vec![None; flows.len()];
        rules.match_destinations(&flows, &mut together);
        for ((queried, (key, protocol, interface)), batched) in queried.into_iter().zip(&flows).zip(together) {
            let decided = rules.match_destination(key, *protocol, *interface);
            let expected = listed_destination(&left, queried);
            prop_assert_eq!(expected, decided.map(|decided| decided.action));
            prop_assert_eq!(decided, batched);
            if matches!(expected, Some(Destination::To(_) | Destination::Among(..))) {
                prop_assert!(rules.maybe_forwarded(key.destination, key.destination_port));
            }
        }
    }
}

#[test]
fn rules_change_one_by_one_while_every_worker_asks() {
    let rules = Rules::new(&[source(0x0a00_0000, 8, None, 0)], &[], &pools()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (rules, done) = (rules.clone(), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for host in 0..64 {
                        let key = from(0x0a00_0000 + host, 5);
                        let pool = pool_of(&rules, &key, 6, 1).expect("the network's rule is always there");
                        assert!(pool == 0 || pool == 1 + (host % 2) as u16, "{host} {pool}");
                    }
                }
            });
        }
        let mut ids = vec![None; 64];
        let mut draw = 1u32;
        for _ in 0..40_000 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let host = draw >> 26;
            let place = &mut ids[host as usize];
            *place = match place.take() {
                Some(id) => {
                    rules.remove_source(id).unwrap();
                    None
                }
                None => {
                    let rule = source(0x0a00_0000 + host, 32, None, 1 + (host % 2) as u16);
                    Some(rules.add_source(&rule, &pools()).unwrap())
                }
            };
        }
        done.store(true, Ordering::Relaxed);
    });
}
