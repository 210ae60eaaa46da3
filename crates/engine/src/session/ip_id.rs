//! IP IDs of IPv4 datagrams that leave with an outside address as their source (RFC 6864, section 5.3.1; RFC 7857, section 10).
//!
//! A receiver reassembles fragments by source, destination, protocol and IP ID. Each host chooses its IP IDs
//! independently, so two datagrams of different inside hosts, sent from one outside address to one receiver, may have
//! the same IP ID. The gateway therefore assigns new IP IDs to fragments and to datagrams that may still be fragmented.
//! Unfragmented datagrams with the Don't Fragment flag are atomic. Receivers ignore their IP ID, so the gateway does
//! not change it.
//!
//! - An unfragmented datagram gets its IP ID from the [`IpIds`] of its shard, which allocates ranges of numbers from
//!   counters shared by all shards. The numbers are below [`FRAGMENTS`]. The counter is selected by outside address,
//!   destination and protocol.
//! - A fragmented datagram gets its IP ID from [`crate::features::virtual_reassembly`], which gives all fragments of a
//!   datagram one IP ID, in any order of arrival. These numbers start at [`FRAGMENTS`]. Their counters are selected by
//!   destination and protocol only, because the outside address is not determined before translation.
//!
//! A counter is selected by a keyed hash, so several flows may share a counter, but one flow never uses several
//! counters. A counter repeats a number after 32,768 datagrams. RFC 6864 requires 120 s between repetitions. Up to 273
//! non-atomic datagrams per second from one outside address to one destination, this requirement is met. Above this
//! rate, the gateway still sends datagrams, as hosts do.
//!
//! Numbers are assigned in the order in which the datagrams of all flows arrive. If a capture is replayed frame by
//! frame, the numbers therefore don't depend on the number of workers.
//!
//! Datagrams from outside keep their IP ID. Their sender has numbered all datagrams to one outside address, so the IP
//! IDs of datagrams to one inside host are also different. An ICMP error quotes the IP ID that the gateway sent, not
//! the IP ID that the inside host sent: hosts match errors by addresses and ports, and the gateway doesn't store
//! earlier IP IDs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use sluice_table::hash::Hasher;
use sluice_wire::ipv4::{self, Ipv4};
use sluice_wire::{FlowKey4, Tuple4};

use crate::packet::time::{Now, TICKS_PER_SECOND};

/// First number for fragmented datagrams.
pub const FRAGMENTS: u16 = 1 << 15;

/// Number of counters, a power of two.
const COUNTERS: usize = 2048;

/// Number of IP IDs that a shard allocates at a time.
const RUN: u16 = 32;

/// Number of ticks after which the unused numbers of a range are discarded. After this time, other ranges may contain
/// the same numbers.
const STALE: u32 = 30 * TICKS_PER_SECOND as u32;

/// Counters that all shards share. Each shard allocates ranges of numbers from these counters.
#[derive(Debug)]
pub struct IpIdCounters(Box<[AtomicU16]>);

impl Default for IpIdCounters {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU16::new(0)).collect())
    }
}

/// The unused numbers of a range of IP IDs.
#[derive(Clone, Copy, Debug, Default)]
struct IpIdRange {
    next: u16,
    remaining: u16,
    /// Tick at which the range was allocated.
    drawn: u32,
}

/// IP IDs for the unfragmented datagrams of one shard.
#[derive(Debug)]
pub struct IpIds {
    drawn: Arc<IpIdCounters>,
    runs: Box<[IpIdRange]>,
}

impl IpIds {
    /// Creates the IP IDs of a shard. The shard allocates ranges from the shared counters `drawn`.
    pub fn new(drawn: Arc<IpIdCounters>) -> Self {
        let runs = vec![IpIdRange::default(); drawn.0.len()].into();
        Self { drawn, runs }
    }

