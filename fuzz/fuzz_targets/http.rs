//! Fuzzes the HTTP parser with arbitrary bytes as an HTTP connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_inspect::protocols::hostile::http(bytes));
