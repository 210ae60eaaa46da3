//! Any bytes as what parsers of protocols read, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_inspect::protocols::hostile::stream(bytes));
