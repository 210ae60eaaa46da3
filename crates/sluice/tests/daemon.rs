//! Tests commands that use the daemon, with a fake daemon that returns fixed answers.

use crate::serving;
use std::path::PathBuf;

use axum::extract::Query;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use sluice_command::arguments::Arguments;
use sluice_command::exit::CommandError;
use sluice_config::api::{
    AppliedRules, ApplyAnswer, ApplyRequest, CaptureRequest, Cleared, Drop, Endpoint, Failure, Flow, HostState,
    Initiator, Mapping, MappingFilter, Nat, NatRequest, Page, Pool, PoolBlocks, PortBlock, Position, RefusedSignature,
    Rule, RuleAction, RuleHost, RuleKind, Session, SessionFilter, Share, Span, Subscriber, SubscriberFilter, TableUse,
    TraceRecord, TraceRequest, TraceStep, operation,
};
use sluice_config::value::Protocol;
use sluice_config::{Change, Finding, Kind};

fn session(port: u16) -> Session {
    let flow = |source: &str, source_port, destination: &str, destination_port, packets| Flow {
        source: source.parse().unwrap(),
        source_port,
        destination: destination.parse().unwrap(),
        destination_port,
        packets,
        bytes: packets * 100,
    };
    Session {
        router: "default".into(),
        protocol: Protocol(6),
        forward: flow("10.0.0.2", port, "192.0.2.1", 443, 7),
        reverse: flow("192.0.2.1", 443, "198.51.100.1", port + 1_000, 5),
        initiator: Initiator::Inside,
        state: "established".into(),
        answered: true,
        expires: 7_439,
        inside_interface: Some("inside".into()),
        outside_interface: Some("outside".into()),
        site: (port == 5_002).then(|| "homes-100.7".into()),
        pool: Some("public".into()),
        application: (port == 5_001).then(|| "TLS.Google".into()),
        mark: if port == 5_001 { 0x10 } else { 0 },
        shard: 3,
    }
}

/// Returns five sessions, two per page.
async fn sessions(Query(filter): Query<SessionFilter>, Query(position): Query<Position>) -> Json<Page<Session>> {
    let from: u16 = position.cursor.map_or(0, |cursor| cursor.parse().unwrap());
    let items = (from..(from + 2).min(5))
        .map(|k| session(5_000 + k))
        .filter(|session| filter.matches(session));
    Json(Page {
        items: items.collect(),
        next: (from + 2 < 5).then(|| (from + 2).to_string()),
    })
}

async fn clear(Json(filter): Json<SessionFilter>) -> Json<Cleared> {
    Json(Cleared {
        count: (0..5).filter(|k| filter.matches(&session(5_000 + k))).count() as u64,
    })
}

async fn drops() -> Json<Page<Drop>> {
    let drop = |name: &str, packets| Drop {
        name: name.into(),
        help: format!("what {name} means"),
        packets,
    };
    Json(Page::whole(vec![drop("unsolicited", 12_345), drop("martian", 0)]))
}

async fn trace(Json(request): Json<TraceRequest>) -> String {
    let step = |node: &str, verdict: &str| TraceStep {
        node: node.into(),
        verdict: verdict.into(),
    };
    let record = TraceRecord {
        time: 1_500_000_000,
        worker: 0,
        interface: request.interface.unwrap_or_default(),
        packet: "10.0.0.2 > 192.0.2.1 icmp 84 bytes".into(),
        steps: vec![step("parse", "session"), step("session", "drop: no-port")],
    };
    (0..request.count)
        .map(|_| serde_json::to_string(&record).unwrap() + "\n")
        .collect()
}

