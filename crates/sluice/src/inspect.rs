//! `sluice inspect`: applies inspection rules to a capture.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};

use sluice_daemon::config::api::Alert;
use sluice_daemon::config::text::escaped;
use sluice_daemon::replay::{self as engine, Found, InspectSummary, InspectionProgress, ReplayError};

use crate::arguments::Inspect;
use crate::columns::grouped;
use crate::exit::CommandError;
use crate::replay::truncated;

/// Number of rejected rules that are listed by default.
const LISTED: usize = 10;

/// Print the matches of rules in a capture, and print a summary to standard error.
///
/// # Errors
/// The capture or the rules can't be read, or no rule is usable.
pub fn inspect(arguments: &Inspect, output: &mut dyn Write) -> Result<(), CommandError> {
    let request = engine::Inspect {
        capture: arguments.capture.clone(),
        rules: arguments.rules.clone(),
        dialect: arguments.dialect,
        classes: arguments.classes.clone(),
        home: arguments.home_net.clone(),
        variables: arguments.variables.clone(),
        eve: arguments.eve.clone(),
        checks: arguments.checksums,
        flows: arguments.flows,
    };
    let shows_progress = std::io::stderr().is_terminal();
    let output = RefCell::new(output);
    let mut found = |found: Found<'_>| {
        let mut output = output.borrow_mut();
        match arguments.json {
            true => output.write_all(&(found.line)()),
            false => writeln!(output, "{}", escaped(&line(found.alert))),
        }
    };
    let mut progress = |progress: InspectionProgress| {
        if shows_progress {
            let share = progress.share.map(|share| format!(", {:.0} %", share * 100.0));
            eprint!("\r{} packets{} ", grouped(progress.packets), share.unwrap_or_default());
        }
    };
    let done = engine::inspect(&request, &mut found, &mut progress);
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    let summary = done.map_err(|error| match error {
        ReplayError::Output(error) => CommandError::Output(error),
        ReplayError::Configuration(diagnosis) => CommandError::Configuration(diagnosis),
        other => sluice_daemon::DaemonError::Replay(Box::new(other)).into(),
    })?;
    output.into_inner().flush()?;
    for line in summarised(&summary, arguments.refused) {
        eprintln!("{}", escaped(&line));
    }
    Ok(())
}

/// Format an alert as a line of Suricata's `fast.log`.
fn line(alert: &Alert) -> String {
    // The input has the format 2023-11-14T22:13:20.000000Z.
    let time = alert.time.trim_end_matches('Z');
    let time = match (time.get(..4), time.get(5..7), time.get(8..10), time.get(11..)) {
        (Some(year), Some(month), Some(day), Some(clock)) => format!("{month}/{day}/{year}-{clock}"),
        _ => time.to_owned(),
    };
    let end = |address: std::net::IpAddr, port: Option<u16>| match port {
        Some(port) => std::net::SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    let class = if alert.class.is_empty() { "(none)" } else { &alert.class };
    format!(
        "{time}  [**] [{}:{}:{}] {} [**] [Classification: {class}] [Priority: {}] {{{}}} {} -> {}",
        alert.generator,
        alert.signature,
        alert.revision,
        alert.message,
        alert.priority,
        alert.protocol,
        end(alert.source, alert.source_port),
        end(alert.destination, alert.destination_port),
    )
}

/// Summary lines about inspected packets and about packets that were not inspected.
fn summarised(summary: &InspectSummary, all: bool) -> Vec<String> {
    let rules = &summary.rules;
    let mut lines = vec![
        format!(
            "{} packets, {} bytes, {} flows; {} alerts",
            grouped(summary.packets),
            grouped(summary.bytes),
            grouped(summary.flows),
            grouped(summary.alerts)
        ),
        format!(
            "{} rules active, {} refused",
            grouped(rules.loaded as u64),
            grouped(rules.refused.len() as u64)
        ),
    ];
    let listed = if all { rules.refused.len() } else { LISTED };
    for refused in rules.refused.iter().take(listed) {
        lines.push(format!(
            "  {}:{}: {}",
            refused.file.display(),
            refused.line,
            refused.why
        ));
    }
    if rules.refused.len() > listed {
        lines.push(format!(
            "  and {} other rules: --refused lists all refused rules",
            grouped((rules.refused.len() - listed) as u64)
        ));
    }
    for reason in &summary.uninspected {
        lines.push(format!(
            "{} packets were not inspected: {} ({})",
            grouped(reason.packets),
            reason.reason,
            reason.help
        ));
    }
    lines.extend(truncated(summary.truncated, summary.truncated_headers));
    if summary.too_long > 0 {
        lines.push(format!(
            "{} frames were skipped, because they exceed the maximum length of a frame",
            grouped(summary.too_long)
        ));
    }
    if summary.lost > 0 {
        lines.push(format!("{} records were lost", grouped(summary.lost)));
    }
    let seconds = summary.took.as_secs_f64();
    if summary.packets > 0 && seconds > 0.0 {
        lines.push(format!(
            "the packets were processed in {seconds:.3} s: {:.0} Mb/s",
            summary.bytes as f64 * 8.0 / seconds / 1e6
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> Alert {
        Alert {
            time: "2023-11-14T22:13:20.000007Z".into(),
            action: "alert".into(),
            generator: 1,
            signature: 7,
            revision: 2,
            message: "evil".into(),
            class: "trojan-activity".into(),
            priority: 1,
            interface: "a".into(),
            protocol: "TCP".into(),
            source: "192.0.2.1".parse().unwrap(),
            source_port: Some(4000),
            destination: "198.51.100.7".parse().unwrap(),
            destination_port: Some(80),
            to_server: true,
            packets: [1, 0],
            bytes: [60, 0],
        }
    }

    #[test]
    fn alert_is_a_line_of_fast_log() {
        let expected = "11/14/2023-22:13:20.000007  [**] [1:7:2] evil [**] [Classification: trojan-activity] [Priority: 1] \
                        {TCP} 192.0.2.1:4000 -> 198.51.100.7:80";
        assert_eq!(expected, line(&alert()));
        let v6 = Alert {
            source: "2001:db8::1".parse().unwrap(),
            source_port: None,
            destination_port: None,
            class: String::new(),
            protocol: "ICMP".into(),
            ..alert()
        };
        let expected = "11/14/2023-22:13:20.000007  [**] [1:7:2] evil [**] [Classification: (none)] [Priority: 1] {ICMP} \
                        2001:db8::1 -> 198.51.100.7";
        assert_eq!(expected, line(&v6));
    }
}
