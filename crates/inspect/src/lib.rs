//! Inspection: signatures in the dialects that operators have, streams put in order, what is found in them.
//!
//! [`signature`] is the form that every dialect is read into, [`prefilter`] finds the rules that are worth asking about,
//! a [`Rule`] is what is asked, and [`evaluate`] asks it.
#![deny(unsafe_code)]

pub mod applications;
pub mod bindings;
pub mod evaluate;
pub mod prefilter;
pub mod protocols;
pub mod rates;
pub mod rule;
pub mod scope;
pub mod signature;
pub mod stream;

pub use rule::Rule;
pub use signature::Signature;
