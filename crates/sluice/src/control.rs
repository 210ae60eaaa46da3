//! `sluice apply` and `sluice clear`: what changes the running daemon.

use std::io::Write;
use std::path::Path;

use sluice_daemon::config::Complaint;
use sluice_daemon::config::api::{ApplyAnswer, ApplyRequest, Cleared, RefusedSignature, path};

use crate::arguments::Clear;
use crate::client::Client;
use crate::exit::CommandError;

/// Give the daemon another configuration.
///
/// # Errors
/// It is wrong, or can't be taken over.
pub fn apply(
    socket: &Path,
    file: &Path,
    dry_run: bool,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let text = std::fs::read_to_string(file).map_err(|error| CommandError::File {
        path: file.to_owned(),
        error,
    })?;
    let name = file.display().to_string();
    let request = ApplyRequest {
        name: name.clone(),
        text,
        dry_run,
    };
    let answer: ApplyAnswer = Client::connect(socket)?.post(path::APPLY, &request)?;
    if json {
        serde_json::to_writer_pretty(&mut *output, &answer).map_err(std::io::Error::from)?;
        writeln!(output)?;
    }
    match answer {
        ApplyAnswer::Committed {
            generation,
            changes,
            advice,
            rules,
        } if !json => {
            for change in &changes {
                writeln!(output, "{change}")?;
            }
            for complaint in &advice {
                writeln!(output, "{}", line(&name, complaint))?;
            }
            if let Some(rules) = rules {
                writeln!(output, "{}", rules.said)?;
                for RefusedSignature { file, line, why, .. } in &rules.refused {
                    writeln!(output, "  {file}:{line}: {why}")?;
                }
            }
            match (changes.is_empty(), dry_run) {
                (true, _) => writeln!(output, "nothing differs from what runs")?,
                (false, true) => writeln!(output, "this would be commit {generation}; nothing was changed")?,
                (false, false) => writeln!(output, "commit {generation} runs")?,
            }
            Ok(())
        }
        ApplyAnswer::Committed { .. } => Ok(()),
        ApplyAnswer::Refused { complaints } => {
            let lines: Vec<_> = complaints.iter().map(|complaint| line(&name, complaint)).collect();
            Err(CommandError::Refused(lines.join("\n")))
        }
        ApplyAnswer::NeedsRestart { changes } => {
            let lines: Vec<_> = changes.iter().map(|change| format!("  {change}")).collect();
            Err(CommandError::NeedsRestart(lines.join("\n")))
        }
    }
}

/// A complaint about a text, as a line.
pub(crate) fn line(name: &str, complaint: &Complaint) -> String {
    let Complaint {
        line,
        column,
        message,
        hint,
        ..
    } = complaint;
    match hint {
        Some(hint) => format!("{name}:{line}:{column}: {message} ({hint})"),
        None => format!("{name}:{line}:{column}: {message}"),
    }
}

/// Remove sessions, mappings or neighbours.
///
/// # Errors
/// No filter without `--all`.
pub fn clear(socket: &Path, clear: &Clear, output: &mut dyn Write) -> Result<(), CommandError> {
    let (Cleared { count }, what) = match clear {
        Clear::Sessions { filter, all } => {
            let filter = filter.filter();
            if filter.is_empty() && !all {
                return Err(CommandError::AllUnsaid("sessions"));
            }
            (
                Client::connect(socket)?.post(path::CLEAR_SESSIONS, &filter)?,
                "sessions",
            )
        }
        Clear::Mappings { filter, all } => {
            let filter = filter.filter();
            if filter.is_empty() && !all {
                return Err(CommandError::AllUnsaid("mappings"));
            }
            let cleared = Client::connect(socket)?.post(path::CLEAR_MAPPINGS, &filter)?;
            (cleared, "sessions with their mappings")
        }
        Clear::Neighbours { filter, all } => {
            let filter = filter.filter();
            if filter.is_empty() && !all {
                return Err(CommandError::AllUnsaid("neighbours"));
            }
            (
                Client::connect(socket)?.post(path::CLEAR_NEIGHBOURS, &filter)?,
                "neighbours",
            )
        }
    };
    writeln!(output, "{count} {what} removed")?;
    Ok(())
}
