//! Rules: decided by specificity, refused by name.

use proptest::prelude::*;
use sluice_nat::rule::{DestinationRule, Prefix, RuleError, Rules, SourceRule};
use sluice_nat::{Address, Pool, PoolIndex, Pools};
use sluice_wire::Tuple4;

const EXTERNAL: u32 = 0xcb00_7101;
const SERVER: u32 = 0x0a00_0005;

fn pools() -> Pools<u32> {
    let pool = |k: u32| Pool::new(0xc633_6400 + k, 0xc633_6400 + k);
    Pools::new(&[pool(0), pool(1), pool(2)]).unwrap()
}

fn source(address: u32, length: u8, outside: Option<u16>, pool: PoolIndex) -> SourceRule<u32> {
    SourceRule {
        context: 0,
        inside: Prefix { address, length },
        outside,
        pool,
    }
}

fn forward(protocol: Option<u8>, ports: Option<(u16, u16)>, target_port: Option<u16>) -> DestinationRule<u32> {
    DestinationRule {
        context: 0,
        protocol,
        external: EXTERNAL,
        ports,
        target: SERVER,
        target_port,
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
        let decide = |from, interface| {
            valid.decide_source(
                &Tuple4 {
                    source: from,
                    ..Tuple4::default()
                },
                interface,
            )
        };
        assert_eq!(Some(0), decide(0xc0a8_0001, 3));
        assert_eq!(Some(1), decide(0x0a00_0001, 2));
        assert_eq!(Some(2), decide(0x0a00_0001, 3));
        assert_eq!(Some(0), decide(0x0a01_0001, 3));
        let elsewhere = Tuple4 {
            source: 0x0a00_0001,
            context: 7,
            ..Tuple4::default()
        };
        assert_eq!(None, valid.decide_source(&elsewhere, 3));
    }
}

#[test]
fn destination_rules_any_order_decide_by_specificity() {
    let mut rules = vec![
        DestinationRule {
            target: 1,
            ..forward(None, None, None)
        },
        DestinationRule {
            target: 2,
            ..forward(Some(6), None, None)
        },
        DestinationRule {
            target: 3,
            ..forward(Some(6), Some((8000, 8999)), Some(1000))
        },
        DestinationRule {
            target: 4,
            ..forward(Some(6), Some((8080, 8080)), Some(80))
        },
    ];
    for _ in 0..rules.len() {
        rules.rotate_left(1);
        let valid = Rules::new(&[], &rules, &pools()).unwrap();
        let decide = |port, protocol| {
            valid
                .decide_destination(&to(port), protocol)
                .map(|t| (t.address, t.port))
        };
        assert_eq!(Some((1, 8080)), decide(8080, 17));
        assert_eq!(Some((2, 22)), decide(22, 6));
        assert_eq!(Some((3, 1081)), decide(8081, 6));
        assert_eq!(Some((4, 80)), decide(8080, 6));
    }
}

#[test]
fn maybe_forwarded_ports_of_no_rule_are_denied() {
    let valid = Rules::new(&[], &[forward(Some(6), Some((443, 445)), None)], &pools()).unwrap();
    let forwarded: Vec<u16> = (0..=u16::MAX).filter(|&port| valid.maybe_forwarded(port)).collect();
    assert_eq!(vec![443, 444, 445], forwarded);
    assert_eq!(None, valid.decide_destination(&to(442), 6));
    assert_eq!(None, valid.decide_destination(&to(443), 17));
    assert_eq!(
        None,
        valid.decide_destination(
            &Tuple4 {
                destination: 9,
                ..to(443)
            },
            6
        )
    );
}

#[test]
fn source_rules_faults_are_refused_by_name() {
    let check = |rules: &[SourceRule<u32>]| Rules::new(rules, &[], &pools()).unwrap_err();
    assert_eq!(
        RuleError::TooLong { rule: 0, length: 33 },
        check(&[source(0, 33, None, 0)])
    );
    let expected = RuleError::HostBits {
        rule: 0,
        address: 0x0a00_0001.display(),
        length: 8,
    };
    assert_eq!(expected, check(&[source(0x0a00_0001, 8, None, 0)]));
    assert_eq!(
        RuleError::UnknownPool { rule: 0, pool: 3 },
        check(&[source(0, 0, None, 3)])
    );
    let expected = RuleError::SameSource { rule: 0, other: 2 };
    assert_eq!(
        expected,
        check(&[source(0, 0, None, 0), source(0, 0, Some(1), 0), source(0, 0, None, 1)])
    );
}

