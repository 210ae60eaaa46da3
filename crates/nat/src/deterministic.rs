//! Deterministic NAT (RFC 7422). The outside address and ports are computed from the inside address, and the inside
//! address from an outside address and port.
//!
//! [`Plan`] implements the two functions of RFC 7422, section 2: [`Plan::outside`] maps an inside address to its
//! outside ports, and [`Plan::inside`] maps an outside address and port to the inside address. Both functions take
//! constant time, independent of the numbers of addresses and ports. The usable ports of an outside address are
//! numbered. The first C × P ports are assigned to C inside addresses, P ports to each. The remaining ports are
//! reserved for blocks on demand.

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

/// Parameters of the static assignment of inside addresses to a pool's outside addresses and ports (RFC 7422, section
/// 2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic<A> {
    /// First and last inside address (variable I).
    pub inside: (A, A),
    /// Number of inside addresses that share an outside address (variable C).
    pub compression: u16,
    /// Number of port shares that each outside address reserves for blocks on demand (variable D).
    pub dynamic: u16,
    /// M: maximum number of ports of an inside address in each class, including ports in blocks that are allocated on
    /// demand. `None` means that the number is limited only by the size of the blocks.
    pub max: Option<u32>,
    /// Algorithm that assigns inside addresses to outside addresses and port ranges (variable A).
    pub algorithm: Algorithm,
}

/// Algorithm that assigns inside addresses to outside addresses and port ranges (RFC 7422, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The first C inside addresses share the first outside address. The port ranges of these inside addresses are in
    /// ascending order.
    #[default]
    Sequential,
    /// The first C inside addresses share the first outside address. Each of these inside addresses gets every C-th
    /// port.
    Staggered,
    /// Ports are assigned round-robin: the first port of every outside address, then the second port of every outside
    /// address.
    RoundRobin,
    /// An inside address gets every C-th port, and successive ports are on successive outside addresses.
    Interlaced,
    /// The first C inside addresses share the first outside address. A secret key determines the ports of each inside
    /// address (RFC 6431, section 2.2). Finding the inside address of a port later requires the key.
    Random(Secret),
}

impl Algorithm {
    /// Number of the algorithm in RFC 7422, section 2.2.
    pub fn number(self) -> u8 {
        match self {
            Self::Sequential => 0,
            Self::Staggered => 1,
            Self::RoundRobin => 2,
            Self::Interlaced => 3,
            Self::Random(_) => 4,
        }
    }

    /// Whether all ports of an inside address are on one outside address. Pairing requires a single outside address
    /// (RFC 4787, REQ-2).
    #[inline(always)]
    pub fn is_paired(self) -> bool {
        !matches!(self, Self::RoundRobin | Self::Interlaced)
    }
}

/// Why a deterministic plan is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeterministicError {
    /// The last inside address precedes the first, or the pool has no address.
    #[error("the pool has no inside or no outside address")]
    Empty,
    /// The compression ratio is 0.
    #[error("compression 0")]
    NoCompression,
    /// There are more shares than ports, so a share would have no port.
    #[error("{ports} ports of an outside address cannot be divided into {shares} shares")]
    NoPorts {
        /// Number of unreserved ports of an outside address.
        ports: u32,
        /// Sum of compression ratio and dynamic shares.
        shares: u32,
    },
    /// There are too few outside addresses for the inside addresses.
    #[error("{inside} inside addresses exceed {places}, the number of outside addresses times the compression")]
    TooMany {
        /// Number of inside addresses.
        inside: u128,
        /// Number of inside addresses for which the outside addresses suffice.
        places: u64,
    },
}

/// A validated deterministic plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<A> {
    first: A,
    last: A,
    addresses: Ranges<A>,
    /// Usable ports of an outside address, without reserved ports.
    ports: Ranges<u32>,
    compression: u32,
    dynamic: u32,
    max: Option<u32>,
    algorithm: Algorithm,
    /// Number of ports of each inside address (P).
    share: u32,
}

impl<A: Address> Plan<A> {
    /// The deterministic plan of a pool; `None` if none is configured.
    pub fn of(pool: &Pool<A>) -> Option<Result<Self, DeterministicError>> {
        let deterministic = pool.deterministic.as_ref()?;
        Some(Self::new(
            deterministic,
            &pool.addresses,
            pool.ports.clone(),
            &pool.reserved,
        ))
    }

    /// Creates a plan from disjoint ranges of outside addresses, the port range, and the reserved ports (variable R) in
    /// this range.
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
        // The ports of all outside addresses are numbered consecutively with 32-bit numbers.
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
            max: deterministic.max,
            algorithm: deterministic.algorithm,
            share,
        })
    }

    /// Outside ports of an inside address; `None` if the plan does not contain the address.
    #[inline]
    pub fn outside(&self, inside: A) -> Option<PortSet<'_, A>> {
        let planned = self.first <= inside && inside <= self.last;
        planned.then(|| PortSet::new(self, (inside.number() - self.first.number()) as u32))
    }

    /// Inside address to which an outside port is assigned. `None` if the plan does not contain the address or the
    /// port, or if the port is reserved for blocks on demand or unassigned.
    #[inline]
    pub fn inside(&self, outside: A, port: u16) -> Option<A> {
        let (subscriber, _) = self.owner(outside, port)?;
        let inside = self.first.number() + u128::from(subscriber);
        (inside <= self.last.number()).then(|| A::from_number(inside))
    }

    /// Index of the inside address to which a port is assigned, and index of the port among the ports of that address.
    /// The index of the address may exceed the index of the last inside address.
    #[inline(always)]
    fn owner(&self, outside: A, port: u16) -> Option<(u64, u32)> {
        let address = self.addresses.index_of(outside)?;
        let index = self.ports.index_of(u32::from(port))?;
        let (compression, share) = (self.compression, self.share);
        let assigned = compression * share;
        if index >= assigned {
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
                let index = permutation::preimage_of(key, address, assigned, index);
                (first + u64::from(index / share), index % share)
            }
        })
    }

    /// Number of inside addresses.
    pub fn subscribers(&self) -> u32 {
        (self.last.number() - self.first.number()) as u32 + 1
    }

    /// First and last inside address.
    pub fn inside_addresses(&self) -> (A, A) {
        (self.first, self.last)
    }

    /// Number of ports that each inside address has in each class.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// Maximum number of ports that an inside address can have in each class, including ports of blocks on demand.
    pub fn max_hosts(&self) -> Option<u32> {
        self.max
    }

    /// Algorithm that assigns inside addresses.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Port range (first, last) that each outside address reserves for blocks on demand. The range may contain unusable
    /// ports.
    pub fn dynamic(&self) -> Option<(u16, u16)> {
        let (first, count) = (self.compression * self.share, self.ports.count());
        let kept = self.dynamic > 0 && first < count;
        kept.then(|| (self.ports.at(first) as u16, self.ports.at(count - 1) as u16))
    }
}
