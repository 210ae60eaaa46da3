//! Sets of addresses and networks that can change while rules refer to them. Workers look elements up and add elements without waiting for locks.
//!
//! An address is a network of full prefix length. A lookup tries each prefix length that the set contains for the
//! address family; usually the set contains few prefix lengths. A keyed hash, which attackers can't predict, selects
//! two buckets of [`SLOTS`] slots for a network. The network may be stored in either bucket. The set has two slots for
//! each element of the maximum size, so that both buckets are rarely full. If both buckets are full, the network can't
//! be added, as if the set were full.

use core::hash::BuildHasher;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::collections::hash_map::RandomState;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Number of slots in a bucket.
const SLOTS: usize = 8;
/// Number of buckets that an expiry pass processes before it releases the lock. Packets can't add elements while the
/// lock is held.
const SWEEP: usize = 64;
/// Maximum number of attempts to lock the set when a packet's address is added.
const MAX_ATTEMPTS: usize = 64;

/// A slot for one element. The tag contains the address family and the prefix length. Each modification of the slot changes the tag.
#[derive(Debug, Default)]
struct SetSlot {
    tag: AtomicU64,
    address: [AtomicU64; 2],
    /// Expiry time in nanoseconds of the workers' clock; 0 if the element does not expire.
    until: AtomicU64,
}

/// A network as stored in a slot: family and prefix length, which are not both 0, and the bits of the address.
type Key = (u64, [u64; 2]);

/// Mask of the tag bits for family and prefix length. The other bits of the tag count modifications.
const KIND: u64 = (1 << KIND_BITS) - 1;
const KIND_BITS: u32 = 10;
/// Number of tag bits for the address family.
const FAMILY_BITS: u32 = 2;

/// The network with a given prefix length that contains an address. The length must not exceed that of the address.
fn key(address: IpAddr, length: u8) -> Key {
    let kind = |family: u64| u64::from(length) << FAMILY_BITS | family;
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (kind(1), [0, (address.to_bits() & mask).into()])
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let bits = address.to_bits() & mask;
            (kind(2), [(bits >> 64) as u64, bits as u64])
        }
    }
}

