//! Tests that scanning allocates no memory. The test counts every call of the C library's allocator on this thread,
//! from Rust and from Vectorscan. The functions below replace the functions of the C library.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use sluice_inspect::bindings::vectorscan::{Block, Database, MatchAction, Pattern, ScanStreams, Scratch, Streaming};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(pointer: *mut c_void);
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: each function replaces the C library's function of the same name, counts the call, and calls the original.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of `malloc`.
    unsafe { __libc_malloc(size) }
}

// SAFETY: the function calls the original, as `malloc` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of `calloc`.
    unsafe { __libc_calloc(items, size) }
}

// SAFETY: the function calls the original, as `malloc` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of `realloc`.
    unsafe { __libc_realloc(pointer, size) }
}

// SAFETY: the function calls the original, as `malloc` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    count();
    // SAFETY: the caller keeps the contract of `posix_memalign`: `into` is writable.
    unsafe {
        *into = __libc_memalign(alignment, size);
        if (*into).is_null() { 12 } else { 0 }
    }
}

// SAFETY: the function calls the original, as `malloc` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of `aligned_alloc`.
    unsafe { __libc_memalign(alignment, size) }
}

// SAFETY: the function calls the original, as `malloc` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(pointer: *mut c_void) {
    count();
    // SAFETY: the caller keeps the contract of `free`.
    unsafe { __libc_free(pointer) }
}

fn calls(run: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    run();
    CALLS.get() - before
}

#[test]
fn scanning_blocks_and_streams_allocates_nothing_from_the_first_byte_on() {
    let texts: Vec<Vec<u8>> = (0..500u32)
        .map(|n| format!("literal {n:x} of a rule").into_bytes())
        .collect();
    let patterns: Vec<Pattern> = texts
        .iter()
        .enumerate()
        .map(|(id, bytes)| Pattern {
            bytes,
            caseless: id % 2 == 0,
            id: id as u32,
        })
        .collect();
    assert_ne!(0, calls(|| drop(std::hint::black_box(vec![0u8; 100]))));
    let block = Database::<Block>::compile(&patterns);
    let block = block.unwrap();
    let stream = Arc::new(Database::<Streaming>::compile(&patterns).unwrap());
    let mut scratch = Scratch::new();
    scratch.serve(&block).unwrap();
    scratch.serve(&stream).unwrap();
    let mut streams = ScanStreams::new(stream, 100).unwrap();
    let data = b"LITERAL 2 of a rule, literal 1f of a rule, and literal 8 of a".repeat(20);

    let mut found = 0u64;
    let mut sink = |_: u32, _: u64| {
        found += 1;
        MatchAction::Continue
    };
    let allocated = calls(|| {
        block.scan(&data, &mut scratch, &mut sink);
        for round in 0..3 {
            let mut open = [0; 100];
            for stream in &mut open {
                *stream = streams.open().unwrap();
                for piece in data.chunks(50 + round) {
                    streams.scan(*stream, piece, &mut scratch, &mut sink);
                }
            }
            for stream in open {
                streams.finish(stream, &mut scratch, &mut sink);
                streams.close(stream);
            }
        }
    });
    assert!(found > 300 * 40, "{found}");
    assert_eq!(0, allocated);
}
