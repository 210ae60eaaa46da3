//! `sluice apply` and `sluice clear`: change the state of the running daemon.

use std::io::Write;
use std::path::Path;

use sluice_daemon::config::Finding;
use sluice_daemon::config::api::{Answered, ApplyAnswer, ApplyRequest, Cleared, RefusedSignature, operation};
use sluice_daemon::config::text::escaped;

use crate::arguments::Clear;
use crate::client::Client;
use crate::exit::CommandError;
use crate::show::pretty;

/// Apply a configuration to the running daemon.
///
/// # Errors
/// The configuration is invalid, or the daemon can't apply it.
pub fn apply(
    socket: &Path,
    file: &Path,
    dry_run: bool,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let (name, text) = sluice_daemon::read_text(file)?;
    let request = ApplyRequest {
        name: name.clone(),
        text,
        dry_run,
    };
    let answer = Client::connect(socket)?.ask::<operation::Apply>(&request)?;
    if json {
        pretty(&answer, output)?;
    }
    match answer {
        ApplyAnswer::Committed {
            generation,
            changes,
            advice,
            rules,
        } if !json => {
            for change in &changes {
                writeln!(output, "{}", escaped(&change.to_string()))?;
            }
            for finding in &advice {
                writeln!(output, "{}", line(&name, finding))?;
            }
            if let Some(rules) = rules {
                writeln!(output, "{}", rules.said)?;
                for RefusedSignature { file, line, why, .. } in &rules.refused {
                    writeln!(output, "  {}", escaped(&format!("{file}:{line}: {why}")))?;
                }
            }
            match (changes.is_empty(), dry_run) {
                (true, _) => writeln!(
                    output,
                    "the configuration does not differ from the running configuration"
                )?,
                (false, true) => writeln!(output, "this would be commit {generation}; nothing was changed")?,
                (false, false) => writeln!(output, "commit {generation} is active")?,
            }
            Ok(())
        }
        ApplyAnswer::Committed { .. } => Ok(()),
        ApplyAnswer::Refused { findings } => {
            let lines: Vec<_> = findings.iter().map(|finding| line(&name, finding)).collect();
            Err(CommandError::Refused(lines.join("\n")))
        }
        ApplyAnswer::NeedsRestart { changes } => {
            let lines: Vec<_> = changes
                .iter()
                .map(|change| format!("  {}", escaped(&change.to_string())))
                .collect();
            Err(CommandError::NeedsRestart(lines.join("\n")))
        }
    }
}

/// Format an error about a configuration text as one line.
pub(crate) fn line(name: &str, finding: &Finding) -> String {
    let Finding {
        line,
        column,
        message,
        hint,
        ..
    } = finding;
    let text = match hint {
        Some(hint) => format!("{name}:{line}:{column}: {message} ({hint})"),
        None => format!("{name}:{line}:{column}: {message}"),
    };
    escaped(&text).into_owned()
}

/// Remove sessions, mappings or neighbours.
///
/// # Errors
/// Neither a filter nor `--all` is specified.
pub fn clear(socket: &Path, clear: &Clear, output: &mut dyn Write) -> Result<(), CommandError> {
    let (count, items) = match clear {
        Clear::Sessions { filter, all } => {
            let count = cleared::<operation::ClearSessions>(socket, filter, *all, "sessions")?;
            (count, "sessions")
        }
        Clear::Mappings { filter, all } => {
            let count = cleared::<operation::ClearMappings>(socket, filter, *all, "mappings")?;
            (count, "sessions with their mappings")
        }
        Clear::Neighbours { filter, all } => {
            let count = cleared::<operation::ClearNeighbours>(socket, filter, *all, "neighbours")?;
            (count, "neighbours")
        }
    };
    writeln!(output, "{count} {items} removed")?;
    Ok(())
}

/// Remove the entries that match a filter. All entries are removed only if `all` is set.
fn cleared<O>(socket: &Path, filter: &O::Request, all: bool, items: &'static str) -> Result<u64, CommandError>
where
    O: Answered<Answer = Cleared, Request: Default + PartialEq>,
{
    if *filter == O::Request::default() && !all {
        return Err(CommandError::AllUnsaid(items));
    }
    Ok(Client::connect(socket)?.ask::<O>(filter)?.count)
}
