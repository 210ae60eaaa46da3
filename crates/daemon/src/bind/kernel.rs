//! Steps that change the driver of a card, and the kernel that runs them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use crate::files;

/// Runs steps. In tests, a fake kernel implements this trait.
pub(super) trait Kernel {
    /// Load a kernel module.
    fn load(&self, module: &str) -> io::Result<()>;
    /// Write to a file of `/sys`.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
}

/// One step of a driver change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Load a kernel module.
    Load(String),
    /// Load a kernel module if it is installed.
    Try(String),
    /// Write to a file of `/sys`.
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Text to write. An empty text clears the file.
        text: String,
    },
    /// Remove a file.
    Remove(PathBuf),
}

impl fmt::Display for Step {
    /// Write the step as a shell command.
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

/// The kernel of this machine.
pub(super) struct Running;

impl Kernel for Running {
    fn load(&self, module: &str) -> io::Result<()> {
        let run = |program| Command::new(program).arg(module).output();
        // The PATH of udev and of services may not contain /sbin.
        let output = match run("modprobe") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => run("/sbin/modprobe"),
            output => output,
        };
        let output = output.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "modprobe (package kmod) can't be run: \
                 {error}"
                ),
            )
        })?;
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
