//! Tests of the mirrored kernel table: selection among several routes to a prefix after messages of the kernel. The
//! messages are from Linux 6.18. The lab compares the results with a real kernel.

use std::collections::BTreeMap;

use sluice_route::feed::netlink::{APPEND, MULTI, REPLACE, kind};
use sluice_route::feed::writer::{Writer, family};
use sluice_route::feed::{Feed, Links, MAIN_TABLE, RoutePeer};
use sluice_route::rib::{Origin, ResolvedSet, Rib, Settings, Sink};
use sluice_route::{Address, DropKind, NextHop, Prefix};

/// The flags NLM_F_CREATE and NLM_F_EXCL.
const CREATE: u16 = 0x400;
const ADDED: u16 = 0x600;

const V4: &str = "10.9.0.0/16";
const V6: &str = "2001:db8:9::/48";

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn prefix(text: &str) -> Prefix {
    let (bits, length) = text.split_once('/').unwrap();
    Prefix::new(address(bits), length.parse().unwrap())
}

fn metric(to: &str) -> u32 {
    if to.contains(':') { 1024 } else { 0 }
}

/// A message about a route with these gateways on interface 3.
fn by(kind: u16, flags: u16, to: &str, gateways: &[&str]) -> Vec<u8> {
    let writer = Writer::route((kind, flags), prefix(to), 3, 1).number(6, metric(to));
    match gateways {
        [gateway] => writer.address(5, address(gateway)).number(4, 3).finish(),
        _ => writer
            .attribute(9, &gateways.iter().flat_map(|gateway| leg(gateway)).collect::<Vec<_>>())
            .finish(),
    }
}

fn leg(gateway: &str) -> Vec<u8> {
    let value = match address(gateway) {
        Address::V4(bits) => bits.to_be_bytes().to_vec(),
        Address::V6(bits) => bits.to_be_bytes().to_vec(),
    };
    let length = (12 + value.len()) as u16;
    let head = [&length.to_ne_bytes()[..], &[0, 0], &3_u32.to_ne_bytes()].concat();
    let attribute = [&(4 + value.len() as u16).to_ne_bytes()[..], &5_u16.to_ne_bytes()].concat();
    [head, attribute, value].concat()
}

fn new(flags: u16, to: &str, gateways: &[&str]) -> Vec<u8> {
    by(kind::NEW_ROUTE, flags, to, gateways)
}

fn gone(to: &str, gateways: &[&str]) -> Vec<u8> {
    by(kind::DELETE_ROUTE, 0, to, gateways)
}

fn blackhole(flags: u16, to: &str) -> Vec<u8> {
    let writer = Writer::route((kind::NEW_ROUTE, flags), prefix(to), 3, 6);
    writer.number(6, metric(to)).finish()
}

fn by_object(flags: u16, to: &str, id: u32) -> Vec<u8> {
    let writer = Writer::route((kind::NEW_ROUTE, flags), prefix(to), 3, 1);
    writer.number(6, metric(to)).number(30, id).finish()
}

fn object(id: u32, gateway: &str) -> Vec<u8> {
    let gateway = address(gateway);
    let writer = Writer::next_hop((kind::NEW_NEXT_HOP, 0), family(gateway), id);
    writer.address(6, gateway).number(5, 3).finish()
}

/// The message with a different netlink sequence number.
fn of_request(sequence: u32, mut message: Vec<u8>) -> Vec<u8> {
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

fn object_gone(id: u32) -> Vec<u8> {
    Writer::next_hop((kind::DELETE_NEXT_HOP, 0), 0, id).finish()
}

#[derive(Default)]
struct Table(BTreeMap<Prefix, Vec<NextHop>>);

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        self.0
            .insert(prefix, set.members().iter().map(|(hop, _)| *hop).collect());
    }

    fn remove(&mut self, prefix: Prefix) {
        self.0.remove(&prefix);
    }
}

struct Kernel {
    rib: Rib,
    feed: Feed,
    table: Table,
}

impl Kernel {
    fn new() -> Self {
        let teller = RoutePeer {
            origin: Origin::Kernel,
            table: MAIN_TABLE,
            links: Links::Numbered(BTreeMap::from([(3, 0)])),
        };
        let mut kernel = Self {
            rib: Rib::new(Settings::default(), [1, 2]),
            feed: Feed::new(teller),
            table: Table::default(),
        };
        kernel.begin();
        kernel.feed.end_dump();
        kernel
    }

