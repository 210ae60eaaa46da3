//! The compiler process: its main function, and the code that starts it.
//!
//! The process reads a plan from its standard input and gets a path as argument. The process reports its progress on
//! its standard output, as lines with two numbers each, and writes the compiled database to the path. The last output
//! line is the peak memory use of the process.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal};
use sluice_config::memory::Bytes;
use sluice_inspect::prefilter::{CacheError, Error, PatternSet, Truncated};

use super::{CompileError, CompileProgress, Cores};

/// Command-line argument that makes this program the compiler process.
pub const COMMAND: &str = "compile-signatures";
/// Memory limit of the process. The compilation of rules that need more memory fails.
const MEMORY: u64 = 8 << 30;
/// Exit status for a database that can't be written.
const UNKEPT: u8 = 74;

/// Why the compiler process fails.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The plan can't be read from standard input.
    #[error("the input of the compiler process can't be read: {0}")]
    Input(#[from] io::Error),
    /// The input is not a valid plan.
    #[error(transparent)]
    Plan(#[from] Truncated),
    /// Vectorscan rejects the patterns.
    #[error(transparent)]
    Search(#[from] Error),
    /// The database can't be written.
    #[error(transparent)]
    Store(#[from] CacheError),
}

impl ChildError {
    /// Exit status with which the process reports this error.
    pub fn status(&self) -> u8 {
        if matches!(self, Self::Store(_)) { UNKEPT } else { 1 }
    }
}

/// Compile the plan on `input` into a file. The process that [`super::Compiler`] starts runs this function.
///
/// # Errors
/// See [`ChildError`].
pub fn compile_child(input: &mut dyn Read, path: &Path, output: &mut dyn Write) -> Result<(), ChildError> {
    lower_priority();
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let plan = PatternSet::from_bytes(&bytes)?;
    drop(bytes);
    let mut say = |words: String| {
        // A write error is ignored, because a parent that stops reading ends this process anyway.
        let _ = output.write_all(words.as_bytes()).and_then(|()| output.flush());
    };
    let prefilter = plan.compile(&mut |done, total| say(format!("{done} {total}\n")))?;
    prefilter.store(path)?;
    say(format!("peak {}\n", peak()));
    Ok(())
}

/// Make this process the first victim of the OOM killer, give it low scheduling priority, and let the kernel kill it
/// when its parent ends. Errors are ignored, since the result of the compilation does not depend on these settings.
fn lower_priority() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let _ = crate::files::set(std::path::Path::new("/proc/self/oom_score_adj"), "1000");
    let _ = rustix::process::nice(10);
    let limit = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    let _ = rustix::process::setrlimit(Resource::As, limit);
}

/// Peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

/// Program that is started as the compiler process.
#[derive(Clone)]
pub(super) struct Program {
    pub path: PathBuf,
    /// Arguments that precede the path of the file.
    pub arguments: Vec<OsString>,
    /// Cores that the process may use.
    pub cores: Option<Cores>,
    /// Maximum run time.
    pub patience: Duration,
}

/// Result of a process that succeeded.
#[derive(Debug)]
pub(super) enum Ended {
    /// The compiled database was written to the file.
    Stored,
    /// The compiled database could not be written, for this reason.
    Unkept(String),
}

impl Program {
    /// Compile a plan into a file.
    pub fn compile(&self, plan: &PatternSet, path: &Path, progress: &CompileProgress) -> Result<Ended, CompileError> {
        // The process inherits the core affinity of this thread. The affinity is therefore changed for the spawn and
        // restored afterwards.
        let before = rustix::thread::sched_getaffinity(None).ok();
        let pin = |cores: &Option<Cores>| cores.map(|cores| rustix::thread::sched_setaffinity(None, &cores));
        pin(&self.cores);
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        pin(&before);
        let mut child = child.map_err(CompileError::Start)?;
        let bytes = plan.bytes();
        let followed = std::thread::scope(|scope| {
            let (input, output) = (child.stdin.take(), child.stdout.take());
            scope.spawn(move || {
                // A write error is ignored, since the exit status states why the process stopped reading.
                input.map(|mut input| input.write_all(&bytes))
            });
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
            let mut followed = Followed::default();
            let is_late = !followed.follow(&receiver, self.patience, progress);
            // The reader threads end as soon as the process closes its pipes.
            let status = if is_late { end(&mut child) } else { child.wait() };
            (followed, status, is_late)
        });
        let (followed, status, is_late) = followed;
        if is_late {
            let after = self.patience;
            return Err(CompileError::Late { after });
        }
        let status = status.map_err(CompileError::Start)?;
        let mut why = String::new();
        let _ = child.stderr.take().map(|mut errors| errors.read_to_string(&mut why));
        let why = why.trim().trim_start_matches("sluice: ").to_owned();
        match (status.signal(), status.code()) {
            (_, Some(0)) => {
                if followed.peak > 0 {
                    tracing::info!(
                        "the process that compiled the rules used at most {} of memory",
                        Bytes(followed.peak)
                    );
                }
                Ok(Ended::Stored)
            }
            (_, Some(code)) if code == i32::from(UNKEPT) => Ok(Ended::Unkept(why)),
            (Some(signal), _) => Err(CompileError::Killed { signal }),
            _ => Err(CompileError::Failed { why }),
        }
    }
}

/// Kill a process and wait for its exit.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

/// Reports received from the compiler process.
#[derive(Default)]
struct Followed {
    peak: u64,
}

impl Followed {
    /// Read the reports until the process closes its output. Returns `false` if the process takes longer than
    /// `patience`.
    fn follow(&mut self, receiver: &mpsc::Receiver<String>, patience: Duration, progress: &CompileProgress) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(remaining) {
                Ok(line) => self.take(&line, progress),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn take(&mut self, line: &str, progress: &CompileProgress) {
        let Some((first, second)) = line.split_once(' ') else {
            return;
        };
        match (first.parse(), second.parse()) {
            (Ok(done), Ok(total)) => progress.see(done, total),
            (Err(_), Ok(peak)) if first == "peak" => self.peak = peak as u64,
            _ => {}
        }
    }
}
