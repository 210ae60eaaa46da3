//! Packet processing features that nodes call, except sessions and routes.

pub mod announcements;
pub mod application_filter;
pub mod context;
pub mod creation;
pub mod filter;
pub mod hairpinning;
pub mod input_filter;
pub mod inspection;
pub mod mss;
pub mod pending_syns;
pub mod pool_migration;
pub mod redirect;
pub mod revalidation;
pub mod session_end;
pub mod sites;
pub mod source_validation;
pub mod translation;
pub mod virtual_reassembly;
