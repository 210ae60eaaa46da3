//! Tests that the protocol within a tunnel is identified separately, and that rules inspect the requests and hellos
//! inside the tunnel.

use crate::lab::{Connection, Lab};
use sluice_inspect::inspector::Verdict;
use sluice_inspect::reason::Reason;
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_wire::Direction::{self, Forward, Reverse};

const RULES: &str = r#"
    drop http any any -> any any (msg:"m"; http.uri; content:"/evil"; sid:1;)
    drop tls any any -> any any (msg:"m"; tls.sni; content:"evil.example"; sid:2;)
    drop http any any -> any any (msg:"m"; flow:to_client; file.data; content:"virus"; sid:3;)"#;
const CONNECT: &[u8] = b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n";
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: other\r\n\r\n";
const ACCEPTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const CHANGED: &[u8] = b"HTTP/1.1 101 Changed\r\nUpgrade: other\r\n\r\n";
const EVIL: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

/// A TLS hello with a server name.
fn hello(name: &[u8]) -> Vec<u8> {
    let length = |count: usize| (count as u16).to_be_bytes();
    let server = [&[0][..], &length(name.len()), name].concat();
    let names = [&length(server.len())[..], &server].concat();
    let extension = [&[0, 0][..], &length(names.len()), &names].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &length(extension.len()),
        &extension,
    ]
    .concat();
    let handshake = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(handshake.len()), &handshake].concat()
}

/// Data of one direction.
type Part<'p> = (Direction, &'p [u8]);

/// Plays a conversation in segments of `step` bytes, and returns the rules that matched.
fn fired(parts: &[Part<'_>], step: usize) -> Vec<u32> {
    let mut lab = Lab::new(Suricata, RULES);
    let mut connection = Connection::open(&mut lab, 3128);
    let mut places = [0; 2];
    for (direction, bytes) in parts {
        for piece in bytes.chunks(step) {
            let verdict = connection.send_at(*direction, places[*direction as usize], piece);
            places[*direction as usize] += piece.len();
            if verdict == Verdict::Drop(Reason::Signature) {
                return std::mem::take(&mut connection.lab.fired);
            }
        }
    }
    let handle = connection.handle;
    lab.inspector.remove_flow(handle);
    lab.fired
}

#[test]
fn what_is_within_a_tunnel_is_found() {
    let (evil, clean) = (hello(b"evil.example"), hello(b"good.example"));
    let virus = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nvirus";
    let refused = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n";
    let good = b"GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    let cases: [(&[Part<'_>], u32); 13] = [
        (&[(Forward, CONNECT), (Reverse, ACCEPTED), (Forward, EVIL)], 1),
        (&[(Forward, CONNECT), (Reverse, ACCEPTED), (Forward, &evil)], 2),
        (&[(Forward, CONNECT), (Reverse, ACCEPTED), (Forward, &clean)], 0),
        (
            &[
                (Forward, CONNECT),
                (Reverse, ACCEPTED),
                (Forward, good),
                (Reverse, virus),
            ],
            3,
        ),
        (&[(Forward, CONNECT), (Forward, EVIL)], 1),
        (&[(Forward, CONNECT), (Reverse, refused), (Forward, EVIL)], 1),
        (
            &[
                (Forward, CONNECT),
                (Forward, good),
                (Reverse, ACCEPTED),
                (Reverse, virus),
            ],
            3,
        ),
        (
            &[
                (Forward, CONNECT),
                (Forward, good),
                (Reverse, refused),
                (Reverse, virus),
            ],
            3,
        ),
        // A tunnel within a tunnel.
        (
            &[
                (Forward, CONNECT),
                (Reverse, ACCEPTED),
                (Forward, CONNECT),
                (Reverse, ACCEPTED),
                (Forward, EVIL),
            ],
            1,
        ),
        (&[(Forward, UPGRADE), (Reverse, CHANGED), (Forward, EVIL)], 1),
        (&[(Forward, UPGRADE), (Reverse, CHANGED), (Forward, &evil)], 2),
        (
            &[(Forward, UPGRADE), (Reverse, CHANGED), (Reverse, b"\x81\x05hello")],
            0,
        ),
        // The client did not request an upgrade.
        (&[(Forward, good), (Reverse, CHANGED), (Reverse, b"virus")], 3),
    ];
    for (number, (parts, expected)) in cases.into_iter().enumerate() {
        let expected = if expected == 0 { vec![] } else { vec![expected] };
        for step in [1, 7, 1460] {
            assert_eq!(expected, fired(parts, step), "case {number}, every {step}");
        }
    }
}

#[test]
fn request_behind_connect_in_its_segment_is_found() {
    assert_eq!(vec![1], fired(&[(Forward, &[CONNECT, EVIL].concat())], 1460));
}

#[test]
fn what_the_server_says_behind_its_answer_in_one_segment_is_recognised() {
    let page = [ACCEPTED, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nvirus"].concat();
    assert_eq!(vec![3], fired(&[(Forward, CONNECT), (Reverse, &page)], 1460));
}
