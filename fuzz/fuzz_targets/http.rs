//! Any bytes as a conversation of HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_inspect::protocols::hostile::http(bytes));
