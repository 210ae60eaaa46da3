//! Tests of messages from routing daemons and the kernel, and of their effect on routes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_route::feed::fpm::{FrameBuffer, FrameError, MAX_FRAME};
use sluice_route::feed::netlink::{DUMP_INTERRUPTED, kind};
use sluice_route::feed::writer::{DELETE, SET, Writer, frame};
use sluice_route::feed::{self, DumpResult, Feed, Links, MAIN_TABLE, OWN_PROTOCOL, Refused, RoutePeer, hostile};
use sluice_route::rib::{Offer, OfferedNextHop, Origin, ResolvedSet, Rib, Settings, Sink, Target, WeightedNextHop};
use sluice_route::{Address, DropKind, NextHop, Prefix};

const RECORDED: &[u8] = include_bytes!("fpm/frr-8.4.bin");
const BGP: u8 = 186;
const STATIC: u8 = 196;

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn prefix(text: &str) -> Prefix {
    let (bits, length) = text.split_once('/').unwrap();
    Prefix::new(address(bits), length.parse().unwrap())
}

fn to(interface: u16, gateway: &str) -> (NextHop, u8) {
    let address = address(gateway);
    (NextHop::Gateway { interface, address }, 1)
}

fn route(prefix_: &str, protocol: u8) -> Writer {
    Writer::route((kind::NEW_ROUTE, SET), prefix(prefix_), protocol, 1).number(6, 20)
}

fn by(prefix: &str, id: u32) -> Vec<u8> {
    route(prefix, BGP).number(30, id).finish()
}

fn gone(prefix_: &str) -> Vec<u8> {
    let writer = Writer::route((kind::DELETE_ROUTE, DELETE), prefix(prefix_), BGP, 0);
    writer.number(6, 20).finish()
}

fn next_hop(id: u32, gateway: &str, interface: u32) -> Vec<u8> {
    let gateway = address(gateway);
    let family = sluice_route::feed::writer::family(gateway);
    let writer = Writer::next_hop((kind::NEW_NEXT_HOP, SET), family, id);
    writer.address(6, gateway).number(5, interface).finish()
}

fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    Writer::next_hop((kind::NEW_NEXT_HOP, SET), 0, id)
        .group(members)
        .finish()
}

#[derive(Default)]
struct Table(BTreeMap<Prefix, Vec<(NextHop, u8)>>, usize);

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        self.1 += 1;
        self.0.insert(prefix, set.members().to_vec());
    }

    fn remove(&mut self, prefix: Prefix) {
        self.1 += 1;
        self.0.remove(&prefix);
    }
}

struct Router {
    rib: Rib,
    feed: Feed,
    table: Table,
}

impl Router {
    /// Creates a router with the kernel's interfaces 3 and 4 as interfaces 0 and 1, and 10.0.0.0/24 on interface 0.
    fn new(origin: Origin) -> Self {
        let links = Links::Numbered(BTreeMap::from([(3, 0), (4, 1)]));
        Self::with(origin, links)
    }

    fn with(origin: Origin, links: Links) -> Self {
        let table = MAIN_TABLE;
        let mut router = Self {
            rib: Rib::new(Settings::default(), [1, 2]),
            feed: Feed::new(RoutePeer { origin, table, links }),
            table: Table::default(),
        };
        let hops = [WeightedNextHop::new(OfferedNextHop::Attached(0))];
        let offer = Offer {
            origin: Origin::Connected,
            protocol: 0,
            distance: 0,
            metric: 0,
            target: Target::Hops(&hops),
        };
        router.rib.offer(prefix("10.0.0.0/24"), &offer, 0).unwrap();
        router.rib.publish(&mut router.table);
        router.table.1 = 0;
        router
    }

    fn told(&mut self, messages: &[Vec<u8>]) -> &mut Self {
        self.feed.follow(&mut self.rib, &messages.concat(), 0);
        self.feed.settle(&mut self.rib, 0);
        self.rib.publish(&mut self.table);
        self
    }

    fn to(&self, to: &str) -> Option<&[(NextHop, u8)]> {
        self.table.0.get(&prefix(to)).map(Vec::as_slice)
    }

