//! Compares the declared counters with the answers of the API, the output of commands and the tables of the documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_command::show::{NoOptions, ShowAnswer};
use sluice_command::top::poll::Poll;
use sluice_command::top::snapshot::Snapshot;
use sluice_config::api::{Core, InspectionStatus, Status, operation};
use sluice_config::schema::EveType;
use sluice_daemon::counters::{
    IdentificationCounters, InspectionCounters, InspectionServiceCounters, InterfaceCounters, NEIGHBOUR_CONFLICTS,
    NamedCounter, NodeCounters, WorkerCounters, listed, summed,
};

/// Rows of a counter in the list of workers: one, or one for each value of its label.
fn worker_rows(counter: &NamedCounter<WorkerCounters>) -> Vec<String> {
    let Some(label) = counter.label else {
        return vec![counter.document_row()];
    };
    let rows = (0..label.count).filter_map(|number| {
        let (value, help) = (label.describe)(number)?;
        let (name, kind, unit) = (counter.name, counter.kind.name(), counter.unit.name());
        Some(format!(
            "| `{name}-{value}` | {kind} | {unit} | {}: {help} |",
            counter.help
        ))
    });
    rows.collect()
}

fn rows<C>(named: &[NamedCounter<C>]) -> Vec<String> {
    named.iter().map(NamedCounter::document_row).collect()
}

const COUNTER_COLUMNS: &str = "| counter | kind | unit | meaning |\n| --- | --- | --- | --- |";

/// Checks the table below a mark in a document, or writes it.
fn check_table(path: &str, mark: &str, titles: &str, rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = fs::read_to_string(&path).unwrap();
    let mark = format!("<!-- {mark} -->\n");
    let (before, after) = text
        .split_once(&mark)
        .unwrap_or_else(|| panic!("{path:?} lacks {mark}"));
    let (found, rest) = after.split_once("\n\n").unwrap();
    let table = format!("{titles}\n{}", rows.join("\n"));
    if std::env::var_os("SLUICE_WRITE_ANSWERS").is_some() {
        return fs::write(&path, format!("{before}{mark}{table}\n\n{rest}")).unwrap();
    }
    assert_eq!(table, found, "SLUICE_WRITE_ANSWERS=1 writes this table");
}

#[test]
fn table_of_records_lists_the_declared_types() {
    let rows: Vec<_> = EveType::ALL.iter().map(|kind| kind.document_row()).collect();
    let titles = "| type | written when | fields in addition to those of every record |\n| --- | --- | --- |";
    check_table("docs/inspect.md", "types of records", titles, &rows);
}

#[test]
fn tables_of_documents_list_the_declared_counters() {
    let mut workers: Vec<_> = WorkerCounters::NAMED.iter().flat_map(worker_rows).collect();
    workers.push(NEIGHBOUR_CONFLICTS.document_row());
    check_table("docs/cores.md", "counters: worker", COUNTER_COLUMNS, &workers);
    // `show drops` and `show bridges` print the values by reason.
    let interface = InterfaceCounters::NAMED
        .iter()
        .filter(|counter| counter.label.is_none());
    let interface: Vec<_> = interface.map(NamedCounter::document_row).collect();
    check_table("docs/cores.md", "counters: interface", COUNTER_COLUMNS, &interface);
    let mut inspection = rows(InspectionCounters::NAMED);
    inspection.extend(rows(InspectionServiceCounters::NAMED));
    check_table("docs/inspect.md", "counters: inspection", COUNTER_COLUMNS, &inspection);
    check_table(
        "docs/inspect.md",
        "counters: identification",
        COUNTER_COLUMNS,
        &rows(IdentificationCounters::NAMED),
    );
    check_table(
        "docs/graph.md",
        "counters: node",
        COUNTER_COLUMNS,
        &rows(NodeCounters::NAMED),
    );
}

fn names<C>(named: &[NamedCounter<C>]) -> impl Iterator<Item = &'static str> {
    named.iter().map(|counter| counter.name)
}

