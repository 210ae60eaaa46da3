use std::sync::LazyLock;
use std::time::SystemTime;

use serde_json::{Value, json};
use sluice_engine::session::records::{EndReason, Ended, FlowState, RecordSubject};
use sluice_inspect::Reason;
use sluice_inspect::applications::{ApplicationNames, ProtocolPair};
use sluice_inspect::inspector::RuleNumber;
use sluice_inspect::ruleset::OrderedRules;
use sluice_inspect::signature::{Action, Service, Toward};
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::transactions::{Part, Transaction};

use super::*;

const RULE: &str =
    r#"drop tcp any any -> any 80 (msg:"evil"; content:"evil"; classtype:trojan-activity; sid:7; rev:2;)"#;

const RULE_NUMBER: RuleNumber = RuleNumber {
    generation: 3,
    number: 0,
};

fn rules() -> KnownRules {
    let (variables, classes) = (Variables::default(), Classes::default());
    let ordered = OrderedRules::new(read(RULE.as_bytes(), Dialect::Suricata, &variables, &classes).signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    let mut known = KnownRules::default();
    known.learn(3, &ordered.with_prefilter(prefilter));
    known
}

fn application_names() -> &'static ApplicationNames {
    static NAMES: LazyLock<ApplicationNames> = LazyLock::new(|| ApplicationNames::installed().unwrap());
    &NAMES
}

fn scene(interfaces: &[String]) -> Scene<'_> {
    Scene {
        interfaces,
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        applications: Some(application_names()),
    }
}

fn about(service: Option<Service>) -> RecordSubject {
    RecordSubject {
        at: 1_500_000_000,
        flow: 3,
        addresses: [[192, 0, 2, 1].into(), [198, 51, 100, 7].into()],
        ports: [40_000, 80],
        protocol: 6,
        to_server: true,
        interface: 1,
        service,
    }
}

/// Parse the JSON of a record, and remove the flow number, which is the same in all records of a flow.
fn read_back(said: RecordKind, service: Option<Service>) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.json");
    let written = schema::Eve::default();
    let eve = Eve::start(EveTarget::File(path.clone()), &written).unwrap();
    let about = about(service);
    let names = ["outside", "inside"].map(String::from);
    eve.record(&scene(&names), &rules(), &Record { about, said });
    drop(eve);
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.strip_suffix('\n').unwrap();
    assert!(!line.chars().any(sluice_config::text::is_hidden), "{line:?}");
    let mut line: Value = serde_json::from_str(&text).unwrap();
    let flow = line.as_object_mut().unwrap().remove("flow_id").unwrap();
    assert!(flow.as_u64().is_some_and(|flow| flow > 0 && flow < 1 << 53));
    check_fields(&line);
    line
}

/// Checks that the fields of a record are those that are declared for its type, and those of every record.
fn check_fields(line: &Value) {
    const COMMON: [&str; 10] = [
        "timestamp",
        "event_type",
        "flow_id",
        "in_iface",
        "src_ip",
        "src_port",
        "dest_ip",
        "dest_port",
        "proto",
        "app_proto",
    ];
    let kind: EveType = serde_json::from_value(line["event_type"].clone()).unwrap();
    assert_eq!(line["event_type"], kind.name());
    let mut open = vec![(String::new(), line)];
    while let Some((path, value)) = open.pop() {
        let declared = kind.fields().iter().any(|field| field.path == path) || COMMON.contains(&path.as_str());
        match value.as_object() {
            Some(members) => open.extend(members.iter().map(|(name, value)| match path.as_str() {
                "" => (name.clone(), value),
                path => (format!("{path}.{name}"), value),
            })),
            None => assert!(declared, "{path} is not declared for {kind:?}"),
        }
    }
}

/// The fields of every record, merged with `said`.
fn expected(kind: &str, said: Value) -> Value {
    let mut line = json!({
        "timestamp": "2023-11-14T22:13:21.500000Z",
        "in_iface": "inside",
        "event_type": kind,
        "src_ip": "192.0.2.1", "src_port": 40_000,
        "dest_ip": "198.51.100.7", "dest_port": 80,
        "proto": "TCP",
    });
    let into = line.as_object_mut().unwrap();
    into.extend(said.as_object().unwrap().clone());
    line
}