/// The prefix length of a single address.
pub fn full_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl SetSlot {
    /// Whether the slot holds the element. If the element is added or removed concurrently, the result may be true or
    /// false.
    fn has(&self, (kind, address): Key) -> bool {
        let tag = self.tag.load(Ordering::Acquire);
        let read = [0, 1].map(|half: usize| self.address[half].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        tag & KIND == kind && read == address && self.tag.load(Ordering::Relaxed) == tag
    }

    fn is_free(&self) -> bool {
        self.tag.load(Ordering::Relaxed) & KIND == 0
    }

    fn clear(&self) {
        let tag = self.tag.load(Ordering::Relaxed);
        self.tag.store((tag | KIND) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Stores an element in a free slot.
    fn put(&self, (kind, address): Key, until: u64) {
        for (half, bits) in self.address.iter().zip(address) {
            half.store(bits, Ordering::Relaxed);
        }
        self.until.store(until, Ordering::Relaxed);
        let tag = self.tag.load(Ordering::Relaxed);
        self.tag.store(tag | kind, Ordering::Release);
    }

    /// Address family and prefix length.
    fn kind(&self) -> (usize, u8) {
        let kind = self.tag.load(Ordering::Relaxed) & KIND;
        (usize::from(kind & 3 == 2), (kind >> FAMILY_BITS) as u8)
    }

    fn element(&self) -> Option<((IpAddr, u8), u64)> {
        let [high, low] = [0, 1].map(|half: usize| self.address[half].load(Ordering::Relaxed));
        let kind = self.tag.load(Ordering::Relaxed) & KIND;
        let address = match kind & 3 {
            0 => return None,
            1 => std::net::Ipv4Addr::from_bits(low as u32).into(),
            _ => std::net::Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        };
        let length = (kind >> FAMILY_BITS) as u8;
        Some(((address, length), self.until.load(Ordering::Relaxed)))
    }
}

/// The set is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the set is full")]
pub struct SetFull;

/// The prefix lengths of one address family that occur in a set.
#[derive(Debug)]
struct PrefixLengths {
    /// Bit set of the prefix lengths.
    used: [AtomicU64; 3],
    /// Number of networks of each prefix length; updated under the writer lock.
    count: Box<[AtomicUsize]>,
}

impl Default for PrefixLengths {
    fn default() -> Self {
        Self {
            used: Default::default(),
            count: (0..=128).map(|_| AtomicUsize::new(0)).collect(),
        }
    }
}

impl PrefixLengths {
    /// Counts a network before it is stored, so that lookups try the prefix length of the network.
    fn add_length(&self, length: u8) {
        let (word, bit) = (usize::from(length / 64), 1 << (length % 64));
        if self.count[usize::from(length)].fetch_add(1, Ordering::Relaxed) == 0 {
            self.used[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Decrements the count of a removed network's prefix length.
    fn remove_length(&self, length: u8) {
        let (word, bit) = (usize::from(length / 64), 1 << (length % 64));
        if self.count[usize::from(length)].fetch_sub(1, Ordering::Relaxed) == 1 {
            self.used[word].fetch_and(!bit, Ordering::Release);
        }
    }

    /// The prefix lengths that occur in the set.
    fn used(&self) -> impl Iterator<Item = u8> {
        self.used.iter().zip([0, 64, 128]).flat_map(|(word, first)| {
            let mut rest = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let length = rest.trailing_zeros() as u8;
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    first + length
                })
            })
        })
    }
}

/// A set of addresses and networks.
#[derive(Debug)]
pub struct AddressSet {
    buckets: Box<[[SetSlot; SLOTS]]>,
    hashes: RandomState,
    size: usize,
    /// Default timeout of elements in nanoseconds; 0 if elements don't expire.
    timeout: AtomicU64,
    /// Lock that all modifications hold.
    writer: Mutex<()>,
    lengths: [PrefixLengths; 2],
    len: AtomicUsize,
    refused: AtomicU64,
}

impl AddressSet {
    /// Creates an empty set for at most `size` elements.
    pub fn new(size: usize, timeout: Option<Duration>) -> Self {
        let buckets = (2 * size).div_ceil(SLOTS).next_power_of_two();
        let set = Self {
            buckets: (0..buckets).map(|_| Default::default()).collect(),
            hashes: RandomState::new(),
            size,
            timeout: AtomicU64::new(0),
            writer: Mutex::new(()),
            lengths: Default::default(),
            len: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        };
        set.set_timeout(timeout);
        set
    }

    /// Maximum number of elements.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Default timeout of elements.
    pub fn timeout(&self) -> Option<Duration> {
        let timeout = self.timeout.load(Ordering::Relaxed);
        (timeout != 0).then(|| Duration::from_nanos(timeout))
    }

    /// Sets the default timeout of elements that are added from now on.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.store(timeout.map_or(0, nanoseconds), Ordering::Relaxed);
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of addresses that packets failed to add, because the set was full or locked.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn places(&self, key: Key) -> [&[SetSlot; SLOTS]; 2] {
        let (hash, mask) = (self.hashes.hash_one(key), self.buckets.len() - 1);
        [hash as usize, (hash >> 32) as usize].map(|place| &self.buckets[place & mask])
    }

    fn find(&self, key: Key) -> Option<&SetSlot> {
        self.places(key).into_iter().flatten().find(|slot| slot.has(key))
    }

    /// Whether the set contains an address, or a network that contains the address.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.used().any(|length| self.find(key(address, length)).is_some())
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds an address, or updates its timeout. Without a timeout the element does not expire. Returns whether the
    /// address is new.
    ///
    /// # Errors
    /// The set is full.
    pub fn add(&self, address: IpAddr, timeout: Option<Duration>, now: u64) -> Result<bool, SetFull> {
        self.add_network((address, full_length(address)), timeout, now)
    }

    /// Adds a network, or updates its timeout. Without a timeout the element does not expire. Returns whether the
    /// network is new.
    ///
    /// # Errors
    /// The set is full.
    pub fn add_network(
        &self,
        (address, length): (IpAddr, u8),
        timeout: Option<Duration>,
        now: u64,
    ) -> Result<bool, SetFull> {
        let key = key(address, length.min(full_length(address)));
        let until = until(timeout.map_or(0, nanoseconds), now);
        self.add_as(key, until, &self.write())
    }

    fn add_as(&self, key: Key, until: u64, _writer: &MutexGuard<'_, ()>) -> Result<bool, SetFull> {
        if let Some(slot) = self.find(key) {
            slot.until.store(until, Ordering::Relaxed);
            return Ok(false);
        }
        let mut places = self.places(key);
        let used = |bucket: &[SetSlot; SLOTS]| bucket.iter().filter(|slot| !slot.is_free()).count();
        places.sort_by_key(|bucket| used(bucket));
        let free = places[0].iter().find(|slot| slot.is_free());
        match free.filter(|_| self.len() < self.size) {
            Some(slot) => {
                self.lengths[usize::from(key.0 & 3 == 2)].add_length((key.0 >> FAMILY_BITS) as u8);
                slot.put(key, until);
                self.len.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
            None => Err(SetFull),
        }
    }

    /// Adds a packet's address with the default timeout, or restarts its timeout. The function never waits for the
    /// lock, and counts failures.
    pub(super) fn add_by_packet(&self, address: IpAddr, now: u64) {
        let key = key(address, full_length(address));
        let until = until(self.timeout.load(Ordering::Relaxed), now);
        if let Some(slot) = self.find(key) {
            // An element without a timeout stays permanent. If another thread has put a different element into the slot
            // in the meantime, the timeout of that element must not change either.
            let old = slot.until.load(Ordering::Relaxed);
            if until != 0 && old != 0 {
                let _ = slot
                    .until
                    .compare_exchange(old, until, Ordering::Relaxed, Ordering::Relaxed);
            }
            return;
        }
        let writer = (0..MAX_ATTEMPTS).find_map(|_| {
            core::hint::spin_loop();
            self.writer.try_lock().ok()
        });
        let is_added = writer.is_some_and(|writer| self.add_as(key, until, &writer).is_ok());
        if !is_added {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, slot: &SetSlot) {
        let (family, length) = slot.kind();
        slot.clear();
        self.lengths[family].remove_length(length);
        self.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Removes an address. Returns whether the address was in the set.
    pub fn remove(&self, address: IpAddr) -> bool {
        self.remove_network((address, full_length(address)))
    }

    /// Removes a network. Other networks remain, even if they overlap the removed network.
    pub fn remove_network(&self, (address, length): (IpAddr, u8)) -> bool {
        let _writer = self.write();
        let slot = self.find(key(address, length.min(full_length(address))));
        slot.into_iter().for_each(|slot| self.take(slot));
        slot.is_some()
    }

    /// Removes the elements whose expiry time satisfies a condition, and returns their number. Locks the set for a few buckets at a time.
    fn remove_where(&self, is_removed: impl Fn(u64) -> bool) -> usize {
        let mut count = 0;
        for buckets in self.buckets.chunks(SWEEP) {
            let _writer = self.write();
            for slot in buckets.iter().flatten().filter(|slot| !slot.is_free()) {
                if is_removed(slot.until.load(Ordering::Relaxed)) {
                    self.take(slot);
                    count += 1;
                }
            }
        }
        count
    }

    /// Removes all elements. Returns their number.
    pub fn flush(&self) -> usize {
        self.remove_where(|_| true)
    }

    /// Removes expired elements. The function must be called periodically.
    pub fn expire(&self, now: u64) {
        if !self.is_empty() {
            self.remove_where(|until| until != 0 && until <= now);
        }
    }

    /// All networks in order, each with its remaining lifetime in nanoseconds if it expires.
    pub fn elements(&self, now: u64) -> Vec<((IpAddr, u8), Option<u64>)> {
        let mut found = Vec::with_capacity(self.len());
        for buckets in self.buckets.chunks(SWEEP) {
            let _writer = self.write();
            found.extend(buckets.iter().flatten().filter_map(SetSlot::element));
        }
        found.sort_unstable();
        let remaining = |until: u64| (until != 0).then(|| until.saturating_sub(now));
        found
            .into_iter()
            .map(|(network, until)| (network, remaining(until)))
            .collect()
    }

    /// Adds the elements of another set, as long as this set has space.
    pub fn copy(&self, other: &Self) {
        let elements = other.elements(0);
        let writer = self.write();
        for ((address, length), until) in elements {
            // Elements that don't fit are not added.
            let _ = self.add_as(key(address, length), until.unwrap_or(0), &writer);
        }
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn until(timeout: u64, now: u64) -> u64 {
    if timeout == 0 { 0 } else { now.saturating_add(timeout) }
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
            assert!(set.contains(v4(0)) && !set.contains(v6(0)) && !set.contains(v4(size as u32)));
            assert_eq!(Ok(false), set.add(v4(0), None, 0));
            assert!(set.remove(v4(0)) && !set.remove(v4(0)) && !set.contains(v4(0)));
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
        let remaining =
            |element: (u32, Option<u64>)| ((v4(element.0), 32), element.1.map(|remaining| remaining * second));
        assert_eq!(
            [(1, Some(4)), (2, None), (3, Some(59))].map(remaining),
            *set.elements(2 * second)
        );
        set.expire(5 * second);
        assert_eq!(3, set.len());
        // Adding the address again restarts its timeout.
        set.add_by_packet(v4(1), 5 * second);
        set.expire(9 * second);
        assert_eq!(3, set.len());
        set.expire(10 * second);
        assert_eq!([(2, None), (3, Some(51))].map(remaining), *set.elements(10 * second));
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
                        assert!(set.contains(v6(u128::MAX)));
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..20_000 {
                    set.remove(v4(round % 140));
                    assert!(!set.contains(v6(u128::from(round))));
                }
            });
        });
        assert!(set.len() <= 64 && set.contains(v6(u128::MAX)));
        assert_eq!(set.len(), set.elements(0).len());
    }
}
