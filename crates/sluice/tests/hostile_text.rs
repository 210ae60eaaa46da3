//! Tests that the program escapes terminal control characters in all of its output, if text from the network or from
//! files contains them.

use crate::serving;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use serde_json::{Value, json};
use sluice_command::arguments::Arguments;
use sluice_config::api::{Failure, operation};
use sluice_config::text::is_hidden;

/// C0 controls including newline and tab, DEL, C1 controls, marks of text direction, line separators, and invisible
/// characters.
const HOSTILE: &str = "a\u{1b}[2J\u{7}\nforged\trow\r\0\u{7f}\u{9b}31m\u{85}\u{61c}\u{200e}\u{202e}\u{2066}\u{2028}\u{2029}\u{feff}\u{e0041}z";

/// The hostile text after escaping.
const SHOWN: &str = r"a\u001b[2J\u0007\u000aforged\u0009row\u000d\u0000\u007f\u009b31m\u0085\u061c\u200e\u202e\u2066\u2028\u2029\ufeff\udb40\udc41z";

/// Run a command. Returns the command's standard output and standard error.
fn sluice(words: &[&str]) -> (String, String) {
    let page = |items: Value| get(async move || Json(json!({ "items": items })));
    let lease = json!({
        "address": "10.0.0.2", "mac": HOSTILE, "host-name": HOSTILE, "site": HOSTILE, "group": HOSTILE, "server": HOSTILE,
        "source": HOSTILE, "since": 60, "state": HOSTILE,
    });
    let alert = json!({
        "time": HOSTILE, "action": HOSTILE, "generator": 1, "signature": 7, "revision": 2, "message": HOSTILE,
        "class": HOSTILE, "priority": 1, "interface": HOSTILE, "protocol": HOSTILE, "source": "192.0.2.1",
        "destination": "192.0.2.2", "to-server": true, "packets": [1, 0], "bytes": [40, 0],
    });
    let neighbour = json!({
        "address": "10.0.0.2", "mac": HOSTILE, "router": HOSTILE, "interface": HOSTILE, "state": HOSTILE, "parked": 0,
    });
    let drop = json!({ "name": HOSTILE, "help": HOSTILE, "packets": 3 });
    let step = json!({ "node": HOSTILE, "verdict": HOSTILE });
    let trace = json!({ "time": 1, "worker": 0, "interface": HOSTILE, "packet": HOSTILE, "steps": [step] });
    let finding =
        json!({ "line": 1, "column": 1, "text": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "advice": false });
    let refused = json!({ "result": "refused", "findings": [finding] });
    let failure = (
        StatusCode::BAD_REQUEST,
        Json(Failure {
            message: HOSTILE.into(),
        }),
    );
    let router = Router::new()
        .route(operation::Leases::PATH, page(json!([lease])))
        .route(operation::Alerts::PATH, page(json!([alert])))
        .route(operation::Neighbours::PATH, page(json!([neighbour])))
        .route(operation::Drops::PATH, page(json!([drop])))
        .route(operation::Trace::PATH, post(async move || format!("{trace}\n")))
        .route(operation::Apply::PATH, post(async move || Json(refused)))
        .route(operation::Sites::PATH, get(async || failure));
    let (_folder, socket) = serving::serve(router);
    let words = [&["sluice", "--socket", socket.to_str().unwrap()], words].concat();
    let mut output = Vec::new();
    let done = sluice_command::execute(&Arguments::parse_from(words), &mut output);
    let error = done.err().map_or(String::new(), |error| error.render(100, false));
    (String::from_utf8(output).unwrap(), error)
}

#[track_caller]
fn assert_harmless(text: &str, lines: usize) {
    assert!(
        text.contains(SHOWN) || text.contains(&SHOWN.replace('\\', "\\\\")),
        "{text:?}"
    );
    assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
    assert_eq!(lines, text.lines().count(), "{text:?}");
}

#[test]
fn tables_have_a_row_for_each_entry_and_nothing_that_acts() {
    for words in [
        &["show", "leases"][..],
        &["show", "alerts"],
        &["show", "neighbours"],
        &["show", "drops"],
    ] {
        assert_harmless(&sluice(words).0, 2);
    }
    assert_harmless(&sluice(&["trace", "--count", "1"]).0, 2);
}

#[test]
fn json_is_read_back_as_it_was_and_shown_without_what_acts() {
    let read = |words: &[&str]| {
        let text = sluice(words).0;
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    assert_eq!(HOSTILE, read(&["show", "leases", "--json"])["leases"][0]["host-name"]);
    assert_eq!(HOSTILE, read(&["show", "alerts", "--json"])["alerts"][0]["message"]);
    assert_eq!(HOSTILE, read(&["trace", "--count", "1", "--json"])["packet"]);
}

#[test]
fn error_of_the_daemon_is_told_without_what_acts() {
    let (_, error) = sluice(&["show", "sites"]);
    assert_harmless(&error, 1);
}

#[test]
fn mistake_in_a_file_is_told_without_what_acts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a\u{1b}[2J.toml");
    let path = file.to_str().unwrap();
    let quoted: String = HOSTILE.chars().filter(|c| !c.is_control()).collect();
    for text in [
        format!("[sessions]\n\"{quoted}\" = 3\n"),
        format!("[sessions] # \u{9b}{quoted}\nipv4 = \"{quoted}\"\n"),
        format!("[interfaces.\"{quoted}\"]\ndevice = \"\\u001b[2J\\n\"\n"),
        format!("[sessions]\nipv4 = \u{1b}[2J{HOSTILE}\n"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (output, error) = sluice(&["check", path]);
        assert!(error.contains("\\u202e"), "{error:?}");
        assert!(
            !(output + &error).chars().any(|c| c != '\n' && is_hidden(c)),
            "{error:?}"
        );
    }
    std::fs::write(&file, "").unwrap();
    let (_, error) = sluice(&["apply", path]);
    assert_eq!(1, error.lines().count(), "{error:?}");
    assert_harmless(&error, 1);
}

#[test]
fn line_of_a_listing_that_is_left_over_is_told_without_what_acts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules");
    let quoted: String = HOSTILE.chars().filter(|&c| c != '\n' && c != '\0').collect();
    std::fs::write(
        &file,
        format!("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m \"{quoted}\" -j ACCEPT\nCOMMIT\n"),
    )
    .unwrap();
    let (output, error) = sluice(&["import", file.to_str().unwrap()]);
    let all = output + &error;
    assert!(all.contains("\\u202e"), "{all:?}");
    assert!(!all.chars().any(|c| c != '\n' && is_hidden(c)), "{all:?}");
}
