//! Tests that identification allocates no memory outside of the arena. The test counts every call of the C library's
//! allocator on this thread, from Rust, nDPI and libgcrypt. The functions below replace the functions of the C library.

mod captured;

use std::cell::Cell;
use std::ffi::c_void;

use captured::{REQUEST, segment};
use sluice_inspect::applications::{ApplicationCapacity, ApplicationDetector};
use sluice_wire::Direction;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
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
unsafe extern "C" fn free(pointer: *mut c_void) {
    count();
    // SAFETY: the caller keeps the contract of `free`.
    unsafe { __libc_free(pointer) }
}

#[test]
fn packets_of_any_application_allocate_nothing_outside_of_the_arena() {
    let before = CALLS.get();
    let mut applications = ApplicationDetector::new(ApplicationCapacity::default()).unwrap();
    assert!(CALLS.get() - before > 1000, "the C library's calls are counted");

    let request = segment(1025, Direction::Forward, REQUEST);
    let response = segment(
        1025,
        Direction::Reverse,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
    );
    let before = CALLS.get();
    let flow = applications.allocate().unwrap();
    applications.packet(flow, &request, Direction::Forward, 0);
    let used = applications.memory().used;
    applications.packet(flow, &response, Direction::Reverse, 1);
    applications.give_up(flow);
    assert_eq!(0, CALLS.get() - before);
    assert!(used > 0, "the flow took something from the arena");

    for capture in captured::captures() {
        let packets = captured::packets(&capture);
        let mut sessions: Vec<_> = packets.iter().map(|packet| packet.key.clone()).collect();
        sessions.sort_by_key(|key| format!("{key:?}"));
        sessions.dedup();
        for session in sessions.into_iter().take(50) {
            let before = CALLS.get();
            let flow = applications.allocate().unwrap();
            for packet in packets.iter().filter(|packet| packet.key == session) {
                applications.packet(flow, &packet.bytes, packet.direction, packet.time_ms);
            }
            applications.give_up(flow);
            assert_eq!(0, CALLS.get() - before, "{} {session:?}", capture.display());
        }
    }
    assert!(applications.memory().peak > 0);
    println!("{:?}", applications.memory());
}
