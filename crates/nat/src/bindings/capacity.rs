//! Capacities of a shard's tables.

use crate::event::EventKinds;

/// Sizes of the tables in which one shard records its allocated resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of mappings, including permissions of address-dependent filtering.
    pub mappings: usize,
    /// Maximum number of subscribers.
    pub subscribers: usize,
    /// Maximum number of port blocks that all subscribers together can have.
    pub blocks: usize,
    /// Maximum number of quarantined ports and blocks.
    pub quarantine: usize,
    /// Kinds of events that the shard records.
    pub events: EventKinds,
    /// Length of the inside prefix that counts as one subscriber, in bits. If the length is at least the address
    /// length, each inside address is a subscriber.
    pub subscriber: u8,
}

impl Capacity {
    /// Capacity for port allocations only, without mappings and subscribers.
    pub const NONE: Self = Self {
        mappings: 0,
        subscribers: 0,
        blocks: 0,
        quarantine: 0,
        events: EventKinds::NONE,
        subscriber: u8::MAX,
    };
}
