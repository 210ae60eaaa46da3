//! What a terminal or a DHCP server might send to the relay, and what the relay makes of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::relay::hostile(bytes));
