//! Tests of translated ICMP errors. An independent library builds the expected ICMP errors from the untranslated
//! packet.

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, PacketBuilder};
use proptest::prelude::*;
use sluice_nat::decision::{NewSource, Translation, translate};
use sluice_nat::icmp::{quoted_flow4, quoted_flow6, translate_error4, translate_error6};
use sluice_nat::ports::Lease;
use sluice_nat::rewrite::Rewrite;
use sluice_nat::rule::Target;
use sluice_nat::{Decision, Reason};
use sluice_wire::layers::parse;
use sluice_wire::{Direction, Tuple4, Tuple6};

const L3: usize = 14;

fn bytes(address: [u64; 2]) -> [u8; 16] {
    (u128::from(address[0]) << 64 | u128::from(address[1])).to_be_bytes()
}

/// Difference between destination port and identifier in the key of an ICMPv4 echo request.
const ASKED4: u16 = 8;
const ASKED6: u16 = 128;

/// The IP datagram of a packet, without its Ethernet header.
fn datagram4(key: &Tuple4, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let ip = PacketBuilder::ipv4(key.source.to_be_bytes(), key.destination.to_be_bytes(), 9);
    let mut datagram = Vec::new();
    match protocol {
        6 => ip
            .tcp(key.source_port, key.destination_port, 0x1234_5678, 4000)
            .write(&mut datagram, payload),
        17 => ip
            .udp(key.source_port, key.destination_port)
            .write(&mut datagram, payload),
        _ => {
            // Requests and replies differ in the order of the ports.
            let is_reply = key.source_port.wrapping_sub(key.destination_port) == ASKED4;
            let seq = 3;
            let echo = match is_reply {
                true => Icmpv4Type::EchoReply(IcmpEchoHeader {
                    id: key.destination_port,
                    seq,
                }),
                false => Icmpv4Type::EchoRequest(IcmpEchoHeader {
                    id: key.source_port,
                    seq,
                }),
            };
            ip.icmpv4(echo).write(&mut datagram, payload)
        }
    }
    .unwrap();
    datagram
}

fn datagram6(key: &Tuple6, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let ip = PacketBuilder::ipv6(bytes(key.source), bytes(key.destination), 9);
    let mut datagram = Vec::new();
    match protocol {
        6 => ip
            .tcp(key.source_port, key.destination_port, 0x1234_5678, 4000)
            .write(&mut datagram, payload),
        17 => ip
            .udp(key.source_port, key.destination_port)
            .write(&mut datagram, payload),
        _ => {
            // Requests and replies differ in the order of the ports.
            let is_reply = key.source_port.wrapping_sub(key.destination_port) == ASKED6;
            let seq = 3;
            let echo = match is_reply {
                true => Icmpv6Type::EchoReply(IcmpEchoHeader {
                    id: key.destination_port,
                    seq,
                }),
                false => Icmpv6Type::EchoRequest(IcmpEchoHeader {
                    id: key.source_port,
                    seq,
                }),
            };
            ip.icmpv6(echo).write(&mut datagram, payload)
        }
    }
    .unwrap();
    datagram
}

fn error4(source: u32, destination: u32, ttl: u8, quote: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(source.to_be_bytes(), destination.to_be_bytes(), ttl)
        .icmpv4(Icmpv4Type::DestinationUnreachable(
            DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 },
        ))
        .write(&mut frame, quote)
        .unwrap();
    frame
}

fn error6(source: [u64; 2], destination: [u64; 2], ttl: u8, quote: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6(bytes(source), bytes(destination), ttl)
        .icmpv6(Icmpv6Type::PacketTooBig { mtu: 1280 })
        .write(&mut frame, quote)
        .unwrap();
    frame
}

fn reversed4(key: &Tuple4) -> Tuple4 {
    Tuple4 {
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        context: key.context,
    }
}

fn reversed6(key: &Tuple6) -> Tuple6 {
    Tuple6 {
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        context: key.context,
    }
}

/// Truncates a quote to `quoted` bytes after the header. A TCP checksum is kept or removed as a whole, because one byte
/// of a checksum can't be updated.
fn cut(mut datagram: Vec<u8>, header: usize, quoted: usize) -> Vec<u8> {
    datagram.truncate(header + if quoted == 17 { 16 } else { quoted });
    datagram
}

