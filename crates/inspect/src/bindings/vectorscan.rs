//! Vectorscan: many patterns searched for at once.
//!
//! A [`Database`] holds the compiled patterns and is shared by all cores. It is scanned with a [`Scratch`], of which
//! every core has one that serves all its databases. [`Streams`] keeps what a scan must remember between two pieces of
//! a stream. Compiling, growing a scratch and making streams allocate and happen on the control thread; scanning
//! allocates nothing.

mod calls;
mod database;
mod raw;
mod replay;
mod scratch;
mod streams;

use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};

pub use calls::ScanLog;
pub use database::{Block, Database, Mode, Pattern, Streaming};
pub use replay::Replay;
pub use scratch::Scratch;
pub use streams::ScanStreams;

/// Why Vectorscan did not do what it was asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It does not take the patterns.
    #[error("pattern {}: {message}", id.map_or_else(|| String::from("unknown"), |id| id.to_string()))]
    Refused {
        /// Identifier of the pattern to blame, where there is one.
        id: Option<u32>,
        /// Its own words.
        message: Box<str>,
    },
    /// There are no patterns, or more than 2³² - 1.
    #[error("a database holds 1 to 4294967295 patterns")]
    Count,
    /// Memory is short.
    #[error("Vectorscan is out of memory")]
    Memory,
    /// The processor lacks what Vectorscan is built on (SSE 4.2).
    #[error("Vectorscan does not run on this processor")]
    Processor,
    /// The database was compiled by another version.
    #[error("the database was compiled by another version of Vectorscan")]
    Version,
    /// The database was compiled for another processor.
    #[error("the database was compiled for another processor")]
    Platform,
    /// The database was compiled for the other [`Mode`].
    #[error("the database was compiled for another mode")]
    Mode,
    /// Anything else: bytes that are no database, most of the time.
    #[error("Vectorscan answered {0}")]
    Other(i32),
}

/// What to do after a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchAction {
    /// Go on.
    Continue,
    /// Look no further in this piece, nor in this stream until it is reset.
    Stop,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// At the end of the data.
    Complete,
    /// Where [`Next::Stop`] was said, now or earlier in the same stream.
    Stopped,
}

/// Version of the library and the day of its build, in its own words.
pub fn version() -> &'static str {
    // SAFETY: the library returns a constant, terminated text that lives as long as it does.
    let text = unsafe { CStr::from_ptr(raw::hs_version()) };
    text.to_str().unwrap_or("unknown")
}

/// What databases are compiled for: the family that code is tuned for, and the processor's features that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// `HS_TUNE_FAMILY_…`
    pub tune: u32,
    /// `HS_CPU_FEATURES_…`
    pub features: u64,
}

impl Platform {
    /// What is compiled for on this machine: what every processor has that the library runs on.
    pub fn here() -> Result<Platform, Error> {
        // SAFETY: the library looks at the processor only.
        check(unsafe { raw::hs_valid_platform() })?;
        Ok(Platform { tune: 0, features: 0 })
    }
}

fn check(code: c_int) -> Result<(), Error> {
    match code {
        raw::SUCCESS => Ok(()),
        raw::NOMEM => Err(Error::Memory),
        raw::DB_VERSION_ERROR => Err(Error::Version),
        raw::DB_PLATFORM_ERROR => Err(Error::Platform),
        raw::DB_MODE_ERROR => Err(Error::Mode),
        raw::ARCH_ERROR => Err(Error::Processor),
        other => Err(Error::Other(other)),
    }
}

/// What a scan answered. Other answers mean that arguments were wrong, which the types here rule out.
fn scanned(code: c_int) -> ScanEnd {
    match code {
        raw::SUCCESS => ScanEnd::Complete,
        raw::SCAN_TERMINATED => ScanEnd::Stopped,
        other => unreachable!("a scan was answered {other}"),
    }
}

/// Length of a piece, as the library takes it.
fn length(data: &[u8]) -> c_uint {
    c_uint::try_from(data.len()).expect("a piece of data is shorter than 4 GiB")
}

/// Hands a match to the sink. It cannot unwind into C: a panic in an `extern "C"` function aborts the process.
unsafe extern "C" fn report<S: FnMut(u32, u64) -> MatchAction>(
    id: c_uint,
    _from: c_ulonglong,
    to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `context` is the sink that the running scan borrows mutably; the library calls back on the scanning
    // thread, one match at a time, before the scan returns.
    let sink = unsafe { &mut *context.cast::<S>() };
    match sink(id, to) {
        MatchAction::Continue => 0,
        MatchAction::Stop => 1,
    }
}
