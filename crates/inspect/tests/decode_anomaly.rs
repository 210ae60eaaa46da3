//! Tests that a message ends its flow if hosts interpret the message differently and the policy is to drop such flows.

use crate::lab::{Connection, Lab};
use sluice_inspect::inspector::Verdict;
use sluice_inspect::reason::{Reason, Skipped};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::stream::{Exception, Policy};
use sluice_wire::Direction;

const RULE: &str = r#"drop http any any -> any any (msg:"m"; http.uri; content:"/evil"; sid:1;)"#;
const DROPPED: Verdict = Verdict::Drop(Reason::DecodeAnomaly);

/// Verdicts on a request and its response under a policy.
fn verdicts(policy: Option<Policy>, passive: bool, request: &str, answer: &str) -> [Verdict; 2] {
    let mut lab = Lab::new(Suricata, RULE);
    lab.settings.passive = passive;
    if let Some(policy) = policy {
        lab.settings.policies = lab.settings.policies.with(Exception::DecodeAnomaly, policy);
    }
    let mut connection = Connection::open(&mut lab, 80);
    let first = connection.client(0, request.as_bytes());
    [first, connection.server(0, answer.as_bytes())]
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const SMUGGLED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";

#[test]
fn flow_with_a_message_that_hosts_read_differently_goes_as_its_policy_says() {
    for (policy, passive, expected) in [
        (None, false, Verdict::Pass),
        (Some(Policy::Pass), false, Verdict::Pass),
        (Some(Policy::DropFlow), false, DROPPED),
        (Some(Policy::DropPacket), false, DROPPED),
        (Some(Policy::DropFlow), true, Verdict::Pass),
        (
            Some(Policy::Bypass),
            false,
            Verdict::Leave(Some(Skipped::DecodeAnomaly)),
        ),
    ] {
        let became = verdicts(policy, passive, GET, SMUGGLED);
        assert_eq!([Verdict::Pass, expected], became, "{policy:?} passive {passive}");
    }
}

#[test]
fn what_all_read_alike_passes_under_every_policy() {
    for (request, answer) in [
        (GET, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
        (
            GET,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        ),
        (
            GET,
            "HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 2\r\n\r\nok",
        ),
        (
            "GET /100%25%20%2520%zz HTTP/1.1\r\n\r\n",
            "HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n\r\n",
        ),
        ("SSH-2.0-client\r\n", "SSH-2.0-server\r\n"),
    ] {
        let became = verdicts(Some(Policy::DropFlow), false, request, answer);
        assert_eq!([Verdict::Pass; 2], became, "{request:?} {answer:?}");
    }
}

#[test]
fn rule_that_matches_with_the_same_packet_comes_first() {
    let request = "GET /evil HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n";
    let became = verdicts(Some(Policy::DropFlow), false, request, "");
    assert_eq!(Verdict::Drop(Reason::Signature), became[0]);
    let request = "GET /good HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n";
    let became = verdicts(Some(Policy::DropFlow), false, request, "x");
    assert_eq!([DROPPED, Verdict::Drop(Reason::FlowDropped)], became);
}

#[test]
fn end_of_a_connection_within_encoded_data_counts_as_one() {
    let mut lab = Lab::new(Suricata, RULE);
    lab.settings.policies = lab.settings.policies.with(Exception::DecodeAnomaly, Policy::DropFlow);
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, GET.as_bytes());
    let answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\x03\xcbH";
    assert_eq!(Verdict::Pass, connection.server(0, answer));
    assert_eq!(DROPPED, connection.finish(Direction::Reverse, answer.len()));
}
