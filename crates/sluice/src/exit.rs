//! Errors of commands, and their exit status.

use std::io;
use std::path::PathBuf;

use sluice_daemon::config::Diagnosis;
use sluice_daemon::config::text::{escaped, escaped_lines, shortened};

use crate::client::ClientError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The daemon did not answer, or rejected the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output or a file can't be written.
    #[error("{0}")]
    Output(#[from] io::Error),
    /// A file can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The configuration is invalid.
    #[error("{0}")]
    Configuration(Diagnosis),
    /// The daemon reports that the configuration is invalid. Each line is a problem.
    #[error("{0}")]
    Refused(String),
    /// The running daemon can't apply the configuration without a restart.
    #[error(
        "the running daemon can't change to this configuration; restart the daemon with the new \
         configuration:\n{0}"
    )]
    NeedsRestart(String),
    /// The file to import is not a listing of a supported format.
    #[error(transparent)]
    Listing(#[from] sluice_daemon::config::import::ImportError),
    /// Lines of a listing that were not imported. Empty if the output of the command already lists these lines.
    #[error("{}", .0.join("\n"))]
    Leftovers(Vec<String>),
    /// The card can't be bound.
    #[error(transparent)]
    Bind(#[from] sluice_daemon::bind::BindError),
    /// Removal of all entries requires `--all`.
    #[error("no filter is given: add --all to remove all {0}")]
    AllUnsaid(&'static str),
    /// Error of the daemon crate, for example of a replay.
    #[error(transparent)]
    Daemon(#[from] sluice_daemon::DaemonError),
}

impl CommandError {
    /// Exit status of the process.
    pub fn status(&self) -> u8 {
        match self {
            // A closed reading end of the output is not an error.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Client(ClientError::Absent { .. }) => 5,
            Self::Configuration(_) | Self::Refused(_) => 3,
            Self::Daemon(sluice_daemon::DaemonError::Configuration(_)) => 3,
            Self::Daemon(sluice_daemon::DaemonError::Compiling(error)) => error.status(),
            Self::NeedsRestart(_) => 4,
            Self::AllUnsaid(_) | Self::Listing(_) => 2,
            _ => 1,
        }
    }

    /// Format the error for standard error: a complete diagnosis with the lines of the file, or a single message.
    /// Control characters except colours are escaped.
    pub fn render(&self, width: usize, colour: bool) -> String {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => String::new(),
            Self::Configuration(diagnosis) => diagnosis.render(width, colour),
            Self::Daemon(sluice_daemon::DaemonError::Configuration(diagnosis)) => diagnosis.render(width, colour),
            Self::Leftovers(lines) => lines
                .iter()
                .map(|line| format!("{}\n", escaped(&shortened(line, 600))))
                .collect(),
            Self::Client(ClientError::Refused(failure)) => format!("sluice: {}\n", escaped(&failure.message)),
            other => format!("sluice: {}\n", escaped_lines(&other.to_string())),
        }
    }
}
