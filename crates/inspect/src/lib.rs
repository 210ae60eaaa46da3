//! Inspection: signatures of several dialects, TCP stream reassembly, and detection in flows.
//!
//! [`signatures`] parses every dialect into the form of [`signature`]. [`prefilter`] finds the candidate rules, and
//! [`evaluate`] evaluates a [`Rule`]. [`stream`] reassembles TCP streams, [`protocols`] parses application-layer
//! protocols into the buffers that rules inspect, and the [`inspector`] uses these modules for the flows of a shard.
//! [`transactions`] records the requests and responses of flows for a log. [`work_budget`] limits the work that a
//! packet may cause.
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
