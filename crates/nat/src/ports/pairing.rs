//! Assignment of a pool's addresses to inside hosts (RFC 4787, REQ-2).

use sluice_wire::Context;

use super::Ports;
use crate::keyed::{Secret, fold, reduce};
use crate::sites::is_site;
use crate::{Address, PoolIndex};

/// Number of consecutive subscribers that are assigned to consecutive addresses. Their prefixes differ only in the last
/// bits.
const ROW: u64 = 1 << 16;

impl<A: Address> Ports<'_, A> {
    /// Index of the pool address that is assigned to an inside host. `prefix` is the subscriber's inside prefix of
    /// `length` bits.
    #[inline(always)]
    pub(crate) fn paired_index(&self, pool: PoolIndex, context: Context, prefix: A, length: u8) -> u32 {
        host_index(self.secret, context, prefix, length, self.addresses(pool))
    }

    /// Index of the first address, at or after `first`, that has ports of this shard. The result is `first` if no
    /// address has ports of this shard.
    #[inline(always)]
    pub(crate) fn address_from(&self, pool: PoolIndex, first: u32) -> u32 {
        match self.has_ports(pool, first) {
            true => first,
            false => self.next_address(pool, first),
        }
    }

    #[cold]
    pub(super) fn next_address(&self, pool: PoolIndex, first: u32) -> u32 {
        let mut order = (first..self.addresses(pool)).chain(0..first);
        order.find(|&place| self.has_ports(pool, place)).unwrap_or(first)
    }

    /// Whether this shard owns any ports of an address besides those that deterministic NAT computes.
    #[inline(always)]
    pub(crate) fn has_ports(&self, pool: PoolIndex, address: u32) -> bool {
        let (region, shards) = (self.layout.regions.get(usize::from(pool)), self.layout.shards);
        region.is_none_or(|region| region.has_ports(shards, self.shard, address))
    }
}

/// Index (below `count`) of the outside address that is assigned to a subscriber with this prefix. Consecutive
/// subscribers get consecutive addresses, starting from a keyed index, so that all addresses have equally many
/// subscribers. Each pass over the addresses starts one address later. Consecutive subscribers belong to consecutive
/// shards. Thus the later start spreads the subscribers of one address over different shards.
#[inline(always)]
fn host_index<A: Address>(secret: Secret, context: Context, prefix: A, length: u8, count: u32) -> u32 {
    if count <= 1 {
        return 0;
    }
    // All terminals of a site are assigned to one outside address.
    let number = match is_site(context) {
        true => 0,
        false => prefix.number() >> A::BITS.saturating_sub(length).min(A::BITS - 1),
    };
    let place = (number as u64).wrapping_add(u64::from(context)) % ROW;
    let row = (number >> ROW.trailing_zeros()) as u64 ^ ((number >> 80) as u64).rotate_left(32);
    let from = reduce((fold(secret, row, u64::from(context) / ROW) >> 32) as u32, count);
    let (around, place) = (place as u32 / count, place as u32 % count);
    ((u64::from(place) + u64::from(around) + u64::from(from)) % u64::from(count)) as u32
}
