//! Quotas of sources in a pool, so that no source can exhaust the pool.
//!
//! The quota is a dynamic threshold (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998): a source may
//! occupy a multiple of the free capacity. A single source gets most of the pool. With more sources, each source has a
//! smaller quota, and some capacity always remains for a new source. Sources are identified by a keyed hash, so that an
//! attacker can't exhaust the quota of a chosen source.

use std::net::IpAddr;

use sluice_table::hash::Hasher;

/// Number of distinguished sources.
const SOURCE_COUNT: usize = 1 << 16;

/// A source (an IPv4 address or an IPv6 /64), mapped to one of a fixed number of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source(pub u16);

impl Source {
    /// Common source of all flows with an unverified, possibly spoofed address. All these flows together have the quota
    /// of one source.
    pub const UNVERIFIED: Source = Source(0);

    /// The source of an address.
    pub fn of(address: IpAddr, hasher: &Hasher) -> Self {
        let bits = match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => u128::from(v4.to_bits()),
                None => v6.to_bits() >> 64 | 1 << 127,
            },
        };
        Self::by_hash(hasher.block([bits as u64, (bits >> 64) as u64]))
    }

    /// The source that the keyed hash of an address selects.
    pub fn by_hash(hash: u64) -> Self {
        Self(((hash as usize % (SOURCE_COUNT - 1)) + 1) as u16)
    }
}

/// Usage of one pool by each source.
#[derive(Debug)]
pub struct SourceQuota {
    counts: Box<[u32]>,
    /// A source may occupy at most this multiple of the free capacity.
    multiple: usize,
}

impl SourceQuota {
    /// Creates a quota without usage; each source may occupy `multiple` times the free capacity.
    pub fn new(multiple: usize) -> Self {
        Self {
            counts: vec![0; SOURCE_COUNT].into(),
            multiple,
        }
    }

    /// Whether a source may occupy `more` units of a pool that has `remaining` free units.
    pub fn permits(&self, source: Source, more: usize, remaining: usize) -> bool {
        let has = self.counts[usize::from(source.0)] as usize;
        has + more <= self.multiple.saturating_mul(remaining)
    }

    /// Adds to the usage of a source.
    #[inline]
    pub fn charge(&mut self, source: Source, more: u32) {
        self.counts[usize::from(source.0)] += more;
    }

    /// Subtracts from the usage of a source.
    #[inline]
    pub fn release(&mut self, source: Source, less: u32) {
        let count = &mut self.counts[usize::from(source.0)];
        *count = count.saturating_sub(less);
    }

    /// Usage of a source.
    pub fn usage(&self, source: Source) -> u32 {
        self.counts[usize::from(source.0)]
    }
}

/// Owners of the slots of a pool.
#[derive(Debug)]
pub struct SlotOwners {
    quota: SourceQuota,
    of: Box<[Source]>,
    /// Source to which the next slots are accounted.
    pub source: Source,
}

impl SlotOwners {
    /// Creates the owners of a pool of `places` slots. A source may own up to `multiple` times the number of free
    /// slots.
    pub fn new(places: usize, multiple: usize) -> Self {
        Self {
            quota: SourceQuota::new(multiple),
            of: vec![Source::UNVERIFIED; places].into(),
            source: Source::UNVERIFIED,
        }
    }

    /// Whether the current source may allocate `places` slots if `remaining` slots are free.
    pub fn permits(&self, places: usize, remaining: usize) -> bool {
        places <= remaining && self.quota.permits(self.source, places, remaining)
    }

    /// Records that the current source has allocated a slot.
    pub fn assign(&mut self, place: u32) {
        if let Some(of) = self.of.get_mut(place as usize) {
            *of = self.source;
            self.quota.charge(self.source, 1);
        }
    }

    /// Records that a slot was released.
    pub fn release(&mut self, place: u32) {
        if let Some(&of) = self.of.get(place as usize) {
            self.quota.release(of, 1);
        }
    }
}

/// Free slots of a pool, and the owners of the allocated slots.
#[derive(Debug)]
pub struct SlotPool {
    free: Vec<u32>,
    /// Owners of the allocated slots.
    pub owners: SlotOwners,
}

impl SlotPool {
    /// Creates a pool of `count` free slots. A source may own up to [`POOL_MULTIPLE`] times the number of free slots.
    pub fn new(count: u32) -> Self {
        Self {
            free: (0..count).rev().collect(),
            owners: SlotOwners::new(count as usize, POOL_MULTIPLE),
        }
    }

    /// Number of free slots.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Allocates a slot for the current source; `None` if no slot is free or the source has reached its quota.
    pub fn allocate(&mut self) -> Option<u32> {
        if !self.owners.permits(1, self.free.len()) {
            return None;
        }
        let place = self.free.pop()?;
        self.owners.assign(place);
        Some(place)
    }

    /// Releases a slot.
    pub fn release(&mut self, place: u32) {
        self.owners.release(place);
        self.free.push(place);
    }
}

/// In a pool of parsers or buffers, a source may own up to this multiple of the number of free slots.
pub const POOL_MULTIPLE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_a_part_to_others_and_several_share() {
        let (mut shares, mut remaining) = (SourceQuota::new(4), 1000);
        let mut fill = |source| {
            let before = remaining;
            while shares.permits(source, 1, remaining) {
                shares.charge(source, 1);
                remaining -= 1;
            }
            before - remaining
        };
        assert_eq!([800, 160, 32], [1, 2, 3].map(|source| fill(Source(source))));
    }

    #[test]
    fn addresses_are_sources_and_networks_of_hosts_in_ipv6() {
        let hasher = Hasher::new([1, 2]);
        let source = |address: &str| Source::of(address.parse().expect("an address"), &hasher);
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(Source::UNVERIFIED, source("0.0.0.0"));
    }
}
