//! Fuzzes the DHCP relay with messages of terminals and DHCP servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::relay::hostile(bytes));
