//! What a routing daemon or the kernel might tell: frames of FPM, netlink messages, and what becomes of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_route::feed::hostile(bytes));
