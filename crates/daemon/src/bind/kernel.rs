//! Steps that change which driver has a card, and the kernel that takes them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use crate::files;

/// What takes steps: the running kernel, or a test's.
pub(super) trait Kernel {
    /// Load a module.
    fn load(&self, module: &str) -> io::Result<()>;
    /// Write to a file of `/sys`.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Load a module.
    Load(String),
    /// Load a module if there is one.
    Try(String),
    /// Write to a file of `/sys`.
    Write {
        /// Its path.
        path: PathBuf,
        /// What to write; nothing clears it.
        text: String,
    },
    /// Remove a file.
    Remove(PathBuf),
}

impl fmt::Display for Step {
    /// As a command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Load(module) | Step::Try(module) => write!(f, "modprobe {module}"),
            Step::Write { path, text } if text.is_empty() => write!(f, "echo > {}", path.display()),
            Step::Write { path, text } => write!(f, "echo {text} > {}", path.display()),
            Step::Remove(path) => write!(f, "rm {}", path.display()),
        }
    }
}

impl Step {
    pub(super) fn run(&self, kernel: &dyn Kernel) -> io::Result<()> {
        match self {
            Step::Load(module) => kernel.load(module),
            Step::Try(module) => {
                let _ = kernel.load(module);
                Ok(())
            }
            Step::Write { path, text } => kernel.write(path, &format!("{text}\n")),
            Step::Remove(path) => fs::remove_file(path),
        }
    }
}

/// The running kernel.
pub(super) struct Running;

impl Kernel for Running {
    fn load(&self, module: &str) -> io::Result<()> {
        let run = |program| Command::new(program).arg(module).output();
        // What udev and services start with may lack the folder of programs for root.
        let output = match run("modprobe") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => run("/sbin/modprobe"),
            output => output,
        };
        let output =
            output.map_err(|error| io::Error::new(error.kind(), format!("modprobe, of package kmod: {error}")))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            )),
        }
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        files::set(path, text)
    }
}
