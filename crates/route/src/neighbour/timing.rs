//! Timing parameters and limits of neighbour resolution. Upper-case names are from RFC 4861, section 10.

use crate::{SECOND, Time};

/// Timing parameters and limits of neighbour resolution.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Duration for which a reachability confirmation is valid: REACHABLE_TIME.
    pub reachable: Time,
    /// Maximum delay between the use of a stale entry and its first probe: DELAY_FIRST_PROBE_TIME.
    pub delay: Time,
    /// Interval between requests or probes of an entry: RETRANS_TIMER. RFC 1122 recommends at most one ARP request per
    /// second.
    pub retransmit: Time,
    /// Number of requests or probes after which an entry fails.
    pub attempts: u8,
    /// Duration for which a failed entry is kept. Packets to a failed entry are dropped without another request.
    pub failed: Time,
    /// Duration for which an unused stale entry is kept.
    pub stale: Time,
    /// Maximum number of incomplete or failed entries. Above the maximum, the oldest such entry is removed, so that a
    /// scan of unused addresses does not displace reachable neighbours.
    pub unresolved: usize,
    /// Maximum number of requests per second over all entries.
    pub requests_per_second: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            reachable: 30 * SECOND,
            delay: 5 * SECOND,
            retransmit: SECOND,
            attempts: 3,
            failed: 3 * SECOND,
            stale: 1200 * SECOND,
            unresolved: 512,
            requests_per_second: 1000,
        }
    }
}