    /// Reasons with a nonzero count, and their counts.
    fn refused(&self) -> Vec<(&'static str, u64)> {
        let counted = Refused::ALL
            .iter()
            .map(|reason| (reason.name(), self.feed.counts().refused(*reason)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// The frames of an FRR recording, rebuilt with this crate's encoder.
fn as_recorded() -> Vec<Vec<u8>> {
    let of_link = |family, id, interface| {
        let writer = Writer::next_hop((kind::NEW_NEXT_HOP, SET), family, id);
        writer.number(5, interface).finish()
    };
    let route = |to: &str, (flags, protocol, forwards): (u16, u8, u8), id: Option<u32>| {
        let writer = Writer::route((kind::NEW_ROUTE, flags), prefix(to), protocol, forwards).number(6, 20);
        id.map_or(writer.clone(), |id| writer.number(30, id)).finish()
    };
    let delete = |to: &str| {
        let writer = Writer::route((kind::DELETE_ROUTE, DELETE), prefix(to), STATIC, 0);
        writer.number(6, 20).finish()
    };
    let blackhole = Writer::next_hop((kind::NEW_NEXT_HOP, SET), 2, 18)
        .attribute(4, &[])
        .finish();
    let replaced = [
        delete("198.51.100.0/24"),
        route("198.51.100.0/24", (SET, STATIC, 1), Some(16)),
    ];
    let alone = |message: Vec<u8>| frame(&[message]);
    vec![
        alone(next_hop(9, "10.0.0.2", 3)),
        alone(next_hop(11, "2001:db8:1::2", 3)),
        alone(of_link(2, 3, 3)),
        alone(of_link(10, 4, 3)),
        alone(of_link(10, 7, 2)),
        alone(route("10.0.0.0/24", (SET, 2, 1), Some(3))),
        alone(route("198.51.100.0/24", (SET, STATIC, 1), Some(9))),
        alone(route("2001:db8:1::/64", (DELETE, 2, 1), Some(4))),
        alone(route("2001:db8:2::/48", (DELETE, STATIC, 1), Some(11))),
        alone(route("fe80::/64", (DELETE, 2, 1), Some(4))),
        alone(next_hop(16, "10.0.0.3", 3)),
        alone(group(15, &[(9, 1), (16, 1)])),
        alone(route("203.0.113.0/24", (SET, STATIC, 1), Some(15))),
        alone(blackhole),
        alone(route("192.0.2.0/25", (SET, STATIC, 6), None)),
        alone(of_link(2, 20, 3)),
        alone(route("192.0.2.128/25", (SET, STATIC, 1), Some(20))),
        frame(&replaced),
        alone(next_hop(24, "10.0.0.3", 3)),
        alone(route("10.99.0.0/16", (SET, STATIC, 1), Some(24))),
        alone(delete("192.0.2.0/25")),
    ]
}

/// The message with the sender's netlink port cleared. FRR selects a random netlink port at each start.
fn without_port(frame: &[u8]) -> Vec<u8> {
    let (mut bytes, mut place) = (frame.to_vec(), 0);
    while place < bytes.len() {
        bytes[place + 12..place + 16].fill(0);
        place += u32::from_ne_bytes(bytes[place..place + 4].try_into().unwrap()) as usize;
    }
    bytes
}

#[test]
fn frames_that_frr_sent_are_those_that_tests_write() {
    let mut frames = FrameBuffer::default();
    frames.push(RECORDED);
    for expected in as_recorded() {
        let frame = frames.take().unwrap().map(without_port);
        assert_eq!(Some(&expected[4..]), frame.as_deref());
    }
    assert_eq!(Ok(None), frames.take());
    assert!(!frames.is_cut());
}

#[test]
fn recorded_stream_leaves_the_routes_that_frr_showed_however_it_is_cut() {
    for piece in [1, 7, 100, RECORDED.len()] {
        let mut router = Router::new(Origin::Fpm);
        let mut frames = FrameBuffer::default();
        for bytes in RECORDED.chunks(piece) {
            frames.push(bytes);
            while let Some(frame) = frames.take().unwrap() {
                router.feed.follow(&mut router.rib, frame, 0);
                router.rib.publish(&mut router.table);
            }
        }
        let expected = [
            ("10.0.0.0/24", vec![(NextHop::Attached(0), 1)]),
            ("10.99.0.0/16", vec![to(0, "10.0.0.3")]),
            ("192.0.2.128/25", vec![(NextHop::Attached(0), 1)]),
            ("198.51.100.0/24", vec![to(0, "10.0.0.3")]),
            ("203.0.113.0/24", vec![to(0, "10.0.0.2"), to(0, "10.0.0.3")]),
            ("2001:db8:2::/48", vec![to(0, "2001:db8:1::2")]),
        ];
        let expected: BTreeMap<_, _> = expected.into_iter().map(|(to, hops)| (prefix(to), hops)).collect();
        assert_eq!(expected, router.table.0);
        // The recording deletes one route twice and replaces one route. One next hop is on an unknown interface. The
        // kernel has derived three routes from addresses.
        assert_eq!(vec![("connected", 3), ("interface", 1)], router.refused());
        assert_eq!((7, 2), (router.feed.counts().offered, router.feed.counts().withdrawn));
    }
}

#[test]
fn members_of_a_group_change_and_go_and_their_routes_follow() {
    let mut router = Router::new(Origin::Fpm);
    router.told(&[
        next_hop(1, "10.0.0.2", 3),
        next_hop(2, "10.0.0.3", 3),
        group(3, &[(1, 3), (2, 1)]),
        by("10.9.0.0/16", 3),
        by("10.8.0.0/16", 1),
    ]);
    let weighted = [(to(0, "10.0.0.2").0, 3), to(0, "10.0.0.3")];
    assert_eq!(Some(&weighted[..]), router.to("10.9.0.0/16"));
    router.told(&[next_hop(1, "192.0.2.9", 4)]);
    assert_eq!(
        Some(&[to(0, "10.0.0.3"), (to(1, "192.0.2.9").0, 3)][..]),
        router.to("10.9.0.0/16")
    );
    assert_eq!(Some(&[to(1, "192.0.2.9")][..]), router.to("10.8.0.0/16"));
    router.told(&[group(3, &[(2, 1)])]);
    assert_eq!(Some(&[to(0, "10.0.0.3")][..]), router.to("10.9.0.0/16"));
    let delete = Writer::next_hop((kind::DELETE_NEXT_HOP, DELETE), 0, 3).finish();
    router.told(&[delete.clone(), delete]);
    assert_eq!(Some(&[to(0, "10.0.0.3")][..]), router.to("10.9.0.0/16"));
    assert_eq!(vec![("next-hop", 1)], router.refused());
}

#[test]
fn daemon_that_starts_again_gives_new_numbers_and_stale_routes_keep_what_theirs_meant() {
    let mut router = Router::new(Origin::Fpm);
    router.told(&[next_hop(1, "10.0.0.2", 3), by("10.9.0.0/16", 1), by("10.8.0.0/16", 1)]);
    router.table.1 = 0;
    router.feed.begin(&mut router.rib);
    router.told(&[
        next_hop(1, "10.0.0.7", 3),
        next_hop(2, "10.0.0.2", 3),
        by("10.9.0.0/16", 2),
    ]);
    assert_eq!(Some(&[to(0, "10.0.0.2")][..]), router.to("10.9.0.0/16"));
    assert_eq!(Some(&[to(0, "10.0.0.2")][..]), router.to("10.8.0.0/16"));
    assert_eq!(1, router.rib.stale(Origin::Fpm));
    router.rib.end_replay(Origin::Fpm, usize::MAX);
    router.told(&[]);
    assert_eq!(None, router.to("10.8.0.0/16"));
}

#[test]
fn route_deleted_and_added_in_one_frame_is_one_change() {
    let mut router = Router::new(Origin::Fpm);
    router.told(&[
        next_hop(1, "10.0.0.2", 3),
        next_hop(2, "10.0.0.3", 3),
        by("10.9.0.0/16", 1),
    ]);
    assert_eq!(1, router.table.1);
    router.told(&[gone("10.9.0.0/16"), by("10.9.0.0/16", 2)]);
    assert_eq!(
        (2, Some(&[to(0, "10.0.0.3")][..])),
        (router.table.1, router.to("10.9.0.0/16"))
    );
}

#[test]
fn next_hops_in_the_route_itself_are_followed_with_their_weights() {
    let leg = |weight: u8, interface: u32, gateway: &str| {
        let Address::V4(bits) = address(gateway) else {
            panic!("IPv4")
        };
        let fixed = [16, 0, 0, weight - 1];
        let gateway = [
            &8_u16.to_ne_bytes()[..],
            &5_u16.to_ne_bytes()[..],
            &bits.to_be_bytes()[..],
        ]
        .concat();
        [&fixed[..], &interface.to_ne_bytes()[..], &gateway[..]].concat()
    };
    let mut router = Router::new(Origin::Kernel);
    let legs = [leg(2, 3, "10.0.0.2"), leg(1, 4, "192.0.2.9"), leg(1, 77, "192.0.2.9")].concat();
    router.told(&[route("10.9.0.0/16", 12).attribute(9, &legs).finish()]);
    assert_eq!(
        Some(&[(to(0, "10.0.0.2").0, 2), to(1, "192.0.2.9")][..]),
        router.to("10.9.0.0/16")
    );
    assert_eq!(vec![("interface", 1)], router.refused());
}

#[test]
fn interfaces_of_another_host_mean_nothing_and_gateways_are_found_by_address() {
    let mut router = Router::with(Origin::Fpm, Links::Foreign);
    let no_gateway = Writer::next_hop((kind::NEW_NEXT_HOP, SET), 2, 7).number(5, 3).finish();
    router.told(&[
        next_hop(1, "10.0.0.2", 99),
        by("10.9.0.0/16", 1),
        no_gateway,
        by("10.8.0.0/16", 7),
        next_hop(8, "fe80::2", 3),
    ]);
    assert_eq!(Some(&[to(0, "10.0.0.2")][..]), router.to("10.9.0.0/16"));
    assert_eq!(None, router.to("10.8.0.0/16"));
    assert_eq!(vec![("gateway", 3)], router.refused());
}

#[test]
fn ipv4_route_of_a_daemon_by_a_gateway_of_ipv6_leads_there() {
    let via = |text: &str| {
        let Address::V6(bits) = address(text) else {
            panic!("IPv6")
        };
        [&10_u16.to_ne_bytes()[..], &bits.to_be_bytes()].concat()
    };
    let mut router = Router::new(Origin::Fpm);
    router.told(&[
        route("10.9.0.0/16", BGP)
            .attribute(18, &via("fe80::9"))
            .number(4, 3)
            .finish(),
        next_hop(1, "fe80::8", 3),
        by("10.8.0.0/16", 1),
    ]);
    assert_eq!(Some(&[to(0, "fe80::9")][..]), router.to("10.9.0.0/16"));
    assert_eq!(Some(&[to(0, "fe80::8")][..]), router.to("10.8.0.0/16"));
}

/// Bytes of an IPv4 route with IPv6 next hops, as encoded by FRR before version 10.6 without next-hop objects.
fn by_placeholder(several: bool) -> Vec<u8> {
    let fixed = |flags: u8| [2, 24, 0, 0, 254, BGP, 0, 1, flags, 0, 0, 0];
    let writer = |flags| {
        let writer = Writer::new(kind::NEW_ROUTE, SET, &fixed(flags));
        writer.attribute(1, &[10, 9, 1, 0]).number(6, 20)
    };
    // The flag RTNH_F_ONLINK.
    match several {
        false => writer(4).attribute(5, &[169, 254, 0, 1]).number(4, 3).finish(),
        true => {
            let leg = |interface| [&[16, 0, 4, 0, interface, 0, 0, 0, 8, 0, 5, 0][..], &[169, 254, 0, 1]].concat();
            writer(0).attribute(9, &[leg(3), leg(4)].concat()).finish()
        }
    }
}

#[test]
fn gateway_that_stands_for_one_of_ipv6_is_refused_of_a_daemon_and_is_a_gateway_of_the_kernel() {
    for several in [false, true] {
        let mut router = Router::new(Origin::Fpm);
        router.told(&[by_placeholder(several)]);
        assert_eq!(None, router.to("10.9.1.0/24"));
        assert!(
            router
                .refused()
                .contains(&("placeholder-gateway", 1 + u64::from(several)))
        );
        let mut router = Router::new(Origin::Kernel);
        router.told(&[by_placeholder(several)]);
        let hops: Vec<_> = (0..=u16::from(several)).map(|k| to(k, "169.254.0.1")).collect();
        assert_eq!(Some(&hops[..]), router.to("10.9.1.0/24"));
    }
    // The placeholder address is also the address of a configured gateway.
    let mut router = Router::new(Origin::Fpm);
    router.told(&[next_hop(7, "169.254.0.1", 3), by("10.9.1.0/24", 7)]);
    assert_eq!(Some(&[to(0, "169.254.0.1")][..]), router.to("10.9.1.0/24"));
}

#[test]
fn ipv4_route_by_numbered_next_hops_of_ipv6_leads_there_and_elsewhere_link_local_ones_do_not() {
    let told = [
        next_hop(7, "fe80::9", 3),
        next_hop(8, "2001:db8::9", 4),
        group(9, &[(7, 1), (8, 1)]),
        by("10.9.1.0/24", 7),
        by("10.9.2.0/24", 8),
        by("10.9.3.0/24", 9),
    ];
    let mut router = Router::new(Origin::Fpm);
    router.told(&told);
    assert_eq!(Some(&[to(0, "fe80::9")][..]), router.to("10.9.1.0/24"));
    assert_eq!(Some(&[to(1, "2001:db8::9")][..]), router.to("10.9.2.0/24"));
    let both = [to(0, "fe80::9"), to(1, "2001:db8::9")];
    assert_eq!(Some(&both[..]), router.to("10.9.3.0/24"));
    router.told(&[gone("10.9.1.0/24"), gone("10.9.3.0/24")]);
    assert_eq!((None, None), (router.to("10.9.1.0/24"), router.to("10.9.3.0/24")));
    let mut router = Router::with(Origin::Fpm, Links::Foreign);
    router.told(&told);
    assert_eq!(None, router.to("10.9.1.0/24"));
    assert!(router.refused().iter().any(|(reason, _)| *reason == "gateway"));
}

#[test]
fn what_cannot_be_followed_is_counted_by_its_reason() {
    let refused = |messages: &[Vec<u8>]| {
        let mut router = Router::new(Origin::Fpm);
        router.told(messages);
        router.refused()
    };
    let with = |change: fn(Writer) -> Writer| change(route("10.9.0.0/16", BGP)).finish();
    let changed = |place: usize, byte: u8| {
        let mut message = route("10.9.0.0/16", BGP).number(4, 3).finish();
        message[place] = byte;
        message
    };
    assert_eq!(
        vec![("table", 1)],
        refused(&[with(|writer| writer.number(15, 1000).number(4, 3))])
    );
    assert_eq!(vec![("family", 1)], refused(&[changed(16, 28)]));
    assert_eq!(vec![("condition", 1)], refused(&[changed(18, 8)]));
    assert_eq!(vec![("condition", 1)], refused(&[changed(19, 8)]));
    assert_eq!(vec![("own", 1)], refused(&[changed(21, OWN_PROTOCOL)]));
    assert_eq!(vec![("connected", 1)], refused(&[changed(21, 2)]));
    assert_eq!(vec![("kind", 1)], refused(&[changed(23, 5)]));
    assert_eq!(vec![("message", 1)], refused(&[changed(4, 28)]));
    assert_eq!(vec![("malformed", 1)], refused(&[changed(17, 33)]));
    assert_eq!(vec![("malformed", 1)], refused(&[changed(28, 77)]));
    assert_eq!(vec![("malformed", 1)], refused(&[changed(0, 9)]));
    assert_eq!(vec![("malformed", 1)], refused(&[changed(0, 200)]));
    assert_eq!(
        vec![("encapsulation", 1), ("next-hops", 1)],
        refused(&[with(|writer| writer.number(4, 3).attribute(21, &[1, 0]))])
    );
    assert_eq!(
        vec![("other-family", 1), ("next-hops", 1)],
        refused(&[route("2001:db8:9::/48", BGP)
            .number(4, 3)
            .attribute(18, &[2, 0, 10, 0, 0, 2])
            .finish()])
    );
    assert_eq!(
        vec![("malformed", 1)],
        refused(&[with(|writer| writer.number(4, 3).attribute(18, &[0; 18]))])
    );
    assert_eq!(vec![("next-hop", 1)], refused(&[by("10.9.0.0/16", 5)]));
    assert_eq!(vec![("next-hops", 1)], refused(&[group(5, &[(1, 1); 65])]));
    let bridging = Writer::next_hop((kind::NEW_NEXT_HOP, SET), 2, 5)
        .attribute(11, &[])
        .finish();
    assert_eq!(vec![("bridging", 2)], refused(&[bridging, by("10.9.0.0/16", 5)]));
}

#[test]
fn attributes_that_are_not_needed_make_no_message_malformed() {
    let mut router = Router::new(Origin::Fpm);
    // An unknown attribute, RTA_UID with an invalid length, RTA_METRICS without a complete metric.
    let route = |to: &str| {
        let writer = route(to, BGP).attribute(99, &[1]).attribute(25, &[1]);
        writer.attribute(8, &[1]).number(4, 3)
    };
    router.told(&[route("10.9.0.0/16").finish()]);
    assert_eq!(Some(&[(NextHop::Attached(0), 1)][..]), router.to("10.9.0.0/16"));
    assert!(router.refused().is_empty());
    // RTA_ENCAP with an incomplete attribute.
    router.told(&[route("10.8.0.0/16").attribute(22, &[9]).finish()]);
    assert_eq!(vec![("encapsulation", 1), ("next-hops", 1)], router.refused());
}

#[test]
fn route_that_changes_to_what_cannot_be_followed_is_taken_back() {
    let mut router = Router::new(Origin::Fpm);
    router.told(&[next_hop(1, "10.0.0.2", 3), by("10.9.0.0/16", 1)]);
    let wrapped = route("10.9.0.0/16", BGP).number(4, 3).attribute(21, &[1, 0]).finish();
    router.told(&[wrapped]);
    assert_eq!(None, router.to("10.9.0.0/16"));
}

#[test]
fn routes_to_nowhere_say_why() {
    let mut router = Router::new(Origin::Kernel);
    let refusals = [
        (6, DropKind::Blackhole),
        (7, DropKind::Unreachable),
        (8, DropKind::Prohibit),
    ];
    for (forwards, refusal) in refusals {
        let message = Writer::route((kind::NEW_ROUTE, SET), prefix("10.9.0.0/16"), 3, forwards);
        router.told(&[message.finish()]);
        assert_eq!(Some(&[(NextHop::Drop(refusal), 1)][..]), router.to("10.9.0.0/16"));
    }
}

#[test]
fn listing_is_over_when_it_says_so_and_torn_where_a_part_of_it_is() {
    let mut router = Router::new(Origin::Kernel);
    let done = Writer::new(kind::DONE, 2, &[0; 4]).finish();
    assert_eq!(None, router.feed.take_dump_result());
    router.told(std::slice::from_ref(&done));
    assert_eq!(Some(DumpResult::Complete), router.feed.take_dump_result());
    assert_eq!(None, router.feed.take_dump_result());
    let route = Writer::route((kind::NEW_ROUTE, 2 | DUMP_INTERRUPTED), prefix("10.9.0.0/16"), 3, 6).finish();
    router.told(&[route]).told(std::slice::from_ref(&done));
    assert_eq!(Some(DumpResult::Incomplete), router.feed.take_dump_result());
    router.told(&[done]);
    assert_eq!(Some(DumpResult::Complete), router.feed.take_dump_result());
}

#[test]
fn bytes_that_are_no_frames_end_the_connection() {
    let take = |bytes: &[u8]| {
        let mut frames = FrameBuffer::default();
        frames.push(bytes);
        frames.take().map(|frame| frame.map(<[u8]>::len))
    };
    assert_eq!(Err(FrameError::Version(b'G')), take(b"GET / HTTP/1.1"));
    assert_eq!(Err(FrameError::Kind(2)), take(&[1, 2, 0, 9]));
    assert_eq!(Err(FrameError::Length(3)), take(&[1, 1, 0, 3]));
    assert_eq!(Err(FrameError::Length(MAX_FRAME + 1)), take(&[1, 1, 0x80, 1]));
    assert_eq!(Ok(None), take(&[1, 1, 0]));
    assert_eq!(Ok(Some(0)), take(&[1, 1, 0, 4]));
}

#[test]
fn corpus_is_read_to_its_end() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/routes");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let count = files.map(|file| hostile(&std::fs::read(file).unwrap())).count();
    assert!(count > 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        hostile(&bytes);
    }

    #[test]
    fn changed_messages_are_followed_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
    ) {
        let mut bytes = RECORDED.to_vec();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len());
            match how {
                0 => bytes.insert(place, byte),
                1 => drop(bytes.remove(place)),
                _ => bytes[place] = byte,
            }
        }
        hostile(&bytes);
        // Omit the frame header, so that a message can start at any position.
        hostile(&bytes[4..]);
    }
}

#[test]
fn every_protocol_of_frr_has_its_name_and_distance() {
    // Interface numbers of FRR's kernel, and names from `show running-config`.
    let known = [
        (186, "bgp", 20),
        (187, "isis", 115),
        (188, "ospf", 110),
        (189, "rip", 120),
        (190, "ripng", 120),
        (192, "eigrp", 90),
        (196, "static", 1),
        (197, "openfabric", 115),
    ];
    for (protocol, name, distance) in known {
        assert_eq!(
            (Some(name), distance),
            (feed::protocol_name(protocol), feed::distance(protocol))
        );
    }
}
