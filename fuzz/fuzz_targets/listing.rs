//! Fuzzes the import of iptables and nftables listings: parses, converts and prints arbitrary text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_config::hostile::listing(bytes));
