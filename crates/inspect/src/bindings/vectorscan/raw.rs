//! The functions of `hs.h` that this crate calls, as Vectorscan 5.4 declares them.
//!
//! The library contains the search code several times, built for different processors, and selects one of the builds at run time.
//! The builds for AVX2 and AVX-512 miss matches (decision 0022), so this crate calls the functions of the SSE4.2 build directly,
//! by their names.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

pub const SUCCESS: c_int = 0;
pub const NOMEM: c_int = -2;
pub const SCAN_TERMINATED: c_int = -3;
pub const COMPILER_ERROR: c_int = -4;
pub const DB_VERSION_ERROR: c_int = -5;
pub const DB_PLATFORM_ERROR: c_int = -6;
pub const DB_MODE_ERROR: c_int = -7;
pub const ARCH_ERROR: c_int = -11;

pub const FLAG_CASELESS: c_uint = 1;

pub const MODE_BLOCK: c_uint = 1;
pub const MODE_STREAM: c_uint = 2;

macro_rules! opaque {
    ($($name:ident)*) => {
        $(#[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        })*
    };
}

opaque! { HsDatabase HsScratch HsStream }

#[repr(C)]
pub struct HsCompileError {
    pub message: *mut c_char,
    /// Index of the invalid pattern; negative if the error does not concern a pattern.
    pub expression: c_int,
}

#[repr(C)]
#[derive(Default)]
pub struct HsPlatform {
    pub tune: c_uint,
    pub cpu_features: c_ulonglong,
    pub reserved1: c_ulonglong,
    pub reserved2: c_ulonglong,
}

/// Callback with identifier, start (0 unless requested), end, flags and context. A result other than 0 stops the scan.
pub type MatchHandler = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

unsafe extern "C" {
    pub fn hs_version() -> *const c_char;
    pub fn hs_valid_platform() -> c_int;

    pub fn hs_compile_lit_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        lengths: *const usize,
        elements: c_uint,
        mode: c_uint,
        platform: *const HsPlatform,
        database: *mut *mut HsDatabase,
        error: *mut *mut HsCompileError,
    ) -> c_int;
    pub fn hs_free_compile_error(error: *mut HsCompileError) -> c_int;

    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_free_database")]
    pub fn hs_free_database(database: *mut HsDatabase) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_database_size")]
    pub fn hs_database_size(database: *const HsDatabase, size: *mut usize) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_stream_size")]
    pub fn hs_stream_size(database: *const HsDatabase, size: *mut usize) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_serialize_database")]
    pub fn hs_serialize_database(database: *const HsDatabase, bytes: *mut *mut c_char, length: *mut usize) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_deserialize_database")]
    pub fn hs_deserialize_database(bytes: *const c_char, length: usize, database: *mut *mut HsDatabase) -> c_int;

    pub fn hs_alloc_scratch(database: *const HsDatabase, scratch: *mut *mut HsScratch) -> c_int;
    pub fn hs_clone_scratch(source: *const HsScratch, clone: *mut *mut HsScratch) -> c_int;
    pub fn hs_scratch_size(scratch: *const HsScratch, size: *mut usize) -> c_int;
    pub fn hs_free_scratch(scratch: *mut HsScratch) -> c_int;

    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_scan")]
    pub fn hs_scan(
        database: *const HsDatabase,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut HsScratch,
        handler: MatchHandler,
        context: *mut c_void,
    ) -> c_int;

    pub fn hs_set_stream_allocator(
        allocate: unsafe extern "C" fn(usize) -> *mut c_void,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_open_stream")]
    pub fn hs_open_stream(database: *const HsDatabase, flags: c_uint, stream: *mut *mut HsStream) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_scan_stream")]
    pub fn hs_scan_stream(
        stream: *mut HsStream,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut HsScratch,
        handler: MatchHandler,
        context: *mut c_void,
    ) -> c_int;
    #[cfg_attr(target_arch = "x86_64", link_name = "corei7_hs_reset_stream")]
    pub fn hs_reset_stream(
        stream: *mut HsStream,
        flags: c_uint,
        scratch: *mut HsScratch,
        handler: Option<MatchHandler>,
        context: *mut c_void,
    ) -> c_int;

    /// `free` of the C library: Vectorscan's default deallocator for memory that it returns.
    pub fn free(pointer: *mut c_void);
}
