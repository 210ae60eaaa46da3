//! What DHCP servers might answer to sites that ask for public addresses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::agent::hostile(bytes));
