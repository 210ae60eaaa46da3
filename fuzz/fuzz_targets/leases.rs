//! What a lease file might hold: Kea's lines and dhcpd's blocks, in two pieces, and the tables that they make.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_daemon::subscribers::leases::hostile(bytes));
