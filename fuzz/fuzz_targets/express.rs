//! Fuzzes the express lane against the graph: a gateway with the lane and a gateway without it receive the same frames.
#![no_main]

#[path = "../../crates/engine/tests/express/pair.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod pair;
#[path = "../../crates/engine/tests/rig/mod.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pair::run(bytes));
