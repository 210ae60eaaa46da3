//! Properties that must hold for arbitrary bytes. The fuzz targets and ordinary tests call these functions.

use sluice_wire::ethernet::{Ethernet, Link};
use sluice_wire::fragments::Fragments;
use sluice_wire::icmpv6::packet_too_big;
use sluice_wire::vlan::Tag;
use sluice_wire::{
    Checksums, Class, Flags, Fragment, Layers, Packet, Policy, Validity, arp, complete_checksum, icmp, icmpv6, ipv4,
    ipv6, ndp, parse, plain4, plain6, quoted, tcp, transit4, tunnel, udp, validate, vlan,
};

const EVERYTHING: [Checksums; 5] = [
    Checksums::Unverified,
    Checksums::Vouched,
    Checksums::BadL3,
    Checksums::BadL4,
    Checksums::PartialChecksum,
];

/// Checks tunnel headers: a parsed header is within the bytes, and setting its ECN bits changes no other bits.
fn tunnels(bytes: &[u8]) {
    assert!(tunnel::gre::read(bytes).is_none_or(|read| read.length <= bytes.len()));
    assert!(tunnel::vxlan::read(bytes).is_none_or(|identifier| identifier < 1 << tunnel::vxlan::BITS));
    for kind in [0x0800, 0x86dd, 0x0806] {
        for outer in 0..4 {
            let mut marked = bytes.to_vec();
            let passes = tunnel::copy_ecn(kind, &mut marked, outer);
            let others = |bytes: &[u8]| tunnel::service(kind, bytes) & !tunnel::CONGESTION;
            assert!(others(bytes) == others(&marked) && (passes || marked == bytes));
        }
    }
}

/// If the fast check accepts a packet, the results of the fast check and the full check are equal.
fn passing(bytes: &[u8], layers: &Layers, checksums: Checksums, mac: &[u8; 6]) {
    let tags = usize::from(layers.tags);
    let headless = Policy {
        headers: false,
        ..Policy::default()
    };
    let destination = layers.key4(bytes, 0).tuple().destination;
    let passes = layers.class == Class::Ipv4
        && layers.fragment == Fragment::Whole
        && !layers.flags.has(Flags::OPTIONS)
        && layers.end - layers.l3 >= 40
        && layers.ttl > 1
        && destination < 0xe000_0000
        && (checksums == Checksums::Vouched
            || (checksums == Checksums::Unverified && layers.protocol != ipv4::protocol::ICMP))
        && validate(bytes, checksums, layers, &headless) == Ok(Validity::Valid);
    assert_eq!(
        passes.then_some((destination, usize::from(layers.end) != bytes.len())),
        transit4(bytes, tags, checksums, mac),
        "known only by one of two ways"
    );
    let other = mac.map(|byte| !byte);
    assert_eq!(None, transit4(bytes, tags, checksums, &other), "not ours");
}

