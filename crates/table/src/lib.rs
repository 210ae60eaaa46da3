//! Tables for all per-packet lookups, in memory that the caller provides.
//!
//! - [`flow::FlowTable`] finds the record of a flow for a packet of either direction.
//! - [`wheel::Wheel`] reports records that may have timed out.
//! - [`compact::CompactIndex`] finds the records of a [`slab::Slab`].
//! - [`prefix`] finds routes, and [`qns`] finds translation rules.
//! - [`arena`] is append-only storage.
//! - [`reserve`] contains table parts that several tables share.
//! - [`publish`] passes new snapshots to workers.
//! - [`changes`] determines whether a new generation affects an earlier decision.
//!
//! Unsafe code is limited to [`prefetch`], [`pages`], `simd` and `arena`.
#![deny(unsafe_code)]

pub mod arena;
pub mod changes;
pub mod compact;
pub mod flow;
pub mod hash;
pub mod memory;
pub mod pages;
pub mod prefetch;
pub mod prefix;
pub mod publish;
pub mod qns;
pub mod reserve;
pub mod simd;
pub mod slab;
pub mod toeplitz;
pub mod token_bucket;
pub mod wheel;
