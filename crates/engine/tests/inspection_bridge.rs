//! Tests of bridges with inspection. Unparsable packets are not delivered without inspection, long chains of extension
//! headers are parsed completely, and ICMP errors are distinguished from data.

use crate::inspected::{self, bypassed, ledger, say};
use crate::rig::{HOST_MAC, INSIDE, OUTSIDE, Plan, ROUTER_MAC, Rig};
use sluice_engine::packet::reason::Reason;
use sluice_engine::snapshot::{Bridge, Interface, Snapshot, bridge_context};
use sluice_inspect::Skipped;
use sluice_inspect::stream::{Exception, Policy as Exceptional};
use sluice_testkit::packet::{self, Frame, flag};

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:80";

fn bridged(interfaces: &mut [Interface]) {
    for (interface, peer) in interfaces.iter_mut().zip([OUTSIDE, INSIDE]) {
        interface.bridge = Some(Bridge {
            peer,
            drops_invalid: false,
            fails_open: false,
        });
        interface.context = bridge_context(0);
        interface.mtu = 9000;
    }
}

/// A bridge that inspects on one of its interfaces.
fn plan(snapshot: fn(&mut Snapshot)) -> Plan {
    Plan {
        translate: false,
        known_neighbours: false,
        interfaces: |interfaces| bridged(interfaces),
        snapshot,
        ..inspected::plan()
    }
}

fn passes_unparsable(snapshot: &mut Snapshot) {
    inspected::inspected(snapshot);
    say(snapshot, Exception::Unparsable, Exceptional::Pass);
}

fn detects(snapshot: &mut Snapshot) {
    inspected::inspected(snapshot);
    inspected::change(snapshot, |on| on.settings.passive = true);
}

/// Number of frames that leave through the peer interface.
#[track_caller]
fn over(rig: &mut Rig, interface: u16, frame: &[u8]) -> usize {
    let mut sent = rig.send(interface, frame);
    rig.round();
    sent.extend(rig.sent());
    assert!(
        sent.iter()
            .all(|sent| sent.port == 1 - interface && sent.frame == frame),
        "{sent:?}"
    );
    sent.len()
}

fn spared(rig: &Rig, name: &str) -> u64 {
    let reason = Reason::all().find(|reason| reason.name() == name).expect("a reason");
    let counters = rig.plane.counters().iter().flat_map(|worker| worker.interfaces.iter());
    counters.map(|interface| interface.exempted(reason)).sum()
}

fn udp() -> Frame {
    packet::udp4("10.0.0.1:5000", "10.0.0.2:5001").macs(HOST_MAC, ROUTER_MAC)
}

fn udp6() -> Frame {
    packet::udp6("[2001:db8::1]:5000", "[2001:db8::2]:5001").macs(HOST_MAC, ROUTER_MAC)
}

/// A frame with some bytes changed.
fn with(frame: &Frame, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = frame.build();
    for &(at, byte) in changes {
        bytes[at] = byte;
    }
    bytes
}

