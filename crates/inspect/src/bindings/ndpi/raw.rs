//! nDPI's interface as declared in the installed header, and the libgcrypt functions that this crate calls.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code
)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

use std::ffi::{c_int, c_uint, c_void};

include!(concat!(env!("OUT_DIR"), "/ndpi.rs"));

pub const GCRY_CIPHER_AES128: c_int = 7;
pub const GCRY_CIPHER_MODE_ECB: c_int = 1;
pub const GCRY_CIPHER_MODE_GCM: c_int = 9;
pub const GCRY_MD_SHA256: c_int = 8;
pub const GCRY_MD_FLAG_HMAC: c_uint = 2;

pub type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
pub type Free = unsafe extern "C" fn(*mut c_void);

#[link(name = "gcrypt")]
unsafe extern "C" {
    pub fn gcry_set_allocation_handler(
        allocate: Allocate,
        allocate_secure: Allocate,
        is_secure: unsafe extern "C" fn(*const c_void) -> c_int,
        reallocate: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
        free: Free,
    );
    pub fn gcry_cipher_open(cipher: *mut *mut c_void, algorithm: c_int, mode: c_int, flags: c_uint) -> c_uint;
    pub fn gcry_cipher_setkey(cipher: *mut c_void, key: *const c_void, length: usize) -> c_uint;
    pub fn gcry_cipher_close(cipher: *mut c_void);
    pub fn gcry_md_open(digest: *mut *mut c_void, algorithm: c_int, flags: c_uint) -> c_uint;
    pub fn gcry_md_setkey(digest: *mut c_void, key: *const c_void, length: usize) -> c_uint;
    pub fn gcry_md_read(digest: *mut c_void, algorithm: c_int) -> *mut u8;
    pub fn gcry_md_close(digest: *mut c_void);
}

// Functions of the C library.
unsafe extern "C" {
    pub fn malloc(size: usize) -> *mut c_void;
    pub fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn free(pointer: *mut c_void);
    pub fn tzset();
}
