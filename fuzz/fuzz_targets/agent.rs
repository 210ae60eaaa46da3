//! Fuzzes the handling of replies of DHCP servers to sites that request public addresses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::agent::hostile(bytes));
