//! Names in DNS messages and TLS hellos.

use crate::gathered::{Gathered, Message, small};
use proptest::prelude::*;
use sluice_inspect::protocols::{Anomaly, ClientHello, Dns, DnsStream, MessageEvent, ParserPools, Slot};
use sluice_inspect::signature::Buffer::{DnsQuery, Ja3Hash, TlsSni};

/// The queried names of a DNS message, and the anomalies of the message.
fn ask(message: &[u8]) -> (Vec<String>, Vec<Anomaly>) {
    let (mut store, mut dns) = (ParserPools::new(&small()), Dns::default());
    let mut heard = (Vec::new(), Vec::new());
    dns.message(&mut store, message, &mut |slot: Slot<'_>, piece| {
        hear(&mut heard, slot, piece)
    });
    dns.release(&mut store);
    assert_eq!(4, store.names.available());
    heard
}

fn hear(heard: &mut (Vec<String>, Vec<Anomaly>), slot: Slot<'_>, piece: MessageEvent) {
    match piece {
        MessageEvent::Grew { buffer, complete, .. } => {
            assert_eq!((DnsQuery, true), (buffer, complete));
            heard.0.push(slot.buffer(DnsQuery).bytes.escape_ascii().to_string());
        }
        MessageEvent::Anomaly(anomaly) => heard.1.push(anomaly),
        MessageEvent::End => {}
    }
}

fn query(questions: u16, rest: &[u8]) -> Vec<u8> {
    let header = [
        0x12,
        0x34,
        1,
        0,
        (questions >> 8) as u8,
        questions as u8,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    [&header, rest].concat()
}

#[test]
fn questions_are_named_with_dots() {
    let rest = b"\x03www\x07Example\x03org\x00\x00\x01\x00\x01\x04mail\xc0\x10\x00\x01\x00\x01\x00\x00\x02\x00\x01";
    let expected = ["www.Example.org", "mail.Example.org", ""].map(String::from);
    assert_eq!(
        (expected[..2].to_vec(), vec![]),
        ask(&query(2, &rest[..rest.len() - 5]))
    );
    // The name of the root is empty, and complete without any bytes.
    assert_eq!((expected.to_vec(), vec![]), ask(&query(3, rest)));
}

#[test]
fn bad_names_are_told() {
    let long = [&b"\x3f"[..], &[b'a'; 63]].concat().repeat(4);
    let cases: [(&[u8], Anomaly); 8] = [
        (b"\xc0\x0c\x00\x01\x00\x01", Anomaly::DnsPointer),
        (b"\xc0\x20\x00\x01\x00\x01", Anomaly::DnsPointer),
        (b"\x01a\xc0\x0c\x00\x01\x00\x01", Anomaly::DnsPointer),
        (b"\xc0\x04\x00\x01\x00\x01", Anomaly::DnsPointer),
        (b"\x41a\x00\x00\x01\x00\x01", Anomaly::DnsPointer),
        (b"\x05abc", Anomaly::BadDns),
        (b"\x01a\x00\x00\x01", Anomaly::BadDns),
        (&long, Anomaly::BadDns),
    ];
    for (rest, expected) in cases {
        assert_eq!(
            Some(&expected),
            ask(&query(1, rest)).1.last(),
            "{}",
            rest.escape_ascii()
        );
    }
    assert_eq!(vec![Anomaly::BadDns], ask(b"short").1);
}

#[test]
fn dns_stream_is_the_same_however_it_is_cut() {
    let one = query(1, b"\x01a\x03org\x00\x00\x01\x00\x01");
    let two = [query(1, b"\x01b\x03org\x00\x00\x01\x00\x01"), vec![7; 2000]].concat();
    let stream = [&one, &two, &one]
        .map(|message| [&(message.len() as u16).to_be_bytes()[..], message].concat())
        .concat();
    for step in 1..stream.len() + 1 {
        let (mut store, mut dns) = (ParserPools::new(&small()), DnsStream::default());
        let mut heard = (Vec::new(), Vec::new());
        for piece in stream.chunks(step) {
            dns.bytes(&mut store, piece, &mut |slot: Slot<'_>, piece| {
                hear(&mut heard, slot, piece)
            });
        }
        assert_eq!(
            (vec!["a.org".into(), "b.org".into(), "a.org".into()], vec![]),
            heard,
            "every {step}"
        );
    }
}

