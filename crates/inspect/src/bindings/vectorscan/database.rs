//! Compiled patterns.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Error, MatchAction, Platform, ScanEnd, Scratch, check, length, raw, report, scanned};

/// Bytes that are searched for as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// At least one; the first is not zero: the library takes such a pattern for an empty one.
    pub bytes: &'a [u8],
    /// ASCII letters match in either case.
    pub caseless: bool,
    /// What its matches are reported by; several patterns may share one.
    pub id: u32,
}

/// How a database is scanned.
pub trait Mode: sealed::Sealed + 'static {}

/// Each piece of data is looked at by itself.
#[derive(Debug)]
pub enum Block {}

/// Pieces of data follow one another; see [`super::Streams`].
#[derive(Debug)]
pub enum Streaming {}

impl Mode for Block {}
impl Mode for Streaming {}

mod sealed {
    pub trait Sealed {
        const FLAG: std::ffi::c_uint;
    }
    impl Sealed for super::Block {
        const FLAG: std::ffi::c_uint = super::raw::MODE_BLOCK;
    }
    impl Sealed for super::Streaming {
        const FLAG: std::ffi::c_uint = super::raw::MODE_STREAM;
    }
}

/// Compiled patterns.
#[derive(Debug)]
pub struct Database<M: Mode> {
    raw: NonNull<raw::HsDatabase>,
    /// Tells it from every other of this process, also from freed ones.
    serial: u64,
    mode: PhantomData<M>,
}

// SAFETY: nothing writes a database between its making and its freeing, and it knows no thread.
unsafe impl<M: Mode> Send for Database<M> {}
// SAFETY: as above; scans write only the scratch and the stream.
unsafe impl<M: Mode> Sync for Database<M> {}

impl<M: Mode> Database<M> {
    /// Compiles patterns. It may take seconds and hundreds of megabytes.
    pub fn compile(patterns: &[Pattern]) -> Result<Self, Error> {
        let elements = c_uint::try_from(patterns.len()).map_err(|_| Error::Count)?;
        if elements == 0 {
            return Err(Error::Count);
        }
        let caseless = |pattern: &Pattern| if pattern.caseless { raw::FLAG_CASELESS } else { 0 };
        let ids: Vec<c_uint> = patterns.iter().map(|pattern| pattern.id).collect();
        let flags: Vec<c_uint> = patterns.iter().map(caseless).collect();
        let texts: Vec<*const c_char> = patterns.iter().map(|pattern| pattern.bytes.as_ptr().cast()).collect();
        let lengths: Vec<usize> = patterns.iter().map(|pattern| pattern.bytes.len()).collect();
        let platform = Platform::here()?;
        let platform = raw::HsPlatform {
            tune: platform.tune,
            cpu_features: platform.features,
            ..raw::HsPlatform::default()
        };
        let mut database = ptr::null_mut();
        let mut error = ptr::null_mut();
        // SAFETY: the four arrays have `elements` entries, each text is readable for its length, and the library keeps
        // none of them, nor the platform.
        let code = unsafe {
            raw::hs_compile_lit_multi(
                texts.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                lengths.as_ptr(),
                elements,
                <M as sealed::Sealed>::FLAG,
                &raw const platform,
                &raw mut database,
                &raw mut error,
            )
        };
        compiled(code, error, |at| ids.get(at).copied())?;
        Self::from_raw(database)
    }

    fn from_raw(database: *mut raw::HsDatabase) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Database {
            raw: NonNull::new(database).ok_or(Error::Memory)?,
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            mode: PhantomData,
        })
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is alive; the library writes one number.
        unsafe { raw::hs_database_size(self.raw(), &raw mut size) };
        size
    }

    /// Its bytes, for the same version of the library on an equal processor.
    pub fn serialise(&self) -> Result<Vec<u8>, Error> {
        let (mut bytes, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the database is alive; the library writes a pointer and a length.
        check(unsafe { raw::hs_serialize_database(self.raw(), &raw mut bytes, &raw mut length) })?;
        // SAFETY: after success, `bytes` has `length` bytes from the C library's allocator, as we set no other; they
        // are copied once and freed once.
        unsafe {
            let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
            raw::free(bytes.cast());
            Ok(copy)
        }
    }

    /// A database from what [`Database::serialise`] gave. Only for bytes that are known to be that, by a digest in a file
    /// that nobody else can write: the library checks its version, the processor and a checksum, but scans believe
    /// every offset, and forged bytes make them read and write anywhere. For this reason it is not offered to others.
    pub(crate) fn deserialise(bytes: &[u8]) -> Result<Self, Error> {
        let mut database = ptr::null_mut();
        // SAFETY: the bytes are readable for their length; the library copies them.
        check(unsafe { raw::hs_deserialize_database(bytes.as_ptr().cast(), bytes.len(), &raw mut database) })?;
        let database = Self::from_raw(database)?;
        let mut size = 0;
        // SAFETY: the database is alive; the library writes one number. It refuses databases without streams.
        let code = unsafe { raw::hs_stream_size(database.raw(), &raw mut size) };
        if (code == raw::SUCCESS) == (<M as sealed::Sealed>::FLAG == raw::MODE_STREAM) {
            Ok(database)
        } else {
            Err(Error::Mode)
        }
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn raw(&self) -> *const raw::HsDatabase {
        self.raw.as_ptr()
    }
}

impl Database<Block> {
    /// Looks at a piece of data; the sink gets identifier and end of each match, not always in the order of the ends.
    ///
    /// # Panics
    ///
    /// Where the scratch does not serve this database, or the data is 4 GiB or longer. A panic of the sink aborts the
    /// process.
    pub fn scan<S: FnMut(u32, u64) -> MatchAction>(&self, data: &[u8], scratch: &mut Scratch, mut sink: S) -> ScanEnd {
        scratch.log_scan(self.serial, || None, data);
        let memory = scratch.memory_for(self.serial);
        // SAFETY: the database is alive and of block mode, the data readable, the scratch large enough and borrowed
        // mutably, and `report::<S>` is handed the sink that it expects, which outlives the call.
        scanned(unsafe {
            raw::hs_scan(
                self.raw(),
                data.as_ptr().cast(),
                length(data),
                0,
                memory.as_ptr(),
                report::<S>,
                (&raw mut sink).cast(),
            )
        })
    }
}

impl Database<Streaming> {
    /// Bytes that each stream takes.
    pub fn stream_size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is alive and of streaming mode; the library writes one number.
        unsafe { raw::hs_stream_size(self.raw(), &raw mut size) };
        size
    }
}

impl<M: Mode> Drop for Database<M> {
    fn drop(&mut self) {
        // SAFETY: the database came from the library, and what borrows or shares it is gone.
        unsafe { raw::hs_free_database(self.raw.as_ptr()) };
    }
}

/// What the compiler answered; frees what it said.
fn compiled(code: c_int, error: *mut raw::HsCompileError, id: impl Fn(usize) -> Option<u32>) -> Result<(), Error> {
    if error.is_null() {
        return check(code);
    }
    // SAFETY: the library handed out a structure of this layout with a terminated text; it is read and then freed once.
    let (at, message) = unsafe {
        let at = usize::try_from((*error).expression);
        let message = CStr::from_ptr((*error).message).to_string_lossy().into();
        raw::hs_free_compile_error(error);
        (at, message)
    };
    match code {
        raw::COMPILER_ERROR => Err(Error::Refused {
            id: at.ok().and_then(id),
            message,
        }),
        other => check(other),
    }
}
