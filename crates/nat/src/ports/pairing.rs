//! The address of a pool that an inside host is dealt (RFC 4787, REQ-2).

use sluice_wire::Context;

use super::Ports;
use crate::keyed::{Secret, fold, reduce};
use crate::sites::is_site;
use crate::{Address, PoolIndex};

/// Hosts in a row that are dealt addresses in a row: as many subscribers as have the same first bits of their prefix.
const ROW: u64 = 1 << 16;

impl<A: Address> Ports<'_, A> {
    /// Which of a pool's addresses an inside host is dealt, by the prefix of so many bits that is its subscriber.
    #[inline(always)]
    pub(crate) fn paired_index(&self, pool: PoolIndex, context: Context, prefix: A, length: u8) -> u32 {
        host_index(self.secret, context, prefix, length, self.addresses(pool))
    }

    /// One of a pool's addresses that has ports for this shard, where there is any: the first from a place on.
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

    /// Whether this shard has ports of an address, as far as ports are dealt.
    #[inline(always)]
    pub(crate) fn has_ports(&self, pool: PoolIndex, address: u32) -> bool {
        let (region, shards) = (self.layout.regions.get(usize::from(pool)), self.layout.shards);
        region.is_none_or(|region| region.has_ports(shards, self.shard, address))
    }
}

/// Which of `count` addresses a host is dealt, by the prefix of `length` bits that is its subscriber. Hosts in a row get addresses
/// in a row, from a keyed place on, so that each address has as many as any other. Each time around they begin one further: hosts in
/// a row are in shards in a row, too, and those of one address in different ones.
#[inline(always)]
fn host_index<A: Address>(secret: Secret, context: Context, prefix: A, length: u8, count: u32) -> u32 {
    if count <= 1 {
        return 0;
    }
    // Terminals of a site have one address outside.
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
