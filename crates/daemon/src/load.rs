//! A configuration from its file.

use std::fs::File;
use std::path::Path;

use sluice_config::memory::EntryBytes;
use sluice_config::{Checked, Machine, check, file};

use crate::{DaemonError, machine};

/// A configuration, its text, and the machine that it was checked against.
#[derive(Debug)]
pub struct Loaded {
    /// Path of its file, as messages name it.
    pub name: String,
    /// The text.
    pub text: String,
    /// The machine.
    pub machine: Machine,
    /// What was checked.
    pub checked: Checked,
}

/// Read and check a configuration for this machine.
///
/// # Errors
/// The file can't be read, or is wrong.
pub fn load(path: &Path) -> Result<Loaded, DaemonError> {
    checked(path, machine(EntryBytes::default())?)
}

/// Read and check a configuration for a replay: no core of this machine is pinned, and no device opened.
///
/// # Errors
/// The file can't be read, or is wrong.
pub fn load_for_replay(path: &Path) -> Result<Loaded, DaemonError> {
    let machine = Machine {
        cores: (0..=MOST_CORES).collect(),
        ..machine(EntryBytes::default())?
    };
    checked(path, machine)
}

/// More cores than any configuration names.
pub(crate) const MOST_CORES: u16 = 1023;

/// The name of a file, as messages have it, and its text.
///
/// # Errors
/// The file can't be read, or is no text.
pub fn read_text(path: &Path) -> Result<(String, String), DaemonError> {
    let read = File::open(path).and_then(file::bytes);
    let bytes = read.map_err(|error| DaemonError::File {
        path: path.to_owned(),
        error,
    })?;
    let name = path.display().to_string();
    let text = file::text(&name, bytes).map_err(DaemonError::Configuration)?;
    Ok((name, text))
}

pub(crate) fn checked(path: &Path, machine: Machine) -> Result<Loaded, DaemonError> {
    let (name, text) = read_text(path)?;
    let checked = check(&name, &text, &machine).map_err(DaemonError::Configuration)?;
    Ok(Loaded {
        name,
        text,
        machine,
        checked,
    })
}
