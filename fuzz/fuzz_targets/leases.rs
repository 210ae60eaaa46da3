//! Fuzzes the parsers of lease files (lines of Kea, blocks of dhcpd) and the tables that they fill. The content
//! arrives in two pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::leases::hostile(bytes));
