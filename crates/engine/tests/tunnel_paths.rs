//! Tests of the MTU of tunnels: handling of longer packets, and updates of the path MTU.

use crate::rig::{self, INSIDE, OUTSIDE, OUTSIDE_MAC, ROUTER_MAC, Rig, is_valid, plain};
use crate::tunnelled::{self, all, tunnel};
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_testkit::packet::{self, Frame, Icmpv4Type, Icmpv6Type, Network, Transport};

/// The MTU in an ICMP error of either family.
fn told(frame: &[u8]) -> Option<u16> {
    match (frame.get(12)?, frame.get(23)?, frame.get(20)?) {
        (8, 1, _) if frame[34..36] == [3, 4] => Some(u16::from_be_bytes([frame[40], frame[41]])),
        (0x86, _, 58) if frame[54] == 2 => Some(u16::from_be_bytes([frame[60], frame[61]])),
        _ => None,
    }
}

/// A datagram with this length, including the IP header. The packet library sets the Don't Fragment flag.
fn datagram(length: usize) -> Frame {
    packet::udp4("192.168.1.10:5000", "10.77.0.5:53").payload(&vec![7; length - 28])
}

fn datagram6(length: usize) -> Frame {
    packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:77::5]:53").payload(&vec![7; length - 48])
}

/// The MTU in the ICMP error for a datagram of the inside host; `None` if the datagram passes.
fn mtu_for(rig: &mut Rig, datagram: &Frame) -> Option<u16> {
    let sent = rig.host_sends(datagram);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(is_valid(&sent[0].frame));
    match sent[0].port {
        INSIDE => Some(told(&sent[0].frame).expect("an error")),
        _ => None,
    }
}

/// A destination-unreachable error about the datagram in `frame`, with this code and MTU.
fn unreachable(to: &str, code_u8: u8, mtu: u16, frame: &[u8]) -> Frame {
    let [high, low] = mtu.to_be_bytes();
    let kind = Icmpv4Type::Unknown {
        type_u8: 3,
        code_u8,
        bytes5to8: [0, 0, high, low],
    };
    let transport = Transport::Icmp4(kind);
    packet::frame4("192.0.2.77".parse().unwrap(), to.parse().unwrap(), transport)
        .payload(&frame[14..42])
        .macs(ROUTER_MAC, OUTSIDE_MAC)
}

/// The ICMP error by which a router on the path reports that the outer packet `frame` is too long.
fn too_big(frame: &[u8], mtu: u16) -> Frame {
    if frame[14] >> 4 == 4 {
        return unreachable("203.0.113.1", 4, mtu, frame);
    }
    let kind = Icmpv6Type::PacketTooBig { mtu: mtu.into() };
    let ends = ["2001:db8:77::77", "2001:db8:2::1"].map(|end| end.parse().unwrap());
    packet::frame6(ends[0], ends[1], Transport::Icmp6(kind))
        .payload(&frame[14..1200])
        .macs(ROUTER_MAC, OUTSIDE_MAC)
}

fn lowered(rig: &Rig) -> u64 {
    rig.plane
        .counters()
        .iter()
        .map(|worker| worker.path_mtus_lowered.get())
        .sum()
}

#[test]
fn longest_packet_of_every_tunnel_fills_the_link_and_a_longer_one_is_answered_with_the_mtu() {
    let expected = [50, 70, 24, 44, 28, 48, 20, 40];
    for (tunnel, overhead) in all().into_iter().zip(expected) {
        assert_eq!(overhead, tunnel.overhead());
        let mtu = 1500 - overhead as u16;
        let mut rig = tunnelled::rig(tunnel);
        for datagram in [datagram, datagram6] {
            let sent = rig.host_sends(&datagram(mtu.into()));
            assert_eq!((OUTSIDE, 1514), (sent[0].port, sent[0].frame.len()), "{tunnel:?}");
            assert_eq!(Some(mtu), mtu_for(&mut rig, &datagram(usize::from(mtu) + 1)));
        }
        assert_eq!(vec![("too-big", 2)], rig.all_drops());
    }
}

#[test]
fn packet_that_may_be_cut_goes_through_every_tunnel_in_fragments_of_its_own() {
    for tunnel in all() {
        let mut rig = tunnelled::rig(tunnel);
        let mut long = datagram(1500);
        if let Network::V4(header) = &mut long.network {
            header.dont_fragment = false;
        }
        let sent = rig.host_sends(&long);
        assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
        let payload = |frame: &[u8]| frame.len() - 14 - tunnel.overhead() - 20;
        assert_eq!(1480, sent.iter().map(|sent| payload(&sent.frame)).sum::<usize>());
        for sent in sent {
            assert_eq!(OUTSIDE, sent.port);
            assert!(sent.frame.len() <= 1514 && is_valid(&sent.frame));
            // The outer packet must not be fragmented.
            assert!(sent.frame[14] >> 4 == 6 || sent.frame[20] == 0x40);
        }
    }
}