async fn apply(Json(request): Json<ApplyRequest>) -> Json<ApplyAnswer> {
    let change = |key: &str, fixed: Option<&str>| Change {
        key: key.into(),
        kind: Kind::Changed,
        fixed: fixed.map(str::to_owned),
    };
    Json(match request.text.as_str() {
        "good" => ApplyAnswer::Committed {
            generation: 2,
            changes: vec![change("routes", None)],
            advice: Vec::new(),
            rules: Some(AppliedRules {
                said: "9 of 10 signatures are active".into(),
                refused: vec![RefusedSignature {
                    file: "lab.rules".into(),
                    line: 7,
                    signature: Some(5),
                    why: "dce_iface: not here".into(),
                }],
            }),
        },
        "fixed" => ApplyAnswer::NeedsRestart {
            changes: vec![change("system.shards", Some("they are fixed"))],
        },
        _ => ApplyAnswer::Refused {
            findings: vec![Finding {
                line: 3,
                column: 1,
                text: "x".into(),
                message: "wrong".into(),
                hint: Some("write it right".into()),
                advice: false,
            }],
        },
    })
}

/// Shares may be requested only if an address is specified.
async fn shares(Query(filter): Query<MappingFilter>) -> Json<Page<Share>> {
    assert!(filter.inside.is_some() || filter.outside.is_some());
    let span = Span {
        address: "198.51.100.1".parse().unwrap(),
        first: 5056,
        last: 9087,
        step: 1,
    };
    Json(Page::whole(vec![Share {
        pool: "dealt".into(),
        inside: "10.0.0.2".parse().unwrap(),
        ports: 4032,
        spans: vec![span],
    }]))
}

async fn mappings(Query(filter): Query<MappingFilter>) -> Json<Page<Mapping>> {
    let protocol = Protocol(17);
    let mapping = Mapping {
        protocol,
        inside: Endpoint {
            address: "10.0.0.2".parse().unwrap(),
            port: 5000,
        },
        outside: Endpoint {
            address: "198.51.100.1".parse().unwrap(),
            port: 6001,
        },
        pool: "public".into(),
        sessions: 3,
        shard: 1,
    };
    let found = [mapping]
        .into_iter()
        .filter(|_| filter.protocol.is_none_or(|wanted| wanted == protocol));
    Json(Page::whole(found.collect()))
}

async fn blocks(Query(filter): Query<MappingFilter>) -> Json<Page<PortBlock>> {
    let span = Span {
        address: "198.51.100.1".parse().unwrap(),
        first: 6000,
        last: 6063,
        step: 1,
    };
    let block = PortBlock {
        pool: "public".into(),
        subscriber: "10.0.0.2".parse().unwrap(),
        span,
        used: [0u64, 1, 0].into(),
        shard: 1,
    };
    Json(Page::whole(if filter.protocol.is_none() {
        vec![block]
    } else {
        Vec::new()
    }))
}

fn subscriber(last: u8) -> Subscriber {
    Subscriber {
        address: [10, 0, 0, last].into(),
        paired: [198, 51, 100, 1].into(),
        pool: "public".into(),
        sessions: 1200,
        ports: [1000u64, 20, 3].into(),
        blocks: 2,
        shard: 1,
    }
}

async fn overview(Query(request): Query<NatRequest>) -> Json<Nat> {
    Json(Nat {
        pools: vec![Pool {
            name: "public".into(),
            addresses: 4,
            ports: 258_048,
            used: [1000u64, 20, 3].into(),
            subscribers: 1,
            sessions: 1200,
            blocks: Some(PoolBlocks {
                size: 512,
                count: 504,
                used: 2,
                fragmentation: 0.0234,
            }),
        }],
        subscribers: (1..=request.top as u8).map(subscriber).collect(),
        tables: vec![TableUse {
            name: "mappings".into(),
            used: 250,
            capacity: 1000,
        }],
        quarantine_overflows: 0,
        borrowed_blocks: 0,
        hosts: vec![
            rule_host(5, 3, HostState::Up),
            rule_host(6, 1, HostState::Down),
            rule_host(7, 1, HostState::Unchecked),
        ],
        rules: (0..request.rules.min(2)).map(rule).collect(),
        rules_in_all: 5_002,
    })
}

