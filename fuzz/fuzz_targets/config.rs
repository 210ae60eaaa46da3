//! Fuzzes the configuration: parses, validates, prints and compares arbitrary text, and reports its errors.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_config::hostile::text(bytes));
