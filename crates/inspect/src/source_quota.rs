//! What each source has of a pool, so that no source can use up what others need.
//!
//! A source may have as much as a multiple of what is left to all others: a dynamic threshold (Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6(2), 1998). A source alone has most of the pool, and the more sources there are
//! the less each may have; something is always left for one that comes anew. Sources are told apart by a keyed hash:
//! who can't predict it can't choose whose share is used up.

use std::net::IpAddr;

use sluice_table::hash::Hasher;

/// How many sources are told apart, at most.
const SOURCE_COUNT: usize = 1 << 16;

/// A source: an IPv4 address, or the /64 of an IPv6 address, as one of a fixed number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source(pub u16);

impl Source {
    /// All of whom nobody knows whether they are who they say they are: they share what one source may have.
    pub const UNVERIFIED: Source = Source(0);

    /// The source of an address.
    pub fn of(address: IpAddr, hasher: &Hasher) -> Self {
        let bits = match address {
            IpAddr::V4(four) => u128::from(four.to_bits()),
            IpAddr::V6(six) => match six.to_ipv4_mapped() {
                Some(four) => u128::from(four.to_bits()),
                None => six.to_bits() >> 64 | 1 << 127,
            },
        };
        Self::by_hash(hasher.block([bits as u64, (bits >> 64) as u64]))
    }

    /// The source of a keyed hash.
    pub fn by_hash(hash: u64) -> Self {
        Self(((hash as usize % (SOURCE_COUNT - 1)) + 1) as u16)
    }
}

/// What each source has of one pool.
#[derive(Debug)]
pub struct SourceQuota {
    counts: Box<[u32]>,
    /// A source has at most so many times what is left.
    multiple: usize,
}

impl SourceQuota {
    /// Nobody has anything yet; each may have `multiple` times what is left to all others.
    pub fn new(multiple: usize) -> Self {
        Self {
            counts: vec![0; SOURCE_COUNT].into(),
            multiple,
        }
    }

    /// Whether a source may have so many more of a pool of which so many are left.
    pub fn permits(&self, source: Source, more: usize, left: usize) -> bool {
        let has = self.counts[usize::from(source.0)] as usize;
        has + more <= self.multiple.saturating_mul(left)
    }

    /// A source has so many more.
    #[inline]
    pub fn charge(&mut self, source: Source, more: u32) {
        self.counts[usize::from(source.0)] += more;
    }

    /// A source has so many less.
    #[inline]
    pub fn release(&mut self, source: Source, less: u32) {
        let count = &mut self.counts[usize::from(source.0)];
        *count = count.saturating_sub(less);
    }

    /// What a source has.
    pub fn usage(&self, source: Source) -> u32 {
        self.counts[usize::from(source.0)]
    }
}

/// Who has which places of a pool.
#[derive(Debug)]
pub struct SlotOwners {
    quota: SourceQuota,
    of: Box<[Source]>,
    /// Who takes the next.
    pub source: Source,
}

impl SlotOwners {
    /// Of a pool of so many places: a source may have so many times as many as are left.
    pub fn new(places: usize, multiple: usize) -> Self {
        Self {
            quota: SourceQuota::new(multiple),
            of: vec![Source::UNVERIFIED; places].into(),
            source: Source::UNVERIFIED,
        }
    }

    /// Whether the source may take so many places of those that are left.
    pub fn permits(&self, places: usize, left: usize) -> bool {
        places <= left && self.quota.permits(self.source, places, left)
    }

    /// The source has taken a place.
    pub fn assign(&mut self, place: u32) {
        if let Some(of) = self.of.get_mut(place as usize) {
            *of = self.source;
            self.quota.charge(self.source, 1);
        }
    }

    /// A place is free again.
    pub fn release(&mut self, place: u32) {
        if let Some(&of) = self.of.get(place as usize) {
            self.quota.release(of, 1);
        }
    }
}

/// The places of a pool that are free, and who has the others.
#[derive(Debug)]
pub struct SlotPool {
    free: Vec<u32>,
    /// Who has taken the others.
    pub owners: SlotOwners,
}

impl SlotPool {
    /// So many, all free: a source may have [`PARSERS`] times as many as are left.
    pub fn new(count: u32) -> Self {
        Self {
            free: (0..count).rev().collect(),
            owners: SlotOwners::new(count as usize, POOL_MULTIPLE),
        }
    }

    /// How many are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// A place for the source; none where none is free, or it has as many as it may.
    pub fn allocate(&mut self) -> Option<u32> {
        if !self.owners.permits(1, self.free.len()) {
            return None;
        }
        let place = self.free.pop()?;
        self.owners.assign(place);
        Some(place)
    }

    /// A place that was taken is free again.
    pub fn release(&mut self, place: u32) {
        self.owners.release(place);
        self.free.push(place);
    }
}

/// Of a pool of parsers or buffers, a source may have so many times as many as are left to all others.
pub const POOL_MULTIPLE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_a_part_to_others_and_several_share() {
        let (mut shares, mut left) = (SourceQuota::new(4), 1000);
        let mut fill = |source| {
            let before = left;
            while shares.permits(source, 1, left) {
                shares.charge(source, 1);
                left -= 1;
            }
            before - left
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
