//! Rules as they are searched for: taken from a cache, or compiled by a process of its own, whose memory goes with it.

mod child;
mod progress;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity};
use sluice_inspect::prefilter::{self, CacheError, Fingerprint, PatternSet, Prefilter};

use crate::files;
use child::{Ended, Program};

pub use child::{ChildError, compile_child};
pub use progress::Progress;

/// The file in the folder of the cache.
const FILE: &str = "signatures.db";
/// Compiling ends after so long, and fails.
const PATIENCE: Duration = Duration::from_mins(5);

/// Why there is nothing to search with.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// Vectorscan, in this process.
    #[error("the rules can't be searched for: {0}")]
    Search(#[from] prefilter::Error),
    /// The process that compiles can't be had.
    #[error("the rules can't be compiled: their process does not start: {0}")]
    Start(io::Error),
    /// It says why it failed.
    #[error("the rules can't be compiled: {why}")]
    Failed {
        /// In its own words.
        why: String,
    },
    /// It was ended.
    #[error(
        "the process that compiles the rules was ended by signal {signal}: most likely memory is short, take rules away or \
         add memory"
    )]
    Killed {
        /// By which signal.
        signal: i32,
    },
    /// It took too long.
    #[error("the rules were not compiled within {} s: give the process a core of its own, or take rules away", after.as_secs())]
    Late {
        /// How long it had.
        after: Duration,
    },
    /// What it left is not what it was to leave.
    #[error("what was compiled can't be loaded: {0}")]
    Broken(CacheError),
}

/// How rules came to be searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// They were not found in the cache, for this reason; none: they were.
    pub compiled: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.compiled.is_some() { "compiled" } else { "loaded" };
        write!(
            f,
            "what searches for them was {how} in {:.1} ms",
            self.took.as_secs_f64() * 1e3
        )
    }
}

/// Who compiles, and where what is compiled is kept.
pub struct Compiler {
    /// None: this process does.
    program: Option<Program>,
    /// None: nowhere.
    cache: Option<PathBuf>,
    /// Whether what is compiled is put there.
    stores: bool,
    progress: Arc<Progress>,
}

impl Compiler {
    /// This process compiles, and keeps nothing.
    pub fn here() -> Self {
        Self {
            program: None,
            cache: None,
            stores: false,
            progress: Arc::default(),
        }
    }

    /// A process of this program compiles, on the cores that this one may use now and no worker has; what is in the cache is
    /// used, and stays as it is.
    pub fn of(config: &sluice_config::Config) -> Self {
        Self {
            // The file that runs, whatever lies at its path by now.
            program: Some(Program {
                path: "/proc/self/exe".into(),
                arguments: vec![child::COMMAND.into()],
                cores: spare_cores(&config.cores),
                patience: PATIENCE,
            }),
            cache: cache(config),
            ..Self::here()
        }
    }

    /// What is compiled is kept.
    pub fn storing(self) -> Self {
        Self { stores: true, ..self }
    }

    /// The same for another configuration.
    pub fn following(&self, config: &sluice_config::Config, stores: bool) -> Self {
        Self {
            program: self.program.clone(),
            cache: cache(config),
            stores,
            progress: self.progress.clone(),
        }
    }

    /// How far compiling is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What searches for the rules of a plan.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn prefilter(&self, plan: PatternSet) -> Result<(Prefilter, Made), CompileError> {
        let began = Instant::now();
        let fingerprint = plan.fingerprint();
        let (prefilter, compiled) = match self.load(fingerprint) {
            Ok(prefilter) => (prefilter, None),
            Err(why) => {
                tracing::info!("the rules are compiled: {why}");
                (self.compile(plan, fingerprint)?, Some(why))
            }
        };
        let took = began.elapsed();
        Ok((prefilter, Made { compiled, took }))
    }

    /// What the cache has, or why it has nothing.
    fn load(&self, fingerprint: Fingerprint) -> Result<Prefilter, String> {
        let Some(folder) = &self.cache else {
            return Err("no `cache` is configured".into());
        };
        let path = folder.join(FILE);
        Prefilter::load(&path, fingerprint).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn compile(&self, plan: PatternSet, fingerprint: Fingerprint) -> Result<Prefilter, CompileError> {
        let _over = progress::Over(&self.progress);
        let Some(program) = &self.program else {
            return Ok(plan.compile(&mut |done, total| self.progress.see(done, total))?);
        };
        let kept = self.cache.as_ref().filter(|_| self.stores);
        let passing = Passing::new();
        let folders = [kept, passing.as_ref().map(|passing| &passing.0)];
        for folder in folders.into_iter().flatten() {
            let path = folder.join(FILE);
            let ended = match writable(folder) {
                Ok(()) => program.compile(&plan, &path, &self.progress)?,
                Err(why) => Ended::Unkept(why.to_string()),
            };
            match ended {
                Ended::Kept => return Prefilter::load(&path, fingerprint).map_err(CompileError::Broken),
                Ended::Unkept(why) => tracing::warn!(
                    "{}: {why}: compiled rules are not kept there. Let this user write the folder, or name another as \
                     `cache` in [inspection]",
                    folder.display()
                ),
            }
        }
        Ok(plan.compile(&mut |done, total| self.progress.see(done, total))?)
    }
}

/// The cores that this process may use and workers do not; all that it may, where no other is left.
fn spare_cores(workers: &[u16]) -> Option<Cores> {
    let all = sched_getaffinity(None).ok()?;
    let mut spare = all;
    for &core in workers.iter().filter(|&&core| usize::from(core) < CpuSet::MAX_CPU) {
        spare.unset(core.into());
    }
    Some(if spare.count() > 0 { spare } else { all })
}

fn cache(config: &sluice_config::Config) -> Option<PathBuf> {
    config.inspection.as_ref()?.cache.clone()
}

/// A folder of this process alone for what is not kept.
struct Passing(PathBuf);

impl Passing {
    fn new() -> Option<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).ok()?;
        let name = format!("sluice-{:016x}", u64::from_le_bytes(random));
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether files can be made in a folder, which is made where there is none.
fn writable(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let probe = folder.join(format!(".probe.{}", std::process::id()));
    // Of a process that died here; and no link is followed.
    let _ = fs::remove_file(&probe);
    files::create_new(&probe, 0o600)?;
    fs::remove_file(probe)
}

/// The cores of a thread, as they are set again.
type Cores = CpuSet;
