//! Session records, the address families, and the shards that contain sessions.

pub mod application;
pub mod arrival;
pub mod events;
pub mod family;
pub mod identification;
pub mod inspect_state;
pub mod ip_id;
pub mod record;
pub mod records;
pub mod rule_channel;
pub mod shard;
