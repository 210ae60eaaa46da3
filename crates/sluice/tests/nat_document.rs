//! Compares `docs/nat.md` with the code: requirements, tests, keys, reasons, commands, examples.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser;
use sluice_command::arguments::Arguments;
use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check, parse};
use sluice_engine::packet::reason::Reason;

/// Requirements of each RFC: the heading of the RFC's table in the document, and the numbers of all requirements.
const REQUIREMENTS: [(&str, &str); 5] = [
    (
        "RFC 4787",
        "1 2 3 3a 4 5 5a 5b 5c 6 6a 7 8 8a 9 9a 10 10a 11 12 12a 12b 13 13a 14 14a",
    ),
    ("RFC 5382", "1 2 2a 3 3a 3b 4 4a 5 5a 6 7 8 8a 9 10"),
    (
        "RFC 5508",
        "1 1a 2 2a 3 3a 3b 3c 3d 4 4a 4b 4c 5 5a 5b 5c 6 7 7a 8 9 10 10a 10b 10c 10d 10e 10f 11",
    ),
    (
        "RFC 6888",
        "1 2 3 4 4a 4b 4c 5 5a 5b 6 7 8 8a 8b 8c 9 10 11 11a 11b 11c 11d 12 13 14 15",
    ),
    ("RFC 7857", "2 2.1 2.2 3 4 5 6 7 7.1 8 9 10 11 12"),
];

/// A configuration with every key that the document may mention.
const EVERY_KEY: &str = r#"
[system]
shards = 16
[sessions.timeouts]
tcp-established = "3h"
tcp-transitory-open = "4m"
tcp-transitory-close = "4m"
tcp-incoming-syn = "6s"
udp = "5m"
udp-ports = { 53 = "10s" }
icmp = "60s"
other = "5m"
inbound-refresh = true
[interfaces.NAME]
device = "null:"
mtu = 1500
mss-clamp = "mtu"
[nat.limits]
sessions = 1
new-sessions = { rate = 1, burst = 1 }
[nat.pools.NAME]
protocols = ["gre"]
addresses = ["203.0.113.1"]
reserved-ports = [5060]
mapping = "endpoint-independent"
filtering = "endpoint-independent"
block = { size = 64, maximum = 1, spare = true }
deterministic = { inside = "10.0.0.0/24", compression = 1, maximum-ports = 64, key = "00112233445566778899aabbccddeeff" }
subscriber = { ports = 1, sessions = 1, new-sessions = { rate = 1, burst = 1 } }
limits = { sessions = 1, new-sessions = { rate = 1, burst = 1 } }
[nat.pools.NAME.timeouts]
tcp-established = "3h"
tcp-transitory-open = "4m"
tcp-transitory-close = "4m"
tcp-incoming-syn = "6s"
udp = "5m"
udp-ports = { 53 = "10s" }
icmp = "60s"
other = "5m"
inbound-refresh = true
[[nat.source]]
from = "10.0.0.0/8"
out = "NAME"
pool = "NAME"
[[nat.destination]]
protocol = "tcp"
address = "203.0.113.2"
port = 80
to = ["10.0.0.1"]
to-port = 80
in = "NAME"
local = true
balance = "source"
health = { protocol = "tcp", port = 80 }
[[nat.static]]
inside = "10.1.0.0/28"
outside = "203.0.113.16/28"
[[nat.exempt]]
from = "10.0.0.0/8"
to = "10.0.0.0/8"
protocol = "tcp"
port = 80
"#;

/// Text that is inserted before an example of a pool, so that both form a valid configuration.
const INTERFACES: &str = r#"
[interfaces.inside]
device = "null:"
addresses = ["100.64.255.1/24"]
[interfaces.outside]
device = "null:"
addresses = ["192.0.2.2/29"]
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn document() -> String {
    read("docs/nat.md")
}

/// Returns the texts in backquotes.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The document without its fenced blocks.
fn prose(document: &str) -> String {
    document.split("```").step_by(2).collect()
}

/// Fenced blocks of one kind.
fn blocks<'d>(document: &'d str, kind: &str) -> Vec<&'d str> {
    let fenced = document.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'))
        .collect()
}

/// Cells of the table under a heading, row by row.
fn table<'d>(document: &'d str, heading: &str) -> Vec<Vec<&'d str>> {
    let (_, section) = document.split_once(heading).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Whether a file has a test with this name that is not ignored.
fn runs(path: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root().join(path)) else {
        return false;
    };
    if path.ends_with(".py") {
        return name.starts_with("test_") && text.contains(&format!("\ndef {name}("));
    }
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else {
        return false;
    };
    // The attributes of a test are between the end of the preceding item and the test.
    let attributes = before.rsplit(['}', ';']).next().unwrap_or_default();
    attributes.contains("#[test]") && !attributes.contains("#[ignore")
}

