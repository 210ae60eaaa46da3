//! Why a command failed, and the status that it exits with.

use std::io;
use std::path::PathBuf;

use sluice_daemon::config::Diagnosis;
use sluice_daemon::config::text::{escaped, escaped_lines, shortened};

use crate::client::ClientError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The daemon did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output or a file.
    #[error("{0}")]
    Output(#[from] io::Error),
    /// A file that can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// A wrong configuration.
    #[error("{0}")]
    Configuration(Diagnosis),
    /// A wrong configuration, as the daemon tells it: a line for each fault.
    #[error("{0}")]
    Refused(String),
    /// A configuration that a running daemon can't take over.
    #[error("the running daemon can't take this over; restart it with the new configuration:\n{0}")]
    NeedsRestart(String),
    /// Something to import that is no listing.
    #[error(transparent)]
    Listing(#[from] sluice_daemon::config::import::ImportError),
    /// Lines of a listing that are not carried over: one each, or none where they are said elsewhere.
    #[error("{}", .0.join("\n"))]
    Leftovers(Vec<String>),
    /// A card that can't be bound otherwise.
    #[error(transparent)]
    Bind(#[from] sluice_daemon::bind::BindError),
    /// Removing everything wants to be said.
    #[error("no filter: say --all to remove all {0}")]
    AllUnsaid(&'static str),
    /// The daemon or the replay.
    #[error(transparent)]
    Daemon(#[from] sluice_daemon::DaemonError),
}

impl CommandError {
    /// Status of the process.
    pub fn status(&self) -> u8 {
        match self {
            // What reads our output has seen enough.
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

    /// For standard error: whole diagnoses with their lines of the file, or one message; nothing in either acts on a
    /// terminal but the colours.
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
