//! Fuzzes header accessors, layers, validity checks, flow keys, quoted packets and created packets with arbitrary
//! bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_testkit::hostile::wire(bytes));