fn core(counters: &WorkerCounters) -> Core {
    Core {
        worker: 0,
        core: 1,
        state: "running".into(),
        parts: "receive".into(),
        shards: 1,
        sessions: 0,
        packets: 0,
        rate: 0,
        busy: 0.0,
        leaked: 0,
        counters: listed(WorkerCounters::NAMED, counters),
    }
}

#[test]
fn worker_counters_are_all_in_the_list_of_cores_and_in_the_output_of_top() {
    let counters = WorkerCounters::new(1, 1);
    let poll = |at| Poll {
        at,
        status: Status {
            name: "gateway".into(),
            version: "1".into(),
            process: 7,
            uptime: 100,
            generation: 1,
            sessions: [0, 0],
            capacity: [1, 1],
            tsc_hz: 2_000_000_000,
            warnings: Vec::new(),
        },
        cores: vec![core(&counters)],
        interfaces: Vec::new(),
        drops: Vec::new(),
    };
    let began = Instant::now();
    let before = poll(began);
    counters.slices_ended.add(20);
    counters.waiting.set(9);
    let now = poll(began + Duration::from_secs(2));
    let answer = serde_json::to_value(&now.cores[0]).unwrap();
    let top = serde_json::to_value(Snapshot::between(&before, &now)).unwrap();
    let shown = top["workers"][0]["counters"].as_object().unwrap();
    let in_answer = answer["counters"].as_array().unwrap();
    for counter in WorkerCounters::NAMED {
        let listed: Vec<&Value> = in_answer
            .iter()
            .filter(|row| match (row["name"].as_str().unwrap(), counter.label) {
                (name, None) => name == counter.name,
                (name, Some(label)) => (0..label.count)
                    .filter_map(label.describe)
                    .any(|(value, _)| name == format!("{}-{value}", counter.name)),
            })
            .collect();
        assert_eq!(
            counter.label.map_or(1, |label| label.count),
            listed.len(),
            "{}",
            counter.name
        );
        for row in listed {
            assert_eq!(counter.unit.name(), row["unit"]);
            assert_eq!(counter.kind.name(), row["kind"]);
            assert!(shown.contains_key(row["name"].as_str().unwrap()), "{row}");
        }
    }
    let different: BTreeSet<_> = in_answer.iter().map(|row| row["name"].to_string()).collect();
    assert_eq!(in_answer.len(), different.len(), "two counters have one name");
    assert_eq!((10.0, 9.0), {
        let value = |name: &str| shown[name].as_f64().unwrap();
        (value("slices-ended"), value("waiting"))
    });
}

#[test]
fn inspection_counters_are_all_in_the_answer_and_in_the_text_of_show() {
    let worker = Arc::new(WorkerCounters::new(1, 1));
    worker.inspection.limits.add(0, 7);
    let status = InspectionStatus {
        counters: summed(InspectionCounters::NAMED, &[worker]),
        ..InspectionStatus::default()
    };
    let answer = serde_json::to_value(&status).unwrap();
    let mut text = Vec::new();
    operation::Inspection::text(&status, &NoOptions {}, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for counter in InspectionCounters::NAMED {
        let value = &answer[counter.name];
        match counter.label {
            None => assert_eq!(Some(0), value.as_u64(), "{}", counter.name),
            Some(_) => assert!(value.is_array(), "{}", counter.name),
        }
        let line = text
            .lines()
            .find(|line| line.split_whitespace().next() == Some(counter.name));
        match counter.name.contains("-by-") {
            true => assert_eq!(None, line),
            false => assert!(line.is_some_and(|line| line.ends_with(counter.unit.name())), "{text}"),
        }
    }
    assert_eq!(7, answer["limits"][0]["packets"]);
    let declared: BTreeSet<_> = names(InspectionCounters::NAMED).collect();
    let service: BTreeSet<_> = names(InspectionServiceCounters::NAMED).collect();
    assert!(
        declared.is_disjoint(&service),
        "two members of the answer have one name"
    );
}
