//! Identifications of IPv4 datagrams that leave with an outside address as their source (RFC 6864, section 5.3.1;
//! RFC 7857, section 10).
//!
//! A receiver puts fragments together by source, destination, protocol and identification. Hosts count these by
//! themselves, so behind one outside address two datagrams to one receiver may have the same. Whatever a receiver may
//! have to put together therefore gets a number of the gateway's: fragments, and datagrams that may still be cut.
//! Datagrams in one piece that must not be cut are atomic: nobody looks at theirs, and they keep it.
//!
//! - A datagram in one piece has its number from a counter of outside address, destination and protocol: numbers below
//!   [`FRAGMENTS`], from [`IpIds`] of its shard, which draws runs of them from what all shards have in common.
//! - A datagram in fragments has it from a counter of destination and protocol, since virtual reassembly does not know the
//!   outside address yet: numbers from [`FRAGMENTS`] on, from [`crate::features::virtual_reassembly`], which gives all
//!   fragments of a datagram the same, in whatever order they come.
//!
//! Several flows may share a counter, whose number is a keyed hash, never the reverse. A number comes again after 32,768
//! others of its counter: RFC 6864 wants 120 s between them, which holds up to 273 datagrams a second that are not
//! atomic, from one outside address to one destination. More are sent all the same, as hosts do.
//!
//! Numbers follow the order in which datagrams come, of all flows together: a capture that is replayed, frame by frame,
//! gets the same on any number of workers.
//!
//! What comes from outside keeps its identification: its sender has numbered all that it sends to one outside address,
//! so that what of it goes to one inside host differs too. An ICMP error quotes the number that outside has seen, and
//! keeps it: hosts know their packets by addresses and ports, and the numbers of the past are not kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use sluice_table::hash::Hasher;
use sluice_wire::ipv4::{self, Ipv4};
use sluice_wire::{FlowKey4, Tuple4};

use crate::packet::time::{Now, TICKS_PER_SECOND};

/// The first number of datagrams in fragments.
pub const FRAGMENTS: u16 = 1 << 15;

/// Counters: a power of two.
const COUNTERS: usize = 2048;

/// Numbers that a shard draws at once.
const RUN: u16 = 32;

/// Ticks after which what is left of a run is not used: others may have come round to it.
const STALE: u32 = 30 * TICKS_PER_SECOND as u32;

/// Counters that all shards draw from, each a run of its own.
#[derive(Debug)]
pub struct IpIdCounters(Box<[AtomicU16]>);

impl Default for IpIdCounters {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU16::new(0)).collect())
    }
}

/// Part of a run that is left.
#[derive(Clone, Copy, Debug, Default)]
struct IpIdRange {
    next: u16,
    left: u16,
    /// Stamp of the tick in which it was drawn.
    drawn: u32,
}

/// Numbers of datagrams in one piece, of one shard.
#[derive(Debug)]
pub struct IpIds {
    drawn: Arc<IpIdCounters>,
    runs: Box<[IpIdRange]>,
}

impl IpIds {
    /// Of a shard that draws from the same as others.
    pub fn new(drawn: Arc<IpIdCounters>) -> Self {
        let runs = vec![IpIdRange::default(); drawn.0.len()].into();
        Self { drawn, runs }
    }

    /// The next number of a counter, which is chosen by a hash.
    fn next(&mut self, hash: u64, now: Now) -> u16 {
        let place = hash as usize % COUNTERS;
        let Some(run) = self.runs.get_mut(place) else { return 0 };
        if run.left == 0 || now.since(run.drawn) > STALE {
            let next = self.drawn.0.get(place).map_or(0, |counter| {
                // Only that no two shards draw the same counts, not when others see it.
                counter.fetch_add(RUN, Ordering::Relaxed)
            });
            *run = IpIdRange {
                next,
                left: RUN,
                drawn: now.stamp(),
            };
        }
        let number = run.next;
        run.next = number.wrapping_add(1);
        run.left -= 1;
        number % FRAGMENTS
    }

    /// Number a datagram that has its outside address, unless it is atomic. `fragments` is the number of the fragments
    /// of its datagram; 0 where it is none.
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
    hasher.one4(&FlowKey4 {
        tuple,
        protocol: header.protocol(),
    })
}

/// Numbers of datagrams in fragments.
#[derive(Debug)]
pub struct FragmentIpIds(Box<[u16]>);

impl Default for FragmentIpIds {
    fn default() -> Self {
        Self(vec![0; COUNTERS].into())
    }
}

impl FragmentIpIds {
    /// The next number of datagrams of a protocol to a destination.
    pub fn next(&mut self, hash: u64) -> u16 {
        let Some(counter) = self.0.get_mut(hash as usize % COUNTERS) else {
            return FRAGMENTS;
        };
        let number = *counter;
        *counter = number.wrapping_add(1);
        number | FRAGMENTS
    }
}

/// Whether the IPv4 header of a datagram in one piece says that it must not be cut.
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
        // All but what may be left of each shard's run.
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
