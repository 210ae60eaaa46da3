//! Any text as a listing of iptables or nftables: read, carried over, printed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_config::hostile::listing(bytes));
