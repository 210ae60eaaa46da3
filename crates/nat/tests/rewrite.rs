//! Tests of rewrites. An independent library builds the expected packets.

use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpHeaders, PacketBuilder, PacketBuilderStep};
use proptest::prelude::*;
use sluice_nat::decision::{NewSource, Translation, translate};
use sluice_nat::ports::Lease;
use sluice_nat::rewrite::{Rewrite, Transport, rewrite_plain4, rewrite_plain6, rewrite4, rewrite6};
use sluice_nat::rule::Target;
use sluice_wire::{Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};

const L3: usize = 14;

fn finish(ip: PacketBuilderStep<IpHeaders>, protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let echo = IcmpEchoHeader { id: ports.0, seq: 77 };
    match protocol {
        6 => ip
            .tcp(ports.0, ports.1, 0x1234_5678, 4000)
            .ack(9)
            .write(&mut frame, payload)
            .unwrap(),
        17 => ip.udp(ports.0, ports.1).write(&mut frame, payload).unwrap(),
        1 => ip
            .icmpv4(Icmpv4Type::EchoRequest(echo))
            .write(&mut frame, payload)
            .unwrap(),
        _ => ip
            .icmpv6(Icmpv6Type::EchoRequest(echo))
            .write(&mut frame, payload)
            .unwrap(),
    }
    frame
}

fn build4(key: &Tuple4, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let ip =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(key.source.to_be_bytes(), key.destination.to_be_bytes(), ttl);
    finish(ip, protocol, (key.source_port, key.destination_port), payload)
}

fn bytes(address: [u64; 2]) -> [u8; 16] {
    (u128::from(address[0]) << 64 | u128::from(address[1])).to_be_bytes()
}

fn build6(key: &Tuple6, protocol: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(bytes(key.source), bytes(key.destination), hops);
    finish(ip, protocol, (key.source_port, key.destination_port), payload)
}

macro_rules! reversed {
    ($tuple:ident, $of:expr) => {{
        let of = $of;
        $tuple {
            source: of.destination,
            destination: of.source,
            source_port: of.destination_port,
            destination_port: of.source_port,
            context: of.context,
        }
    }};
}

fn tuple4() -> impl Strategy<Value = Tuple4> {
    any::<(u32, u32, u16, u16)>().prop_map(|(source, destination, source_port, destination_port)| Tuple4 {
        source,
        destination,
        source_port,
        destination_port,
        context: 0,
    })
}

