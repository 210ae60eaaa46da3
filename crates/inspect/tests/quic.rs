//! Tests the hello in the first flight of QUIC, with any distribution over packets, and rules for the hello.

use crate::captured;
use std::collections::{BTreeMap, HashMap};

use crate::flows::play::{Message, Wire, play};
use crate::flows::wire::hello;
use crate::lab::Lab;
use aes_gcm::aead::AeadInPlace;
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;
use sluice_inspect::protocols::{Anomaly, MessageEvent, ParserCapacity, ParserPools, Quic, Slot};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signature::Toward::Server;
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_wire::Direction;

const SALT: &[u8] = b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const ID: &[u8] = b"\x83\x94\xc8\xf0\x3e\x51\x57\x08";

fn expand<const N: usize>(secret: &Hkdf<Sha256>, label: &str) -> [u8; N] {
    let mut key = [0; N];
    let info = [
        &(N as u16).to_be_bytes()[..],
        &[label.len() as u8 + 6],
        b"tls13 ",
        label.as_bytes(),
        &[0],
    ]
    .concat();
    secret.expand(&info, &mut key).unwrap();
    key
}

/// Frames in an Initial packet of a client (version 1), padded to a full datagram.
fn datagram(number: u8, frames: &[u8]) -> Vec<u8> {
    let client: [u8; 32] = expand(&Hkdf::new(Some(SALT), ID), "client in");
    let secret = Hkdf::from_prk(&client).unwrap();
    let mut content = frames.to_vec();
    content.resize(1165, 0);
    let length = (content.len() + 1 + 16) as u16 | 0x4000;
    let mut packet = [
        &[0xc0, 0, 0, 0, 1, ID.len() as u8][..],
        ID,
        &[0, 0],
        &length.to_be_bytes(),
        &[number],
    ]
    .concat();
    let place = packet.len() - 1;
    let mut nonce: [u8; 12] = expand(&secret, "quic iv");
    nonce[11] ^= number;
    let tag = Aes128Gcm::new(&expand::<16>(&secret, "quic key").into())
        .encrypt_in_place_detached(&Nonce::from(nonce), &packet, &mut content)
        .unwrap();
    packet.extend(content);
    packet.extend(tag);
    let mut mask = <[u8; 16]>::try_from(&packet[place + 4..place + 20]).unwrap().into();
    Aes128::new(&expand::<16>(&secret, "quic hp").into()).encrypt_block(&mut mask);
    packet[0] ^= mask[0] & 0x0f;
    packet[place] ^= mask[1];
    assert_eq!(1200, packet.len());
    packet
}

fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    let number = |value: usize| (value as u16 | 0x4000).to_be_bytes();
    [&[6][..], &number(offset), &number(data.len()), data].concat()
}

fn new_store() -> ParserPools {
    ParserPools::new(&ParserCapacity {
        messages: 1,
        names: 16,
        inflaters: 1,
        ..ParserCapacity::default()
    })
}

/// Complete buffers, and anomalies.
fn told(datagrams: &[Vec<u8>]) -> (BTreeMap<Buffer, String>, Vec<Anomaly>) {
    let (mut store, mut quic) = (new_store(), Quic::default());
    let (mut buffers, mut anomalies) = (BTreeMap::new(), Vec::new());
    for bytes in datagrams {
        quic.datagram(&mut store, bytes, &mut |slot: Slot<'_>, piece| match piece {
            MessageEvent::Grew {
                buffer, complete: true, ..
            } => _ = buffers.insert(buffer, slot.buffer(buffer).bytes.escape_ascii().to_string()),
            MessageEvent::Anomaly(anomaly) => anomalies.push(anomaly),
            _ => {}
        });
    }
    quic.release(&mut store);
    assert_eq!((16, 1), (store.names.available(), store.hellos.available()));
    (buffers, anomalies)
}

#[test]
fn hello_is_parsed_in_whatever_order_its_parts_come() {
    // The handshake message, without its record header.
    let hello = &hello(b"example.org")[5..];
    let (whole, anomalies) = told(&[datagram(0, &crypto(0, hello))]);
    assert_eq!("example.org", whole[&Buffer::TlsSni]);
    assert!(whole[&Buffer::Ja4Hash].starts_with("q12d0101"), "{whole:?}");
    assert_eq!(32, whole[&Buffer::Ja3Hash].len());
    assert_eq!(Vec::<Anomaly>::new(), anomalies);
    for cut in 1..hello.len() {
        let parts = [crypto(cut, &hello[cut..]), vec![1], crypto(0, &hello[..cut])];
        assert_eq!(whole, told(&[datagram(0, &parts.concat())]).0, "cut at {cut}");
        let parts = [crypto(cut, &hello[cut..]), crypto(0, &hello[..cut])];
        let datagrams = [datagram(0, &parts[0]), datagram(1, b"\x01"), datagram(2, &parts[1])];
        assert_eq!(whole, told(&datagrams).0, "in two datagrams, cut at {cut}");
    }
}

