//! Tests the clear-text messages of a TLS server for any segmentation, and rules for these messages.

use crate::flows::play::{Message, Wire, play};
use crate::flows::wire::hello;
use crate::lab::Lab;
use sluice_inspect::protocols::{Anomaly, MessageEvent, ParserCapacity, ParserPools, Slot, TlsServer};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signature::Toward::{Client, Server};
use sluice_inspect::signatures::Dialect::Suricata;

/// A DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    match length {
        0..0x80 => [&[tag, length as u8], content].concat(),
        _ => [&[tag, 0x82, (length >> 8) as u8, length as u8], content].concat(),
    }
}

fn name(value: &str) -> Vec<u8> {
    let attribute = [der(6, b"\x55\x04\x03"), der(12, value.as_bytes())].concat();
    der(0x30, &der(0x31, &der(0x30, &attribute)))
}

/// Creates a certificate with a key of this length in bytes.
fn certificate(key: usize) -> Vec<u8> {
    let fields = [
        der(0xa0, &[2, 1, 2]),
        der(2, &[0x5c, 0x19, 0xb7]),
        der(0x30, &[]),
        name("An Issuer"),
        der(0x30, &[]),
        name("example.org"),
        der(0x30, &vec![7; key]),
    ]
    .concat();
    der(0x30, &[der(0x30, &fields), der(0x30, &[]), der(3, &[0; 64])].concat())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

/// A ServerHello with a selected protocol. If a version is given, the hello contains it in the extension for versions.
fn server_hello(version: Option<u16>) -> Vec<u8> {
    let mut extensions = vec![0xff, 0x01, 0, 1, 0, 0, 16, 0, 5, 0, 3, 2, b'h', b'2'];
    if let Some(version) = version {
        extensions.extend([0, 43, 0, 2]);
        extensions.extend(version.to_be_bytes());
    }
    let mut body = [&[3, 3][..], &[9; 32], &[0, 0xc0, 0x2f, 0]].concat();
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    message(2, &body)
}

fn certificates(certificate: &[u8]) -> Vec<u8> {
    let one = [&(certificate.len() as u32).to_be_bytes()[1..], certificate].concat();
    // The parser ignores further certificates.
    let chain = [&one[..], &[0, 0, 3, 1, 2, 3]].concat();
    message(11, &[&(chain.len() as u32).to_be_bytes()[1..], &chain].concat())
}

/// Handshake messages in records of this length.
fn records(messages: &[u8], bytes: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 3][..], &(part.len() as u16).to_be_bytes(), part].concat();
    messages.chunks(bytes).flat_map(record).collect()
}

/// Complete buffers, in order, and anomalies.
fn told(stream: &[u8], step: usize) -> (Vec<(Buffer, String)>, Vec<Anomaly>) {
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 1,
        names: 4,
        inflaters: 1,
        ..ParserCapacity::default()
    });
    let (mut server, mut buffers, mut anomalies) = (TlsServer::default(), Vec::new(), Vec::new());
    for part in stream.chunks(step) {
        server.bytes(&mut store, part, &mut |slot: Slot<'_>, piece| match piece {
            MessageEvent::Grew {
                buffer, complete: true, ..
            } => {
                let bytes = slot.buffer(buffer).bytes.escape_ascii().to_string();
                if !bytes.is_empty() {
                    buffers.push((buffer, bytes));
                }
            }
            MessageEvent::Anomaly(anomaly) => anomalies.push(anomaly),
            _ => {}
        });
    }
    server.release(&mut store);
    assert_eq!(1, store.servers.available());
    buffers.sort_unstable();
    (buffers, anomalies)
}

#[test]
fn hello_and_certificate_are_read_however_they_are_cut() {
    let flight = [server_hello(None), certificates(&certificate(300)), message(14, b"")].concat();
    let (whole, anomalies) = told(&records(&flight, 1 << 14), usize::MAX);
    let expected: &[(Buffer, &str)] = &[
        (Buffer::TlsCertSubject, "CN=example.org"),
        (Buffer::TlsCertIssuer, "CN=An Issuer"),
        (Buffer::TlsCertSerial, "5C:19:B7"),
        (Buffer::TlsVersion, "\\x03\\x03"),
        (Buffer::TlsAlpn, "h2"),
    ];
    for (buffer, value) in expected {
        assert!(
            whole.contains(&(*buffer, (*value).to_owned())),
            "{buffer:?} in {whole:?}"
        );
    }
    assert_eq!((7, Vec::new()), (whole.len(), anomalies));
    for record in [1, 2, 3, 50, 1 << 14] {
        let stream = records(&flight, record);
        for step in (1..20).chain([100, 1460]) {
            assert_eq!(
                (whole.clone(), Vec::new()),
                told(&stream, step),
                "records of {record}, segments of {step}"
            );
        }
    }
}

