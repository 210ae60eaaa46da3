//! Inspection: signatures in the dialects that operators have, streams put in order, what is found in them.
//!
//! [`signatures`] reads every dialect into the form of [`signature`]; [`prefilter`] finds the rules that are worth asking
//! about, and [`evaluate`] asks a [`Rule`]. [`stream`] puts segments in order, [`protocols`] fills the buffers that rules
//! look in, and the [`inspector`] does all this for the flows of a shard. [`transactions`] are what flows said, for a log; [`work`] is
//! what they may cost.
#![deny(unsafe_code)]

pub mod applications;
pub mod bindings;
pub mod datasets;
pub mod evaluate;
pub mod host_table;
pub mod inspector;
pub mod prefilter;
pub mod protocols;
pub mod reason;
pub mod rule;
pub mod ruleset;
pub mod scope;
pub mod signature;
pub mod signatures;
pub mod source_quota;
pub mod stream;
pub mod transactions;
pub mod work_budget;

pub use inspector::{Inspector, Verdict};
pub use reason::{Limit, Reason, Skipped};
pub use rule::Rule;
pub use ruleset::Ruleset;
pub use signature::Signature;
