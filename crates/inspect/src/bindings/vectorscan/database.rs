//! Compiled patterns.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Error, MatchAction, Platform, ScanEnd, Scratch, check, length, raw, report, scanned};

/// A literal pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// Bytes to search for, at least one. The first byte must not be zero, because the library treats a pattern with a
    /// leading zero as empty.
    pub bytes: &'a [u8],
    /// Whether ASCII letters match in either case.
    pub caseless: bool,
    /// Identifier that is reported with a match; several patterns may share an identifier.
    pub id: u32,
}

/// Scan mode of a database.
pub trait Mode: sealed::Sealed + 'static {}

/// Each block of data is scanned separately.
#[derive(Debug)]
pub enum Block {}

/// Data is scanned as parts of a stream; see [`super::ScanStreams`].
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
    /// Serial number, unique among all databases of this process, including freed ones.
    serial: u64,
    mode: PhantomData<M>,
}

// SAFETY: a database is not written between its creation and its destruction, and is not bound to a thread.
unsafe impl<M: Mode> Send for Database<M> {}
// SAFETY: a database is not written after its creation; scans write only the scratch and the stream.
unsafe impl<M: Mode> Sync for Database<M> {}

impl<M: Mode> Database<M> {
    /// Compiles patterns. Compilation may take seconds and hundreds of megabytes of memory.
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
        // no pointer to the arrays or to the platform.
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

    /// Size in bytes.
    pub fn size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is alive; the library writes one number.
        unsafe { raw::hs_database_size(self.raw(), &raw mut size) };
        size
    }

    /// Serialises the database. The bytes can be loaded only by the same version of the library on a processor of the
    /// same type.
    pub fn serialise(&self) -> Result<Vec<u8>, Error> {
        let (mut bytes, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the database is alive; the library writes a pointer and a length.
        check(unsafe { raw::hs_serialize_database(self.raw(), &raw mut bytes, &raw mut length) })?;
        // SAFETY: after success, `bytes` has `length` bytes from the C library's allocator, because no other allocator is
        // set; they are copied once and freed once.
        unsafe {
            let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
            raw::free(bytes.cast());
            Ok(copy)
        }
    }

    /// Restores a database from the output of [`Database::serialise`]. The caller must verify the bytes with a digest
    /// from a file that no other user can write. The library checks the version, the processor and a checksum, but
    /// scans trust every offset: forged bytes cause reads and writes at any address. Therefore the function is not
    /// public.
    pub(crate) fn deserialise(bytes: &[u8]) -> Result<Self, Error> {
        let mut database = ptr::null_mut();
        // SAFETY: the bytes are readable for their length; the library copies them.
        check(unsafe { raw::hs_deserialize_database(bytes.as_ptr().cast(), bytes.len(), &raw mut database) })?;
        let database = Self::from_raw(database)?;
        let mut size = 0;
        // SAFETY: the database is alive; the library writes one number. The function returns an error for databases
        // without streams.
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
    /// Scans a block of data. The sink receives the identifier and the end of each match; the ends are not always in
    /// ascending order.
    ///
    /// # Panics
    ///
    /// Panics if the scratch was not enlarged for this database, or the data is 4 GiB or longer. A panic of the sink
    /// aborts the process.
    pub fn scan<S: FnMut(u32, u64) -> MatchAction>(&self, data: &[u8], scratch: &mut Scratch, mut sink: S) -> ScanEnd {
        scratch.log_scan(self.serial, || None, data);
        let memory = scratch.memory_for(self.serial);
        // SAFETY: the database is alive and of block mode, the data is readable, and the scratch is large enough and
        // borrowed mutably. `report::<S>` receives the sink that it expects, and the sink outlives the call.
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
    /// Size in bytes of the state of a stream.
    pub fn stream_size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is alive and of streaming mode; the library writes one number.
        unsafe { raw::hs_stream_size(self.raw(), &raw mut size) };
        size
    }
}

impl<M: Mode> Drop for Database<M> {
    fn drop(&mut self) {
        // SAFETY: the database came from the library, and no borrow or reference to it is left.
        unsafe { raw::hs_free_database(self.raw.as_ptr()) };
    }
}

/// Converts the result of a compilation, and frees its error message.
fn compiled(code: c_int, error: *mut raw::HsCompileError, id: impl Fn(usize) -> Option<u32>) -> Result<(), Error> {
    if error.is_null() {
        return check(code);
    }
    // SAFETY: the library returned a structure of this layout with a null-terminated text. The structure is read and then
    // freed once.
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