#[test]
fn dropped_packet_has_its_reason_and_its_rule() {
    let mut said = RecordKind::Drop {
        reason: Reason::Signature,
        rule: Some(RULE_NUMBER),
        length: 99,
    };
    let rule = json!({
        "action": "blocked", "gid": 1, "signature_id": 7, "rev": 2,
        "signature": "evil", "category": "trojan-activity", "severity": 1,
    });
    let with = json!({"direction": "to_server", "drop": {"len": 99, "reason": "signature"}, "alert": rule});
    assert_eq!(expected("drop", with), read_back(said, None));
    said = RecordKind::Drop {
        reason: Reason::GapFull,
        rule: None,
        length: 0,
    };
    let without = json!({"direction": "to_server", "drop": {"reason": "stream-gap-full"}});
    assert_eq!(expected("drop", without), read_back(said, None));
}

#[test]
fn flow_has_its_counts_its_time_and_why_it_ended() {
    let said = RecordKind::Flow(Ended {
        seen: [0, 61_000_000_000],
        packets: [3, 4],
        bytes: [300, 4_000],
        state: FlowState::Closed,
        reason: EndReason::Timeout,
        alerted: true,
        application: application_names()
            .number("HTTP")
            .map(|application| ProtocolPair { master: 0, application }),
    });
    let flow = json!({
        "pkts_toserver": 3, "pkts_toclient": 4, "bytes_toserver": 300, "bytes_toclient": 4_000,
        "start": "2023-11-14T22:13:20.000000Z", "end": "2023-11-14T22:14:21.000000Z", "age": 61,
        "state": "closed", "reason": "timeout", "alerted": true,
    });
    let line = expected(
        "flow",
        json!({"app_proto": "http", "flow": flow, "ndpi": {"proto": "HTTP"}}),
    );
    assert_eq!(line, read_back(said, Some(Service::Http)));
}

#[test]
fn request_has_what_was_asked_and_answered() {
    let mut said = Transaction::new(Service::Http, 2);
    said.set(Part::Method, b"GET");
    said.set(Part::Host, b"a.test");
    said.set(Part::Url, &[b'/'; 600]);
    said.set(Part::Agent, b"made \xff");
    said.set(Part::ContentType, b"text/plain");
    (said.status, said.length, said.version) = (200, 12, 0x0101);
    let http = json!({
        "hostname": "a.test", "url": "/".repeat(512), "http_user_agent": "made \u{fffd}",
        "http_content_type": "text/plain", "http_method": "GET", "protocol": "HTTP/1.1", "status": 200, "length": 12,
        "truncated": ["url"],
    });
    let line = expected("http", json!({"app_proto": "http", "tx_id": 2, "http": http}));
    assert_eq!(line, read_back(RecordKind::Transaction(said), Some(Service::Http)));
}

#[test]
fn text_that_acts_on_a_terminal_is_escaped_and_read_back_as_it_was() {
    let hostile = "a\u{1b}[2J\n\u{7f}\u{9b}31m\u{202e}\u{2028}\u{feff}\u{e0041}z";
    let mut said = Transaction::new(Service::Http, 0);
    for part in [Part::Method, Part::Host, Part::Url, Part::Agent, Part::ContentType] {
        said.set(part, hostile.as_bytes());
    }
    let line = read_back(RecordKind::Transaction(said), Some(Service::Http));
    for field in ["http_method", "hostname", "url", "http_user_agent", "http_content_type"] {
        assert_eq!(hostile, line["http"][field]);
    }
    let mut said = Transaction::new(Service::Tls, 0);
    said.set(Part::ServerName, hostile.as_bytes());
    assert_eq!(
        hostile,
        read_back(RecordKind::Transaction(said), Some(Service::Tls))["tls"]["sni"]
    );
    let mut question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    question.push(hostile.len() as u8);
    question.extend(hostile.as_bytes());
    question.extend(b"\x00\x00\x1c\x00\x01");
    let mut said = Transaction::new(Service::Dns, 0);
    said.set(Part::Message, &question);
    let line = read_back(RecordKind::Transaction(said), Some(Service::Dns));
    assert!(line["dns"]["rrname"].as_str().unwrap().starts_with('a'));
}

#[test]
fn request_of_http_2_has_its_stream() {
    let mut said = Transaction::new(Service::Http, 0);
    said.set(Part::Method, b"GET");
    (said.status, said.version, said.stream) = (404, 0x0200, 3);
    let http =
        json!({"http_method": "GET", "protocol": "HTTP/2", "http2": {"stream_id": 3}, "status": 404, "length": 0});
    let line = expected("http", json!({"app_proto": "http2", "tx_id": 0, "http": http}));
    assert_eq!(line, read_back(RecordKind::Transaction(said), Some(Service::Http2)));
}