/// Call every function of `wire` with arbitrary bytes. No function may panic, and the results must be consistent.
pub fn wire(bytes: &[u8]) {
    views(bytes);
    tunnels(bytes);
    let Ok(layers) = parse(bytes) else { return };
    assert!(
        layers.l3 <= layers.l4 && layers.l4 <= layers.end && layers.end as usize <= bytes.len(),
        "{layers:?}"
    );
    assert!((0..2).all(|k| layers.tag(bytes, k).is_some() == (k < layers.tags as usize)));
    assert_eq!(layers.protocol, layers.key4(bytes, 1).protocol());
    assert_eq!(layers.source_port, layers.key6(bytes, 1).tuple().source_port);
    tagged(bytes, &layers);

    let lenient = Policy {
        martians: false,
        reserved: false,
        source_routes: false,
        headers: true,
    };
    for checksums in EVERYTHING {
        let strict = validate(bytes, checksums, &layers, &Policy::default());
        let mut slow = layers;
        slow.flags.0 &= !Flags::PLAIN.0;
        assert_eq!(
            strict,
            validate(bytes, checksums, &slow, &Policy::default()),
            "short and long way differ"
        );
        let freely = validate(bytes, checksums, &layers, &lenient);
        let mac = bytes.first_chunk().copied().unwrap_or_default();
        let (tags, least) = (
            usize::from(layers.tags),
            if layers.class == Class::Ipv4 { 54 } else { 74 },
        );
        let common = Flags::PLAIN == layers.flags && bytes.len() >= least + 4 * tags;
        let looked = matches!(checksums, Checksums::Vouched | Checksums::Unverified);
        let expected = (common && looked && strict == Ok(Validity::Valid)).then_some(layers);
        // Broadcasts, such as those of DHCP clients (RFC 2131), and multicast packets need the full check.
        let unicast = bytes[0] & 1 == 0 && bytes.get(30 + 4 * tags..34 + 4 * tags) != Some(&[0xff; 4]);
        let short = |mac| plain4(bytes, tags, checksums, mac).or_else(|| plain6(bytes, tags, checksums, mac));
        if unicast || layers.class == Class::Ipv6 && bytes[0] & 1 == 0 {
            assert_eq!(expected, short(&mac), "placed and checked at once, another packet");
        }
        assert_eq!(None, short(&mac.map(|byte| !byte)), "not ours");
        passing(bytes, &layers, checksums, &mac);
        assert!(strict.is_err() || strict == freely, "a lenient policy found a fault");
    }
    let unverified = validate(bytes, Checksums::Unverified, &layers, &lenient);
    if unverified == Ok(Validity::PartialChecksum) {
        let mut completed = bytes.to_vec();
        complete_checksum(&mut completed, &layers);
        assert_eq!(
            Ok(Validity::Valid),
            validate(&completed, Checksums::Unverified, &layers, &lenient)
        );
    }
    let _ = ndp::read(bytes, &layers);
    if let Ok(quote) = quoted(bytes, &layers) {
        let inner = quote.layers;
        assert!(layers.l4 < inner.l3 && inner.l3 < inner.l4 && inner.l4 + 8 <= inner.end && inner.end <= layers.end);
        assert_eq!(quote.key4(bytes, 0).protocol(), quote.key6(bytes, 0).protocol());
    }
    if unverified.is_ok() {
        answers(bytes, &layers);
    }
    mismatched(&bytes[..bytes.len() / 2], &layers);
    mismatched(&bytes[4..], &layers);
}

/// Using layers with a frame to which they do not belong must not panic.
fn mismatched(bytes: &[u8], layers: &Layers) {
    let _ = (layers.key4(bytes, 0), layers.key6(bytes, 0), layers.tag(bytes, 1));
    for checksums in EVERYTHING {
        let _ = validate(bytes, checksums, layers, &Policy::default());
    }
    let _ = (quoted(bytes, layers), ndp::read(bytes, layers));
    let _ = (
        icmp::may_send_error(bytes, layers),
        icmpv6::may_send_error(bytes, layers, false),
    );
    let mut copy = bytes.to_vec();
    complete_checksum(&mut copy, layers);
    let _ = (
        icmp::answer_echo(&mut copy, layers, 9),
        icmpv6::answer_echo(&mut copy, layers, 9),
    );
    if let Some(fragments) = Fragments::new(bytes, layers, 96) {
        let (mut room, mut window) = crate::packet::room(&[]);
        let mut packet = Packet::new(&mut room, &mut window);
        let _ = (0..fragments.len()).map(|k| fragments.emit(k, &mut packet)).count();
    }
}

/// Adding a tag to a packet only moves its layers by four bytes.
fn tagged(bytes: &[u8], layers: &Layers) {
    let (mut room, mut window) = crate::packet::room(bytes);
    let mut packet = Packet::new(&mut room, &mut window);
    if layers.tags == 2 || bytes.len() > 60_000 || !vlan::push(&mut packet, Tag::service(7)) {
        return;
    }
    let expected = Layers {
        l3: layers.l3 + 4,
        l4: layers.l4 + 4,
        end: layers.end + 4,
        tags: layers.tags + 1,
        ..*layers
    };
    assert_eq!(Ok(expected), parse(packet.bytes()));
    assert_eq!(Some(Tag::service(7)), vlan::pop(&mut packet));
    assert_eq!(bytes, packet.bytes());
}