#[test]
fn certificate_longer_than_what_is_kept_is_read_and_its_fingerprint_is_of_all() {
    let (short, _) = told(
        &records(
            &[server_hello(None), certificates(&certificate(60_000))].concat(),
            1 << 14,
        ),
        1460,
    );
    let mut other = certificate(60_000);
    *other.last_mut().unwrap() ^= 1;
    let (changed, _) = told(
        &records(&[server_hello(None), certificates(&other)].concat(), 1 << 14),
        1460,
    );
    assert_eq!(7, short.len());
    let fingerprint = |told: &[(Buffer, String)]| {
        let found = told.iter().find(|(buffer, _)| *buffer == Buffer::TlsCertFingerprint);
        found.unwrap().1.clone()
    };
    assert_ne!(fingerprint(&short), fingerprint(&changed));
    assert_eq!(59, fingerprint(&short).len());
}

#[test]
fn in_tls_1_3_there_is_no_certificate_to_be_read() {
    let (told, anomalies) = told(
        &records(
            &[server_hello(Some(0x0304)), certificates(&certificate(10))].concat(),
            1 << 14,
        ),
        7,
    );
    let buffers: Vec<Buffer> = told.iter().map(|(buffer, _)| *buffer).collect();
    assert_eq!(vec![Buffer::Ja3sHash, Buffer::TlsVersion, Buffer::TlsAlpn], buffers);
    assert_eq!("\\x03\\x04", told[1].1);
    assert_eq!(Vec::<Anomaly>::new(), anomalies);
}

#[test]
fn any_bytes_are_read_without_harm() {
    let flight = records(&[server_hello(None), certificates(&certificate(80))].concat(), 100);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut stream = flight.clone();
        for change in 0..1 + state % 4 {
            let at = (state >> (8 * change)) as usize % stream.len();
            stream[at] = (state >> (13 * change)) as u8;
        }
        assert_eq!(told(&stream, usize::MAX), told(&stream, 1 + state as usize % 50));
    }
}

#[test]
fn rules_about_servers_fire() {
    let flight = records(&[server_hello(None), certificates(&certificate(80))].concat(), 1 << 14);
    let fingerprint = {
        let (told, _) = told(&flight, usize::MAX);
        told.into_iter()
            .find(|(buffer, _)| *buffer == Buffer::TlsCertFingerprint)
            .unwrap()
            .1
    };
    let options = [
        r#"tls.cert_subject; content:"CN=example.org"; endswith;"#.to_owned(),
        r#"tls_cert_issuer; content:"An Issuer";"#.to_owned(),
        r#"tls.cert_serial; content:"5C:19:B7"; bsize:8;"#.to_owned(),
        format!(r#"tls.cert_fingerprint; content:"{fingerprint}";"#),
        r#"flow:to_client; tls.alpn; content:"h2"; bsize:2;"#.to_owned(),
        "flow:to_client; tls.version:1.2;".to_owned(),
        // The following rules must not match.
        r#"tls.cert_subject; content:"CN=example.com";"#.to_owned(),
        "flow:to_client; tls.version:1.3;".to_owned(),
        r#"tls.cert_serial; content:"5C:19:B8";"#.to_owned(),
    ];
    let rules: String = (1..)
        .zip(&options)
        .map(|(sid, options)| format!("alert tls any any -> any any (msg:\"m\"; {options} sid:{sid};)\n"))
        .collect();
    for step in [1, 7, 2000] {
        let mut lab = Lab::new(Suricata, &rules);
        let mut messages = vec![Message {
            toward: Server,
            bytes: hello(b"example.org"),
        }];
        messages.extend(flight.chunks(step).map(|part| Message {
            toward: Client,
            bytes: part.to_vec(),
        }));
        play(&mut lab, &Wire::default(), &messages);
        lab.fired.sort_unstable();
        assert_eq!(vec![1, 2, 3, 4, 5, 6], lab.fired, "segments of {step}");
    }
}
