//! The process: it turns a valid configuration into the parameters of the data plane, and serves the control API.

#![forbid(unsafe_code)]

mod load;
mod machine;
mod ports;

pub use sluice_config as config;

pub use load::{Loaded, load};
pub use machine::{MachineError, machine};
pub use ports::{Outlook, outlook, plan};

use std::path::{Path, PathBuf};

use sluice_config::Diagnosis;

/// Why the process could not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A file that can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the kernel says.
        error: std::io::Error,
    },
    /// The machine could not be asked.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// This build can check configurations, but moves no packets.
    #[error("this build has no data plane")]
    NoDataPlane,
    /// A wrong configuration.
    #[error("{0}")]
    Configuration(Diagnosis),
}

/// Run the daemon until it is asked to end.
///
/// # Errors
/// The configuration is wrong, or a device would not open.
pub fn run(file: &Path) -> Result<(), DaemonError> {
    let loaded = load(file)?;
    let refused = |faults| DaemonError::Configuration(config::place(&loaded.name, &loaded.text, faults));
    let ports = outlook(&loaded.checked.config).map_err(refused)?;
    let faults: Vec<_> = ports
        .iter()
        .flat_map(|port| port.faults(&loaded.checked.config))
        .collect();
    if faults.is_empty() {
        Err(DaemonError::NoDataPlane)
    } else {
        Err(refused(faults))
    }
}
