//! Fuzzes the parsers of lease files (lines of Kea, blocks of dhcpd) with content in two parts, and the resulting
//! tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::leases::hostile(bytes));
