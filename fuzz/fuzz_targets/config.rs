//! Any text as a configuration: read, checked, complained about, printed and compared.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_config::hostile::text(bytes));
