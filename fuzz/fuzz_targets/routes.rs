//! Fuzzes the processing of FPM frames of a routing daemon and of netlink messages of the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_route::feed::hostile(bytes));