fn rule_host(last: u8, weight: u16, state: HostState) -> RuleHost {
    RuleHost {
        hosts: 1,
        address: [10, 0, 0, last].into(),
        weight,
        state,
        flows: 1_000 * u64::from(weight),
    }
}

fn rule(number: u32) -> Rule {
    let source = Rule {
        kind: RuleKind::Source,
        network: "10.0.0.0/8".into(),
        protocol: None,
        ports: None,
        incoming: None,
        local: true,
        out: Some("outside".into()),
        action: RuleAction::Pool,
        to: Some("public".into()),
        flows: 1_234,
    };
    match number {
        0 => Rule {
            kind: RuleKind::Destination,
            network: "192.0.2.0/24".into(),
            protocol: Some(Protocol(17)),
            ports: Some("5060-5061".into()),
            incoming: Some("outside".into()),
            local: false,
            out: None,
            action: RuleAction::Hosts,
            to: Some("1:5070".into()),
            flows: 0,
        },
        _ => source,
    }
}

/// A fake daemon on a private socket. The fake daemon lives as long as the directory.
fn daemon() -> (tempfile::TempDir, PathBuf) {
    let router = Router::new()
        .route(operation::Sessions::PATH, get(sessions))
        .route(operation::ClearSessions::PATH, post(clear))
        .route(operation::Drops::PATH, get(drops))
        .route(operation::Nat::PATH, get(overview))
        .route(operation::Shares::PATH, get(shares))
        .route(operation::Mappings::PATH, get(mappings))
        .route(operation::PortBlocks::PATH, get(blocks))
        .route(
            operation::ClearMappings::PATH,
            post(async |Json(filter): Json<MappingFilter>| {
                let count = if filter.pool.as_deref() == Some("public") { 3 } else { 0 };
                Json(Cleared { count })
            }),
        )
        .route(
            operation::Subscribers::PATH,
            get(async |Query(filter): Query<SubscriberFilter>| {
                assert_eq!(Some("public".to_owned()), filter.pool);
                Json(Page::whole((1..=9).map(subscriber).collect()))
            }),
        )
        .route(operation::Trace::PATH, post(trace))
        .route(
            operation::Capture::PATH,
            post(async |Json(request): Json<CaptureRequest>| format!("{} packets", request.count)),
        )
        .route(operation::Apply::PATH, post(apply))
        .route(
            operation::Routes::PATH,
            get(async || {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    Json(Failure {
                        message: "ending".into(),
                    }),
                )
            }),
        );
    serving::serve(router)
}

fn sluice(words: &[&str]) -> (Result<(), CommandError>, String) {
    let (_folder, socket) = daemon();
    let words = [&["sluice", "--socket", socket.to_str().unwrap()], words].concat();
    let mut output = Vec::new();
    let done = sluice_command::execute(&Arguments::parse_from(words), &mut output);
    (done, String::from_utf8(output).unwrap())
}

#[test]
fn sessions_of_several_pages_are_one_table() {
    let (done, text) = sluice(&["show", "sessions"]);
    done.unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(6, lines.len());
    assert!(lines[0].starts_with("PROTOCOL  INSIDE"));
    let cells: Vec<_> = lines[1].split_whitespace().collect();
    let expected = [
        "tcp",
        "10.0.0.2:5000",
        "198.51.100.1:6000",
        "192.0.2.1:443",
        "established",
        "7439",
        "s",
        "7",
        "5",
        "-",
        "-",
        "-",
    ];
    assert_eq!(expected.to_vec(), cells);
    let last: Vec<_> = lines[2].split_whitespace().rev().take(2).collect();
    assert_eq!(["0x10", "TLS.Google"], *last);
    assert!(lines[3].contains("homes-100.7"), "{text}");
}

