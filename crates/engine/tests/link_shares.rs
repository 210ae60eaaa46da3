//! Tests of the fair division of a link among its interfaces.

use crate::sharing::{Gateway, assert_about};
use sluice_engine::snapshot::shares::LinkShare;

const SECOND: u64 = 1_000_000_000;

fn link(weight: u8, guarantee: Option<u64>) -> LinkShare {
    LinkShare {
        weight: Some(weight),
        guarantee,
        rate: None,
    }
}

/// A gateway in which each router has an inside port of its own. All outside interfaces are on one link and have these
/// weights and rates. The last interface is the untagged link itself.
fn gateway(links: &[LinkShare], rate: Option<u64>) -> Gateway {
    let inside: Vec<u16> = (1..).take(links.len()).collect();
    let routers = links.len();
    let mut given: Vec<LinkShare> = links.iter().flat_map(|&link| [LinkShare::default(), link]).collect();
    given.push(LinkShare {
        rate,
        ..LinkShare::default()
    });
    Gateway::with(
        &inside,
        Default::default(),
        |interfaces, _| {
            let mut parent = interfaces[1].clone();
            parent.tags.clear();
            parent.link.index = 2 * routers as u16;
            parent.link.addresses.clear();
            interfaces.push(parent);
        },
        move |snapshot| snapshot.share_by(Vec::new(), given.clone()),
    )
}

/// Runs for some milliseconds. In each millisecond, each host sends this number of packets of 1,000 bytes. Returns the
/// rate of each host in Mbit/s in the second half of the run.
fn run(gateway: &mut Gateway, sends: &[usize], milliseconds: u64) -> Vec<f64> {
    let mut sums = vec![0; sends.len()];
    for millisecond in 0..milliseconds {
        let max = sends.iter().max().copied().unwrap_or(0);
        for number in 0..max {
            for (router, _) in sends.iter().enumerate().filter(|(_, sends)| number < **sends) {
                gateway.host_sends(router, 996);
            }
        }
        while !gateway.wires.is_idle() {
            gateway.round();
        }
        gateway.pass(SECOND / 1_000);
        let sent = gateway.sent();
        if millisecond >= milliseconds / 2 {
            sums.iter_mut().zip(sent).for_each(|(sum, count)| *sum += count);
        }
    }
    let megabits = |count: &u64| *count as f64 * 8_000.0 / 1e6 * 2_000.0 / milliseconds as f64;
    sums.iter().map(megabits).collect()
}

#[test]
fn link_of_a_rate_is_shared_by_weight() {
    let mut gateway = gateway(&[link(30, None), link(10, None), link(10, None)], Some(100_000_000));
    let sent = run(&mut gateway, &[20, 20, 20], 2_000);
    for (expected, sent) in [60.0, 20.0, 20.0].iter().zip(&sent) {
        assert_about(*expected, *sent);
    }
    assert!(gateway.drops(0, "link-over-share") > 0);
}

#[test]
fn link_of_a_rate_gives_what_one_leaves_to_the_others() {
    let mut gateway = gateway(&[link(200, None), link(10, None), link(20, None)], Some(100_000_000));
    let sent = run(&mut gateway, &[1, 20, 20], 2_000);
    for (expected, sent) in [8.0, 92.0 / 3.0, 184.0 / 3.0].iter().zip(&sent) {
        assert_about(*expected, *sent);
    }
    assert_eq!(0, gateway.drops(0, "link-over-share"));
}

#[test]
fn link_of_a_rate_that_is_not_reached_drops_nothing() {
    let mut gateway = gateway(&[link(1, None), link(255, None)], Some(100_000_000));
    let sent = run(&mut gateway, &[11, 1], 1_000);
    assert_eq!(vec![88.0, 8.0], sent);
}

#[test]
fn link_keeps_guarantees_whatever_others_send() {
    let mut gateway = gateway(&[link(1, Some(40_000_000)), link(99, None)], Some(100_000_000));
    let sent = run(&mut gateway, &[20, 20], 2_000);
    // The host gets its guarantee and, according to its weight, a hundredth of the remaining rate.
    assert_about(40.6, sent[0]);
    assert_about(59.4, sent[1]);
}

#[test]
fn vlan_of_a_rate_sends_no_more() {
    let capped = LinkShare {
        rate: Some(16_000_000),
        ..LinkShare::default()
    };
    let mut gateway = gateway(&[capped, LinkShare::default()], None);
    let sent = run(&mut gateway, &[10, 10], 1_000);
    assert_about(16.0, sent[0]);
    assert_eq!(80.0, sent[1]);
    assert!(gateway.drops(0, "rate-limited") > 0);
}

#[test]
fn device_that_takes_less_than_there_is_sends_by_weight() {
    // The packets of all routers arrive on one port, in one burst.
    let given = [
        LinkShare::default(),
        link(30, None),
        LinkShare::default(),
        link(10, None),
    ];
    let mut gateway = Gateway::new(&[1, 1], &[], &given);
    gateway.wires.limit_transmit(16);
    let mut sums = [0.0; 2];
    for round in 0..2_000 {
        (0..64).for_each(|number| gateway.host_sends(number % 2, 64));
        gateway.round();
        let sent = gateway.sent();
        if round >= 1_000 {
            sums.iter_mut().zip(sent).for_each(|(sum, count)| *sum += count as f64);
        }
    }
    let all = sums[0] + sums[1];
    // The capacity of the device is estimated continuously.
    assert!((15_000.0..=16_000.0).contains(&all), "{sums:?}");
    let share = sums[0] / all;
    assert!((0.73..0.77).contains(&share), "{sums:?}");
    // When the device accepts all packets again, nothing is dropped.
    gateway.wires.limit_transmit(64);
    for _ in 0..100 {
        gateway.host_sends(1, 64);
        gateway.round();
    }
    gateway.sent();
    (0..64).for_each(|number| gateway.host_sends(number % 2, 64));
    gateway.round();
    assert_eq!(vec![32, 32], gateway.sent());
}