    fn begin(&mut self) {
        self.feed.begin(&mut self.rib);
    }

    fn end(&mut self) -> bool {
        let is_current = self.feed.end_dump();
        self.rib.end_replay(Origin::Kernel, usize::MAX);
        self.rib.publish(&mut self.table);
        is_current
    }

    fn told(&mut self, messages: &[Vec<u8>]) -> &mut Self {
        self.feed.follow(&mut self.rib, &messages.concat(), 0);
        self.feed.settle(&mut self.rib, 0);
        self.rib.publish(&mut self.table);
        self
    }

    fn leads(&self, to: &str) -> Vec<String> {
        let hops = self.table.0.get(&prefix(to)).into_iter().flatten();
        hops.map(|hop| match hop {
            NextHop::Gateway { address, .. } => address.to_string(),
            NextHop::Drop(refusal) => format!("{refusal:?}"),
            other => format!("{other:?}"),
        })
        .collect()
    }
}

#[test]
fn ipv4_routes_of_one_metric_are_used_in_the_order_of_the_list() {
    let mut kernel = Kernel::new();
    kernel.told(&[new(ADDED, V4, &["10.0.0.1"]), new(CREATE | APPEND, V4, &["10.0.0.2"])]);
    assert_eq!(["10.0.0.1"], *kernel.leads(V4));
    kernel.told(&[new(CREATE, V4, &["10.0.0.3"])]);
    assert_eq!(["10.0.0.3"], *kernel.leads(V4));
    // The new route replaces the first route. The new order is 10.0.0.4, 10.0.0.1, 10.0.0.2.
    kernel.told(&[new(REPLACE, V4, &["10.0.0.4"])]);
    assert_eq!(["10.0.0.4"], *kernel.leads(V4));
    kernel.told(&[gone(V4, &["10.0.0.1"]), gone(V4, &["10.0.0.4"])]);
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
    kernel.told(&[gone(V4, &["10.0.0.2"])]);
    assert!(kernel.leads(V4).is_empty());
}

#[test]
fn ipv4_route_of_several_next_hops_is_one_route() {
    let mut kernel = Kernel::new();
    let both = ["10.0.0.1", "10.0.0.2"];
    kernel.told(&[new(ADDED, V4, &both), new(CREATE | APPEND, V4, &["10.0.0.2"])]);
    assert_eq!(both, *kernel.leads(V4));
    kernel.told(&[gone(V4, &both)]);
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
}

#[test]
fn ipv6_next_hops_of_one_metric_are_one_route_whatever_adds_them() {
    let mut kernel = Kernel::new();
    kernel.told(&[
        new(ADDED, V6, &["fe80::1"]),
        new(CREATE | APPEND, V6, &["fe80::2", "fe80::1"]),
    ]);
    assert_eq!(["fe80::1", "fe80::2"], *kernel.leads(V6));
    kernel.told(&[gone(V6, &["fe80::1"])]);
    assert_eq!(["fe80::2"], *kernel.leads(V6));
    kernel.told(&[gone(V6, &["fe80::2"])]);
    assert!(kernel.leads(V6).is_empty());
}

#[test]
fn ipv6_blackhole_stands_beside_next_hops_and_is_used_when_it_comes_first() {
    let mut kernel = Kernel::new();
    // The order is fe80::1, the blackhole, fe80::2.
    kernel.told(&[
        new(ADDED, V6, &["fe80::1"]),
        blackhole(CREATE | APPEND, V6),
        new(CREATE | APPEND, V6, &["fe80::2", "fe80::1"]),
    ]);
    assert_eq!(["fe80::1", "fe80::2"], *kernel.leads(V6));
    kernel.told(&[gone(V6, &["fe80::1"])]);
    assert_eq!(["Blackhole"], *kernel.leads(V6));
    // The new next hop replaces another next hop, not the blackhole.
    kernel.told(&[new(REPLACE, V6, &["fe80::3"])]);
    assert_eq!(["Blackhole"], *kernel.leads(V6));
    let delete = Writer::route((kind::DELETE_ROUTE, 0), prefix(V6), 3, 6);
    kernel.told(&[delete.number(6, 1024).finish()]);
    assert_eq!(["fe80::3"], *kernel.leads(V6));
}