fn translated4(
    mut frame: Vec<u8>,
    forward: &Tuple4,
    made: &Translation<Tuple4>,
    direction: Direction,
) -> Result<Vec<u8>, Reason> {
    let layers = parse(&frame).unwrap();
    let (quote, key) = quoted_flow4(&frame, &layers, 0)?;
    let expected = if direction == Direction::Forward {
        forward
    } else {
        &made.reverse
    };
    assert_eq!(*expected, key.tuple());
    let rewrite = Rewrite::new(forward, &made.reverse, made.decision, direction);
    translate_error4(&mut frame, &layers, &quote, &rewrite, 1)?;
    Ok(frame)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn rfc5508_req4_req5_error4_equals_the_error_about_the_other_sides_packet(
        ends in any::<(u32, u32, u16, u16)>(), protocol in prop::sample::select(vec![1u8, 6, 17]),
        to in any::<(u32, u16)>(), lease in any::<(u32, u16)>(), which in 1u8..4, router: u32, at_end: bool,
        backward: bool, payload in proptest::collection::vec(any::<u8>(), 0..60), quoted in 8usize..90,
    ) {
        let destination_port = if protocol == 1 { ends.2.wrapping_add(ASKED4) } else { ends.3 };
        let forward = Tuple4 {
            source: ends.0, destination: ends.1, source_port: ends.2, destination_port, context: 0,
        };
        let target = (which & 1 != 0).then_some(Target { address: to.0, port: to.1 });
        let lease = NewSource::Allocated(0, Lease { address: lease.0, port: lease.1 });
        let lease = if which & 2 != 0 { lease } else { NewSource::Original };
        let made = translate(&forward, protocol, 0, target, lease);
        // A packet of one direction after translation (at the router's next hop) and before translation (at its
        // sender).
        let (seen, sent, direction) = if backward {
            (reversed4(&forward), made.reverse, Direction::Forward)
        } else {
            (reversed4(&made.reverse), forward, Direction::Reverse)
        };
        let origin = if at_end { seen.destination } else { router };
        let shown = if sent.destination == seen.destination { origin } else { sent.destination };
        let quote = |key: &Tuple4| cut(datagram4(key, protocol, &payload), 20, quoted);
        let frame = error4(origin, seen.source, 64, &quote(&seen));
        let expected = error4(shown, sent.source, 63, &quote(&sent));
        prop_assert_eq!(Ok(expected), translated4(frame, &forward, &made, direction));
    }

    #[test]
    fn error6_equals_the_error_about_the_other_sides_packet(
        ends in any::<([u64; 2], [u64; 2], u16, u16)>(), protocol in prop::sample::select(vec![58u8, 6, 17]),
        to in any::<([u64; 2], u16)>(), lease in any::<([u64; 2], u16)>(), which in 1u8..4, router: [u64; 2],
        at_end: bool, backward: bool, payload in proptest::collection::vec(any::<u8>(), 0..60), quoted in 8usize..90,
    ) {
        let destination_port = if protocol == 58 { ends.2.wrapping_add(ASKED6) } else { ends.3 };
        let forward = Tuple6 {
            source: ends.0, destination: ends.1, source_port: ends.2, destination_port, context: 0,
        };
        let target = (which & 1 != 0).then_some(Target { address: to.0, port: to.1 });
        let lease = NewSource::Allocated(0, Lease { address: lease.0, port: lease.1 });
        let lease = if which & 2 != 0 { lease } else { NewSource::Original };
        let made = translate(&forward, protocol, 0, target, lease);
        let (seen, sent, direction) = if backward {
            (reversed6(&forward), made.reverse, Direction::Forward)
        } else {
            (reversed6(&made.reverse), forward, Direction::Reverse)
        };
        let origin = if at_end { seen.destination } else { router };
        let shown = if sent.destination == seen.destination { origin } else { sent.destination };
        let quote = |key: &Tuple6| cut(datagram6(key, protocol, &payload), 40, quoted);
        let mut frame = error6(origin, seen.source, 64, &quote(&seen));
        let layers = parse(&frame).unwrap();
        let (found, key) = quoted_flow6(&frame, &layers, 0).unwrap();
        prop_assert_eq!(if backward { forward } else { made.reverse }, key.tuple());
        let rewrite = Rewrite::new(&forward, &made.reverse, made.decision, direction);
        prop_assert_eq!(Ok(()), translate_error6(&mut frame, &layers, &found, &rewrite, 1));
        prop_assert_eq!(error6(shown, sent.source, 63, &quote(&sent)), frame);
    }

    #[test]
    fn error4_damaged_anywhere_never_panics(
        damage in proptest::collection::vec((0usize..100, any::<u8>()), 1..4), length in 0usize..100,
    ) {
        let (forward, made) = flow(17);
        let mut frame = error4(0x0808_0404, 0xcb00_7101, 64, &datagram4(&reversed4(&made.reverse), 17, &[7; 30]));
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(length.max(14));
        if let Ok(layers) = parse(&frame)
            && let Ok((quote, _)) = quoted_flow4(&frame, &layers, 0)
        {
            let rewrite = Rewrite::new(&forward, &made.reverse, made.decision, Direction::Reverse);
            let _ = translate_error4(&mut frame, &layers, &quote, &rewrite, 1);
        }
    }
}

