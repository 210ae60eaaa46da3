//! Tests that only a TLS connection is bypassed, once client and server send only encrypted data.

use crate::flows;
use crate::lab::{Connection, Lab};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::{Reason, Skipped, Verdict};

const LEFT: Verdict = Verdict::Leave(Some(Skipped::Encrypted));

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[kind, 3, 3, high, low], content].concat()
}

fn lab(bypass: bool) -> Lab {
    let rules = r#"
        drop tcp any any -> any any (msg:"d"; content:"evil"; sid:1;)
        alert tls any any -> any any (msg:"a"; tls.sni; content:"example"; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    lab.settings.leave_encrypted = bypass;
    lab
}

/// Verdicts on three segments after these hellos: from the client, from the server, and from the client again.
fn verdicts(lab: &mut Lab, hello: &[u8], answer: &[u8], data: &[u8]) -> [Verdict; 3] {
    let mut connection = Connection::open(lab, 443);
    assert_eq!(Verdict::Pass, connection.client(0, hello));
    assert_eq!(Verdict::Pass, connection.server(0, answer));
    [
        connection.client(hello.len(), data),
        connection.server(answer.len(), data),
        connection.client(hello.len() + data.len(), data),
    ]
}

#[test]
fn connection_leaves_with_the_packet_that_makes_both_sides_encrypted() {
    let hello = flows::wire::hello(b"www.example");
    let answer = [record(22, &[2; 90]), record(20, &[1])].concat();
    let data = record(23, &[7; 200]);
    let mut all = lab(true);
    assert_eq!([Verdict::Pass, LEFT], verdicts(&mut all, &hello, &answer, &data)[..2]);
    assert_eq!(vec![2], all.fired);
    // A rule drops the packet even if it is the last inspected packet.
    let evil = record(23, b"evil");
    assert_eq!(
        Verdict::Drop(Reason::Signature),
        verdicts(&mut lab(true), &hello, &answer, &evil)[0]
    );
    let passes = verdicts(&mut lab(false), &hello, &answer, &data);
    assert_eq!([Verdict::Pass; 3], passes);
}

#[test]
fn side_that_speaks_no_tls_keeps_the_connection_inspected() {
    let hello = flows::wire::hello(b"www.example");
    let data = record(23, &[7; 200]);
    // The first server speaks a different protocol; the second server sends other data after its records.
    let broken = [record(22, &[2; 90]), b"HTTP/1.1 200 OK".to_vec()].concat();
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &broken] {
        let verdicts = verdicts(&mut lab(true), &hello, answer, &data);
        assert_eq!([Verdict::Pass; 3], verdicts);
    }
    // This client never sends encrypted data.
    let answer = [record(22, &[2; 90]), data.clone()].concat();
    let plain = verdicts(&mut lab(true), &hello, &answer, b"\x16\x03\x01\x00\x02ab");
    assert_eq!([Verdict::Pass; 3], plain);
}
