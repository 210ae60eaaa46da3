//! `sluice import`: converts listings of iptables or nftables to a configuration.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use sluice_daemon::config;
use sluice_daemon::config::import::{self, Imported, Leftover, Source};

use crate::arguments::Import;
use crate::exit::CommandError;

/// Convert the listings to a configuration, and print the configuration.
///
/// # Errors
/// A file can't be read or written, or is not a listing, or some lines can't be imported. If some lines can't be
/// imported, all other lines are written before the error.
pub fn import(arguments: &Import, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut files = Vec::new();
    for path in &arguments.files {
        files.push((path.display().to_string(), read(path)?));
    }
    let mut sources = Vec::new();
    for (name, bytes) in &files {
        let text = import::text(name, bytes)?;
        sources.push(Source { name, text });
    }
    let addresses = arguments.addresses.iter().cloned().collect();
    let imported = import::import(&sources, arguments.format, &addresses)?;
    let text = imported.print().map_err(io::Error::other)?;
    match &arguments.output {
        Some(path) => fs::write(path, &text).map_err(|error| file(path, error))?,
        None if arguments.json => {}
        None => output.write_all(text.as_bytes())?,
    }
    if arguments.json {
        as_json(&imported, &text, output)?;
    }
    match imported.leftovers.as_slice() {
        [] => Ok(()),
        _ if arguments.json => Err(CommandError::Leftovers(Vec::new())),
        leftovers => Err(CommandError::Leftovers(leftovers.iter().map(line).collect())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let read = match path.to_str() {
        Some("-") => config::file::bytes(io::stdin()),
        _ => fs::File::open(path).and_then(config::file::bytes),
    };
    read.map_err(|error| file(path, error))
}

fn file(path: &Path, error: io::Error) -> CommandError {
    let path = path.to_owned();
    CommandError::File { path, error }
}

fn line(leftover: &Leftover) -> String {
    format!("{}: {}: {}", leftover.at(), leftover.reason, leftover.text)
}

fn as_json(imported: &Imported, text: &str, output: &mut dyn Write) -> Result<(), CommandError> {
    let document = json!({
        "configuration": text,
        "leftovers": imported.leftovers,
        "notes": imported.notes,
        "remarks": imported.remarks,
    });
    writeln!(output, "{document:#}")?;
    Ok(())
}