/// A frame with this EtherType and the payload `inner`.
fn ethernet(kind: u16, inner: &[u8]) -> Vec<u8> {
    let mut frame = [ROUTER_MAC, HOST_MAC].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(inner);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Frames that rules can't match, each with the name of the counter for its fault.
fn unparsable() -> Vec<(&'static str, Vec<u8>)> {
    let inner = udp().payload(b"evil").build()[14..].to_vec();
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &inner[..]].concat();
    let chain = |bytes: &[u8]| {
        let mut frame = udp6().payload(b"evil").build();
        frame.splice(54..54, bytes.iter().copied());
        frame[20] = 60;
        let length = (frame.len() - 54) as u16;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame
    };
    vec![
        ("short-frame", vec![1, 2, 3, 4, 5]),
        ("bad-version", with(&udp(), &[(14, 0x65)])),
        ("bad-header-length", with(&udp(), &[(14, 0x44)])),
        ("bad-total-length", with(&udp(), &[(16, 9)])),
        ("bad-header-checksum", with(&udp(), &[(22, 77)])),
        ("bad-udp-length", with(&udp(), &[(39, 7)])),
        ("bad-total-length", with(&udp6(), &[(18, 9)])),
        ("bad-total-length", udp6().build()[..40].to_vec()),
        // The first chain of extension headers ends beyond its packet. No host accepts the second chain.
        ("bad-options", chain(&[17, 200, 1, 4, 0, 0, 0, 0])),
        (
            "misplaced-extension",
            chain(&[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]),
        ),
        (
            "land",
            packet::udp4("10.0.0.1:99", "10.0.0.1:99")
                .macs(HOST_MAC, ROUTER_MAC)
                .build(),
        ),
        (
            "too-many-tags",
            udp().tag(0x88a8, 7).tag(0x8100, 8).tag(0x8100, 9).build(),
        ),
        (
            "encapsulated-ip",
            ethernet(0x8847, &[&[0, 0, 0x11, 64], &inner[..]].concat()),
        ),
        ("encapsulated-ip", ethernet(0x8848, &inner)),
        (
            "encapsulated-ip",
            ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 34, 0, 0x21], &inner[..]].concat()),
        ),
        (
            "encapsulated-ip",
            ethernet(0x9300, &[&[0, 7, 8, 0], &inner[..]].concat()),
        ),
        ("encapsulated-ip", ethernet(0x88e5, &inner)),
        ("encapsulated-ip", ethernet(0x88e7, &inner)),
        ("encapsulated-ip", ethernet(0x894f, &inner)),
        ("encapsulated-ip", ethernet(snap.len() as u16, &snap)),
    ]
}

/// Frames that are not IP.
fn not_ip() -> Vec<Vec<u8>> {
    let lan = "10.0.0.1".parse::<std::net::Ipv4Addr>().unwrap();
    let stp = ethernet(38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]);
    let cdp = ethernet(60, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 2, 180]);
    vec![
        packet::arp_request(HOST_MAC, lan, lan),
        packet::arp_request(HOST_MAC, lan, lan)[..30].to_vec(),
        stp,
        cdp,
        // The frames are LLDP, EAP over LAN, and PPPoE discovery.
        ethernet(0x88cc, &[2, 7, 4]),
        ethernet(0x888e, &[1, 1]),
        ethernet(0x8863, &[0x11, 9]),
    ]
}

#[test]
fn what_cannot_be_parsed_is_dropped_by_name_over_a_bridge_that_prevents() {
    for workers in [1, 3] {
        for (name, frame) in unparsable() {
            let mut rig = Rig::new(Plan {
                workers,
                ..plan(inspected::inspected)
            });
            for interface in [INSIDE, OUTSIDE] {
                assert_eq!(0, over(&mut rig, interface, &frame), "{name}");
            }
            assert_eq!(2, rig.drops(name), "{name}: {:?}", rig.all_drops());
            assert_eq!((0, 0), (rig.live(), spared(&rig, name)));
            ledger(&mut rig);
            rig.check();
        }
    }
}

#[test]
fn what_cannot_be_parsed_goes_on_and_is_counted_by_policy_and_where_rules_only_detect() {
    for snapshot in [passes_unparsable, detects] {
        for (name, frame) in unparsable() {
            let mut rig = Rig::new(plan(snapshot));
            for interface in [INSIDE, OUTSIDE] {
                assert_eq!(1, over(&mut rig, interface, &frame), "{name}: {:?}", rig.all_drops());
            }
            assert_eq!((2, 2), (spared(&rig, name), bypassed(&rig, Skipped::Invalid)), "{name}");
            ledger(&mut rig);
            rig.check();
        }
    }
}

