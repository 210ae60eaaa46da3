//! The process that compiles, from both its ends.
//!
//! It gets a plan on its standard input and a path, writes how far it is to its standard output, a line of two numbers
//! each, and what it has compiled to the path. Last comes the most memory that it had.

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

use super::{CompileError, Cores, Progress};

/// What makes this program compile.
pub const COMMAND: &str = "compile-signatures";
/// Memory that it may have: nothing that is worth waiting for takes as much.
const MEMORY: u64 = 8 << 30;
/// It can't write what it compiled.
const UNKEPT: u8 = 74;

/// Why the process that compiles fails.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its input.
    #[error("the plan can't be read: {0}")]
    Input(#[from] io::Error),
    /// Its input says something else.
    #[error(transparent)]
    Plan(#[from] Truncated),
    /// Vectorscan.
    #[error(transparent)]
    Search(#[from] Error),
    /// Its output.
    #[error(transparent)]
    Store(#[from] CacheError),
}

impl ChildError {
    /// Status that the process exits with.
    pub fn status(&self) -> u8 {
        if matches!(self, Self::Store(_)) { UNKEPT } else { 1 }
    }
}

/// Compile the plan on `input` into a file: the process that [`super::Compiler`] starts.
///
/// # Errors
/// See [`ChildError`].
pub fn compile_child(input: &mut dyn Read, path: &Path, output: &mut dyn Write) -> Result<(), ChildError> {
    humble();
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let plan = PatternSet::from_bytes(&bytes)?;
    drop(bytes);
    let mut say = |words: String| {
        // Whether somebody listens is not our concern: whoever does not ends this process.
        let _ = output.write_all(words.as_bytes()).and_then(|()| output.flush());
    };
    let prefilter = plan.compile(&mut |done, total| say(format!("{done} {total}\n")))?;
    prefilter.store(path)?;
    say(format!("peak {}\n", peak()));
    Ok(())
}

/// This process is the first to go where memory is short, the last to run, and none without the one that started it. What
/// the system refuses of it changes nothing about what is compiled.
fn humble() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let _ = crate::files::set(std::path::Path::new("/proc/self/oom_score_adj"), "1000");
    let _ = rustix::process::nice(10);
    let limit = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    let _ = rustix::process::setrlimit(Resource::As, limit);
}

/// Bytes of memory that this process had at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

/// The program that compiles.
#[derive(Clone)]
pub(super) struct Program {
    pub path: PathBuf,
    /// Before the path of the file.
    pub arguments: Vec<OsString>,
    /// Cores that it may use.
    pub cores: Option<Cores>,
    /// How long it may take.
    pub patience: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The file is there.
    Kept,
    /// It could not be written.
    Unkept(String),
}

impl Program {
    /// Let it compile a plan into a file.
    pub fn compile(&self, plan: &PatternSet, path: &Path, progress: &Progress) -> Result<Ended, CompileError> {
        // It inherits its cores from this thread, which has others before and afterwards.
        let before = rustix::thread::sched_getaffinity(None).ok();
        let stay_on = |cores: &Option<Cores>| cores.map(|cores| rustix::thread::sched_setaffinity(None, &cores));
        stay_on(&self.cores);
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        stay_on(&before);
        let mut child = child.map_err(CompileError::Start)?;
        let bytes = plan.bytes();
        let followed = std::thread::scope(|scope| {
            let (input, output) = (child.stdin.take(), child.stdout.take());
            scope.spawn(move || {
                // Where it does not read, its end says why.
                input.map(|mut input| input.write_all(&bytes))
            });
            let (said, heard) = mpsc::channel();
            scope.spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    if said.send(line).is_err() {
                        break;
                    }
                }
            });
            let mut followed = Followed::default();
            let is_late = !followed.follow(&heard, self.patience, progress);
            // The threads wait for its ends of the pipes.
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
                        "the process that compiled the rules had {} at most",
                        Bytes(followed.peak)
                    );
                }
                Ok(Ended::Kept)
            }
            (_, Some(code)) if code == i32::from(UNKEPT) => Ok(Ended::Unkept(why)),
            (Some(signal), _) => Err(CompileError::Killed { signal }),
            _ => Err(CompileError::Failed { why }),
        }
    }
}

/// End a process, and wait until it has.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

/// What the process has said.
#[derive(Default)]
struct Followed {
    peak: u64,
}

impl Followed {
    /// Follow it until it says no more; false where that takes too long.
    fn follow(&mut self, heard: &mpsc::Receiver<String>, patience: Duration, progress: &Progress) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match heard.recv_timeout(left) {
                Ok(line) => self.take(&line, progress),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn take(&mut self, line: &str, progress: &Progress) {
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
