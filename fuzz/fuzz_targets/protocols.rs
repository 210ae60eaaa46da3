//! Fuzzes the protocol parsers with arbitrary bytes, unsegmented and in segments.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_inspect::protocols::hostile::stream(bytes));