#[test]
fn what_is_plainly_not_ip_goes_on_over_a_bridge_that_prevents() {
    let mut rig = Rig::new(plan(inspected::inspected));
    for frame in not_ip() {
        assert_eq!(1, over(&mut rig, INSIDE, &frame), "{frame:x?}: {:?}", rig.all_drops());
    }
    assert_eq!(not_ip().len() as u64, bypassed(&rig, Skipped::NotIp));
    ledger(&mut rig);
    rig.check();
}

#[test]
fn wrong_checksum_goes_on_where_rules_only_detect() {
    let mut frame = udp().payload(b"fine").build();
    *frame.last_mut().unwrap() ^= 1;
    let mut rig = Rig::new(plan(inspected::inspected));
    assert_eq!(0, over(&mut rig, INSIDE, &frame));
    let mut rig = Rig::new(plan(detects));
    assert_eq!(1, over(&mut rig, INSIDE, &frame));
    assert_eq!(1, bypassed(&rig, Skipped::BadChecksum));
    ledger(&mut rig);
}

#[test]
fn packet_of_an_odd_address_is_inspected_and_goes_on() {
    // The packets are: a query to a group without a source address (RFC 4541, 2.1.1), a packet from loopback, a packet
    // to loopback, and a packet with a source route.
    let odd = [
        packet::udp4("0.0.0.0:5000", "224.0.0.1:99"),
        packet::udp4("127.0.0.1:5000", "10.0.0.2:99"),
        packet::udp4("10.0.0.1:5000", "127.0.0.1:99"),
        packet::udp4("10.0.0.1:5000", "10.0.0.2:99").options(&[131, 7, 4, 192, 0, 2, 9, 0]),
    ];
    for frame in odd {
        let mut rig = Rig::new(plan(inspected::inspected));
        let name = format!("{:?}", frame.network);
        let fine = frame.clone().macs(HOST_MAC, ROUTER_MAC).payload(b"fine").build();
        assert_eq!(1, over(&mut rig, INSIDE, &fine), "{name} {:?}", rig.all_drops());
        let evil = frame.macs(HOST_MAC, ROUTER_MAC).payload(b"planted here").build();
        assert_eq!(0, over(&mut rig, INSIDE, &evil));
        assert_eq!(1, rig.drops("signature"), "{:?}", rig.all_drops());
        ledger(&mut rig);
        rig.check();
    }
}

/// A datagram to port 99 after these extension headers.
fn behind(headers: &[u8], first: u8, data: &[u8]) -> Vec<u8> {
    let frame = packet::udp6("[2001:db8::1]:5000", "[2001:db8::2]:99").macs(HOST_MAC, ROUTER_MAC);
    let mut frame = frame.payload(data).build();
    frame.splice(54..54, headers.iter().copied());
    frame[20] = first;
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame
}

#[test]
fn chain_of_extension_headers_is_walked_to_its_end_however_many_they_are() {
    const DESTINATION: u8 = 60;
    let option = [DESTINATION, 0, 1, 4, 0, 0, 0, 0];
    let last = [17, 0, 1, 4, 0, 0, 0, 0];
    // The headers are: hop-by-hop, destination options, a routing header without segments left, an atomic fragment, destination options.
    let mixed: Vec<u8> = [
        [60, 0, 1, 4, 0, 0, 0, 0],
        [43, 0, 1, 4, 0, 0, 0, 0],
        [44, 0, 4, 0, 0, 0, 0, 0],
        [60, 0, 0, 0, 0, 0, 0, 9],
        last,
    ]
    .concat();
    let mut long = vec![17, 255];
    long.resize(2048, 0);
    let chains = [
        (0, mixed),
        (DESTINATION, [option.repeat(8), last.to_vec()].concat()),
        (DESTINATION, [option.repeat(180), last.to_vec()].concat()),
        (DESTINATION, [option.repeat(1000), last.to_vec()].concat()),
        (DESTINATION, long),
    ];
    for (first, headers) in chains {
        let mut rig = Rig::new(plan(inspected::inspected));
        let fine = behind(&headers, first, b"fine");
        assert_eq!(1, over(&mut rig, INSIDE, &fine), "{:?}", rig.all_drops());
        assert_eq!(0, bypassed(&rig, Skipped::Invalid));
        assert_eq!(0, over(&mut rig, INSIDE, &behind(&headers, first, b"planted here")));
        assert_eq!(1, rig.drops("signature"), "{:?}", rig.all_drops());
        ledger(&mut rig);
        rig.check();
    }
}

