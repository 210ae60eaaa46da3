use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const SECRET: Secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
const I: u32 = 0xc633_6400;
const O: u32 = 0xc000_0200;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::Sequential,
    Algorithm::Staggered,
    Algorithm::RoundRobin,
    Algorithm::Interlaced,
    Algorithm::Random(SECRET),
];

fn deterministic(hosts: u32, compression: u16, dynamic: u16, algorithm: Algorithm) -> Deterministic<u32> {
    Deterministic {
        inside: (I + 1, I + hosts),
        compression,
        dynamic,
        max: None,
        algorithm,
    }
}

/// The example of RFC 7422: 198.51.100.0/28 behind 192.0.2.1, with D = 2 and C + D = 16.
fn example() -> Plan<u32> {
    let deterministic = Deterministic {
        max: Some(5040),
        ..deterministic(14, 14, 2, Algorithm::Sequential)
    };
    Plan::new(&deterministic, &[(O + 1, O + 1)], 1024..=u16::MAX, &[]).unwrap()
}

#[test]
fn rfc7422_worked_example_gives_its_ranges() {
    let plan = example();
    assert_eq!(4032, plan.share());
    for (host, first, last) in [(1, 1024, 5055), (2, 5056, 9087), (14, 53_440, 57_471)] {
        let share = plan.outside(I + host).unwrap();
        assert_eq!(Some((O + 1, first, last)), share.range());
        assert_eq!(Some(O + 1), share.address());
        assert_eq!(4032, share.count());
        for port in [first, last] {
            assert_eq!(Some(I + host), plan.inside(O + 1, port));
        }
    }
    assert_eq!(Some((57_472, 65_535)), plan.dynamic());
}

#[test]
fn rfc7422_worked_example_leaves_the_rest_to_nobody() {
    let plan = example();
    for (address, port) in [
        (O + 1, 1023),
        (O + 1, 57_472),
        (O + 1, 65_535),
        (O, 1024),
        (O + 2, 1024),
    ] {
        assert_eq!(None, plan.inside(address, port), "{port}");
    }
    assert!(plan.outside(I).is_none());
    assert!(plan.outside(I + 15).is_none());
}

#[test]
fn rfc7422_algorithms_deal_as_they_are_named() {
    let ports = |algorithm, host: u32| {
        let addresses = [(O, O + 1), (O + 9, O + 9)];
        let plan = Plan::new(&deterministic(9, 3, 1, algorithm), &addresses, 100..=119, &[]).unwrap();
        assert_eq!(Some((115, 119)), plan.dynamic());
        let share = plan.outside(I + host).unwrap();
        let one = share.address();
        assert_eq!(algorithm.is_paired(), one.is_some());
        share
            .iter()
            .map(|(address, port)| (address - O, port))
            .collect::<Vec<_>>()
    };
    let sequential = vec![(0, 105), (0, 106), (0, 107), (0, 108), (0, 109)];
    assert_eq!(sequential, ports(Algorithm::Sequential, 2));
    let staggered = vec![(0, 101), (0, 104), (0, 107), (0, 110), (0, 113)];
    assert_eq!(staggered, ports(Algorithm::Staggered, 2));
    let staggered = vec![(9, 102), (9, 105), (9, 108), (9, 111), (9, 114)];
    assert_eq!(staggered, ports(Algorithm::Staggered, 9));
    let round_robin = vec![(9, 101), (0, 102), (1, 102), (9, 102), (0, 103)];
    assert_eq!(round_robin, ports(Algorithm::RoundRobin, 2));
    let interlaced = vec![(1, 100), (9, 103), (0, 106), (1, 109), (9, 112)];
    assert_eq!(interlaced, ports(Algorithm::Interlaced, 2));
    let random = ports(Algorithm::Random(SECRET), 2);
    assert!(
        random
            .iter()
            .all(|&(address, port)| address == 0 && (100..=114).contains(&port))
    );
    assert_ne!(random, ports(Algorithm::Random(Secret([1, 2])), 2));
}

#[test]
fn rfc7422_reserved_ports_are_nobodys_and_are_not_counted() {
    let reserved = [5004..=5004, 5060..=5060];
    let plan = Plan::new(
        &deterministic(14, 14, 2, Algorithm::Sequential),
        &[(O + 1, O + 1)],
        1024..=u16::MAX,
        &reserved,
    )
    .unwrap();
    // 64,510 ports are divided into 16 shares.
    assert_eq!(4031, plan.share());
    let share = plan.outside(I + 1).unwrap();
    assert_eq!(None, share.range());
    assert_eq!((O + 1, 1024), share.at(0));
    assert_eq!((O + 1, 5003), share.at(3979));
    assert_eq!((O + 1, 5005), share.at(3980));
    for port in [5004, 5060] {
        assert_eq!(None, plan.inside(O + 1, port));
        assert_eq!(None, share.index_of(O + 1, port));
    }
}

