//! Tests each pool of inspection after one source has filled it. The configured policy takes effect, the counter is
//! incremented, and other sources are not affected.

use std::net::IpAddr;

use crate::lab::{Connection, Lab, rules};
use sluice_inspect::inspector::{InspectorCapacity, Verdict};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::reason::{Limit, Reason};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::stream::{self, Exception, Policy};

/// A drop rule, and more rules that become pending than a flow can store inline.
fn text() -> String {
    let mut text = String::from("drop tcp any any -> any any (msg:\"m\"; content:\"evil\"; sid:1;)\n");
    for number in 2..60 {
        text += &format!(
            "alert tcp any any -> any any (msg:\"m\"; content:\"started\"; fast_pattern; content:\"z{number:03}\"; distance:0; sid:{number};)\n"
        );
    }
    text
}

/// Sends data that makes a connection allocate an entry and keep it. Returns the verdict on the last packet of the
/// connection.
type Feed = fn(&mut Connection<'_>) -> Verdict;

fn request(connection: &mut Connection<'_>) -> Verdict {
    connection.client(0, b"GET / HTTP/1.1\r\nHost: a\r\n")
}

fn question(connection: &mut Connection<'_>) -> Verdict {
    const HEADER: &[u8] = b"\0\x1e\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
    // A complete message, and the start of another message.
    let whole = [HEADER, b"\x04good\x07example\0\0\x01\0\x01"].concat();
    connection.client(0, &[&whole, HEADER, b"\x04exa"].concat())
}

fn server_hello(connection: &mut Connection<'_>) -> Verdict {
    connection.server(0, b"\x16\x03\x03\0\x7a\x02\0\0\x76\x03\x03abcdefgh")
}

fn brotli(connection: &mut Connection<'_>) -> Verdict {
    connection.client(0, b"GET / HTTP/1.1\r\n\r\n");
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1000\r\n\r\n";
    // A Brotli window of 16 MiB, four uncompressed bytes, and the start of another block.
    connection.server(0, &[&head[..], b"\x0f\x03\x00\x10data\x00"].concat())
}

fn encoded(connection: &mut Connection<'_>) -> Verdict {
    let asked = b"GET / HTTP/1.1\r\n\r\n";
    connection.client(0, asked);
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n";
    connection.server(0, &[&head[..], b"\x1f\x8b\x08\0\0\0\0\0\0\x03"].concat())
}

fn mail(connection: &mut Connection<'_>) -> Verdict {
    let greeting = connection.server(0, b"220 mail.example ESMTP\r\n");
    match greeting {
        Verdict::Pass => connection.client(0, b"EHLO a.example\r\n"),
        refused => refused,
    }
}

fn http2(connection: &mut Connection<'_>) -> Verdict {
    connection.client(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
}

fn ahead(connection: &mut Connection<'_>) -> Verdict {
    connection.client(5_000, b"ahead of a gap")
}

fn waiting(connection: &mut Connection<'_>) -> Verdict {
    connection.client(0, b"it has started")
}

fn nothing(connection: &mut Connection<'_>) -> Verdict {
    connection.last
}

/// Capacity for this number of flows, with small capacities of all other pools.
fn plan(flows: u32) -> InspectorCapacity {
    let streams = stream::StreamCapacity {
        reassembly: 64 << 11,
        share: 32 << 11,
        ..stream::StreamCapacity::of(flows as usize)
    };
    let protocols = ParserCapacity {
        messages: 256,
        names: 64,
        inflaters: 16,
        ..ParserCapacity::default()
    };
    InspectorCapacity {
        flows,
        streams,
        protocols,
    }
}

/// Each row contains a pool, the number of flows for which the pool has space, data that fills the pool, and the
/// exception that the full pool raises.
const POOLS: [(&str, u32, Feed, Exception); 10] = [
    ("flows", 16, nothing, Exception::SourceFull),
    ("blocks of streams", 400, ahead, Exception::SourceFull),
    ("lists of rules that wait", 400, waiting, Exception::PendingRulesFull),
    ("HTTP messages", 400, request, Exception::ParserFull),
    ("DNS messages", 400, question, Exception::ParserFull),
    ("TLS servers", 400, server_hello, Exception::ParserFull),
    ("decoders", 400, encoded, Exception::ParserFull),
    ("decoders of brotli", 400, brotli, Exception::ParserFull),
    ("connections of mail", 400, mail, Exception::ParserFull),
    ("connections of HTTP/2", 400, http2, Exception::ParserFull),
];

/// Returns the number of a client's connections that got an entry, and the verdict on the first connection without an
/// entry.
fn fill(lab: &mut Lab, client: IpAddr, most: u16, feed: Feed) -> (usize, Option<Verdict>) {
    for number in 0..most {
        let mut connection = Connection::of(lab, client, [1024 + number, 443]);
        let said = match connection.last {
            Verdict::Pass => feed(&mut connection),
            refused => refused,
        };
        if said != Verdict::Pass {
            return (number.into(), Some(said));
        }
    }
    (most.into(), None)
}

#[test]
fn pool_that_one_source_fills_has_room_for_another_and_its_policy_acts() {
    let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    for (pool, flows, feed, exception) in POOLS {
        let mut lab = Lab::sized(rules(Suricata, &text()), plan(flows));
        let (took, refused) = fill(&mut lab, one, 300, feed);
        assert_eq!(Some(Verdict::Drop(Reason::from(exception))), refused, "{pool}");
        assert!(took > 2, "{pool}: {took}");
        assert!(lab.inspector.streams().counters().count_of(exception) > 0, "{pool}");
        assert_eq!((1, None), fill(&mut lab, other, 1, feed), "{pool}");
        // The exception is counted even if its policy forwards packets.
        let mut lab = Lab::sized(rules(Suricata, &text()), plan(flows));
        lab.settings.policies = lab.settings.policies.with(exception, Policy::Bypass);
        let (_, bypassed) = fill(&mut lab, one, 300, feed);
        assert!(
            matches!(bypassed, Some(Verdict::Leave(Some(_)))),
            "{pool}: {bypassed:?}"
        );
        assert!(lab.inspector.streams().counters().count_of(exception) > 0, "{pool}");
    }
}

#[test]
fn clients_that_answer_nothing_take_no_place_from_those_that_do() {
    let mut lab = Lab::sized(rules(Suricata, &text()), plan(16));
    let mut connection = Connection::of(&mut lab, [10, 0, 0, 1].into(), [1024, 443]);
    assert_eq!(Verdict::Pass, connection.client(0, b"ev"));
    let handle = connection.handle;
    for _ in 0..1_000 {
        assert!(lab.inspector.create_flow(true).is_some());
    }
    assert!(lab.inspector.contains(handle));
    assert_eq!(1_000 - 15, lab.inspector.limits.count(Limit::FlowsEvicted as usize));
}
