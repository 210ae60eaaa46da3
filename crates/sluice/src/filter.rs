//! `sluice show filter`: rules with their counters, or the rule that matches a given packet. `sluice filter`: inserts
//! and removes individual rules.

use std::io::Write;
use std::path::Path;

use sluice_daemon::config;
use sluice_daemon::config::api::column::word;
use sluice_daemon::config::api::{
    Decision, EditAnswer, FilterRule, InsertPlace, InsertRequest, PacketFilter, operation,
};
use sluice_daemon::config::value::GATEWAY;

use crate::arguments::FilterEdit;
use crate::client::Client;
use crate::columns::{Table, grouped};
use crate::control::line;
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowAnswer, pretty};

impl ShowAnswer for operation::Filter {
    type Options = NoOptions;

    /// Print the filter, or the rule that matches a packet.
    fn text(filter: &PacketFilter, _: &NoOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        match &filter.decision {
            Some(decision) => explain(filter, decision, output),
            None => list(filter, output),
        }
    }
}

/// Insert or remove rules of the running filter.
///
/// # Errors
/// The rules are invalid, or the daemon does not answer.
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
            (client.ask::<operation::InsertRules>(&request)?, "inserted", json)
        }
        FilterEdit::Remove { request, json } => (client.ask::<operation::RemoveRules>(request)?, "removed", json),
    };
    if *json {
        pretty(&answer, output)?;
    }
    match answer {
        EditAnswer::Refused { findings } => {
            let lines: Vec<_> = findings.iter().map(|finding| line("rules", finding)).collect();
            Err(CommandError::Refused(lines.join("\n")))
        }
        EditAnswer::Done { .. } if *json => Ok(()),
        EditAnswer::Done {
            count,
            rules_in_all,
            built_anew,
        } => {
            let (count, all) = (grouped(count), grouped(rules_in_all));
            let how = if built_anew { "; the matcher was rebuilt" } else { "" };
            Ok(writeln!(output, "{count} {done}, {all} rules in total{how}")?)
        }
    }
}

/// Format rules as in a configuration file.
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

fn list(filter: &PacketFilter, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut table = Table::new();
    filter.rules.iter().for_each(|rule| table.add(rule));
    let omitted = filter.rules_in_all - filter.rules.len() as u64;
    let hits = &filter.by_default;
    table.row([
        String::new(),
        "default".into(),
        word(&filter.default),
        grouped(hits.packets),
        grouped(hits.bytes),
        hits.ago(),
        "packets that no rule decides".into(),
    ]);
    table.flush(output)?;
    let [v4, v6] = filter.combinations;
    let subject = if filter.sessions {
        "the first packet of each flow"
    } else {
        "every packet"
    };
    writeln!(
        output,
        "\n{} rules, {} IPv4 and {} IPv6 combinations in {} KiB; `{}` evaluates {subject}",
        grouped(filter.rules_in_all),
        grouped(v4),
        grouped(v6),
        grouped(filter.bytes.div_ceil(1024)),
        word(&filter.matcher),
    )?;
    if omitted > 0 {
        writeln!(
            output,
            "{} more rules: --rules {}",
            grouped(omitted),
            filter.rules_in_all
        )?;
    }
    if filter.log_lost > 0 {
        writeln!(
            output,
            "{} packets were not logged, because the queue of log entries was full",
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
            "  rule {} ({}) matches, and evaluation continues: {}",
            rule.number,
            named(rule),
            rule.conditions()
        )?;
    }
    match &decision.rule {
        Some(rule) => writeln!(
            output,
            "  rule {} ({}) decides: {}",
            rule.number,
            named(rule),
            rule.conditions()
        )?,
        None if outgoing == GATEWAY => writeln!(
            output,
            "  none of {} rules decides: packets to the gateway pass",
            grouped(filter.rules_in_all)
        )?,
        None => writeln!(
            output,
            "  none of {} rules decides: the default applies",
            grouped(filter.rules_in_all)
        )?,
    }
    Ok(())
}

fn named(rule: &FilterRule) -> String {
    format!("{}, {}", rule.name, word(&rule.action))
}
