//! Deterministic NAT (RFC 7422): outside address and ports of an inside address are computed, both ways.
//!
//! [`Plan`] has the two functions of section 2: [`Plan::outside`], from an inside address to its outside ports, and
//! [`Plan::inside`], from an outside address and port to the inside address. Both take the same few steps whatever
//! the sizes are. The ports of an outside address are counted through without those that are reserved; the first
//! C × P of them are dealt to inside addresses, P each, and what follows is kept for blocks on demand.

mod permutation;
mod port_set;
mod ranges;
mod record;
#[cfg(test)]
mod tests;

use core::ops::RangeInclusive;

use thiserror::Error;

pub use self::port_set::PortSet;
use self::ranges::Ranges;
use crate::keyed::Secret;
use crate::{Address, Pool};

/// Inside addresses that share a pool's addresses by a fixed rule (RFC 7422, section 2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic<A> {
    /// First and last inside address (variable I).
    pub inside: (A, A),
    /// Inside addresses per outside address (variable C).
    pub compression: u16,
    /// Shares of an outside address that are kept for blocks on demand (variable D).
    pub dynamic: u16,
    /// Most ports of an inside address and class, those of blocks on demand included (variable M); none: no limit
    /// but that of the blocks.
    pub most: Option<u32>,
    /// How inside addresses are dealt to outside addresses and ranges of ports (variable A).
    pub algorithm: Algorithm,
}

/// How inside addresses are dealt to outside addresses and ranges of ports (RFC 7422, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The first inside addresses share the first outside address, in ascending ranges.
    #[default]
    Sequential,
    /// The first inside addresses share the first outside address; each has every C-th port.
    Staggered,
    /// An inside address has the same ports of all outside addresses, and then the next port.
    RoundRobin,
    /// An inside address has every C-th port, each of another outside address in turn.
    Interlaced,
    /// The first inside addresses share the first outside address; the key says which ports each of them has
    /// (RFC 6431, section 2.2). Who wants to ask later must keep the key.
    Random(Secret),
}

impl Algorithm {
    /// Its number in RFC 7422, section 2.2.
    pub fn number(self) -> u8 {
        match self {
            Self::Sequential => 0,
            Self::Staggered => 1,
            Self::RoundRobin => 2,
            Self::Interlaced => 3,
            Self::Random(_) => 4,
        }
    }

    /// Whether an inside address has ports of one outside address only. Others cannot be paired (RFC 4787, REQ-2).
    #[inline(always)]
    pub fn is_paired(self) -> bool {
        !matches!(self, Self::RoundRobin | Self::Interlaced)
    }
}

/// Why a plan is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeterministicError {
    /// The last inside address is before the first, or the pool has no address.
    #[error("no inside or no outside address")]
    Empty,
    /// No inside address may use an outside address.
    #[error("compression 0")]
    NoCompression,
    /// So many shares that none of them has a port.
    #[error("{ports} ports of an outside address cannot be shared by {shares}")]
    NoPorts {
        /// Ports of an outside address that are not reserved.
        ports: u32,
        /// Compression and dynamic shares.
        shares: u32,
    },
    /// The outside addresses do not suffice.
    #[error("{inside} inside addresses are more than {places}, the outside addresses times the compression")]
    TooMany {
        /// Inside addresses.
        inside: u128,
        /// Places.
        places: u64,
    },
}

/// A checked plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<A> {
    first: A,
    last: A,
    addresses: Ranges<A>,
    /// The ports that are not reserved.
    ports: Ranges<u32>,
    compression: u32,
    dynamic: u32,
    most: Option<u32>,
    algorithm: Algorithm,
    /// Ports of an inside address (P).
    share: u32,
}

impl<A: Address> Plan<A> {
    /// The plan of a pool, if it has one.
    pub fn of(pool: &Pool<A>) -> Option<Result<Self, DeterministicError>> {
        let deterministic = pool.deterministic.as_ref()?;
        Some(Self::new(
            deterministic,
            &pool.addresses,
            pool.ports.clone(),
            &pool.reserved,
        ))
    }

