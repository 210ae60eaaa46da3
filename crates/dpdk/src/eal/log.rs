//! DPDK's log. The log is kept in memory and not printed. Errors quote the last lines of the log. The environment
//! variable `SLUICE_DPDK_LOG` enables printing of the whole log.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::io::Write;
use std::sync::Mutex;

use crate::sys;

const LINES: usize = 256;

static RECENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

extern "C" fn write(text: *const c_char, length: usize) {
    // SAFETY: the C library's stream passes flushed bytes with their length.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    if std::env::var_os("SLUICE_DPDK_LOG").is_some() {
        let _ = std::io::stderr().write_all(bytes);
    }
    let Ok(mut recent) = RECENT.lock() else { return };
    for line in String::from_utf8_lossy(bytes)
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        if recent.len() == LINES {
            recent.pop_front();
        }
        recent.push_back(line.to_owned());
    }
}

/// The last lines of DPDK's log, at most `count`, oldest first.
pub fn recent_lines(count: usize) -> Vec<String> {
    RECENT
        .lock()
        .map(|recent| {
            recent
                .iter()
                .skip(recent.len().saturating_sub(count))
                .cloned()
                .collect()
        })
        .unwrap_or_default()
}

/// Redirect DPDK's log to this module.
pub(super) fn open() {
    // SAFETY: `write` is a static function that any thread may call. If the call fails, the log goes to stderr.
    unsafe { sys::sluice_log_open(Some(write)) };
}

extern "C" fn discard_message() -> i32 {
    0
}

/// Silence libbpf and libxdp, which print errors to stderr even if a device finally works.
pub(super) fn silence_libraries() {
    if std::env::var_os("SLUICE_DPDK_LOG").is_some() {
        return;
    }
    for (library, setter) in [
        (c"libbpf.so.1", c"libbpf_set_print"),
        (c"libbpf.so.0", c"libbpf_set_print"),
        (c"libxdp.so.1", c"libxdp_set_print"),
    ] {
        // SAFETY: the names are C strings. RTLD_NOLOAD only finds a library that is already loaded.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is valid.
        let symbol = unsafe { libc::dlsym(handle, setter.as_ptr()) };
        if !symbol.is_null() {
            // SAFETY: each setter has the form `print_fn set(print_fn)`, with a pointer as parameter and as result. In
            // this platform's C calling convention, a function without parameters may be called with any arguments.
            let set: extern "C" fn(extern "C" fn() -> i32) -> usize = unsafe { std::mem::transmute(symbol) };
            set(discard_message);
        }
    }
}