#[test]
fn sessions_as_json_are_one_document() {
    let (done, text) = sluice(&["show", "sessions", "--json", "--limit", "3"]);
    done.unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = document["sessions"].as_array().unwrap();
    assert_eq!(3, rows.len());
    assert_eq!(5_002, rows[2]["forward"]["source-port"]);
    assert_eq!("tcp", rows[0]["protocol"]);
}

#[test]
fn sessions_as_conntrack_writes_them_are_lines() {
    let (done, text) = sluice(&["show", "sessions", "--conntrack", "--port", "6004"]);
    done.unwrap();
    let expected = "tcp      6 7439 ESTABLISHED src=10.0.0.2 dst=192.0.2.1 sport=5004 dport=443 packets=7 bytes=700 \
                    src=192.0.2.1 dst=198.51.100.1 sport=443 dport=6004 packets=5 bytes=500 [ASSURED] mark=0 use=1\n";
    assert_eq!(expected, text);
}

#[test]
fn sessions_filtered_are_those_that_match_all() {
    for (filter, expected) in [
        (&["--inside", "10.0.0.2:5001"][..], 1),
        (&["--inside", "10.0.0.0/8"], 5),
        (&["--outside", "198.51.100.1"], 5),
        (&["--inside", "198.51.100.1"], 0),
        (&["--remote", ":443", "--port", "5003"], 1),
        (&["--protocol", "udp"], 0),
        (&["--subscriber", "10.0.0.2", "--pool", "public"], 5),
        (&["--subscriber", "10.0.0.3"], 0),
        (&["--pool", "other"], 0),
        (&["--site", "homes-100.7"], 1),
        (&["--interface", "outside", "--address", "192.0.2.0/24"], 5),
    ] {
        let (done, text) = sluice(&[&["clear", "sessions"], filter].concat());
        done.unwrap();
        assert_eq!(format!("{expected} sessions removed\n"), text, "{filter:?}");
    }
}

#[test]
fn mapping_of_a_host_is_its_share_its_blocks_and_its_mappings() {
    let (done, text) = sluice(&["show", "mapping", "--inside", "10.0.0.2"]);
    done.unwrap();
    let expected = "\
POOL   INSIDE    PORTS  OUTSIDE
dealt  10.0.0.2  4,032  198.51.100.1:5056-9087

POOL    SUBSCRIBER  BLOCK                   TCP  UDP  ICMP
public  10.0.0.2    198.51.100.1:6000-6063    0    1     0

POOL    PROTOCOL  INSIDE         OUTSIDE            SESSIONS
public  udp       10.0.0.2:5000  198.51.100.1:6001         3
";
    assert_eq!(expected, text);
    let (_, text) = sluice(&["show", "mapping", "--protocol", "udp"]);
    assert_eq!(2, text.lines().count(), "{text}");
    let (_, text) = sluice(&["show", "mapping", "--protocol", "tcp"]);
    assert_eq!("nothing matches\n", text);
}