/// A handshake message with the extensions of the published JA3 example, and a server name.
fn hello(name: &[u8]) -> Vec<u8> {
    let short = |length: usize| (length as u16).to_be_bytes();
    let mut extensions = Vec::new();
    extensions.extend(
        [
            &[0, 0][..],
            &short(name.len() + 5),
            &short(name.len() + 3),
            &[0],
            &short(name.len()),
            name,
        ]
        .concat(),
    );
    extensions.extend([0, 10, 0, 8, 0, 6, 0, 23, 0, 24, 0, 25, 0, 11, 0, 2, 1, 0]);
    let ciphers = [47u16, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
    let mut body = vec![3, 1];
    body.extend([7; 32]);
    body.extend([4, 1, 2, 3, 4]);
    body.extend(short(ciphers.len() * 2));
    body.extend(ciphers.iter().flat_map(|cipher| cipher.to_be_bytes()));
    body.extend([1, 0]);
    body.extend(short(extensions.len()));
    body.extend(extensions);
    [&[1, 0][..], &short(body.len()), &body].concat()
}

fn records(handshake: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    handshake.chunks(size).flat_map(record).collect()
}

fn listen(stream: &[u8], step: usize) -> Message {
    let (mut store, mut tls, mut gathered) = (ParserPools::new(&small()), ClientHello::default(), Gathered::default());
    for piece in stream.chunks(step) {
        tls.bytes(&mut store, piece, &mut |slot: Slot<'_>, piece| {
            gathered.hear(slot, piece)
        });
    }
    assert_eq!(
        gathered.messages.first().is_some_and(|message| message.ended),
        tls.is_done()
    );
    tls.release(&mut store);
    assert_eq!(4, store.names.available());
    gathered.messages.into_iter().next().unwrap_or_default()
}

#[test]
fn hello_in_records_of_any_size_has_its_name_and_published_fingerprint() {
    let handshake = hello(b"www.example.org");
    for size in [1, 2, 5, 50, 10000] {
        let stream = [records(&handshake, size), vec![23; 40]].concat();
        for step in [1, 3, 64, 100000] {
            let message = listen(&stream, step);
            assert_eq!(
                "www.example.org",
                message.text(TlsSni),
                "records of {size} every {step}"
            );
            assert_eq!("ada70206e40642a3e4461f35503241d5", message.text(Ja3Hash));
            assert!(message.ended && message.anomalies.is_empty());
        }
    }
}

#[test]
fn hello_that_contradicts_itself_is_told() {
    let handshake = hello(b"a.example");
    for at in [0, 1, 3, 38, 44, 71, 72, 75, 80, 81, 93, 95] {
        let mut wrong = handshake.clone();
        wrong[at] ^= 0x41;
        let message = listen(&records(&wrong, 10000), 10);
        assert!(
            message.anomalies == [Anomaly::BadHello] || !message.ended,
            "byte {at}: {message:?}"
        );
    }
    let long = listen(&records(&hello(&[b'n'; 300]), 100), 7);
    assert_eq!(
        (vec![Anomaly::TooLong], 32),
        (long.anomalies.clone(), long.buffers[&TlsSni].len())
    );
}

proptest! {
    #[test]
    fn hello_mutated_and_cut_is_bounded_and_the_same(
        changes in prop::collection::vec((0..140usize, any::<u8>()), 0..4),
        size in 1..200usize,
        step in 1..200usize,
    ) {
        let mut stream = records(&hello(b"www.example.org"), size);
        for (at, byte) in changes {
            let at = at % stream.len();
            stream[at] = byte;
        }
        prop_assert_eq!(listen(&stream, stream.len()), listen(&stream, step));
    }

    #[test]
    fn dns_message_of_random_bytes_ends(rest in prop::collection::vec(prop_oneof![Just(0xc0u8), 0..40u8, any::<u8>()], 0..300)) {
        let (names, _) = ask(&query(16, &rest));
        prop_assert!(names.len() <= 16 && names.iter().all(|name| name.len() <= 4 * 255));
    }
}