#[test]
fn packets_that_can_not_be_read_are_counted() {
    let hello = &hello(b"example.org")[5..];
    let mut changed = datagram(0, &crypto(0, hello));
    changed[600] ^= 1;
    assert_eq!((BTreeMap::new(), vec![Anomaly::BadInitial]), told(&[changed.clone()]));
    // A valid packet follows the changed packet.
    let (buffers, _) = told(&[changed.clone(), datagram(1, &crypto(0, hello))]);
    assert_eq!("example.org", buffers[&Buffer::TlsSni]);
    // Only eight datagrams are decrypted, so the later valid datagram is ignored.
    let mut many = vec![changed; 8];
    many.push(datagram(1, &crypto(0, hello)));
    let (buffers, anomalies) = told(&many);
    assert_eq!((0, 8), (buffers.len(), anomalies.len()));
    let far = told(&[datagram(0, &crypto(4_090, b"0123456789"))]);
    assert_eq!(vec![Anomaly::LongFlight], far.1);
}

#[test]
fn rules_about_quic_fire() {
    let rules = r#"alert quic any any -> any any (msg:"m"; quic.sni; content:"example.org"; bsize:11; sid:1;)
        alert quic any any -> any any (msg:"m"; ja4.hash; content:"q12d0101"; startswith; sid:2;)
        alert udp any any -> any any (msg:"m"; tls.sni; content:"example"; sid:3;)
        alert quic any any -> any any (msg:"m"; quic.sni; content:"example.com"; sid:4;)
        alert tls any any -> any any (msg:"m"; tls.sni; content:"example"; sid:5;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut wire = Wire {
        ports: [40_000, 4_433],
        ..Wire::default()
    };
    wire.ip.protocol = 17;
    let hello = &hello(b"example.org")[5..];
    let messages = [crypto(40, &hello[40..]), crypto(0, &hello[..40])]
        .iter()
        .map(|frames| Message {
            toward: Server,
            bytes: datagram(0, frames),
        })
        .collect::<Vec<_>>();
    play(&mut lab, &wire, &messages);
    lab.fired.sort_unstable();
    assert_eq!(vec![1, 2, 3], lab.fired);
}

#[test]
fn real_hellos_have_the_names_and_fingerprints_of_their_listings() {
    for path in captured::captures() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("quic_") && !name.starts_with("doq") {
            continue;
        }
        let listing = std::fs::read_to_string(path.with_added_extension("out")).unwrap();
        let (mut store, mut flows) = (new_store(), HashMap::<captured::Key, Quic>::new());
        let mut found = Vec::new();
        for packet in captured::packets(&path) {
            let layers = etherparse::SlicedPacket::from_ip(&packet.bytes);
            if let Ok(Some(etherparse::TransportSlice::Udp(udp))) = layers.as_ref().map(|layers| &layers.transport)
                && packet.direction == Direction::Forward
            {
                let quic = flows.entry(packet.key.clone()).or_default();
                quic.datagram(&mut store, udp.payload(), &mut |slot: Slot<'_>, piece| {
                    if let MessageEvent::Grew {
                        buffer: buffer @ (Buffer::TlsSni | Buffer::Ja4Hash),
                        complete: true,
                        ..
                    } = piece
                    {
                        found.push((buffer, String::from_utf8_lossy(slot.buffer(buffer).bytes).into_owned()));
                    }
                });
            }
        }
        println!("{name}: {found:?}");
        // nDPI formats the part before the hashes differently.
        let hashes = |ja4: &str| ja4.split_once('_').unwrap_or_default().1.to_owned();
        for (buffer, value) in &found {
            match buffer {
                Buffer::Ja4Hash => assert!(listing.contains(&hashes(value)), "{name}: {value}"),
                _ => assert!(listing.contains(value.as_str()), "{name}: {value}"),
            }
        }
        assert!(!found.is_empty() || !listing.contains("[JA4: q"), "{name}");
    }
}