#[test]
fn replacement_of_ipv6_next_hops_takes_all_of_them() {
    let mut kernel = Kernel::new();
    kernel.told(&[
        new(ADDED, V6, &["fe80::1", "fe80::2", "fe80::3"]),
        new(REPLACE, V6, &["fe80::4", "fe80::2"]),
    ]);
    assert_eq!(["fe80::2", "fe80::4"], *kernel.leads(V6));
}

#[test]
fn routes_go_with_their_next_hop_object_of_which_alone_the_kernel_tells() {
    let mut kernel = Kernel::new();
    kernel.told(&[
        object(1, "10.0.0.1"),
        object(2, "10.0.0.2"),
        by_object(ADDED, V4, 1),
        by_object(CREATE | APPEND, V4, 2),
        by_object(ADDED, "10.8.0.0/16", 1),
    ]);
    assert_eq!(["10.0.0.1"], *kernel.leads(V4));
    kernel.told(&[object_gone(1), object(1, "10.0.0.7")]);
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
    assert!(kernel.leads("10.8.0.0/16").is_empty());
    // A new object with the number of a deleted object is a different object.
    kernel.told(&[by_object(CREATE, V4, 1)]);
    assert_eq!(["10.0.0.7"], *kernel.leads(V4));
}

#[test]
fn every_route_of_an_object_that_changes_is_told_again_and_keeps_its_place() {
    let mut kernel = Kernel::new();
    kernel.told(&[
        object(1, "10.0.0.1"),
        new(ADDED, V4, &["10.0.0.9"]),
        by_object(CREATE | APPEND, V4, 1),
        object(1, "10.0.0.2"),
        by_object(REPLACE, V4, 1),
    ]);
    assert_eq!(["10.0.0.9"], *kernel.leads(V4));
    kernel.told(&[gone(V4, &["10.0.0.9"])]);
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
}

#[test]
fn ipv6_route_of_an_object_that_changes_is_no_second_one_and_a_replacement_by_it_is() {
    let mut kernel = Kernel::new();
    // The object changes. For the request that changed the object, the kernel reports the object's route as a
    // replacement.
    kernel.told(&[
        object(1, "fe80::1"),
        blackhole(ADDED, V6),
        by_object(CREATE | APPEND, V6, 1),
        object(1, "fe80::2"),
        by_object(REPLACE, V6, 1),
    ]);
    // A second route that uses the object replaces the blackhole.
    assert_eq!(["Blackhole"], *kernel.leads(V6));
    kernel.told(&[of_request(9, by_object(REPLACE, V6, 1))]);
    assert_eq!(["fe80::2"], *kernel.leads(V6));
    let delete = || {
        let writer = Writer::route((kind::DELETE_ROUTE, 0), prefix(V6), 3, 1);
        writer.number(6, 1024).number(30, 1).finish()
    };
    kernel.told(&[delete()]);
    assert_eq!(["fe80::2"], *kernel.leads(V6));
    kernel.told(&[delete()]);
    assert!(kernel.leads(V6).is_empty());
}

#[test]
fn replacement_by_an_object_that_another_route_names_changes_the_first() {
    let mut kernel = Kernel::new();
    let by_ospf = Writer::route((kind::NEW_ROUTE, REPLACE), prefix(V4), 188, 1).number(30, 1);
    kernel.told(&[
        object(1, "10.0.0.1"),
        blackhole(ADDED, V4),
        by_object(CREATE | APPEND, V4, 1),
        of_request(9, by_ospf.number(6, 0).finish()),
    ]);
    assert_eq!(["10.0.0.1"], *kernel.leads(V4));
}

#[test]
fn throw_ends_the_search_in_the_table() {
    let mut kernel = Kernel::new();
    let throw = Writer::route((kind::NEW_ROUTE, ADDED), prefix(V4), 3, 9);
    kernel.told(&[throw.finish()]);
    let expected = vec![NextHop::Drop(DropKind::NoRoute)];
    assert_eq!(Some(&expected), kernel.table.0.get(&prefix(V4)));
}

#[test]
fn ipv4_route_by_a_gateway_of_ipv6_leads_there() {
    let via = |gateway: &str| {
        let Address::V6(bits) = address(gateway) else {
            panic!("IPv6")
        };
        [&10_u16.to_ne_bytes()[..], &bits.to_be_bytes()].concat()
    };
    let mut kernel = Kernel::new();
    let route = Writer::route((kind::NEW_ROUTE, ADDED), prefix(V4), 3, 1);
    kernel.told(&[route.attribute(18, &via("fe80::1")).number(4, 3).finish()]);
    assert_eq!(["fe80::1"], *kernel.leads(V4));
}