#[test]
fn mapping_as_json_is_one_document_of_three_lists() {
    let (_, text) = sluice(&["show", "mapping", "--outside", "198.51.100.1:6001", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(5056, document["shares"][0]["spans"][0]["first"]);
    assert_eq!(1, document["blocks"][0]["used"]["udp"]);
    assert_eq!(6001, document["mappings"][0]["outside"]["port"]);
    let (_, text) = sluice(&["show", "mapping", "--protocol", "tcp", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({ "shares": [], "blocks": [], "mappings": [] });
    assert_eq!(expected, document);
}

#[test]
fn nat_shows_pools_tables_and_who_uses_most() {
    let (done, text) = sluice(&["show", "nat", "--top", "1"]);
    done.unwrap();
    let expected = "\
POOL    ADDRESSES    PORTS    TCP  UDP  ICMP    BLOCKS  FRAGMENTED  SUBSCRIBERS  SESSIONS
public          4  258,048  1,000   20     3  2 of 504         2 %            1     1,200

TABLE     USED  CAPACITY  FULL
mappings   250     1,000  25 %

SUBSCRIBER  POOL    PAIRED          TCP  UDP  ICMP  BLOCKS  SESSIONS
10.0.0.1    public  198.51.100.1  1,000   20     3       2     1,200

RULE         NETWORK       PROTOCOL  PORTS      IN       OUT      ACTION           FLOWS
destination  192.0.2.0/24  udp       5060-5061  outside  any      to hosts 1:5070      0
source       10.0.0.0/8    any       any        local    outside  pool public      1,234
and 5,000 more rules: see --rules

HOSTS  ADDRESS   WEIGHT  STATE      FLOWS
1      10.0.0.5       3  up         3,000
1      10.0.0.6       1  down       1,000
1      10.0.0.7       1  unchecked  1,000
";
    assert_eq!(expected, text);
    let (_, text) = sluice(&["show", "nat", "--json"]);
    let nat: Nat = serde_json::from_str(&text).unwrap();
    assert_eq!(10, nat.subscribers.len());
}

#[test]
fn subscribers_are_listed_up_to_a_limit() {
    let (done, text) = sluice(&["show", "subscribers", "--pool", "public", "--limit", "4"]);
    done.unwrap();
    assert_eq!(5, text.lines().count());
}

#[test]
fn mappings_cleared_say_how_many_sessions_went_with_them() {
    let (done, text) = sluice(&["clear", "mappings", "--pool", "public"]);
    done.unwrap();
    assert_eq!("3 sessions with their mappings removed\n", text);
    let (done, _) = sluice(&["clear", "mappings"]);
    assert_eq!(2, done.unwrap_err().status());
}

#[test]
fn drops_without_packets_are_left_out_unless_all_are_asked_for() {
    let (_, text) = sluice(&["show", "drops"]);
    assert_eq!(
        " PACKETS  REASON       MEANING\n 12,345  unsolicited  what unsolicited means\n".len() - 1,
        text.len()
    );
    assert!(!text.contains("martian"));
    let (_, text) = sluice(&["show", "drops", "--all"]);
    assert!(text.contains("martian"));
}

#[test]
fn trace_printed_names_nodes_and_verdicts() {
    let (done, text) = sluice(&["trace", "--interface", "inside", "--count", "1"]);
    done.unwrap();
    let expected = "1.500000 worker 0 from inside: 10.0.0.2 > 192.0.2.1 icmp 84 bytes\n  parse    session\n  session  drop: no-port\n";
    assert_eq!(expected, text);
    let (_, text) = sluice(&["trace", "--count", "2", "--json"]);
    assert_eq!(
        2,
        text.lines()
            .filter(|line| serde_json::from_str::<TraceRecord>(line).is_ok())
            .count()
    );
}

#[test]
fn capture_is_written_to_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcapng");
    let (done, text) = sluice(&[
        "capture",
        "--dropped",
        "--count",
        "6",
        "--write",
        path.to_str().unwrap(),
    ]);
    done.unwrap();
    assert_eq!("", text);
    assert_eq!("6 packets", std::fs::read_to_string(path).unwrap());
}

#[test]
fn apply_answers_by_status() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    for (text, status, says) in [
        ("good", 0, "commit 2 is active"),
        ("fixed", 4, "system.shards changed: they are fixed"),
        ("bad", 3, ":3:1: wrong"),
    ] {
        std::fs::write(&path, text).unwrap();
        let (done, output) = sluice(&["apply", path.to_str().unwrap()]);
        let error = done.err();
        assert_eq!(status, error.as_ref().map_or(0, CommandError::status));
        let all = output + &error.map(|error| error.render(80, false)).unwrap_or_default();
        assert!(all.contains(says), "{all}");
    }
}

#[test]
fn refusal_of_the_daemon_is_its_message() {
    let (done, _) = sluice(&["show", "routes"]);
    let error = done.unwrap_err();
    assert_eq!(
        (1, "sluice: ending\n".to_owned()),
        (error.status(), error.render(80, false))
    );
}