fn segment(from: &str, to: &str) -> Frame {
    packet::tcp4(from, to).macs(HOST_MAC, ROUTER_MAC)
}

/// An ICMP error for a segment of the client. The error quotes the bytes `quoted` of the client's datagram.
fn error(quoted: &[u8]) -> Vec<u8> {
    let length = quoted.len();
    let mut frame = [HOST_MAC, ROUTER_MAC].concat();
    frame.extend([8, 0]);
    let total = (28 + length) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 254, 10, 0, 0, 1];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = |bytes: &[u8]| !sluice_wire::checksum::sum(bytes);
    let of_header = sum(&header);
    header[10..12].copy_from_slice(&of_header.to_be_bytes());
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    let of_message = sum(&message);
    message[2..4].copy_from_slice(&of_message.to_be_bytes());
    frame.extend(header);
    frame.extend(message);
    frame
}

#[test]
fn icmp_error_with_a_short_quote_passes_and_is_no_data() {
    let syn = segment(CLIENT, SERVER).flags(flag::SYN).numbers(99, 0).build();
    let datagram = &syn[14..];
    // The quotes are: the whole datagram, the IP header with 8 bytes (RFC 792), the IP header with the ports, the IP
    // header with half a port, and the IP header only.
    for length in [datagram.len(), 28, 24, 22, 20] {
        for workers in [1, 3] {
            let mut rig = Rig::new(Plan {
                workers,
                ..plan(inspected::inspected)
            });
            assert_eq!(1, over(&mut rig, INSIDE, &syn));
            let live = rig.live();
            let told = error(&datagram[..length]);
            assert_eq!(1, over(&mut rig, OUTSIDE, &told), "{length}: {:?}", rig.all_drops());
            assert_eq!(1, bypassed(&rig, Skipped::IcmpError), "{length}");
            // If the quote identifies a flow, the ICMP error belongs to that flow.
            let unknown = u64::from(length < 24);
            assert_eq!(unknown, spared(&rig, "short-quote"), "{length}");
            assert_eq!(live, rig.live(), "an error begins no flow");
            ledger(&mut rig);
            rig.check();
        }
    }
}

#[test]
fn icmp_error_about_a_later_fragment_passes() {
    let later = udp().payload(&[1; 64]).fragment(4, false, 77).build();
    let mut rig = Rig::new(plan(inspected::inspected));
    assert_eq!(
        1,
        over(&mut rig, OUTSIDE, &error(&later[14..42])),
        "{:?}",
        rig.all_drops()
    );
    assert_eq!(1, spared(&rig, "quoted-fragment"));
    assert_eq!((0, 1), (rig.live(), bypassed(&rig, Skipped::IcmpError)));
}

#[test]
fn icmp_error_of_which_nobody_can_tell_whose_it_is_is_dropped_where_unseen_beginnings_are() {
    let syn = segment(CLIENT, SERVER).flags(flag::SYN).numbers(99, 0).build();
    let mut rig = Rig::new(plan(|snapshot| {
        inspected::inspected(snapshot);
        say(snapshot, Exception::Midstream, Exceptional::DropPacket);
    }));
    assert_eq!(1, over(&mut rig, INSIDE, &syn));
    assert_eq!(0, over(&mut rig, OUTSIDE, &error(&syn[14..34])));
    assert_eq!(1, rig.drops("short-quote"));
    // The quote identifies the flow.
    assert_eq!(1, over(&mut rig, OUTSIDE, &error(&syn[14..42])));
}