    /// The next number of the counter that a hash selects.
    fn next(&mut self, hash: u64, now: Now) -> u16 {
        let place = hash as usize % COUNTERS;
        let Some(run) = self.runs.get_mut(place) else { return 0 };
        if run.remaining == 0 || now.since(run.drawn) > STALE {
            let next = self.drawn.0.get(place).map_or(0, |counter| {
                // Relaxed ordering is sufficient: two shards must not allocate one range twice, but the order of the
                // allocations is irrelevant.
                counter.fetch_add(RUN, Ordering::Relaxed)
            });
            *run = IpIdRange {
                next,
                remaining: RUN,
                drawn: now.stamp(),
            };
        }
        let number = run.next;
        run.next = number.wrapping_add(1);
        run.remaining -= 1;
        number % FRAGMENTS
    }

    /// Sets the IP ID of a datagram, unless the datagram is atomic. The source must already be the outside address.
    /// `fragments` is the IP ID if the datagram is fragmented; 0 means that it is not fragmented.
    #[inline(never)]
    pub fn number(&mut self, datagram: &mut [u8], fragments: u16, hasher: &Hasher, now: Now) {
        let Some(mut header) = Ipv4::new(datagram).filter(|header| !header.is_atomic()) else {
            return;
        };
        let number = match fragments {
            0 => self.next(hash(hasher, &header), now),
            _ => fragments,
        };
        header.set_identification_checked(number);
    }
}

fn hash<B: AsRef<[u8]>>(hasher: &Hasher, header: &Ipv4<B>) -> u64 {
    let tuple = Tuple4 {
        source: header.source(),
        destination: header.destination(),
        ..Tuple4::default()
    };
    hasher.one4(&FlowKey4::new(tuple, header.protocol()))
}

/// IP IDs for fragmented datagrams.
#[derive(Debug)]
pub struct FragmentIpIds(Box<[u16]>);

impl Default for FragmentIpIds {
    fn default() -> Self {
        Self(vec![0; COUNTERS].into())
    }
}

impl FragmentIpIds {
    /// The next number of the counter that a hash of protocol and destination selects.
    pub fn next(&mut self, hash: u64) -> u16 {
        let Some(counter) = self.0.get_mut(hash as usize % COUNTERS) else {
            return FRAGMENTS;
        };
        let number = *counter;
        *counter = number.wrapping_add(1);
        number | FRAGMENTS
    }
}

/// Whether the IPv4 header of an unfragmented datagram has the Don't Fragment flag.
#[inline(always)]
pub fn is_atomic(header: &[u8; ipv4::LENGTH]) -> bool {
    header[6] & (ipv4::DONT_FRAGMENT >> 8) as u8 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_of_shards_in_any_turn_differ_until_all_have_been_given() {
        let drawn = Arc::new(IpIdCounters::default());
        let mut shards: Vec<_> = (0..16).map(|_| IpIds::new(drawn.clone())).collect();
        let (mut seen, mut turn) = (BTreeSet::new(), 1u64);
        // Draws all numbers of one cycle of the counter, except for numbers that may be left in the ranges of shards.
        for _ in 0..usize::from(FRAGMENTS) - 16 * usize::from(RUN) {
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = shards[(turn >> 60) as usize].next(77, Now::at(1));
            assert!(number < FRAGMENTS);
            assert!(seen.insert(number), "{number} came twice");
        }
    }

    #[test]
    fn numbers_left_of_an_old_run_are_not_given() {
        let drawn = Arc::new(IpIdCounters::default());
        let [mut one, mut other] = [(); 2].map(|()| IpIds::new(drawn.clone()));
        let seconds = |seconds: u64| Now::at(seconds * 1_000_000_000);
        assert_eq!(0, one.next(5, seconds(1)));
        assert_eq!(1, one.next(5, seconds(31)));
        let given: Vec<_> = (0..1023 * 32).map(|_| other.next(5, seconds(40))).collect();
        assert_eq!(Some(&(FRAGMENTS - 1)), given.last());
        assert_eq!(0, other.next(5, seconds(40)));
        assert_eq!(32, one.next(5, seconds(62)));
    }

    #[test]
    fn numbers_of_fragments_are_never_those_of_datagrams_in_one_piece() {
        let mut numbers = FragmentIpIds::default();
        let given: BTreeSet<_> = (0..FRAGMENTS).map(|_| numbers.next(9)).collect();
        assert_eq!((FRAGMENTS..=u16::MAX).collect::<BTreeSet<_>>(), given);
        assert_eq!(FRAGMENTS, numbers.next(9));
    }
}
