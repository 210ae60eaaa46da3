//! Tests of sets: their contents equal those of a list.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_filter::{Element, ElementKind, ElementSet};

/// An operation on a set. One operation is executed per second.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds an element with a timeout in seconds. With 0, the element does not expire.
    Add(Element, u64),
    Remove(Element),
    Expire,
    Flush,
}

/// Addresses with common prefixes of many lengths.
fn any_address() -> impl Strategy<Value = IpAddr> {
    let bits = (any::<u8>(), 0u32..4).prop_map(|(bits, low)| u32::from(bits & 0x83) << 24 | low);
    (bits, any::<bool>()).prop_map(|(bits, six)| match six {
        true => Ipv6Addr::from_bits(u128::from(bits) << 96 | u128::from(bits)).into(),
        false => Ipv4Addr::from_bits(bits).into(),
    })
}

fn any_network() -> impl Strategy<Value = Element> {
    let length = prop_oneof![0u8..10, 28u8..=34, 126u8..=128];
    (any_address(), length).prop_map(|(address, length)| {
        let length = length.min(if address.is_ipv4() { 32 } else { 128 });
        Element::Network(masked(address, length), length)
    })
}

/// Masks an address bit by bit, as an independent implementation.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let kept = (0..32).filter(|bit| 31 - bit < u32::from(length));
            let bits = kept.fold(0, |bits, bit| bits | address.to_bits() & 1 << bit);
            Ipv4Addr::from_bits(bits).into()
        }
        IpAddr::V6(address) => {
            let kept = (0..128).filter(|bit| 127 - bit < u32::from(length));
            let bits = kept.fold(0, |bits, bit| bits | address.to_bits() & 1 << bit);
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

fn any_ports() -> impl Strategy<Value = Element> {
    let port = || prop_oneof![0u16..12, 65_530u16..=65_535];
    (port(), port()).prop_map(|(one, other)| Element::Ports(one.min(other), one.max(other)))
}

fn any_step(element: impl Strategy<Value = Element> + 'static) -> impl Strategy<Value = Step> {
    let element = element.boxed();
    prop_oneof![
        6 => (element.clone(), 0u64..6).prop_map(|(element, seconds)| Step::Add(element, seconds)),
        4 => element.prop_map(Step::Remove),
        2 => Just(Step::Expire),
        1 => Just(Step::Flush),
    ]
}

const SECOND: u64 = 1_000_000_000;

/// The single elements of a range.
fn parts(element: Element) -> Vec<Element> {
    match element {
        Element::Network(..) => vec![element],
        Element::Ports(first, last) => (first..=last).map(|port| Element::Ports(port, port)).collect(),
    }
}

/// Applies an operation to a set and to the model, a list of elements with their expiry times.
fn follow(set: &ElementSet, list: &mut BTreeMap<Element, u64>, step: Step, now: u64) {
    match step {
        Step::Add(element, seconds) => {
            let timeout = (seconds != 0).then(|| Duration::from_secs(seconds));
            let parts = parts(element);
            let new = parts.iter().filter(|part| !list.contains_key(part)).count();
            let fits = list.len() + new <= set.size();
            let added = set.add(element, timeout, now * SECOND);
            assert_eq!(fits.then_some(new), added.ok());
            if fits {
                let until = if seconds == 0 { u64::MAX } else { now + seconds };
                list.extend(parts.into_iter().map(|part| (part, until)));
            }
        }
        Step::Remove(element) => {
            let count = parts(element).iter().filter(|part| list.remove(part).is_some()).count();
            assert_eq!(count, set.remove(element));
        }
        Step::Expire => {
            list.retain(|_, until| *until > now);
            set.expire(now * SECOND);
        }
        Step::Flush => {
            assert_eq!(list.len(), set.flush());
            list.clear();
        }
    }
    assert_eq!(list.len(), set.len());
    let left = |until: u64| (until != u64::MAX).then(|| until.saturating_sub(now) * SECOND);
    let listed: Vec<_> = list.iter().map(|(&element, &until)| (element, left(until))).collect();
    let elements = set.elements(now * SECOND).into_iter();
    let single: Vec<_> = elements
        .flat_map(|(element, left)| parts(element).into_iter().map(move |part| (part, left)))
        .collect();
    assert_eq!(listed, single);
}

proptest! {
    #[test]
    fn networks_have_the_addresses_of_every_prefix_that_is_there(
        steps in vec(any_step(any_network()), 1..60),
        asked in vec(any_address(), 1..20),
    ) {
        let set = ElementSet::new(ElementKind::Networks, 12);
        let mut list = BTreeMap::new();
        for (now, step) in (1..).zip(steps) {
            follow(&set, &mut list, step, now);
            let ElementSet::Networks(networks) = &set else { unreachable!() };
            for &address in &asked {
                let is_within = |element: &Element| match *element {
                    Element::Network(network, length) => {
                        network.is_ipv4() == address.is_ipv4() && masked(address, length) == network
                    }
                    Element::Ports(..) => false,
                };
                prop_assert_eq!(list.keys().any(is_within), networks.contains(address), "{} in {:?}", address, list);
            }
        }
    }

    #[test]
    fn ports_are_those_that_are_there(steps in vec(any_step(any_ports()), 1..60)) {
        let set = ElementSet::new(ElementKind::Ports, 14);
        let mut list = BTreeMap::new();
        for (now, step) in (1..).zip(steps) {
            follow(&set, &mut list, step, now);
            let ElementSet::Ports(ports) = &set else { unreachable!() };
            for port in (0..14).chain(65_528..=65_535) {
                prop_assert_eq!(list.contains_key(&Element::Ports(port, port)), ports.contains(port));
            }
        }
    }
}

#[test]
fn sets_take_elements_of_their_own_kind_alone() {
    let network = Element::Network(Ipv4Addr::new(192, 0, 2, 0).into(), 24);
    let host = Element::Network(Ipv6Addr::LOCALHOST.into(), 128);
    let kinds = [ElementKind::Addresses, ElementKind::Networks, ElementKind::Ports];
    let sets = kinds.map(|kind| ElementSet::new(kind, 9));
    let taken = sets.each_ref().map(|set| {
        [network, host, Element::Ports(1, 2)].map(|element| {
            let added = set.add(element, None, 0).unwrap();
            assert_eq!(added > 0, set.accepts(element));
            added
        })
    });
    assert_eq!([[0, 1, 0], [1, 1, 0], [0, 0, 2]], taken);
    // A set of networks also accepts single addresses. All other sets accept only elements of their own kind.
    for other in &sets {
        let copies = kinds.map(|kind| {
            let copy = ElementSet::new(kind, 9);
            copy.copy(other);
            copy.len()
        });
        let expected = match other.kind() {
            ElementKind::Addresses => [1, 1, 0],
            ElementKind::Networks => [0, 2, 0],
            ElementKind::Ports => [0, 0, 2],
        };
        assert_eq!(expected, copies);
    }
}