    /// A plan over ranges of outside addresses that do not overlap, their ports, and the ports among those that are
    /// nobody's (variable R).
    pub fn new(
        deterministic: &Deterministic<A>,
        addresses: &[(A, A)],
        ports: RangeInclusive<u16>,
        reserved: &[RangeInclusive<u16>],
    ) -> Result<Self, DeterministicError> {
        let (first, last) = deterministic.inside;
        let addresses = Ranges::new(addresses.to_vec());
        if last < first || addresses.is_empty() {
            return Err(DeterministicError::Empty);
        }
        if deterministic.compression == 0 {
            return Err(DeterministicError::NoCompression);
        }
        let compression = u32::from(deterministic.compression);
        let dynamic = u32::from(deterministic.dynamic);
        let reserved = reserved
            .iter()
            .map(|range| (u32::from(*range.start()), u32::from(*range.end())));
        let ports = Ranges::without((u32::from(*ports.start()), u32::from(*ports.end())), reserved);
        let share = ports.count() / (compression + dynamic);
        if share == 0 {
            return Err(DeterministicError::NoPorts {
                ports: ports.count(),
                shares: compression + dynamic,
            });
        }
        let inside = (last.number() - first.number()).saturating_add(1);
        let places = u64::from(addresses.count()) * u64::from(compression);
        // Ports are counted through in 32 bits where they are dealt over all addresses.
        if inside > u128::from(places.min(u64::from(u32::MAX))) {
            return Err(DeterministicError::TooMany { inside, places });
        }
        Ok(Self {
            first,
            last,
            addresses,
            ports,
            compression,
            dynamic,
            most: deterministic.most,
            algorithm: deterministic.algorithm,
            share,
        })
    }

    /// What an inside address has outside; none where it is not of the plan.
    #[inline]
    pub fn outside(&self, inside: A) -> Option<PortSet<'_, A>> {
        let planned = self.first <= inside && inside <= self.last;
        planned.then(|| PortSet::new(self, (inside.number() - self.first.number()) as u32))
    }

    /// The inside address that has an outside port; none where the plan has no such address or port, or keeps it for
    /// blocks on demand, or has no inside address for it.
    #[inline]
    pub fn inside(&self, outside: A, port: u16) -> Option<A> {
        let (subscriber, _) = self.owner(outside, port)?;
        let inside = self.first.number() + u128::from(subscriber);
        (inside <= self.last.number()).then(|| A::from_number(inside))
    }

    /// Inside address, counted from the first, and which of its ports; it may be behind the last.
    #[inline(always)]
    fn owner(&self, outside: A, port: u16) -> Option<(u64, u32)> {
        let address = self.addresses.index_of(outside)?;
        let index = self.ports.index_of(u32::from(port))?;
        let (compression, share) = (self.compression, self.share);
        let dealt = compression * share;
        if index >= dealt {
            return None;
        }
        let addresses = u64::from(self.addresses.count());
        let first = u64::from(address) * u64::from(compression);
        Some(match self.algorithm {
            Algorithm::Sequential => (first + u64::from(index / share), index % share),
            Algorithm::Staggered => (first + u64::from(index % compression), index / compression),
            Algorithm::RoundRobin => {
                let position = u64::from(index) * addresses + u64::from(address);
                (position / u64::from(share), (position % u64::from(share)) as u32)
            }
            Algorithm::Interlaced => {
                let (k, slot) = (index / compression, index % compression);
                let turn = (u64::from(address) + addresses - u64::from(k) % addresses) % addresses;
                (u64::from(slot) * addresses + turn, k)
            }
            Algorithm::Random(key) => {
                let index = permutation::preimage_of(key, address, dealt, index);
                (first + u64::from(index / share), index % share)
            }
        })
    }

    /// How many inside addresses.
    pub fn subscribers(&self) -> u32 {
        (self.last.number() - self.first.number()) as u32 + 1
    }

    /// First and last inside address.
    pub fn inside_addresses(&self) -> (A, A) {
        (self.first, self.last)
    }

    /// Ports that every inside address has, of each class.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// Most ports of an inside address and class, those of blocks on demand included.
    pub fn max_hosts(&self) -> Option<u32> {
        self.most
    }

    /// How inside addresses are dealt.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// First and last port of each outside address that is kept for blocks on demand; reserved ones may be between.
    pub fn dynamic(&self) -> Option<(u16, u16)> {
        let (first, count) = (self.compression * self.share, self.ports.count());
        let kept = self.dynamic > 0 && first < count;
        kept.then(|| (self.ports.at(first) as u16, self.ports.at(count - 1) as u16))
    }
}
