//! Sets of addresses that change while rules name them: workers look them up, and add to them, without waiting.
//!
//! An address has a place in either of two buckets of [`SLOTS`], by a hash that nobody outside can reckon. Of two places for each
//! element that there may be half are free, so that both buckets are full next to never; then the set is full for that address.

use core::hash::BuildHasher;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::collections::hash_map::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Places of a bucket.
const SLOTS: usize = 8;
/// Buckets whose elements expire in one go, while packets can't add any.
const SWEEP: usize = 64;
/// How often a packet tries to add its address while somebody else changes the set.
const TRIES: usize = 64;

/// A place of an element. The tag says whose family its address is of, and changes with it.
#[derive(Debug, Default)]
struct Slot {
    tag: AtomicU64,
    address: [AtomicU64; 2],
    /// Nanoseconds of the workers' clock; 0: for ever.
    until: AtomicU64,
}

/// An address as a slot has it: the family, which is never 0, and the bits.
type Key = (u64, [u64; 2]);

fn key(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(address) => (1, [0, address.to_bits().into()]),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (2, [(bits >> 64) as u64, bits as u64])
        }
    }
}

/// Bits of a tag that say the family; the others count changes.
const FAMILY: u64 = 3;

impl Slot {
    /// Whether the element is there. One that comes or goes meanwhile may be either.
    fn has(&self, (family, address): Key) -> bool {
        let tag = self.tag.load(Ordering::Acquire);
        let read = [0, 1].map(|half: usize| self.address[half].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        tag & FAMILY == family && read == address && self.tag.load(Ordering::Relaxed) == tag
    }

    fn is_free(&self) -> bool {
        self.tag.load(Ordering::Relaxed) & FAMILY == 0
    }

    fn clear(&self) {
        let tag = self.tag.load(Ordering::Relaxed);
        self.tag.store((tag | FAMILY) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Put an element where none is.
    fn put(&self, (family, address): Key, until: u64) {
        for (half, bits) in self.address.iter().zip(address) {
            half.store(bits, Ordering::Relaxed);
        }
        self.until.store(until, Ordering::Relaxed);
        let tag = self.tag.load(Ordering::Relaxed);
        self.tag.store(tag | family, Ordering::Release);
    }

    fn element(&self) -> Option<(IpAddr, u64)> {
        let [high, low] = [0, 1].map(|half: usize| self.address[half].load(Ordering::Relaxed));
        let address = match self.tag.load(Ordering::Relaxed) & FAMILY {
            0 => return None,
            1 => std::net::Ipv4Addr::from_bits(low as u32).into(),
            _ => std::net::Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        };
        Some((address, self.until.load(Ordering::Relaxed)))
    }
}

/// A set is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the set is full")]
pub struct SetFull;

/// A set of addresses.
#[derive(Debug)]
pub struct AddressSet {
    buckets: Box<[[Slot; SLOTS]]>,
    hashes: RandomState,
    size: usize,
    /// Nanoseconds that elements stay where nothing else is said; 0: for ever.
    timeout: AtomicU64,
    /// Who changes anything holds it.
    writer: Mutex<()>,
    len: AtomicUsize,
    refused: AtomicU64,
}

impl AddressSet {
    /// An empty one of at most so many elements.
    pub fn new(size: usize, timeout: Option<Duration>) -> Self {
        let buckets = (2 * size).div_ceil(SLOTS).next_power_of_two();
        let set = Self {
            buckets: (0..buckets).map(|_| Default::default()).collect(),
            hashes: RandomState::new(),
            size,
            timeout: AtomicU64::new(0),
            writer: Mutex::new(()),
            len: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        };
        set.set_timeout(timeout);
        set
    }

    /// How many elements there may be.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How long elements stay where nothing else is said.
    pub fn timeout(&self) -> Option<Duration> {
        let timeout = self.timeout.load(Ordering::Relaxed);
        (timeout != 0).then(|| Duration::from_nanos(timeout))
    }

    /// Let elements that come from now on stay so long.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.store(timeout.map_or(0, nanoseconds), Ordering::Relaxed);
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses of packets that were not added, as the set was full or somebody else changed it.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn places(&self, key: Key) -> [&[Slot; SLOTS]; 2] {
        let (hash, mask) = (self.hashes.hash_one(key), self.buckets.len() - 1);
        [hash as usize, (hash >> 32) as usize].map(|place| &self.buckets[place & mask])
    }

    fn find(&self, key: Key) -> Option<&Slot> {
        self.places(key).into_iter().flatten().find(|slot| slot.has(key))
    }

    /// Whether an address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        self.find(key(address)).is_some()
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Add an address for a time, or for ever, or prolong its time; whether it is new.
    ///
    /// # Errors
    /// There is no room.
    pub fn add(&self, address: IpAddr, timeout: Option<Duration>, now: u64) -> Result<bool, SetFull> {
        let writer = self.write();
        self.add_as(key(address), until(timeout.map_or(0, nanoseconds), now), &writer)
    }

    fn add_as(&self, key: Key, until: u64, _writer: &MutexGuard<'_, ()>) -> Result<bool, SetFull> {
        if let Some(slot) = self.find(key) {
            slot.until.store(until, Ordering::Relaxed);
            return Ok(false);
        }
        let mut places = self.places(key);
        let used = |bucket: &[Slot; SLOTS]| bucket.iter().filter(|slot| !slot.is_free()).count();
        places.sort_by_key(|bucket| used(bucket));
        let free = places[0].iter().find(|slot| slot.is_free());
        match free.filter(|_| self.len() < self.size) {
            Some(slot) => {
                slot.put(key, until);
                self.len.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
            None => Err(SetFull),
        }
    }

    /// A packet adds an address for the set's own time, or prolongs it. Never waits: what can't be done is counted.
    pub(super) fn add_by_packet(&self, address: IpAddr, now: u64) {
        let key = key(address);
        let until = until(self.timeout.load(Ordering::Relaxed), now);
        if let Some(slot) = self.find(key) {
            // What was added for ever stays, and so does an element that has taken the slot meanwhile.
            let old = slot.until.load(Ordering::Relaxed);
            if until != 0 && old != 0 {
                let _ = slot
                    .until
                    .compare_exchange(old, until, Ordering::Relaxed, Ordering::Relaxed);
            }
            return;
        }
        let writer = (0..TRIES).find_map(|_| {
            core::hint::spin_loop();
            self.writer.try_lock().ok()
        });
        let is_added = writer.is_some_and(|writer| self.add_as(key, until, &writer).is_ok());
        if !is_added {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, slot: &Slot) {
        slot.clear();
        self.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Remove an address; whether it was there.
    pub fn remove(&self, address: IpAddr) -> bool {
        let _writer = self.write();
        let slot = self.find(key(address));
        slot.into_iter().for_each(|slot| self.take(slot));
        slot.is_some()
    }

    /// Remove what a condition names, a few at a time; how many.
    fn remove_where(&self, goes: impl Fn(u64) -> bool) -> usize {
        let mut count = 0;
        for buckets in self.buckets.chunks(SWEEP) {
            let _writer = self.write();
            for slot in buckets.iter().flatten().filter(|slot| !slot.is_free()) {
                if goes(slot.until.load(Ordering::Relaxed)) {
                    self.take(slot);
                    count += 1;
                }
            }
        }
        count
    }

    /// Remove all; how many there were.
    pub fn flush(&self) -> usize {
        self.remove_where(|_| true)
    }

    /// Remove those whose time is over. Call it now and then.
    pub fn expire(&self, now: u64) {
        if !self.is_empty() {
            self.remove_where(|until| until != 0 && until <= now);
        }
    }

    /// All elements in order, each with the nanoseconds that are left to it, if these are limited.
    pub fn elements(&self, now: u64) -> Vec<(IpAddr, Option<u64>)> {
        let mut found = Vec::with_capacity(self.len());
        for buckets in self.buckets.chunks(SWEEP) {
            let _writer = self.write();
            found.extend(buckets.iter().flatten().filter_map(Slot::element));
        }
        found.sort_unstable();
        let left = |until: u64| (until != 0).then(|| until.saturating_sub(now));
        found
            .into_iter()
            .map(|(address, until)| (address, left(until)))
            .collect()
    }

    /// Add the elements of another, as far as they fit.
    pub fn copy(&self, other: &Self) {
        let elements = other.elements(0);
        let writer = self.write();
        for (address, until) in elements {
            // What does not fit is left out.
            let _ = self.add_as(key(address), until.unwrap_or(0), &writer);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn until(timeout: u64, now: u64) -> u64 {
    if timeout == 0 { 0 } else { now.saturating_add(timeout) }
}

/// A set that a rule names: the same where it is the very set.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<AddressSet>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shared {}

/// What a rule asks of an address: that it is in a set, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// It is not.
    pub not: bool,
    /// The set.
    pub set: Shared,
}

impl Membership {
    /// Whether an address is as asked.
    pub fn has(&self, address: IpAddr) -> bool {
        self.set.0.has(address) != self.not
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn v6(number: u128) -> IpAddr {
        std::net::Ipv6Addr::from_bits(number).into()
    }

    #[test]
    fn set_takes_as_many_as_its_size_and_tells_families_apart() {
        for size in [1, 7, 100, 10_000] {
            let set = AddressSet::new(size, None);
            let added = (0..2 * size as u32).filter(|&number| set.add(v4(number), None, 0).is_ok());
            assert_eq!(size, added.count());
            assert_eq!((size, Err(SetFull)), (set.len(), set.add(v6(1), None, 0)));
            assert!(set.has(v4(0)) && !set.has(v6(0)) && !set.has(v4(size as u32)));
            assert_eq!(Ok(false), set.add(v4(0), None, 0));
            assert!(set.remove(v4(0)) && !set.remove(v4(0)) && !set.has(v4(0)));
            assert_eq!(Ok(true), set.add(v6(0), None, 0));
            assert_eq!((size, 0), (set.flush(), set.len()));
        }
    }

    #[test]
    fn elements_go_when_their_time_is_over() {
        let second = 1_000_000_000;
        let set = AddressSet::new(10, Some(Duration::from_secs(5)));
        set.add_by_packet(v4(1), second);
        set.add(v4(2), None, second).unwrap();
        set.add(v4(3), Some(Duration::from_secs(60)), second).unwrap();
        set.add_by_packet(v4(2), second);
        let left = |element: (u32, Option<u64>)| (v4(element.0), element.1.map(|left| left * second));
        assert_eq!(
            [(1, Some(4)), (2, None), (3, Some(59))].map(left),
            *set.elements(2 * second)
        );
        set.expire(5 * second);
        assert_eq!(3, set.len());
        // Seen again, it stays longer.
        set.add_by_packet(v4(1), 5 * second);
        set.expire(9 * second);
        assert_eq!(3, set.len());
        set.expire(10 * second);
        assert_eq!([(2, None), (3, Some(51))].map(left), *set.elements(10 * second));
        let copy = AddressSet::new(1, None);
        copy.copy(&set);
        assert_eq!(1, copy.len());
    }

    #[test]
    fn packets_that_find_a_set_full_are_counted() {
        let set = AddressSet::new(2, None);
        (0..5).for_each(|number| set.add_by_packet(v4(number), 1));
        assert_eq!((2, 3), (set.len(), set.refused()));
    }

    #[test]
    fn element_that_stays_is_always_found_while_others_come_and_go() {
        let set = AddressSet::new(64, None);
        set.add(v6(u128::MAX), None, 0).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..2u32 {
                let set = &set;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        set.add_by_packet(v4(worker * 100 + round % 40), 1);
                        assert!(set.has(v6(u128::MAX)));
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..20_000 {
                    set.remove(v4(round % 140));
                    assert!(!set.has(v6(u128::from(round))));
                }
            });
        });
        assert!(set.len() <= 64 && set.has(v6(u128::MAX)));
        assert_eq!(set.len(), set.elements(0).len());
    }
}
