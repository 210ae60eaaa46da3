//! Fuzzes the parser of signature files with arbitrary bytes in every dialect.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_inspect::signatures::hostile::text(bytes));