fn flow(protocol: u8) -> (Tuple4, Translation<Tuple4>) {
    let forward = Tuple4 {
        source: 0x0a00_0001,
        destination: 0x0808_0808,
        source_port: 5000,
        destination_port: 53,
        context: 0,
    };
    (
        forward,
        translate(
            &forward,
            protocol,
            0,
            None,
            NewSource::Allocated(
                0,
                Lease {
                    address: 0xcb00_7101,
                    port: 40_000,
                },
            ),
        ),
    )
}

#[test]
fn rfc5508_req3a_quote_with_a_wrong_header_checksum_is_refused() {
    let (forward, made) = flow(17);
    let mut quote = datagram4(&reversed4(&made.reverse), 17, b"query");
    quote[10] ^= 1;
    let frame = error4(0x0808_0404, 0xcb00_7101, 64, &quote);
    assert_eq!(
        Err(Reason::BadIcmpQuote),
        translated4(frame, &forward, &made, Direction::Reverse)
    );
}

#[test]
fn rfc5508_req3b_quote_with_options_is_translated() {
    let (forward, made) = flow(17);
    let with_options = |key: &Tuple4| {
        let plain = datagram4(key, 17, b"query");
        let mut header = etherparse::Ipv4Header::from_slice(&plain).unwrap().0;
        header.options = [1, 1, 1, 0].into();
        header.total_len += 4;
        header.header_checksum = header.calc_header_checksum();
        let mut datagram = header.to_bytes().to_vec();
        datagram.extend_from_slice(&plain[20..]);
        datagram
    };
    let frame = error4(0x0808_0404, 0xcb00_7101, 64, &with_options(&reversed4(&made.reverse)));
    let expected = error4(0x0808_0404, 0x0a00_0001, 63, &with_options(&forward));
    assert_eq!(Ok(expected), translated4(frame, &forward, &made, Direction::Reverse));
}

#[test]
fn error4_quoted_udp_without_checksum_stays_without() {
    let (forward, made) = flow(17);
    let without = |key: &Tuple4| {
        let mut quote = datagram4(key, 17, b"query");
        quote[26..28].fill(0);
        quote
    };
    let frame = error4(0x0808_0404, 0xcb00_7101, 64, &without(&reversed4(&made.reverse)));
    let expected = error4(0x0808_0404, 0x0a00_0001, 63, &without(&forward));
    assert_eq!(Ok(expected), translated4(frame, &forward, &made, Direction::Reverse));
}

#[test]
fn error4_to_another_than_the_quoted_sender_is_refused() {
    let (forward, made) = flow(6);
    let frame = error4(
        0x0808_0404,
        0xcb00_7102,
        64,
        &datagram4(&reversed4(&made.reverse), 6, b""),
    );
    assert_eq!(
        Err(Reason::BadIcmpQuote),
        translated4(frame, &forward, &made, Direction::Reverse)
    );
}

#[test]
fn error4_wrong_checksum_stays_wrong() {
    let (forward, made) = flow(6);
    let mut frame = error4(
        0x0808_0404,
        0xcb00_7101,
        64,
        &datagram4(&reversed4(&made.reverse), 6, b""),
    );
    let right = translated4(frame.clone(), &forward, &made, Direction::Reverse).unwrap();
    frame[L3 + 22] ^= 0x40;
    let wrong = translated4(frame, &forward, &made, Direction::Reverse).unwrap();
    assert_ne!(right[L3 + 22..L3 + 24], wrong[L3 + 22..L3 + 24]);
    assert_eq!(right[L3 + 24..], wrong[L3 + 24..]);
}

#[test]
fn error4_of_an_untranslated_session_changes_hops_alone() {
    let forward = flow(6).0;
    let made = Translation {
        reverse: reversed4(&forward),
        decision: Decision::NONE,
    };
    let quote = datagram4(&forward, 6, b"data");
    let frame = error4(0x0808_0404, forward.source, 64, &quote);
    let expected = error4(0x0808_0404, forward.source, 63, &quote);
    assert_eq!(Ok(expected), translated4(frame, &forward, &made, Direction::Reverse));
}