#[test]
fn hello_has_its_name_version_and_fingerprint() {
    let mut said = Transaction::new(Service::Tls, 0);
    said.set(Part::ServerName, b"a.test");
    said.set(Part::Ja3, b"ada70206e40642a3e4461f35503241d5");
    said.version = 0x0304;
    let tls = json!({"sni": "a.test", "version": "TLS 1.3", "ja3": {"hash": "ada70206e40642a3e4461f35503241d5"}});
    let line = expected("tls", json!({"app_proto": "tls", "tls": tls}));
    assert_eq!(line, read_back(RecordKind::Transaction(said), Some(Service::Tls)));
}

#[test]
fn names_are_told_as_questions_and_as_answers() {
    let question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x1c\x00\x01";
    let mut said = Transaction::new(Service::Dns, 0);
    said.set(Part::Message, question);
    let dns = json!({"type": "query", "tx_id": 0, "id": 7, "opcode": 0, "rrname": "a.test", "rrtype": "AAAA"});
    let line = expected("dns", json!({"app_proto": "dns", "dns": dns}));
    assert_eq!(line, read_back(RecordKind::Transaction(said), Some(Service::Dns)));
    let mut answer = question.to_vec();
    (answer[2], answer[3], answer[7]) = (0x81, 0x83, 1);
    answer.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x09\x00\x04\xc0\x00\x02\x01");
    said.set(Part::Message, &answer);
    said.toward = Toward::Client;
    let record = json!({"rrname": "a.test", "rrtype": "A", "ttl": 9, "rdata": "192.0.2.1"});
    let dns = json!({
        "type": "answer", "tx_id": 0, "id": 7, "opcode": 0, "rrname": "a.test", "rrtype": "AAAA",
        "flags": "8183", "rcode": "NXDOMAIN", "answers": [record],
    });
    let line = expected("dns", json!({"app_proto": "dns", "dns": dns}));
    assert_eq!(line, read_back(RecordKind::Transaction(said), Some(Service::Dns)));
}

#[test]
fn number_of_a_flow_is_its_own_and_that_of_no_flow_is_not_written() {
    let names = [String::new()];
    let number = |flow| {
        let about = RecordSubject { flow, ..about(None) };
        let line: Value = serde_json::from_slice(&scene(&names).line(&about, EveType::Flow, json!({}))).unwrap();
        line.get("flow_id").and_then(Value::as_u64)
    };
    assert_eq!((None, number(5)), (number(0), number(5)));
    let all: std::collections::BTreeSet<_> = (1..1_000).map(number).collect();
    assert_eq!(999, all.len());
}

fn statistics() -> Statistics {
    Statistics {
        uptime: 2,
        decoder: Decoder { pkts: 1, bytes: 2 },
        detect: Detect {
            alert: 3,
            alert_queue_overflow: 4,
        },
        ips: Ips {
            blocked: 5,
            drop_reason: [("signature", 5)].into(),
        },
        inspection: Own {
            uninspected: 6,
            left: 7,
            records: 8,
            records_lost: 9,
        },
    }
}

#[test]
fn alerts_are_written_where_they_are_wanted_and_statistics_when_it_is_time() {
    let folder = tempfile::tempdir().unwrap();
    let alert = Alert {
        about: about(None),
        rule: RULE_NUMBER,
        action: Action::Drop,
        packets: [1, 0],
        bytes: [40, 0],
    };
    let names = ["outside", "inside"].map(String::from);
    for (kind, lines) in [(EveType::Alert, vec!["alert"]), (EveType::Stats, vec!["stats"])] {
        let path = folder.path().join(format!("{kind:?}"));
        let written = schema::Eve {
            types: vec![kind],
            ..schema::Eve::default()
        };
        let mut eve = Eve::start(EveTarget::File(path.clone()), &written).unwrap();
        let shown = crate::alerts::shown(&alert, &rules(), &scene(&names)).unwrap();
        eve.alert(&scene(&names), &alert, &shown);
        for _ in 0..3 {
            eve.statistics(&scene(&names), Duration::from_secs(2), statistics);
        }
        drop(eve);
        let text = std::fs::read_to_string(&path).unwrap();
        let kinds: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said: Vec<_> = kinds.iter().map(|line| line["event_type"].as_str().unwrap()).collect();
        assert_eq!(lines, said);
    }
}
