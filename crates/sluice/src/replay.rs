//! `sluice replay`: runs the engine on capture files.

use std::io::Write;

use sluice_daemon::load_for_replay;
use sluice_daemon::replay::{self as engine, Summary};

use crate::arguments::{InterfaceFile, Replay};
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

/// Replay captures and print the results.
///
/// # Errors
/// The configuration is invalid, or a capture can't be read or written.
pub fn replay(arguments: &Replay, output: &mut dyn Write) -> Result<(), CommandError> {
    let loaded = load_for_replay(&arguments.config)?;
    let files = |named: &[InterfaceFile]| {
        let files = named.iter().map(|file| (file.interface.clone(), file.path.clone()));
        files.collect()
    };
    let request = engine::Replay {
        inputs: files(&arguments.inputs),
        outputs: files(&arguments.outputs),
        workers: arguments.workers,
        eve: arguments.eve.clone(),
    };
    let summary =
        engine::replay(&loaded, &request).map_err(|error| sluice_daemon::DaemonError::Replay(Box::new(error)))?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *output, &summary).map_err(std::io::Error::from)?;
        writeln!(output)?;
        return Ok(());
    }
    as_text(&summary, output)
}

fn as_text(summary: &Summary, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut interfaces = Columns::new(&[
        ("INTERFACE", Align::Left),
        ("RECEIVED", Align::Right),
        ("SENT", Align::Right),
        ("ORIGINATED", Align::Right),
        ("DROPPED", Align::Right),
        ("TO HOST", Align::Right),
        ("WAITING", Align::Right),
    ]);
    for interface in &summary.interfaces {
        interfaces.row([
            interface.name.clone(),
            grouped(interface.received),
            grouped(interface.sent),
            grouped(interface.originated),
            grouped(interface.dropped),
            grouped(interface.to_host),
            grouped(interface.parked.saturating_sub(interface.unparked)),
        ]);
    }
    interfaces.flush(output)?;
    if !summary.drops.is_empty() {
        let mut drops = Columns::new(&[
            ("DROPPED", Align::Right),
            ("REASON", Align::Left),
            ("MEANING", Align::Left),
        ]);
        for drop in &summary.drops {
            drops.row([grouped(drop.packets), drop.name.clone(), drop.help.clone()]);
        }
        writeln!(output)?;
        drops.flush(output)?;
    }
    let sessions: Vec<_> = summary
        .sessions
        .iter()
        .map(|counter| format!("{} {}", grouped(counter.count), counter.name))
        .collect();
    writeln!(output, "\nSessions: {}", sessions.join(", "))?;
    for interface in summary.interfaces.iter().filter(|interface| interface.any_mac) {
        writeln!(
            output,
            "{}: no `mac` is configured, so frames with any destination address were accepted",
            interface.name
        )?;
    }
    for neighbour in &summary.invented_neighbours {
        let (interface, address, mac) = (&neighbour.interface, neighbour.address, &neighbour.mac);
        writeln!(
            output,
            "{interface}: {address} was assigned the invented MAC address {mac}, because a capture can't answer ARP \
             requests"
        )?;
    }
    if let Some(eve) = summary.eve {
        let lost = match eve.lost {
            0 => String::new(),
            lost => format!(", {} lost: raise `messages` in [inspection]", grouped(lost)),
        };
        writeln!(output, "Inspection records: {}{lost}", grouped(eve.written))?;
    }
    if let Some(line) = truncated(summary.truncated_capture, summary.truncated_headers) {
        writeln!(output, "{line}")?;
    }
    if summary.too_long > 0 {
        writeln!(
            output,
            "{} frames were skipped, because they exceed the maximum length of a frame",
            grouped(summary.too_long)
        )?;
    }
    if !summary.balanced {
        writeln!(output, "The counters do not balance, which is a bug: please report it")?;
    }
    Ok(())
}

/// Message about frames that the snap length of a capture has truncated. `None` if no frame was truncated.
pub fn truncated(frames: u64, headless: u64) -> Option<String> {
    let left_out = match headless {
        0 => String::new(),
        headless => format!(
            "; {} of these frames were skipped, because a header is incomplete",
            grouped(headless)
        ),
    };
    (frames > 0).then(|| {
        format!(
            "Truncated capture: the snap length cut {} frames, and the missing bytes were replaced with \
             zeros{left_out}",
            grouped(frames)
        )
    })
}
