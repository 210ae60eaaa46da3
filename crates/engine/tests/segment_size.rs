//! Tests that the MSS option of SYNs is lowered to the limits of the interfaces, with and without translation.

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use sluice_engine::snapshot::Interface;
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::vlan::Tag;

/// The MSS limit of the outside link is 1,452 bytes.
fn clamped(interfaces: &mut [Interface]) {
    interfaces[usize::from(OUTSIDE)].segment_size = Some(1452);
}

fn plan(translate: bool) -> Plan {
    Plan {
        translate,
        interfaces: |interfaces| clamped(interfaces),
        ..Plan::default()
    }
}

/// The frame with an added MSS option, which follows `before` bytes of padding.
fn offering(frame: Frame, size: u16, before: usize) -> Frame {
    let [high, low] = size.to_be_bytes();
    frame.tcp_options(&[&[1, 1, 1, 1][..before], &[2, 4, high, low]].concat())
}

fn syn() -> Frame {
    packet::tcp4("192.168.1.10:40000", "198.51.100.7:80").flags(flag::SYN)
}

/// The only frame that left, with the MAC addresses of its receiver.
#[track_caller]
fn only(rig: &Rig, sent: Vec<rig::Sent>) -> Vec<u8> {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(rig::is_valid(&sent[0].frame));
    sent[0].frame.clone()
}

#[test]
fn mss_of_a_session_is_lowered_in_syn_and_syn_ack_and_never_raised() {
    for before in 0..4 {
        for (offered, expected) in [(1460, 1452), (1453, 1452), (1452, 1452), (536, 536), (65_535, 1452)] {
            let mut rig = Rig::new(plan(true));
            let sent = rig.host_sends(&offering(syn(), offered, before));
            let (public, remote) = rig::flow(&only(&rig, sent.clone()));
            let expect = packet::tcp4(public, remote).flags(flag::SYN).ttl(63);
            let expect = offering(expect, expected, before).macs(OUTSIDE_MAC, ROUTER_MAC);
            assert_eq!(expect.build(), only(&rig, sent), "{offered} behind {before}");

            let answer = packet::tcp4(remote, public).flags(flag::SYN | flag::ACK).numbers(5, 2);
            let sent = rig.router_sends(&offering(answer, offered, before));
            let expect = packet::tcp4("198.51.100.7:80", "192.168.1.10:40000")
                .flags(flag::SYN | flag::ACK)
                .numbers(5, 2)
                .ttl(63);
            let expect = offering(expect, expected, before).macs(INSIDE_MAC, HOST_MAC);
            assert_eq!(expect.build(), only(&rig, sent), "{offered} behind {before}");
        }
    }
}

#[test]
fn mss_of_a_session_stays_in_segments_without_syn() {
    let mut rig = Rig::new(plan(true));
    let public = rig.public(&syn());
    let data = offering(packet::tcp4("192.168.1.10:40000", "198.51.100.7:80"), 9000, 0);
    let sent = rig.host_sends(&data);
    let expect = offering(packet::tcp4(public, "198.51.100.7:80"), 9000, 0).ttl(63);
    assert_eq!(expect.macs(OUTSIDE_MAC, ROUTER_MAC).build(), only(&rig, sent));
}

#[test]
fn mss_is_lowered_in_forwarded_syns_of_both_families_and_directions() {
    let v6 = |from: &str, to: &str| packet::tcp6(from, to).flags(flag::SYN);
    let (here, there) = ("[2001:db8:1::10]:5000", "[2001:db8:9::7]:80");
    let mut rig = Rig::new(plan(false));
    for (out, frame, expected) in [
        (true, syn(), 1452),
        (
            false,
            packet::tcp4("198.51.100.7:80", "192.168.1.10:40000").flags(flag::SYN | flag::ACK),
            1452,
        ),
        (true, v6(here, there), 1432),
        (false, v6(there, here), 1432),
    ] {
        let sent = match out {
            true => rig.host_sends(&offering(frame.clone(), 8960, 0)),
            false => rig.router_sends(&offering(frame.clone(), 8960, 0)),
        };
        let (source, destination) = if out {
            (OUTSIDE_MAC, ROUTER_MAC)
        } else {
            (INSIDE_MAC, HOST_MAC)
        };
        let expect = offering(frame, expected, 0).ttl(63).macs(source, destination);
        assert_eq!(expect.build(), only(&rig, sent));
    }
}

#[test]
fn mss_the_narrower_of_both_interfaces_decides() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan {
            translate,
            interfaces: |interfaces| {
                clamped(interfaces);
                interfaces[usize::from(INSIDE)].segment_size = Some(1200);
            },
            ..Plan::default()
        });
        let sent = rig.host_sends(&offering(syn(), 1460, 0));
        assert_eq!(1200u16.to_be_bytes(), only(&rig, sent)[56..58]);
    }
}

#[test]
fn mss_is_lowered_behind_a_tag_and_ip_options() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan {
            translate,
            interfaces: |interfaces| {
                clamped(interfaces);
                interfaces[usize::from(OUTSIDE)].tags = vec![Tag::vlan(7)];
            },
            ..Plan::default()
        });
        let sent = rig.host_sends(&offering(syn(), 1460, 0).options(&[1, 1, 1, 0]));
        assert_eq!(1452u16.to_be_bytes(), only(&rig, sent)[64..66]);
    }
}

#[test]
fn mss_that_is_absent_cut_short_or_malformed_leaves_the_syn_as_it_is() {
    for options in [
        &[][..],
        &[1, 1, 1, 2],
        &[2, 3, 5, 0],
        &[2, 0, 9, 9],
        &[3, 3, 7, 0, 2, 4, 1, 0],
        &[0, 0, 2, 4, 99, 99],
    ] {
        let mut rig = Rig::new(plan(false));
        let frame = syn().tcp_options(options);
        let sent = rig.host_sends(&frame);
        let expect = frame.ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC);
        assert_eq!(expect.build(), only(&rig, sent), "{options:?}");
    }
}

#[test]
fn mss_stays_where_no_interface_limits_it() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan {
            translate,
            ..Plan::default()
        });
        let sent = rig.host_sends(&offering(syn(), 8960, 0));
        assert_eq!(8960u16.to_be_bytes(), only(&rig, sent)[56..58]);
    }
}
