//! The process: it turns a valid configuration into the parameters of the data plane, and serves the control API.

#![forbid(unsafe_code)]

mod load;
mod machine;

pub use sluice_config as config;

pub use load::{Loaded, load};
pub use machine::{MachineError, machine};

use std::path::PathBuf;

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
    /// A wrong configuration.
    #[error("{0}")]
    Configuration(Diagnosis),
}