#[test]
fn rfc7422_record_names_every_variable() {
    let expected = "[Wed Oct 11 14:32:52 2000]:198.51.100.1-198.51.100.14:32:192.0.2.1:32:2:5040:0:1-1023:14";
    assert_eq!(expected, example().record("Wed Oct 11 14:32:52 2000"));
    let whole = Deterministic {
        inside: (I, I + 15),
        ..deterministic(0, 14, 2, Algorithm::Random(SECRET))
    };
    let addresses = [(O + 4, O + 7), (O, O + 1)];
    let plan = Plan::new(&whole, &addresses, 1024..=u16::MAX, &[5004..=5004, 5060..=5069]).unwrap();
    let expected = "[now]:198.51.100.0:28:192.0.2.0-192.0.2.1,192.0.2.4-192.0.2.7:32:2:4031:4:1-1023,5004,5060-5069:14";
    assert_eq!(expected, plan.record("now"));
    let v6 = Deterministic {
        inside: ([0x2001_0db8 << 32, 0x100], [0x2001_0db8 << 32, 0x1ff]),
        compression: 256,
        dynamic: 0,
        max: None,
        algorithm: Algorithm::Staggered,
    };
    let one = [0x2001_0db8 << 32, 1];
    let plan = Plan::new(&v6, &[(one, one)], 1..=u16::MAX, &[]).unwrap();
    let expected = "[now]:[2001:db8::100]:120:[2001:db8::1]:128:0:255:1::256";
    assert_eq!(expected, plan.record("now"));
}

#[test]
fn rfc7422_plans_that_do_not_fit_are_refused() {
    let new =
        |deterministic: &Deterministic<u32>, ports| Plan::new(deterministic, &[(O, O + 1)], ports, &[]).map(|_| ());
    let fits = deterministic(28, 14, 2, Algorithm::Sequential);
    assert_eq!(Ok(()), new(&fits, 1024..=u16::MAX));
    let more = deterministic(29, 14, 2, Algorithm::Sequential);
    let expected = DeterministicError::TooMany { inside: 29, places: 28 };
    assert_eq!(Err(expected), new(&more, 1024..=u16::MAX));
    let expected = DeterministicError::NoPorts { ports: 15, shares: 16 };
    assert_eq!(Err(expected), new(&fits, 1024..=1038));
    let none = deterministic(1, 0, 2, Algorithm::Sequential);
    assert_eq!(Err(DeterministicError::NoCompression), new(&none, 1024..=u16::MAX));
    assert_eq!(
        Err(DeterministicError::Empty),
        new(&deterministic(0, 1, 0, Algorithm::Sequential), 1..=9)
    );
    let empty = Plan::new(&fits, &[], 1..=u16::MAX, &[]).map(|_| ());
    assert_eq!(Err(DeterministicError::Empty), empty);
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    (0..ALGORITHMS.len()).prop_map(|at| ALGORITHMS[at])
}

/// Random address ranges, generated from gaps and lengths.
fn addresses() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((1u32..5, 1u32..5), 1..5).prop_map(|ranges| {
        let mut at = O;
        let place = |(gap, length)| {
            let first = at + gap;
            at = first + length;
            (first, first + length - 1)
        };
        ranges.into_iter().map(place).collect()
    })
}

proptest! {
    /// Checks that f2(f1(x, k)) = x and that no port is assigned to two inside addresses. Reserved ports and ports for
    /// blocks on demand are assigned to no inside address.
    #[test]
    fn rfc7422_both_functions_agree_and_share_nothing(
        algorithm in algorithm(),
        mut addresses in addresses(),
        (compression, dynamic) in (1u16..20, 0u16..5),
        used in 0u32..1000,
        (first, length) in (1u16..60_000, 100u16..700),
        reserved in prop::collection::vec((0u16..700, 1u16..9), 0..6),
    ) {
        let places: u32 = addresses.iter().map(|range| range.1 - range.0 + 1).sum::<u32>() * u32::from(compression);
        let hosts = 1 + used % places;
        let ports = first..=first + (length - 1);
        let reserved: Vec<_> = reserved.iter().map(|&(at, length)| first + at..=first + at + length - 1).collect();
        addresses.reverse();
        let deterministic = deterministic(hosts, compression, dynamic, algorithm);
        let plan = Plan::new(&deterministic, &addresses, ports.clone(), &reserved).unwrap();
        prop_assert_eq!(hosts, plan.subscribers());
        let mut owners = HashMap::new();
        for host in 1..=hosts {
            let share = plan.outside(I + host).unwrap();
            let mut own = HashSet::new();
            for k in 0..share.count() {
                let (outside, port) = share.at(k);
                prop_assert_eq!(Some(I + host), plan.inside(outside, port));
                prop_assert_eq!(Some(k), share.index_of(outside, port));
                prop_assert!(owners.insert((outside, port), host).is_none());
                prop_assert!(ports.contains(&port) && !reserved.iter().any(|range| range.contains(&port)));
                prop_assert!(plan.dynamic().is_none_or(|kept| !(kept.0..=kept.1).contains(&port)));
                own.insert(outside);
            }
            let address = share.address();
            prop_assert!(address.is_none() || own.len() == 1 && own.contains(&address.unwrap()));
        }
        let known = owners.len();
        let mut answered = 0;
        for &(from, to) in &addresses {
            for outside in from - 1..=to + 1 {
                for port in first.saturating_sub(2)..=first + length + 2 {
                    let owner = owners.get(&(outside, port)).map(|host| I + host);
                    prop_assert_eq!(owner, plan.inside(outside, port));
                    answered += usize::from((from..=to).contains(&outside) && owner.is_some());
                }
            }
        }
        prop_assert_eq!(known, answered);
    }
}