/// The replies that a router creates for a packet are valid.
fn answers(bytes: &[u8], layers: &Layers) {
    let lenient = Policy {
        martians: false,
        reserved: false,
        source_routes: false,
        headers: true,
    };
    let valid = |frame: &[u8]| {
        let layers = parse(frame).expect("what was made has its layers");
        assert_eq!(
            Ok(Validity::Valid),
            validate(frame, Checksums::Unverified, &layers, &lenient)
        );
    };
    let link = Link {
        source: [2, 0, 0, 0, 0, 3],
        destination: [2, 0, 0, 0, 0, 4],
    };
    let mut room = [0; 2048];
    let mut window = sluice_wire::Window {
        start: 128,
        length: 0,
        checksums: Checksums::Unverified,
        changed: false,
    };
    let mut packet = Packet::new(&mut room, &mut window);
    let datagram = layers.datagram(bytes);
    match layers.class {
        Class::Ipv4 => {
            let _ = icmp::may_send_error(bytes, layers);
            assert!(icmp::emit_error(
                &mut packet,
                link,
                1,
                2,
                icmp::Error::TIME_EXCEEDED,
                datagram
            ));
            valid(packet.bytes());
            let fragments = Fragments::new(bytes, layers, 96).expect("room for a header of any length");
            let mut payload = 0;
            for k in 0..fragments.len() {
                assert!(fragments.emit(k, &mut packet));
                let made = parse(packet.bytes()).map(|made| made.payload(packet.bytes()).len());
                payload += made.unwrap_or(0);
                assert!(packet.len() <= layers.l3 as usize + 96);
            }
            assert!(!fragments.emit(fragments.len(), &mut packet));
            // A first fragment that is shorter than its transport header has no layers.
            assert!(payload <= layers.payload(bytes).len());
        }
        Class::Ipv6 => {
            let _ = icmpv6::may_send_error(bytes, layers, true);
            assert!(icmpv6::emit_error(
                &mut packet,
                link,
                1,
                2,
                packet_too_big(1280),
                datagram
            ));
            valid(packet.bytes());
        }
        Class::Arp | Class::Other => {}
    }
    let mut answer = bytes.to_vec();
    if icmp::answer_echo(&mut answer, layers, 9) || icmpv6::answer_echo(&mut answer, layers, 9) {
        let made = parse(&answer).expect("the same layers");
        assert!(made.flags.has(Flags::ICMP_REPLY));
        assert_eq!(
            (layers.source_port, layers.destination_port),
            (made.destination_port, made.source_port)
        );
        // The options or extensions of the request are copied to the reply without a further check.
        if !layers.flags.has(Flags::OPTIONS) {
            valid(&answer);
        }
    }
}

/// Calls the accessors on the original bytes, and the setters on a copy.
fn views(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if let Some(mut view) = Ethernet::new(&mut copy[..]) {
        view.set_addresses(view.source(), view.destination());
    }
    if let Some(mut view) = ipv4::Ipv4::new(&mut copy[..]) {
        let _ = (
            view.options().len(),
            view.has_valid_checksum(),
            view.fragment_offset(),
            view.dont_fragment(),
        );
        let _ = ipv4::check_options(view.options(), true);
        view.fill_checksum();
        assert!(view.header_length() < ipv4::LENGTH || view.has_valid_checksum() || view.header_length() > bytes.len());
        let right = view.has_valid_checksum();
        view.decrement_ttl();
        assert_eq!(right, view.has_valid_checksum());
    }
    if let Some(view) = ipv6::Ipv6::new(bytes) {
        let _ = (view.traffic_class(), view.flow_label());
        if let Ok(chain) = ipv6::walk(bytes) {
            assert!(chain.end <= bytes.len() && chain.count <= bytes.len() / 8);
            assert_eq!(Some(&chain.protocol), bytes.get(chain.names_protocol));
        }
    }
    if let Some(view) = tcp::Tcp::new(bytes) {
        let offset = view.mss_offset().unwrap_or(0);
        assert!(offset + 2 <= bytes.len() && view.options().len() <= 40);
    }
    if let Some(mut view) = udp::Udp::new(&mut copy[..]) {
        view.set_checksum(view.length());
    }
    if let Some(view) = arp::Arp::new(bytes) {
        let _ = (view.is_ipv4_over_ethernet(), view.sender_mac(), view.target());
    }
}
