//! Tables: everything that is looked up per packet, in memory that the caller provides.
//!
//! A [`flow::FlowTable`] finds the record of a flow from a packet of either direction, a [`wheel::Wheel`] says
//! which records fell silent, a [`compact::Compact`] index finds the records of a [`slab::Slab`], [`prefix`] finds routes
//! and [`qns`] translation rules, [`arena`] keeps what is only added to, a [`reserve`] holds what tables share, a [`token_bucket`]
//! limits a rate, [`publish`] hands workers a new configuration, and [`changes`] says what of older decisions a
//! new generation concerns. Unsafe code lives in [`prefetch`],
//! [`pages`], `simd` and `arena` alone.
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