fn tuple6() -> impl Strategy<Value = Tuple6> {
    any::<([u64; 2], [u64; 2], u16, u16)>().prop_map(|(source, destination, source_port, destination_port)| Tuple6 {
        source,
        destination,
        source_port,
        destination_port,
        context: 0,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn rewrite4_both_ways_equals_the_packet_built_anew(
        mut forward in tuple4(), protocol in prop::sample::select(vec![1u8, 6, 17]), to in any::<(u32, u16)>(),
        lease in any::<(u32, u16)>(), source in 0u8..3, destination: bool, ttl in 2u8..,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        if protocol == 1 {
            forward.destination_port = forward.source_port;
        }
        let target = destination.then_some(Target { address: to.0, port: to.1 });
        let source = match source {
            0 => NewSource::Original,
            1 => NewSource::Static(lease.0),
            _ => NewSource::Allocated(3, Lease { address: lease.0, port: lease.1 }),
        };
        let Translation { reverse, decision } = translate(&forward, protocol, 0, target, source);
        let transport = Transport::of(protocol, false);
        let there = reversed!(Tuple4, reverse);

        let mut frame = build4(&forward, protocol, ttl, &payload);
        let rewrite = Rewrite::new(&forward, &reverse, decision, Direction::Forward);
        let before = frame.clone();
        prop_assert!(rewrite4(&mut frame, L3, L3 + 20, transport, &rewrite, 1));
        let mut short = before;
        let headers = short[L3..].split_first_chunk_mut().and_then(|(ip, rest)| Some((ip, rest.first_chunk_mut()?)));
        if let (6 | 17, Some((ip, header))) = (protocol, headers) {
            let other = FlowKey4::new(reverse, protocol).words;
            rewrite_plain4(ip, header, protocol == 17, (&other, decision, Direction::Forward));
            prop_assert_eq!(&short, &frame);
        }
        prop_assert_eq!(&build4(&there, protocol, ttl - 1, &payload), &frame);

        let mut frame = build4(&reverse, protocol, ttl, &payload);
        let rewrite = Rewrite::new(&forward, &reverse, decision, Direction::Reverse);
        let mut short = build4(&reverse, protocol, ttl, &payload);
        let headers = short[L3..].split_first_chunk_mut().and_then(|(ip, rest)| Some((ip, rest.first_chunk_mut()?)));
        if let (6 | 17, Some((ip, header))) = (protocol, headers) {
            let other = FlowKey4::new(forward, protocol).words;
            rewrite_plain4(ip, header, protocol == 17, (&other, decision, Direction::Reverse));
            prop_assert_eq!(build4(&reversed!(Tuple4, forward), protocol, ttl - 1, &payload), short);
        }
        prop_assert!(rewrite4(&mut frame, L3, L3 + 20, transport, &rewrite, 0));
        prop_assert_eq!(&build4(&reversed!(Tuple4, forward), protocol, ttl, &payload), &frame);
    }

    #[test]
    fn rewrite6_both_ways_equals_the_packet_built_anew(
        mut forward in tuple6(), protocol in prop::sample::select(vec![58u8, 6, 17]), to in any::<([u64; 2], u16)>(),
        lease in any::<([u64; 2], u16)>(), source in 0u8..3, destination: bool, hops in 2u8..,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        if protocol == 58 {
            forward.destination_port = forward.source_port;
        }
        let target = destination.then_some(Target { address: to.0, port: to.1 });
        let source = match source {
            0 => NewSource::Original,
            1 => NewSource::Static(lease.0),
            _ => NewSource::Allocated(3, Lease { address: lease.0, port: lease.1 }),
        };
        let Translation { reverse, decision } = translate(&forward, protocol, 0, target, source);
        let transport = Transport::of(protocol, false);

        let mut frame = build6(&forward, protocol, hops, &payload);
        let rewrite = Rewrite::new(&forward, &reverse, decision, Direction::Forward);
        let before = frame.clone();
        prop_assert!(rewrite6(&mut frame, L3, L3 + 40, transport, &rewrite, 1));
        let mut short = before;
        let headers = short[L3..].split_first_chunk_mut().and_then(|(ip, rest)| Some((ip, rest.first_chunk_mut()?)));
        if let (6 | 17, Some((ip, header))) = (protocol, headers) {
            let other = FlowKey6::new(reverse, protocol).words;
            rewrite_plain6(ip, header, protocol == 17, (&other, decision, Direction::Forward));
            prop_assert_eq!(&short, &frame);
        }
        prop_assert_eq!(&build6(&reversed!(Tuple6, reverse), protocol, hops - 1, &payload), &frame);

        let mut frame = build6(&reverse, protocol, hops, &payload);
        let rewrite = Rewrite::new(&forward, &reverse, decision, Direction::Reverse);
        let mut short = build6(&reverse, protocol, hops, &payload);
        let headers = short[L3..].split_first_chunk_mut().and_then(|(ip, rest)| Some((ip, rest.first_chunk_mut()?)));
        if let (6 | 17, Some((ip, header))) = (protocol, headers) {
            let other = FlowKey6::new(forward, protocol).words;
            rewrite_plain6(ip, header, protocol == 17, (&other, decision, Direction::Reverse));
            prop_assert_eq!(build6(&reversed!(Tuple6, forward), protocol, hops - 1, &payload), short);
        }
        prop_assert!(rewrite6(&mut frame, L3, L3 + 40, transport, &rewrite, 0));
        prop_assert_eq!(&build6(&reversed!(Tuple6, forward), protocol, hops, &payload), &frame);
    }

    #[test]
    fn rewrite4_any_bytes_never_panics(
        mut frame in proptest::collection::vec(any::<u8>(), 0..80), l3 in 0usize..100, l4 in 0usize..100,
        protocol: u8, forward in tuple4(), reverse in tuple4(), later: bool,
    ) {
        let decision = translate(&forward, protocol, 0, None, NewSource::Allocated(0, Lease { address: 1, port: 2 })).decision;
        let rewrite = Rewrite::new(&forward, &reverse, decision, Direction::Reverse);
        let fits = l3 + 20 <= frame.len() && l4 + 20 <= frame.len();
        let done = rewrite4(&mut frame, l3, l4, Transport::of(protocol, later), &rewrite, 1);
        prop_assert!(done || !fits);
    }
}

fn flow() -> (Tuple4, Translation<Tuple4>) {
    let forward = Tuple4 {
        source: 0x0a00_0001,
        destination: 0x0808_0808,
        source_port: 5000,
        destination_port: 53,
        context: 0,
    };
    let lease = Lease {
        address: 0xcb00_7101,
        port: 40_000,
    };
    (
        forward,
        translate(&forward, 17, 0, None, NewSource::Allocated(0, lease)),
    )
}

fn rewritten(mut frame: Vec<u8>, transport: Transport) -> Vec<u8> {
    let (forward, made) = flow();
    let rewrite = Rewrite::new(&forward, &made.reverse, made.decision, Direction::Forward);
    assert!(rewrite4(&mut frame, L3, L3 + 20, transport, &rewrite, 1));
    frame
}

#[test]
fn rewrite4_udp_without_checksum_stays_without() {
    let mut frame = build4(&flow().0, 17, 64, b"query");
    frame[L3 + 26..L3 + 28].fill(0);
    assert_eq!([0, 0], rewritten(frame, Transport::Udp)[L3 + 26..L3 + 28]);
}

#[test]
fn rewrite6_udp_without_checksum_stays_without() {
    let forward = Tuple6 {
        source: [0xfd00 << 48, 1],
        destination: [0x2001_0db8 << 32, 2],
        source_port: 5000,
        destination_port: 53,
        context: 0,
    };
    let source = NewSource::Static([0x2001_0db9 << 32, 3]);
    let made = translate(&forward, 17, 0, None, source);
    let rewrite = Rewrite::new(&forward, &made.reverse, made.decision, Direction::Forward);
    let mut frame = build6(&forward, 17, 64, b"query, longer than TCP's header");
    frame[L3 + 46..L3 + 48].fill(0);
    let mut plain = frame.clone();
    assert!(rewrite6(&mut frame, L3, L3 + 40, Transport::Udp, &rewrite, 1));
    let (ip, rest) = plain[L3..].split_first_chunk_mut().unwrap();
    let other = FlowKey6::new(made.reverse, 17).words;
    let session = (&other, made.decision, Direction::Forward);
    rewrite_plain6(ip, rest.first_chunk_mut().unwrap(), true, session);
    assert_eq!([0, 0], frame[L3 + 46..L3 + 48]);
    assert_eq!(plain, frame);
}

#[test]
fn rewrite4_udp_sum_that_becomes_zero_is_written_as_ones() {
    let (forward, made) = flow();
    let there = reversed!(Tuple4, made.reverse);
    // A payload word that makes the sum of the translated packet all ones, so that the computed checksum is 0.
    let plain = build4(&there, 17, 63, &[0, 0]);
    let word = [plain[L3 + 26], plain[L3 + 27]];
    let frame = rewritten(build4(&forward, 17, 64, &word), Transport::Udp);
    assert_eq!([0xff, 0xff], frame[L3 + 26..L3 + 28]);
    assert_eq!(build4(&there, 17, 63, &word), frame);
}

#[test]
fn rewrite4_wrong_checksums_stay_wrong_by_the_same_amount() {
    for protocol in [6, 17, 1] {
        let right = build4(&flow().0, protocol, 64, b"payload");
        let field = L3
            + 20
            + match protocol {
                6 => 16,
                17 => 6,
                _ => 2,
            };
        let mut wrong = right.clone();
        wrong[field] ^= 0x10;
        wrong[L3 + 10] ^= 0x01;
        let (right, wrong) = (
            rewritten(right, Transport::of(protocol, false)),
            rewritten(wrong, Transport::of(protocol, false)),
        );
        assert_ne!(right[field..field + 2], wrong[field..field + 2]);
        assert_ne!(right[L3 + 10..L3 + 12], wrong[L3 + 10..L3 + 12]);
    }
}

#[test]
fn rewrite4_later_fragment_keeps_its_payload() {
    let frame = build4(&flow().0, 17, 64, b"later fragment");
    let done = rewritten(frame.clone(), Transport::of(17, true));
    assert_eq!(frame[L3 + 20..], done[L3 + 20..]);
    assert_eq!(0xcb00_7101u32.to_be_bytes(), done[L3 + 12..L3 + 16]);
}

#[test]
fn rewrite4_frame_too_short_is_refused() {
    let (forward, made) = flow();
    let rewrite = Rewrite::new(&forward, &made.reverse, made.decision, Direction::Forward);
    let frame = build4(&forward, 17, 64, b"");
    for length in [0, L3 + 19, L3 + 27] {
        let mut short = frame[..length].to_vec();
        assert!(
            !rewrite4(&mut short, L3, L3 + 20, Transport::Udp, &rewrite, 1),
            "{length}"
        );
    }
}

/// A UDP-Lite packet (RFC 3828, section 3.1) with this checksum coverage. Coverage 0 means the whole packet.
fn lite(source: &[u8], destination: &[u8], ports: (u16, u16), coverage: u16, payload: &[u8]) -> Vec<u8> {
    let words = [ports.0, ports.1, coverage, 0].map(u16::to_be_bytes);
    let mut packet = [&words.concat()[..], payload].concat();
    let covered = if coverage == 0 {
        packet.len()
    } else {
        usize::from(coverage)
    };
    let length = (packet.len() as u32).to_be_bytes();
    let pseudo = [source, destination, &length, &[0, 136]].concat();
    let mut sum = 0u64;
    for part in [&pseudo[..], &packet[..covered]] {
        for word in part.chunks(2) {
            sum += u64::from(word[0]) * 256 + u64::from(*word.get(1).unwrap_or(&0));
        }
    }
    let checksum = match 0xffff - (sum % 0xffff) as u16 {
        0 => 0xffff,
        checksum => checksum,
    };
    packet[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// A frame that contains a UDP-Lite packet with this key.
fn lite4(key: &Tuple4, ttl: u8, coverage: u16, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (key.source.to_be_bytes(), key.destination.to_be_bytes());
    let packet = lite(
        &source,
        &destination,
        (key.source_port, key.destination_port),
        coverage,
        payload,
    );
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, ttl);
    builder.write(&mut frame, etherparse::IpNumber(136), &packet).unwrap();
    frame
}

fn lite6(key: &Tuple6, hops: u8, coverage: u16, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (bytes(key.source), bytes(key.destination));
    let packet = lite(
        &source,
        &destination,
        (key.source_port, key.destination_port),
        coverage,
        payload,
    );
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(source, destination, hops);
    builder.write(&mut frame, etherparse::IpNumber(136), &packet).unwrap();
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn udp_lite_rewritten_both_ways_equals_the_packet_built_anew_whatever_its_checksum_covers(
        four in tuple4(), v6 in tuple6(), leases in any::<(u32, [u64; 2], u16)>(), ttl in 2u8..,
        payload in proptest::collection::vec(any::<u8>(), 0..64), coverage in 0usize..72,
    ) {
        let coverage = if coverage < 8 { 0 } else { coverage.min(8 + payload.len()) as u16 };
        let (source, source6, port) = leases;

        let source = NewSource::Allocated(3, Lease { address: source, port });
        let Translation { reverse, decision } = translate(&four, 136, 0, None, source);
        for (direction, from, to) in [
            (Direction::Forward, four, reversed!(Tuple4, reverse)),
            (Direction::Reverse, reverse, reversed!(Tuple4, four)),
        ] {
            let mut frame = lite4(&from, ttl, coverage, &payload);
            let rewrite = Rewrite::new(&four, &reverse, decision, direction);
            prop_assert!(rewrite4(&mut frame, L3, L3 + 20, Transport::of(136, false), &rewrite, 1));
            prop_assert_eq!(lite4(&to, ttl - 1, coverage, &payload), frame);
        }

        let source = NewSource::Allocated(3, Lease { address: source6, port });
        let Translation { reverse, decision } = translate(&v6, 136, 0, None, source);
        for (direction, from, to) in [
            (Direction::Forward, v6, reversed!(Tuple6, reverse)),
            (Direction::Reverse, reverse, reversed!(Tuple6, v6)),
        ] {
            let mut frame = lite6(&from, ttl, coverage, &payload);
            let rewrite = Rewrite::new(&v6, &reverse, decision, direction);
            prop_assert!(rewrite6(&mut frame, L3, L3 + 40, Transport::of(136, false), &rewrite, 1));
            prop_assert_eq!(lite6(&to, ttl - 1, coverage, &payload), frame);
        }
    }
}
