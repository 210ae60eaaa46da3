//! C libraries behind safe interfaces: the one room of this crate for unsafe code.
#![allow(unsafe_code)]

pub mod vectorscan;