#[test]
fn error_about_an_outer_packet_lowers_the_mtu_for_ten_minutes() {
    for tunnel in all() {
        let mut rig = tunnelled::rig(tunnel);
        let overhead = tunnel.overhead();
        let sent = rig.host_sends(&datagram(1400));
        let told = rig.send(OUTSIDE, &too_big(&sent[0].frame, 1380).build());
        assert!(told.is_empty());
        assert_eq!(1, lowered(&rig), "{tunnel:?} {:?}", rig.all_drops());
        let fits = 1380 - overhead;
        assert_eq!(None, mtu_for(&mut rig, &datagram(fits)));
        assert_eq!(Some(fits as u16), mtu_for(&mut rig, &datagram(fits + 1)));
        assert_eq!(Some(fits as u16), mtu_for(&mut rig, &datagram6(fits + 1)));
        // An error with an equal or larger MTU has no effect.
        for mtu in [1380, 1400] {
            rig.send(OUTSIDE, &too_big(&sent[0].frame, mtu).build());
        }
        assert_eq!(1, lowered(&rig));
        rig.now = Now::at(rig.now.nanoseconds + 599_000_000_000);
        assert_eq!(Some(fits as u16), mtu_for(&mut rig, &datagram(fits + 1)));
        rig.now = Now::at(rig.now.nanoseconds + 2_000_000_000);
        assert_eq!(None, mtu_for(&mut rig, &datagram(fits + 1)));
    }
}

#[test]
fn error_that_tells_of_less_than_everybody_takes_is_believed_as_far_as_that() {
    for (v6, least) in [(false, 576), (true, 1280)] {
        let tunnel = tunnel(TunnelKind::Ipip, None, v6);
        let mut rig = tunnelled::rig(tunnel);
        let sent = rig.host_sends(&datagram(1400));
        for mtu in [0, 68, 100] {
            rig.send(OUTSIDE, &too_big(&sent[0].frame, mtu).build());
        }
        let fits = least - tunnel.overhead();
        assert_eq!(None, mtu_for(&mut rig, &datagram(fits)));
        assert_eq!(Some(fits as u16), mtu_for(&mut rig, &datagram(fits + 1)));
    }
}

#[test]
fn error_that_quotes_what_was_not_sent_from_an_end_changes_nothing() {
    let tunnel = tunnel(TunnelKind::Gre, None, false);
    let mut rig = tunnelled::rig(tunnel);
    let sent = rig.host_sends(&datagram(1400)).remove(0).frame;
    let change = |place: usize, value: u8| {
        let mut frame = sent.clone();
        frame[place] = value;
        let sum = sluice_wire::checksum::checksum(&[&frame[14..24], &[0, 0], &frame[26..34]].concat());
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        too_big(&frame, 1300).build()
    };
    // The quoted packet has a different protocol, source, or destination.
    for error in [change(23, 6), change(29, 2), change(33, 99)] {
        rig.send(OUTSIDE, &error);
    }
    // The ICMP error is not sent to the source of the quoted packet, or has a different type.
    rig.send(OUTSIDE, &unreachable("192.168.1.1", 4, 1300, &sent).build());
    rig.send(OUTSIDE, &unreachable("203.0.113.1", 1, 1300, &sent).build());
    assert_eq!(0, lowered(&rig));
    assert_eq!(None, mtu_for(&mut rig, &datagram(1400)));
}

#[test]
fn outer_packet_that_does_not_fit_the_link_lowers_the_mtu_by_itself() {
    for tunnel in all() {
        let mut plan = tunnelled::plan(tunnel);
        plan.outside_mtu = 1400;
        let mut rig = tunnelled::started(plan);
        let fits = 1400 - tunnel.overhead();
        assert!(rig.host_sends(&datagram(1400)).is_empty());
        assert_eq!((vec![("too-big", 1)], 1), (rig.all_drops(), lowered(&rig)));
        assert_eq!(Some(fits as u16), mtu_for(&mut rig, &datagram(1400)), "{tunnel:?}");
        assert_eq!(None, mtu_for(&mut rig, &datagram(fits)));
    }
}

#[test]
fn commit_keeps_what_is_known_of_paths_that_stay() {
    let tunnel = tunnel(TunnelKind::Gre, None, false);
    let mut rig = tunnelled::rig(tunnel);
    let sent = rig.host_sends(&datagram(1400));
    rig.send(OUTSIDE, &too_big(&sent[0].frame, 1300).build());
    let commit = |rig: &mut Rig, tunnel: Tunnel| {
        let (snapshot, routes) = rig::snapshot(&tunnelled::plan(tunnel));
        rig.plane.commit(snapshot, &[routes]).unwrap();
        rig.round();
    };
    commit(&mut rig, tunnel);
    assert_eq!(Some(1276), mtu_for(&mut rig, &datagram(1400)));
    // The MTU of another path is still unknown.
    let elsewhere = Tunnel {
        remote: plain("198.51.100.8"),
        ..tunnel
    };
    commit(&mut rig, elsewhere);
    assert_eq!(None, mtu_for(&mut rig, &datagram(1400)));
}
