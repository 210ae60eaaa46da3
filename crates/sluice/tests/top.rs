//! Tests `sluice top` without a terminal, with a fake daemon whose counters increase with every request.

use crate::serving;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use sluice_config::api::Interface;
use sluice_config::api::operation;
use sluice_engine::packet::counters::InterfaceCounters;

fn status() -> Value {
    json!({
        "name": "gateway", "version": "1", "process": 7, "uptime": 60, "generation": 1, "sessions": [5, 0],
        "capacity": [1000, 1000], "tsc-hz": 2_000_000_000u64, "warnings": ["core 3 is stuck"],
    })
}

/// A worker that has processed `bursts` bursts of 1,000 packets at 150 cycles each.
fn core(bursts: u64) -> Value {
    let counter = |name: &str, count: u64| {
        let kind = if name == "waiting" { "gauge" } else { "total" };
        json!({ "name": name, "count": count, "unit": "packets", "kind": kind })
    };
    json!({
        "worker": 0, "core": 3, "state": "running", "parts": "receive+parse+session+transmit", "shards": 16,
        "sessions": 5, "packets": 1_000 * bursts, "rate": 0, "busy": 0.5, "leaked": 0,
        "counters": [
            counter("cycles-receive", 50_000 * bursts),
            counter("cycles-session", 100_000 * bursts),
            counter("cycles-housekeeping", 7_000 * bursts),
            counter("waiting", 9),
        ],
    })
}

fn interface(bursts: u64) -> Value {
    json!({
        "name": "inside", "device": "null:", "driver": "null", "link": "up", "mac": "", "mtu": 1500, "queues": 1,
        "steering": "", "addresses": [], "received": 1_000 * bursts, "received-bytes": 64_000 * bursts, "sent": 0,
        "sent-bytes": 0, "originated": 0, "dropped": 10 * bursts, "to-host": 0, "parked": 0, "unparked": 0, "counters": [],
    })
}

fn drops(bursts: u64) -> Value {
    json!({ "name": "unsolicited", "help": "nobody asked", "packets": 10 * bursts })
}

fn daemon() -> (tempfile::TempDir, std::path::PathBuf) {
    let list = |item: fn(u64) -> Value| {
        let asked = AtomicU64::new(0);
        let asked = std::sync::Arc::new(asked);
        get(async move || Json(json!({ "items": [item(asked.fetch_add(1, Ordering::Relaxed))] })))
    };
    let router = Router::new()
        .route(operation::Status::PATH, get(async || Json(status())))
        .route(operation::Cores::PATH, list(core))
        .route(operation::Interfaces::PATH, list(interface))
        .route(operation::Drops::PATH, list(drops));
    serving::serve(router)
}

fn top(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["top", "--interval", "100ms"]).args(words);
    command
}

fn output(words: &[&str]) -> String {
    let (_folder, socket) = daemon();
    let output = top(words).arg("--socket").arg(socket).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn top_once_prints_workers_stages_interfaces_and_drops() {
    let text = output(&["--once"]);
    let line = |start: &str| {
        let mut lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{start} is not in\n{text}"))
    };
    line("gateway: up 1m, 5 sessions");
    line("warning: core 3 is stuck");
    line("WORKER CORE BUSY PACKETS/S PREDICTED CYCLES WAITING HANDED/S TAKEN/S SHED/S");
    // The rate is 2 GHz divided by 150 cycles, whatever the time between the two polls.
    assert!(line("0 3 ").ends_with(" 13.3M 150 9 0 0 0"), "{text}");
    assert_eq!("0 50 0 100 0 0 0 0 0 all", line("0 50 "));
    line("INTERFACE LINK RECEIVED/S BITS/S SENT/S BITS/S DROPPED/S");
    line("inside up ");
    assert!(text.trim_end().ends_with("unsolicited"), "{text}");
}

#[test]
fn top_where_standard_output_is_no_terminal_prints_once() {
    assert_eq!(1, output(&[]).matches("PREDICTED").count());
}

#[test]
fn top_once_as_json_is_an_object_on_a_line() {
    let text = output(&["--once", "--json"]);
    assert_eq!(1, text.lines().count());
    let snapshot: Value = serde_json::from_str(&text).unwrap();
    let worker = &snapshot["workers"][0];
    assert_eq!((&json!(3), &json!("running")), (&worker["core"], &worker["state"]));
    assert_eq!(150.0, worker["cycles-per-packet"]["total"]);
    assert_eq!(100.0, worker["cycles-per-packet"]["session"]);
    let rate = |value: &Value| value.as_f64().unwrap();
    assert!((rate(&worker["predicted"]) - 2e9 / 150.0).abs() < 1.0);
    assert!((rate(&snapshot["gateway"]["predicted"]) / rate(&worker["predicted"]) - 1.0).abs() < 1e-6);
    assert!(rate(&snapshot["interfaces"][0]["received"]) > 1_000.0);
    assert_eq!("unsolicited", snapshot["drops"][0]["name"]);
    let counters = worker["counters"].as_object().unwrap();
    assert_eq!(4, counters.len(), "every counter of the daemon is in the snapshot");
    assert_eq!(json!(9.0), counters["waiting"], "the value of a gauge");
    // Both rates are divided by the measured interval, and each quotient is rounded.
    let ratio = rate(&counters["cycles-session"]) / rate(&counters["cycles-receive"]);
    assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
}

#[test]
fn top_as_json_goes_on_until_its_reader_has_enough() {
    let (_folder, socket) = daemon();
    let mut running = top(&["--json"])
        .arg("--socket")
        .arg(socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(running.stdout.take().unwrap()));
    for line in lines.take(3) {
        let snapshot: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!("gateway", snapshot["name"]);
    }
    assert!(running.wait().unwrap().success());
}

#[test]
fn top_of_an_interval_too_short_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["top", "--interval", "0s"])
        .output()
        .unwrap();
    assert_eq!(Some(2), output.status.code());
}

#[test]
fn interfaces_in_the_api_have_the_counters_that_are_declared() {
    let interface: Interface = serde_json::from_value(interface(1)).expect("an interface");
    let interface = serde_json::to_value(interface).expect("an object");
    let row = interface.as_object().expect("an object");
    let counted = row
        .iter()
        .filter(|(name, value)| value.is_u64() && !["mtu", "queues"].contains(&name.as_str()));
    let mut counted: Vec<_> = counted.map(|(name, _)| name.as_str()).collect();
    let declared = InterfaceCounters::NAMED
        .iter()
        .filter(|counter| counter.label.is_none());
    let mut declared: Vec<_> = declared.map(|counter| counter.name).collect();
    counted.sort_unstable();
    declared.sort_unstable();
    assert_eq!(declared, counted);
}
