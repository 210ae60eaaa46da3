//! Subscribers: sites, and the private and public addresses that their terminals have at a time. All of it is control
//! plane; workers see what has become of it.

pub mod agent;
pub mod frame;
pub mod leases;
pub mod message;
pub mod relay;
pub mod service;
mod thread;
pub mod virtual_mac;

pub use thread::{Heard, HostPort, Inbox, Queues, Subscribers, SubscribersError};

/// A subscriber's site, by its index: the context that inside addresses belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u32);

/// How many sites there can be.
pub const MOST_SITES: u32 = 131_072;
