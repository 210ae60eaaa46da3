//! Bindings of the shim, generated from `shim.h`.
#![allow(
    dead_code,
    non_camel_case_types,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/shim.rs"));
