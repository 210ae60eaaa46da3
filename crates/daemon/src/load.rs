//! Reads a configuration from its file.

use std::fs::File;
use std::path::Path;

use sluice_config::memory::EntryBytes;
use sluice_config::{Checked, Machine, check, file};

use crate::{DaemonError, machine};

/// A configuration with its text, and the machine against which it was checked.
#[derive(Debug)]
pub struct Loaded {
    /// Path of the file, as shown in messages.
    pub name: String,
    /// Text of the file.
    pub text: String,
    /// The machine against which the configuration was checked.
    pub machine: Machine,
    /// Result of the check.
    pub checked: Checked,
}

/// Read a configuration and check it against this machine.
///
/// # Errors
/// The file can't be read, or the configuration is invalid.
pub fn load(path: &Path) -> Result<Loaded, DaemonError> {
    checked(path, machine(EntryBytes::default())?)
}

/// Read a configuration and check it for a replay. A replay pins no cores and opens no devices.
///
/// # Errors
/// The file can't be read, or the configuration is invalid.
pub fn load_for_replay(path: &Path) -> Result<Loaded, DaemonError> {
    let machine = Machine {
        cores: (0..=MAX_CORES).collect(),
        ..machine(EntryBytes::default())?
    };
    checked(path, machine)
}

/// Highest core number, larger than any that a configuration may contain.
pub(crate) const MAX_CORES: u16 = 1023;

/// Read a file. Returns the file's name, as shown in messages, and the file's text.
///
/// # Errors
/// The file can't be read, or is not UTF-8 text.
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
