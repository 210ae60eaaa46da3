//! Header views, layers, validity, keys, quotes and made packets on arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_testkit::hostile::wire(bytes));