#[test]
fn lowest_metric_is_used_whatever_protocol_told_it() {
    let mut kernel = Kernel::new();
    let route = |metric: u32, protocol: u8, gateway: &str| {
        let writer = Writer::route((kind::NEW_ROUTE, ADDED), prefix(V4), protocol, 1).number(6, metric);
        writer.address(5, address(gateway)).number(4, 3).finish()
    };
    // The OSPF route with metric 10 is preferred over the static route with metric 20.
    kernel.told(&[route(20, 4, "10.0.0.1"), route(10, 188, "10.0.0.2")]);
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
}

#[test]
fn change_that_comes_before_its_prefix_is_listed_is_not_done_twice() {
    let mut kernel = Kernel::new();
    kernel.begin();
    kernel.told(&[
        new(CREATE, V4, &["10.0.0.2"]),
        new(MULTI, V4, &["10.0.0.2"]),
        new(MULTI, V4, &["10.0.0.1"]),
    ]);
    assert!(kernel.end());
    assert_eq!(["10.0.0.2"], *kernel.leads(V4));
    kernel.told(&[gone(V4, &["10.0.0.2"])]);
    assert_eq!(["10.0.0.1"], *kernel.leads(V4));
}

#[test]
fn listing_that_is_older_than_a_change_before_it_is_not_current() {
    let mut kernel = Kernel::new();
    kernel.begin();
    kernel.told(&[new(CREATE, V4, &["10.0.0.2"]), new(MULTI, V4, &["10.0.0.1"])]);
    assert!(!kernel.end());
    kernel.begin();
    kernel.told(&[gone(V4, &["10.0.0.1"]), new(MULTI, V4, &["10.0.0.1"])]);
    assert!(!kernel.end());
    kernel.begin();
    kernel.told(&[new(MULTI, V4, &["10.0.0.2"]), new(CREATE, V4, &["10.0.0.1"])]);
    assert!(kernel.end());
}

#[test]
fn listing_of_ipv6_in_which_routes_came_or_went_is_not_current() {
    let mut kernel = Kernel::new();
    for message in [new(ADDED, V6, &["fe80::1"]), gone(V6, &["fe80::1"])] {
        kernel.begin();
        kernel.told(&[message]);
        assert!(!kernel.end());
    }
    kernel.begin();
    kernel.told(&[new(MULTI, V6, &["fe80::1"]), new(REPLACE, V6, &["fe80::2"])]);
    assert!(kernel.end());
    assert_eq!(["fe80::2"], *kernel.leads(V6));
}

#[test]
fn equal_routes_are_listed_as_often_as_there_are() {
    let mut kernel = Kernel::new();
    kernel.begin();
    kernel.told(&[blackhole(MULTI, V6), blackhole(MULTI, V6)]);
    assert!(kernel.end());
    let delete = Writer::route((kind::DELETE_ROUTE, 0), prefix(V6), 3, 6);
    kernel.told(&[delete.number(6, 1024).finish()]);
    assert_eq!(["Blackhole"], *kernel.leads(V6));
}

#[test]
fn links_that_are_set_down_and_addresses_that_go_are_a_reason_to_list_again() {
    let link = |index: u32, flags: u32| {
        let fixed = [&[0; 4][..], &index.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat();
        Writer::new(kind::NEW_LINK, 0, &fixed).finish()
    };
    let mut kernel = Kernel::new();
    kernel.told(&[link(3, 0x1043)]);
    assert!(kernel.feed.take_resync_needed());
    // Only the carrier of the link changes.
    kernel.told(&[link(3, 0x1003)]);
    assert!(!kernel.feed.take_resync_needed());
    kernel.told(&[link(3, 0x1002)]);
    assert!(kernel.feed.take_resync_needed());
    kernel.told(&[Writer::new(kind::DELETE_ADDRESS, 0, &[2, 24, 0, 0, 3, 0, 0, 0]).finish()]);
    assert!(kernel.feed.take_resync_needed());
    assert!(!kernel.feed.take_resync_needed());
    // The deletion of an unknown route shows that the mirror is wrong.
    kernel.told(&[new(ADDED, V4, &["10.0.0.1"]), gone(V4, &["10.0.0.2"])]);
    assert!(kernel.feed.take_resync_needed());
}
