//! Tests of the fair division of an overloaded worker's capacity among routers, and of routers' rate limits.

use crate::sharing::{self, Gateway, assert_about, link, weight};
use sluice_engine::snapshot::shares::{LinkShare, Rate, RouterShare};
use sluice_engine::worker::capture::{CaptureFilter, Tap};
use sluice_engine::worker::request::{Reply, Request};

const SECOND: u64 = 1_000_000_000;

fn rate(packets: Option<u64>, bits: Option<u64>) -> RouterShare {
    RouterShare {
        rate: Some(Rate {
            packets,
            bits,
            burst: SECOND / 20,
        }),
        ..RouterShare::default()
    }
}

/// Runs rounds of the worker. Before each round, the host of each router sends this number of packets. Returns the
/// number of packets of each router that left in the last `counted` rounds.
fn rounds(gateway: &mut Gateway, sends: &[usize], rounds: usize, counted: usize) -> Vec<u64> {
    for round in 0..rounds {
        if round + counted == rounds {
            gateway.sent();
        }
        let max = sends.iter().max().copied().unwrap_or(0);
        // The packets of the routers alternate.
        for number in 0..max {
            for (router, &sends) in sends.iter().enumerate() {
                if number * sends / max != (number + 1) * sends / max {
                    gateway.host_sends(router, 64);
                }
            }
        }
        gateway.round();
    }
    gateway.sent()
}

#[test]
fn shared_queue_flooded_by_all_is_shared_by_weight() {
    let weights = [30, 10, 255, 1];
    let mut gateway = Gateway::new(&[1; 4], &weights.map(weight), &[]);
    let sent = rounds(&mut gateway, &[16; 4], 4_000, 3_000);
    let all: u64 = sent.iter().sum();
    for (sent, weight) in sent.iter().zip(weights) {
        assert_about(all as f64 * f64::from(weight) / 296.0, *sent as f64);
    }
    assert!(gateway.drops(3, "over-share") > 3_000);
}

#[test]
fn shared_queue_router_below_its_share_loses_nothing_and_leaves_the_rest() {
    let mut gateway = Gateway::new(&[1, 1, 1], &[weight(10), weight(10), weight(10)], &[]);
    let sent = rounds(&mut gateway, &[1, 60, 3], 2_000, 1_000);
    // The minimum budget is eight packets of a burst.
    assert_eq!(vec![1_000, 4_000, 3_000], {
        let [one, flood, other] = sent[..] else { panic!() };
        vec![one, flood.next_multiple_of(100), other.next_multiple_of(100)]
    });
    assert_eq!(0, gateway.drops(0, "over-share"));
}

#[test]
fn shared_queue_whose_bursts_are_not_full_drops_nothing() {
    let mut gateway = Gateway::new(&[1, 1], &[weight(255), weight(1)], &[]);
    let sent = rounds(&mut gateway, &[3, 60], 500, 500);
    assert_eq!(vec![1_500, 30_000], sent);
    // When the port has been idle after an overload, nothing is dropped.
    rounds(&mut gateway, &[4, 60], 500, 500);
    assert!(gateway.drops(1, "over-share") > 0);
    gateway.round();
    assert_eq!(vec![3, 60], rounds(&mut gateway, &[3, 60], 1, 1));
}

#[test]
fn shared_queue_one_router_alone_is_refused_nothing_until_another_one_comes() {
    let mut gateway = Gateway::new(&[1, 1], &[weight(10), weight(10)], &[]);
    assert_eq!(vec![64_000, 0], rounds(&mut gateway, &[64, 0], 1_000, 1_000));
    assert_eq!(0, gateway.drops(0, "over-share"));
    // When a second router sends, the capacity is divided, and the second router loses no packet.
    let sent = rounds(&mut gateway, &[63, 1], 500, 500);
    assert_eq!(500, sent[1]);
    let refused = gateway.drops(0, "over-share");
    assert!(refused > 10_000, "{refused}");
    rounds(&mut gateway, &[64, 0], 100, 0);
    assert!(gateway.drops(0, "over-share") > refused);
    gateway.pass(60 * SECOND);
    assert_eq!(vec![64_000, 0], rounds(&mut gateway, &[64, 0], 1_000, 1_000));
}

#[test]
fn shared_queue_what_is_refused_is_counted_alike_whether_somebody_watches_or_not() {
    let refused = |watched: bool| {
        let mut gateway = Gateway::new(&[1, 1], &[weight(10), weight(10)], &[]);
        let tap = Tap::new(CaptureFilter::Drops, 6_000, 60);
        if watched {
            assert!(matches!(
                gateway.ask(Request::Capture(Box::new(tap))),
                Reply::Captured(None)
            ));
        }
        rounds(&mut gateway, &[60, 4], 100, 0);
        let counted = [0, 1].map(|router| gateway.drops(router, "over-share"));
        let copied = watched.then(|| {
            let Reply::Captured(Some(tap)) = gateway.ask(Request::EndCapture) else {
                panic!("no capture")
            };
            [0, 2].map(|number| tap.frames().filter(|(copied, _)| copied.interface == number).count() as u64)
        });
        let counters = &gateway.plane.counters()[0].interfaces[0];
        (counted, copied, counters.received.get(), counters.received_bytes.get())
    };
    let (counted, _, received, bytes) = refused(false);
    assert!(counted[0] > 1_000 && counted[1] == 0, "{counted:?}");
    assert_eq!((6_000, 6_000 * 64), (received, bytes));
    assert_eq!((counted, Some(counted), received, bytes), refused(true));
}

#[test]
fn shared_queue_without_shares_is_as_ever() {
    let mut gateway = Gateway::new(&[1, 1], &[], &[]);
    assert_eq!(vec![3_200, 3_200], rounds(&mut gateway, &[32, 32], 100, 100));
}

