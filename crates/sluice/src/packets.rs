//! `sluice trace` and `sluice capture`: print or write packets as they arrive.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use sluice_daemon::config::api::{CaptureRequest, CaptureSource, TraceRecord, operation};
use sluice_daemon::config::text::escaped;

use crate::arguments::{Capture, Trace};
use crate::client::{Client, ClientError};
use crate::exit::CommandError;

/// For each of the next packets, print how the nodes process the packet.
///
/// # Errors
/// Returns the errors of the connection and of the output.
pub fn trace(socket: &Path, trace: &Trace, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut rest = Vec::new();
    let json = trace.json;
    Client::connect(socket)?.stream::<operation::Trace, _>(&trace.request, |piece| {
        rest.extend_from_slice(piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if json {
                output.write_all(&line)?;
            } else {
                let record = serde_json::from_slice(&line).map_err(|e| ClientError::Unreadable(e.to_string()))?;
                write_record(&record, output)?;
            }
        }
        // Flush after each packet, so that the user sees the packet immediately.
        Ok::<_, CommandError>(output.flush()?)
    })
}

fn write_record(record: &TraceRecord, output: &mut dyn Write) -> Result<(), CommandError> {
    let TraceRecord {
        time,
        worker,
        interface,
        packet,
        steps,
    } = record;
    let (seconds, microseconds) = (time / 1_000_000_000, time / 1_000 % 1_000_000);
    let (interface, packet) = (escaped(interface), escaped(packet));
    writeln!(
        output,
        "{seconds}.{microseconds:06} worker {worker} from {interface}: {packet}"
    )?;
    let width = steps.iter().map(|step| step.node.len()).max().unwrap_or(0);
    for step in steps {
        writeln!(output, "  {:<width$}  {}", escaped(&step.node), escaped(&step.verdict))?;
    }
    Ok(())
}

/// Write packets as pcapng.
///
/// # Errors
/// Returns the errors of the connection and of the file.
pub fn capture(socket: &Path, capture: &Capture, output: &mut dyn Write) -> Result<(), CommandError> {
    let Capture {
        interface,
        direction,
        reason,
        count,
        seconds,
        bytes,
        write,
        ..
    } = capture;
    let source = match interface {
        Some(name) => CaptureSource::Interface {
            name: name.clone(),
            direction: *direction,
        },
        None => CaptureSource::Drops { reason: reason.clone() },
    };
    let request = CaptureRequest {
        source,
        count: *count,
        seconds: *seconds,
        bytes: *bytes,
    };
    let mut client = Client::connect(socket)?;
    if write.as_os_str() == "-" {
        return client.stream::<operation::Capture, CommandError>(&request, |piece| Ok(output.write_all(piece)?));
    }
    let wrong = |error| CommandError::File {
        path: write.clone(),
        error,
    };
    let mut file = File::create(write).map_err(wrong)?;
    client.stream::<operation::Capture, CommandError>(&request, |piece| file.write_all(piece).map_err(wrong))
}
