//! Inspection: signatures in the dialects that operators have, streams put in order, what is found in them.
//!
//! [`signature`] is the form that every dialect is read into; [`prefilter`] says which of many thousand signatures a
//! piece of traffic is worth asking about. Unsafe code lives in [`bindings`] alone.
#![deny(unsafe_code)]

pub mod bindings;
pub mod prefilter;
pub mod signature;

pub use signature::Signature;
