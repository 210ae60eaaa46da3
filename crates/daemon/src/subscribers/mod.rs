//! Subscribers: sites, and the private and public addresses that their terminals lease. This module is part of the
//! control plane; workers only read the resulting tables.

pub mod agent;
pub mod frame;
pub mod leases;
pub mod message;
pub mod relay;
pub mod service;
mod thread;
pub mod virtual_mac;

pub use thread::{HostPort, Inbox, InboxReceiver, SubscriberQueues, Subscribers, SubscribersError};

/// Index of a subscriber's site. Inside addresses belong to the context of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u32);

/// Maximum number of sites.
pub const MAX_SITES: u32 = 131_072;