#[test]
fn every_requirement_has_a_row_with_tests_or_says_what_is_missing() {
    let document = document();
    for (rfc, numbers) in REQUIREMENTS {
        let rows = table(&document, &format!("### {rfc}"));
        let expected: Vec<_> = numbers.split(' ').collect();
        let listed: Vec<_> = rows.iter().map(|row| row[0].trim_start_matches("REQ-")).collect();
        assert_eq!(expected, listed, "{rfc}");
        for row in rows {
            let [number, demand, does, _, tests] = row[..] else {
                panic!("{rfc}: {row:?}")
            };
            let missing = ["Does not apply", "Not offered", "Not met"]
                .iter()
                .any(|word| does.starts_with(word));
            assert!(!demand.is_empty() && !does.is_empty(), "{rfc} {number}");
            assert!(missing || tests.contains("::"), "{rfc} {number} has no test");
        }
    }
}

#[test]
fn tests_named_exist_and_run() {
    let document = document();
    let named: BTreeSet<_> = spans(&document)
        .into_iter()
        .filter_map(|span| span.split_once("::"))
        .collect();
    assert!(named.len() > 80);
    for (path, name) in named {
        assert!(runs(path, name), "{path} has no test {name}");
    }
}

#[test]
fn keys_named_are_those_of_the_configuration() {
    let parsed = parse("every key", EVERY_KEY).unwrap_or_else(|wrong| panic!("{wrong}"));
    let all = serde_json::to_value(parsed).expect("a document is JSON too");
    let is_key = |key: &str| {
        let found = key.split('.').try_fold(&all, |value, step| match value {
            serde_json::Value::Array(entries) => entries.first()?.get(step),
            table => table.get(step),
        });
        found.is_some()
    };
    let prose = prose(&document());
    let plain = |span: &str| span.contains('.') && !span.contains([' ', '/', ':', '=', '[', '{']);
    let keys: BTreeSet<_> = spans(&prose).into_iter().filter(|span| plain(span)).collect();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        // The document writes keys of a pool without the pool's name.
        let known = is_key(key) || is_key(&format!("nat.pools.NAME.{key}"));
        assert!(known, "there is no key {key}");
    }
    // The columns of keys may contain nothing except keys.
    for (rfc, _) in REQUIREMENTS {
        for row in table(&prose, &format!("### {rfc}")) {
            spans(row[3])
                .iter()
                .for_each(|key| assert!(is_key(key), "{rfc} {}: {key}", row[0]));
        }
    }
}

#[test]
fn reasons_named_are_those_of_the_counters() {
    let document = document();
    let known: BTreeSet<_> = Reason::all().map(Reason::name).collect();
    let rows = table(&document, "## When something is wrong");
    let named: BTreeSet<_> = rows.iter().flat_map(|row| spans(row[1])).collect();
    let named: Vec<_> = named
        .iter()
        .filter(|span| !span.contains(' ') && **span != "DOWN")
        .collect();
    assert!(named.len() > 20);
    for name in named {
        assert!(known.contains(name), "there is no reason {name}");
    }
}

#[test]
fn commands_named_can_be_typed() {
    let document = document();
    let lines = document.lines().filter_map(|line| line.strip_prefix("$ "));
    let typed: BTreeSet<_> = spans(&prose(&document))
        .into_iter()
        .chain(lines)
        .filter(|words| words.starts_with("sluice "))
        .map(str::to_owned)
        .collect();
    assert!(typed.len() > 10);
    for words in typed {
        if let Err(error) = Arguments::try_parse_from(words.split(' ')) {
            panic!("{words}: {error}");
        }
    }
}

#[test]
fn examples_of_pools_are_valid() {
    let document = document();
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    let examples = blocks(&document, "toml");
    assert!(examples.len() > 4);
    for example in examples {
        if let Err(diagnosis) = check("docs/nat.md", &format!("{INTERFACES}{example}"), &machine) {
            panic!("{}", diagnosis.render(100, false));
        }
    }
}

#[test]
fn answers_shown_are_those_of_the_command() {
    let document = document();
    let examples = blocks(&document, "console");
    assert!(examples.len() > 1);
    for example in examples {
        let (command, expected) = example.split_once('\n').expect("a command and its answer");
        let words = command.strip_prefix("$ sluice ").expect("a command");
        let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(words.split(' '))
            .current_dir(root())
            .output()
            .expect("sluice runs");
        assert_eq!(expected, String::from_utf8_lossy(&output.stdout), "{command}");
    }
}