#[test]
fn destination_rules_faults_are_refused_by_name() {
    let check = |rules: &[DestinationRule<u32>]| Rules::new(&[], rules, &pools()).unwrap_err();
    assert_eq!(
        RuleError::PortsWithoutProtocol { rule: 0 },
        check(&[forward(None, Some((80, 80)), None)])
    );
    assert_eq!(
        RuleError::TargetPortAlone { rule: 0 },
        check(&[forward(Some(6), None, Some(80))])
    );
    let expected = RuleError::BadPorts {
        rule: 0,
        first: 80,
        last: 81,
    };
    assert_eq!(expected, check(&[forward(Some(6), Some((80, 81)), Some(65_535))]));
    let expected = RuleError::SameDestination { rule: 1, other: 0 };
    assert_eq!(
        expected,
        check(&[
            forward(Some(6), Some((85, 95)), None),
            forward(Some(6), Some((80, 90)), None)
        ])
    );
    let expected = RuleError::SameDestination { rule: 0, other: 1 };
    assert_eq!(
        expected,
        check(&[forward(Some(6), None, None), forward(Some(6), None, None)])
    );
}

#[test]
fn destination_rule_of_a_lent_port_is_refused() {
    let lent = DestinationRule {
        external: 0xc633_6401,
        ..forward(Some(6), Some((8080, 8080)), None)
    };
    let expected = RuleError::Lent {
        rule: 0,
        address: 0xc633_6401.display(),
        first: 8080,
        last: 8080,
        pool: 1,
    };
    assert_eq!(Err(expected), Rules::new(&[], &[lent], &pools()).map(|_| ()));
    let below = DestinationRule {
        ports: Some((80, 443)),
        ..lent
    };
    assert!(Rules::new(&[], &[below], &pools()).is_ok());
    let tunnel = DestinationRule {
        protocol: Some(47),
        ports: None,
        ..lent
    };
    assert!(Rules::new(&[], &[tunnel], &pools()).is_ok());
}

/// Addresses of prefixes that lie within each other.
fn address() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0x0a00_0000u32, 0x0a00_0100, 0x0a01_0203, 0x0a80_0000, 0xc0a8_0101])
}

/// Rules that match different packets.
fn rules() -> impl Strategy<Value = Vec<SourceRule<u32>>> {
    let rule = (address(), 0u8..=32, prop::option::of(0u16..3), 0u16..3, 0u32..2).prop_map(
        |(address, length, outside, pool, context)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            SourceRule {
                context,
                ..source(address & mask, length, outside, pool)
            }
        },
    );
    prop::collection::vec(rule, 1..60).prop_map(|mut rules| {
        let mut seen = std::collections::BTreeSet::new();
        rules.retain(|rule| seen.insert((rule.context, rule.inside, rule.outside)));
        rules
    })
}

/// A source, its context, and the interface that it leaves through.
fn asked() -> impl Strategy<Value = (u32, u32, u16)> {
    (address(), 0u32..4, 0u32..2, 0u16..4)
        .prop_map(|(address, low, context, interface)| (address | low, context, interface))
}

proptest! {
    #[test]
    fn source_rules_any_number_decide_as_each_compared(
        rules in rules(), asked in prop::collection::vec(asked(), 1..40),
    ) {
        let valid = Rules::new(&rules, &[], &pools()).unwrap();
        for (from, context, interface) in asked {
            let matching = rules.iter().filter(|rule| {
                rule.context == context && rule.inside.contains(from) && rule.outside.is_none_or(|named| named == interface)
            });
            let best = matching.max_by_key(|rule| (rule.inside.length, rule.outside.is_some()));
            let key = Tuple4 { source: from, context, ..Tuple4::default() };
            prop_assert_eq!(best.map(|rule| rule.pool), valid.decide_source(&key, interface));
        }
    }
}
