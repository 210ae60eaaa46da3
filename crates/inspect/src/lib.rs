//! Inspection: signatures in the dialects that operators have, streams put in order, what is found in them.
//!
//! [`signature`] is the form that every dialect is read into.
#![deny(unsafe_code)]

pub mod signature;
pub mod signatures;

pub use signature::Signature;
