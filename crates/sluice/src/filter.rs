//! `sluice show filter`: rules and what they have counted, or the one that decides about a packet. `sluice filter`: rules that
//! come and go one by one.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use sluice_daemon::config;
use sluice_daemon::config::api::{
    Decision, EditAnswer, FilterRequest, FilterRule, Hits, InsertPlace, InsertRequest, PacketFilter, path,
};
use sluice_daemon::config::value::GATEWAY;

use crate::arguments::FilterEdit;
use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::control::line;
use crate::exit::CommandError;

use Align::{Left, Right};

const RULE: [(&str, Align); 7] = [
    ("RULE", Right),
    ("NAME", Left),
    ("ACTION", Left),
    ("PACKETS", Right),
    ("BYTES", Right),
    ("LAST", Right),
    ("MATCHES", Left),
];

/// The filter, or what decides about a packet.
///
/// # Errors
/// Those of the connection and of the output.
pub fn filter(
    client: &mut Client,
    request: &FilterRequest,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let filter: PacketFilter = client.ask(path::FILTER, request)?;
    if json {
        return Ok(writeln!(
            output,
            "{}",
            serde_json::to_string_pretty(&filter).map_err(std::io::Error::from)?
        )?);
    }
    match &filter.decision {
        Some(decision) => explain(&filter, decision, output),
        None => list(&filter, output),
    }
}

/// Insert or remove rules of the filter that runs.
///
/// # Errors
/// They are wrong, or the daemon does not answer.
pub fn edit(socket: &Path, edit: &FilterEdit, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut client = Client::connect(socket)?;
    let (answer, done, json) = match edit {
        FilterEdit::Insert {
            rules,
            file,
            router,
            before,
            last,
            json,
        } => {
            let (name, text) = match file {
                Some(file) => (file.display().to_string(), contents(file)?),
                None => ("RULE".to_owned(), inline(rules)),
            };
            let place = match (before, last) {
                (Some(name), _) => InsertPlace::Before(name.clone()),
                (None, true) => InsertPlace::Last,
                (None, false) => InsertPlace::First,
            };
            let request = InsertRequest {
                name,
                text,
                router: router.clone(),
                place,
            };
            (client.post(path::INSERT_RULES, &request)?, "inserted", json)
        }
        FilterEdit::Remove { request, json } => (client.post(path::REMOVE_RULES, request)?, "removed", json),
    };
    if *json {
        serde_json::to_writer_pretty(&mut *output, &answer).map_err(std::io::Error::from)?;
        writeln!(output)?;
    }
    match answer {
        EditAnswer::Refused { complaints } => {
            let lines: Vec<_> = complaints.iter().map(|complaint| line("rules", complaint)).collect();
            Err(CommandError::Refused(lines.join("\n")))
        }
        EditAnswer::Done { .. } if *json => Ok(()),
        EditAnswer::Done {
            count,
            rules_in_all,
            built_anew,
        } => {
            let (count, all) = (grouped(count), grouped(rules_in_all));
            let how = if built_anew { "; the matcher was built anew" } else { "" };
            Ok(writeln!(output, "{count} {done}, {all} rules in all{how}")?)
        }
    }
}

/// Rules as a configuration has them.
fn inline(rules: &[String]) -> String {
    let rules: Vec<_> = rules.iter().map(|rule| format!("    {{ {rule} }},\n")).collect();
    format!("[filter]\nrules = [\n{}]\n", rules.concat())
}

fn contents(file: &Path) -> Result<String, CommandError> {
    if file.as_os_str() != "-" {
        return Ok(sluice_daemon::read_text(file)?.1);
    }
    let bytes = config::file::bytes(std::io::stdin()).map_err(|error| CommandError::File {
        path: file.to_owned(),
        error,
    })?;
    config::file::text("-", bytes).map_err(CommandError::Configuration)
}

/// A word of the configuration.
fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn ago(hits: &Hits) -> String {
    match hits.last {
        None => "-".into(),
        Some(seconds) if seconds < 1.0 => "now".into(),
        Some(seconds) => {
            let whole = std::time::Duration::from_secs(seconds as u64);
            format!("{} ago", humantime::format_duration(whole))
        }
    }
}

fn matches(rule: &FilterRule) -> String {
    let keys: Vec<_> = rule
        .matches
        .iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    let keys = if keys.is_empty() {
        "everything".into()
    } else {
        keys.join(", ")
    };
    match rule.inserted {
        true => format!("{keys} (inserted)"),
        false => keys,
    }
}

fn row(rule: &FilterRule) -> [String; 7] {
    [
        rule.number.to_string(),
        rule.name.clone(),
        word(&rule.action),
        grouped(rule.hits.packets),
        grouped(rule.hits.bytes),
        ago(&rule.hits),
        matches(rule),
    ]
}

fn list(filter: &PacketFilter, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut columns = Columns::new(&RULE);
    filter.rules.iter().for_each(|rule| columns.row(row(rule)));
    let left = filter.rules_in_all - filter.rules.len() as u64;
    let hits = &filter.by_default;
    columns.row([
        String::new(),
        "default".into(),
        word(&filter.default),
        grouped(hits.packets),
        grouped(hits.bytes),
        ago(hits),
        "what no rule decides about".into(),
    ]);
    columns.flush(output)?;
    let [four, six] = filter.combinations;
    let asked = if filter.sessions {
        "the first packet of each flow"
    } else {
        "every packet"
    };
    writeln!(
        output,
        "\n{} rules, {} IPv4 and {} IPv6 combinations in {} KiB; `{}` asks about {asked}",
        grouped(filter.rules_in_all),
        grouped(four),
        grouped(six),
        grouped(filter.bytes.div_ceil(1024)),
        word(&filter.matcher),
    )?;
    if left > 0 {
        writeln!(output, "{} more rules: --rules {}", grouped(left), filter.rules_in_all)?;
    }
    if filter.log_lost > 0 {
        writeln!(
            output,
            "{} packets were not logged: too many waited",
            grouped(filter.log_lost)
        )?;
    }
    Ok(())
}

fn explain(filter: &PacketFilter, decision: &Decision, output: &mut dyn Write) -> Result<(), CommandError> {
    let [incoming, outgoing] = decision
        .interfaces
        .each_ref()
        .map(|name| name.as_deref().unwrap_or("-"));
    writeln!(output, "{}: in {incoming}, out {outgoing}", word(&decision.verdict))?;
    for rule in &decision.before {
        writeln!(
            output,
            "  rule {} ({}) matches, and goes on: {}",
            rule.number,
            named(rule),
            matches(rule)
        )?;
    }
    match &decision.rule {
        Some(rule) => writeln!(
            output,
            "  rule {} ({}) decides: {}",
            rule.number,
            named(rule),
            matches(rule)
        )?,
        None if outgoing == GATEWAY => writeln!(
            output,
            "  none of {} rules matches and decides: what is addressed to the gateway passes",
            grouped(filter.rules_in_all)
        )?,
        None => writeln!(
            output,
            "  none of {} rules matches and decides: the default does",
            grouped(filter.rules_in_all)
        )?,
    }
    Ok(())
}

fn named(rule: &FilterRule) -> String {
    format!("{}, {}", rule.name, word(&rule.action))
}
