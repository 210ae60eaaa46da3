//! Times and limits of resolution, by the names of RFC 4861 section 10.

use crate::{SECOND, Time};

/// Times and limits of resolution.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a confirmation holds: REACHABLE_TIME.
    pub reachable: Time,
    /// How long a stale entry is used before it is probed: DELAY_FIRST_PROBE_TIME. At most this long after a
    /// packet wanted it, its probe begins.
    pub delay: Time,
    /// Between two requests or probes: RETRANS_TIMER. RFC 1122 asks for no more than one ARP request a second.
    pub retransmit: Time,
    /// Requests, or probes, before an entry has failed.
    pub attempts: u8,
    /// How long a failure is remembered, and with it that packets for it are dropped at once.
    pub failed: Time,
    /// How long an unused stale entry is kept.
    pub stale: Time,
    /// Most entries that are incomplete or failed; the oldest gives way, so that a scan of an empty network
    /// displaces no neighbour that answers.
    pub unresolved: usize,
    /// Requests a second over all entries; a multiple of it as burst is not needed.
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
