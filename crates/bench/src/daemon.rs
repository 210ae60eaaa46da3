//! The program `sluice` as a benchmark runs it: in the background, with its own configuration.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::kernel::command::run;
use crate::process::{await_some, end};
use crate::rows::Failure;

/// Maximum time until the daemon has started.
const START: Duration = Duration::from_secs(60);

/// Adds the name of the file or process that an error concerns to the error message.
pub fn of<E: std::fmt::Display>(what: impl ToString) -> impl FnOnce(E) -> Failure {
    let what = what.to_string();
    move |source| format!("{what}: {source}").into()
}

/// A running `sluice` daemon; dropping this value stops it.
#[derive(Debug)]
pub struct Daemon {
    /// Command prefix that runs a command in the daemon's network namespace and environment.
    prefix: String,
    program: PathBuf,
    folder: PathBuf,
    child: Child,
}

/// Path of the daemon's control socket in a benchmark folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("control")
}

/// Path of `sluice`: the path given, or by default `sluice` in the folder of the running executable.
pub fn program(named: Option<&PathBuf>) -> PathBuf {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        own.parent().map(|folder| folder.join("sluice"))
    };
    named.cloned().or_else(beside).unwrap_or_else(|| "sluice".into())
}

impl Daemon {
    /// Starts the daemon on the given cores. The configuration must place the control socket at [`socket`] of the
    /// folder; `prefix` is prepended to commands that run in the daemon's environment.
    pub fn start(
        prefix: &str,
        cores: &[usize],
        program: &Path,
        folder: &Path,
        configuration: &str,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(of(folder.display()))?;
        let (file, log) = (folder.join("gateway.toml"), folder.join("log"));
        fs::write(&file, configuration).map_err(of(file.display()))?;
        let output = File::create(&log).map_err(of(log.display()))?;
        let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
        let line = format!("{prefix} taskset -c {}", cores.join(","));
        let mut words = line.split_whitespace();
        let child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .arg(program)
            .args(["run", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(of(log.display()))?)
            .stderr(output)
            .spawn()
            .map_err(of(program.display()))?;
        let mut daemon = Self {
            prefix: prefix.into(),
            program: program.into(),
            folder: folder.into(),
            child,
        };
        daemon.wait()?;
        Ok(daemon)
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let mut error = String::new();
        let answers = await_some(START, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("sluice does not run: {status}: {}", self.last_words()).into());
            }
            let shown = self.show("cores");
            Ok(shown.map_err(|of| error = of.to_string()).ok())
        })?;
        answers.ok_or_else(|| format!("sluice does not run: {error}; {}", self.last_words()))?;
        Ok(())
    }

    /// Waits until the daemon has a route to a network. After the start a link counts as down for a moment, and its
    /// routes appear when it is up.
    pub fn await_route(&self, network: &str) -> Result<(), Failure> {
        let wanted = format!("\"to\":\"{network}\"");
        let failed = |error: &dyn std::fmt::Display| format!("sluice does not run: {error}");
        let routes = await_some(START, || {
            let routes = self.show("routes").map_err(|error| failed(&error))?;
            Ok(routes.contains(&wanted).then_some(()))
        })?;
        Ok(routes.ok_or_else(|| failed(&format!("no route to {network}; {}", self.last_words())))?)
    }

    /// Output of `sluice show WHAT --json`.
    pub fn show(&self, what: &str) -> Result<String, Failure> {
        let (program, socket) = (self.program.display(), socket(&self.folder));
        run(&format!(
            "{} {program} show {what} --json --socket {}",
            self.prefix,
            socket.display()
        ))
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = run(&format!("kill -TERM {}", self.child.id()));
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_named_one_or_beside_this_one() {
        let named = PathBuf::from("/usr/bin/sluice");
        assert_eq!(named, program(Some(&named)));
        let beside = std::env::current_exe().expect("the path of this program");
        assert_eq!(beside.parent(), program(None).parent());
    }

    #[test]
    fn program_that_ends_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let core = sluice_dpdk::eal::allowed_cores()[0];
        let failed = Daemon::start("env", &[core], Path::new("/bin/false"), folder.path(), "");
        let error = failed.expect_err("it ends at once").to_string();
        assert!(error.starts_with("sluice does not run: exit status: 1"), "{error}");
    }
}
