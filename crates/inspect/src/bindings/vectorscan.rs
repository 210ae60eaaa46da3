//! Vectorscan: searches for many patterns in one pass.
//!
//! A [`Database`] contains the compiled patterns and is shared by all cores. A scan needs a [`Scratch`]; every core has
//! one for all of its databases. [`ScanStreams`] keeps the state of scans between two segments of a stream. Compiling,
//! enlarging a scratch and creating streams allocate memory and happen on the control thread; scanning allocates
//! nothing.

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

/// Error of Vectorscan.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Vectorscan rejects the patterns.
    #[error("pattern {}: {message}", id.map_or_else(|| String::from("unknown"), |id| id.to_string()))]
    Refused {
        /// Identifier of the invalid pattern, if the error concerns a single pattern.
        id: Option<u32>,
        /// Message of Vectorscan.
        message: Box<str>,
    },
    /// The number of patterns is 0 or above 2³² - 1.
    #[error("a database holds 1 to 4294967295 patterns")]
    Count,
    /// No memory is left.
    #[error("Vectorscan is out of memory")]
    Memory,
    /// The processor lacks an instruction set that Vectorscan requires (SSE 4.2).
    #[error("Vectorscan does not run on this processor")]
    Processor,
    /// The database was compiled by a different version of the library.
    #[error("the database was compiled by another version of Vectorscan")]
    Version,
    /// The database was compiled for a different processor.
    #[error("the database was compiled for another processor")]
    Platform,
    /// The database was compiled for the other [`Mode`] (block or streaming).
    #[error("the database was compiled for another mode")]
    Mode,
    /// Another error, usually because the bytes are not a database.
    #[error("Vectorscan answered {0}")]
    Other(i32),
}

/// What the scan does after a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchAction {
    /// Continue the scan.
    Continue,
    /// Stop scanning this data. In a stream, later data is not scanned either until the stream is reset.
    Stop,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// The scan reached the end of the data.
    Complete,
    /// The sink returned [`MatchAction::Stop`] in this scan or an earlier scan of the same stream.
    Stopped,
}

/// Version of the library with the date of its build.
pub fn version() -> &'static str {
    // SAFETY: the library returns a constant, null-terminated text that lives as long as the library is loaded.
    let text = unsafe { CStr::from_ptr(raw::hs_version()) };
    text.to_str().unwrap_or("unknown")
}

/// Target of compilation: the processor family for which the code is tuned, and the processor features that the code
/// uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// `HS_TUNE_FAMILY_…`
    pub tune: u32,
    /// `HS_CPU_FEATURES_…`
    pub features: u64,
}

impl Platform {
    /// Returns the target for this machine. It includes only features that all processors supported by the library
    /// have.
    pub fn here() -> Result<Platform, Error> {
        // SAFETY: the library only queries the processor.
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

/// Converts the result of a scan. Other result codes mean invalid arguments, which the types of this module exclude.
fn scanned(code: c_int) -> ScanEnd {
    match code {
        raw::SUCCESS => ScanEnd::Complete,
        raw::SCAN_TERMINATED => ScanEnd::Stopped,
        other => unreachable!("a scan was answered {other}"),
    }
}

/// Converts the length of data to the integer type of the library.
fn length(data: &[u8]) -> c_uint {
    c_uint::try_from(data.len()).expect("a piece of data is shorter than 4 GiB")
}

/// Passes a match to the sink. A panic can't unwind into C: in an `extern "C"` function it aborts the process.
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
