//! How much of everything a shard has room for.

use crate::event::EventKinds;

/// Room of one shard for what it allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Mappings, and permissions of address-dependent filtering.
    pub mappings: usize,
    /// Subscribers.
    pub subscribers: usize,
    /// Port blocks of all subscribers.
    pub blocks: usize,
    /// Ports and blocks that wait before they are allocated again.
    pub quarantine: usize,
    /// Events that are wanted.
    pub events: EventKinds,
    /// Length of the inside prefix that is one subscriber; an address where it is longer.
    pub subscriber: u8,
}

impl Capacity {
    /// Room for port leases alone.
    pub const NONE: Self = Self {
        mappings: 0,
        subscribers: 0,
        blocks: 0,
        quarantine: 0,
        events: EventKinds::NONE,
        subscriber: u8::MAX,
    };
}