#[test]
fn own_queues_flooded_are_received_by_weight() {
    let mut gateway = Gateway::new(&[1, 2, 3], &[weight(30), weight(10), weight(5)], &[]);
    let sent = rounds(&mut gateway, &[64; 3], 3_000, 2_000);
    let all: u64 = sent.iter().sum();
    for (sent, weight) in sent.iter().zip([30.0, 10.0, 5.0]) {
        assert_about(all as f64 * weight / 45.0, *sent as f64);
    }
}

#[test]
fn own_queue_below_its_share_is_emptied_in_every_round() {
    for own in [10, 255] {
        let mut gateway = Gateway::new(&[1, 2], &[weight(own), weight(10)], &[]);
        for _ in 0..1_000 {
            (0..64).for_each(|_| gateway.host_sends(1, 64));
            (0..20).for_each(|_| gateway.host_sends(0, 64));
            gateway.round();
            assert_eq!(20, gateway.sent()[0]);
        }
    }
}

#[test]
fn own_queue_clump_of_a_router_below_its_share_is_received_before_a_flood() {
    let mut gateway = Gateway::new(&[1, 2], &[weight(10), weight(10)], &[]);
    rounds(&mut gateway, &[0, 64], 200, 0);
    (0..6 * 64).for_each(|_| gateway.host_sends(0, 64));
    let sent = rounds(&mut gateway, &[0, 64], 7, 7);
    assert_eq!(6 * 64, sent[0]);
    // Of the flood, only those bursts are served that already waited, and those that arrive while no packets of the
    // other router wait.
    assert!(sent[1] <= 3 * 64, "{sent:?}");
}

#[test]
fn own_queue_gets_all_that_others_leave() {
    let mut gateway = Gateway::new(&[1, 2, 3], &[weight(1), weight(255), weight(255)], &[]);
    let sent = rounds(&mut gateway, &[64, 0, 0], 500, 500);
    assert_eq!(vec![500 * 64, 0, 0], sent);
}

#[test]
fn router_with_a_rate_of_packets_gets_exactly_that() {
    let mut gateway = Gateway::new(
        &[1, 1, 2],
        &[rate(Some(10_000), None), weight(10), rate(Some(777), None)],
        &[],
    );
    let (mut sent, mut all) = ([0; 3], 0);
    for millisecond in 0..1_100 {
        for router in [0, 1, 2] {
            (0..17).for_each(|_| gateway.host_sends(router, 64));
        }
        gateway.round();
        gateway.pass(SECOND / 1_000);
        let now = gateway.sent();
        all += now[2];
        // The initial burst is not counted.
        if millisecond >= 100 {
            sent.iter_mut().zip(now).for_each(|(sum, count)| *sum += count);
        }
    }
    assert_eq!([10_000, 17_000, 777], sent);
    assert_eq!(0, gateway.drops(1, "rate-limited"));
    assert_eq!(1_100 * 17, all + gateway.drops(2, "rate-limited"));
}

#[test]
fn router_with_a_rate_of_bits_gets_that_many() {
    let mut gateway = Gateway::new(&[1], &[rate(None, Some(8_000_000))], &[]);
    let mut sent = 0;
    for millisecond in 0..2_100 {
        (0..6).for_each(|_| gateway.host_sends(0, 1_000));
        gateway.round();
        gateway.pass(SECOND / 1_000);
        let count = gateway.sent()[0];
        sent += if millisecond >= 100 { count } else { 0 };
    }
    assert_eq!(2_000, sent);
}

#[test]
fn rate_is_kept_over_a_commit_that_leaves_it() {
    let share =
        |snapshot: &mut sluice_engine::snapshot::Snapshot| snapshot.share_by(vec![rate(Some(100), None)], Vec::new());
    let mut gateway = Gateway::new(&[1], &[rate(Some(100), None)], &[]);
    (0..60).for_each(|_| gateway.host_sends(0, 64));
    gateway.round();
    assert_eq!(vec![5], gateway.sent());
    gateway.commit(share);
    (0..60).for_each(|_| gateway.host_sends(0, 64));
    gateway.round();
    assert_eq!(vec![0], gateway.sent());
    gateway.commit(|snapshot| snapshot.share_by(vec![rate(Some(200), None)], Vec::new()));
    (0..60).for_each(|_| gateway.host_sends(0, 64));
    gateway.round();
    assert_eq!(vec![10], gateway.sent());
}

#[test]
fn virtual_link_with_a_rate_lets_that_much_through() {
    // Router 0 sends through an inter-router link to router 1, which sends the packets outside.
    let links = vec![
        LinkShare::default(),
        LinkShare {
            rate: Some(80_000_000),
            ..LinkShare::default()
        },
    ];
    let mut gateway = Gateway::with(
        &[1, 2],
        Default::default(),
        |interfaces, _| {
            link(interfaces, 1, 2);
            // The peer interface of the link is the next hop.
            interfaces[2].link.addresses[0].0 = "192.0.2.254".parse::<std::net::IpAddr>().unwrap().into();
            interfaces[2].mac = sharing::NEXT_MAC;
        },
        |snapshot| snapshot.share_by(Vec::new(), links.clone()),
    );
    let mut sent = 0;
    for millisecond in 0..1_100 {
        (0..20).for_each(|_| gateway.host_sends(0, 1_000));
        gateway.round();
        gateway.pass(SECOND / 1_000);
        let count = gateway.sent()[1];
        sent += if millisecond >= 100 { count } else { 0 };
    }
    assert_eq!(10_000, sent);
    assert!(gateway.drops(1, "rate-limited") > 10_000);
}
