//! Compiled inspection rules. The rules are loaded from a cache, or compiled by a separate process. The exit of the
//! process frees the memory of the compilation.

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
pub use progress::CompileProgress;

/// Name of the file in the cache folder.
const FILE: &str = "signatures.db";
/// Maximum duration of a compilation. A compilation that exceeds this time fails.
const PATIENCE: Duration = Duration::from_mins(5);

/// Why rules can't be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// Vectorscan failed in this process.
    #[error("the patterns of the rules can't be compiled: {0}")]
    Search(#[from] prefilter::Error),
    /// The compiler process can't be started.
    #[error("the rules can't be compiled, because the compiler process can't be started: {0}")]
    Start(io::Error),
    /// The compiler process reported an error.
    #[error("the rules can't be compiled: {why}")]
    Failed {
        /// Error text of the process.
        why: String,
    },
    /// The compiler process was killed by a signal.
    #[error(
        "the process that compiles the rules was ended by signal {signal}, probably because memory ran short: remove \
         rules or add memory"
    )]
    Killed {
        /// Number of the signal.
        signal: i32,
    },
    /// The compilation exceeded its time limit.
    #[error("compiling the rules took longer than {} s: leave a core without workers for the compiler, or remove \
         rules", after.as_secs())]
    Late {
        /// The time limit.
        after: Duration,
    },
    /// The compiled database can't be loaded.
    #[error("the compiled rules can't be loaded: {0}")]
    Broken(CacheError),
}

/// How the compiled rules were obtained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Why the cache could not be used. `None` if the rules were loaded from the cache.
    pub compiled: Option<String>,
    /// Time taken.
    pub took: Duration,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.compiled.is_some() { "compiled" } else { "loaded" };
        write!(
            f,
            "the search database was {how} in {:.1} ms",
            self.took.as_secs_f64() * 1e3
        )
    }
}

/// Compiles rules, and caches the result.
pub struct Compiler {
    /// Program of the compiler process. `None` means compilation within this process.
    program: Option<Program>,
    /// Directory of the cache. `None` means no cache.
    cache: Option<PathBuf>,
    /// Whether compiled rules are stored in the cache.
    stores: bool,
    progress: Arc<CompileProgress>,
}

impl Compiler {
    /// A compiler that runs within this process and does not cache.
    pub fn here() -> Self {
        Self {
            program: None,
            cache: None,
            stores: false,
            progress: Arc::default(),
        }
    }

    /// A compiler that starts this program as a separate process. The separate process runs on those of this process's
    /// cores that no worker occupies. The compiler reads the cache but does not write to it.
    pub fn of(config: &sluice_config::Config) -> Self {
        Self {
            // Start the executable of this process, even if another file has replaced the executable at its path.
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

    /// Store compiled rules in the cache.
    pub fn storing(self) -> Self {
        Self { stores: true, ..self }
    }

    /// A compiler for another configuration, which may specify a different cache.
    pub fn following(&self, config: &sluice_config::Config, stores: bool) -> Self {
        Self {
            program: self.program.clone(),
            cache: cache(config),
            stores,
            progress: self.progress.clone(),
        }
    }

    /// Progress of the compilation.
    pub fn progress(&self) -> &CompileProgress {
        &self.progress
    }

    /// Load the search database of a plan from the cache, or compile it.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn prefilter(&self, plan: PatternSet) -> Result<(Prefilter, Made), CompileError> {
        let started_at = Instant::now();
        let fingerprint = plan.fingerprint();
        let (prefilter, compiled) = match self.load(fingerprint) {
            Ok(prefilter) => (prefilter, None),
            Err(why) => {
                tracing::info!("the rules are compiled, because no cached database can be used: {why}");
                (self.compile(plan, fingerprint)?, Some(why))
            }
        };
        let took = started_at.elapsed();
        Ok((prefilter, Made { compiled, took }))
    }

    /// Load a database from the cache. The error states why the database could not be loaded.
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
        let cache_folder = self.cache.as_ref().filter(|_| self.stores);
        let passing = Passing::new();
        let folders = [cache_folder, passing.as_ref().map(|passing| &passing.0)];
        for folder in folders.into_iter().flatten() {
            let path = folder.join(FILE);
            let ended = match writable(folder) {
                Ok(()) => program.compile(&plan, &path, &self.progress)?,
                Err(why) => Ended::Unkept(why.to_string()),
            };
            match ended {
                Ended::Stored => return Prefilter::load(&path, fingerprint).map_err(CompileError::Broken),
                Ended::Unkept(why) => tracing::warn!(
                    "{}: {why}: compiled rules can't be stored in this folder. Give the daemon's user write access to \
                     the folder, or write another folder as `cache` in [inspection]",
                    folder.display()
                ),
            }
        }
        Ok(plan.compile(&mut |done, total| self.progress.see(done, total))?)
    }
}

/// Cores that this process may use and that no worker occupies. If workers occupy all cores, returns all cores that
/// this process may use.
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

/// Private temporary directory for a result that is not cached.
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
        // The error is ignored: if the removal fails, only temporary files remain.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Check that files can be created in a directory. A missing directory is created.
fn writable(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let probe = folder.join(format!(".probe.{}", std::process::id()));
    // An earlier process may have been killed before it removed its test file. Remove this file. `create_new` does not
    // follow links.
    let _ = fs::remove_file(&probe);
    files::create_new(&probe, 0o600)?;
    fs::remove_file(probe)
}

/// Core affinity of a thread.
type Cores = CpuSet;
