//! Search for a port if the requested word has no free port. The search covers first the shard's own ports, then the
//! shared ports that the shard has claimed. If all of them are exhausted, the shard claims another range of shared
//! ports.

use super::bits::{next, pick};
use super::layout::Region;
use super::{Exhausted, Lease, LeaseRequest, Ports};
use crate::pool::Pairing;
use crate::shard::BLOCK;
use crate::{Address, RssPorts};

/// Number of other addresses that an allocation tries if the pool has soft pairing.
const MAX_OTHER_ADDRESSES: u32 = 8;

/// Location of a free port.
enum Found {
    /// Word and bit of a port that only this shard can own.
    Own(usize, u32),
    /// Block number and bit of a shared port.
    Shared(u32, u32),
}

impl<A: Address> Ports<'_, A> {
    /// Allocates the next free port if the first word has at most one free port.
    #[inline(never)]
    pub(super) fn search(&mut self, request: LeaseRequest) -> Result<Lease<A>, Exhausted> {
        let region = self.layout.regions.get(usize::from(request.pool)).ok_or(Exhausted)?;
        let (start, addresses) = (region.start, region.geometry.addresses);
        let mut address = request.address as usize;
        let mut others = match region.pool.pairing() {
            Pairing::Soft => MAX_OTHER_ADDRESSES.min(addresses.saturating_sub(1) as u32),
            Pairing::Hard => 0,
        };
        loop {
            match self.find_at(&request, address) {
                Some(Found::Own(at, bit)) => {
                    let region = &self.layout.regions[usize::from(request.pool)];
                    let outside = region.pool.address(address as u32);
                    region.bits(self.memory, request.class, address).take(at, bit);
                    self.memory[start + request.class as usize] += 1;
                    let port = region.block_at(self.layout.shards, self.shard, outside, at) * BLOCK + bit;
                    return Ok(Lease {
                        address: outside,
                        port: port as u16,
                    });
                }
                Some(Found::Shared(block, bit)) => {
                    let place = Self::at(address, block, bit);
                    return self.take_shared(request.pool, request.class, place).ok_or(Exhausted);
                }
                None if others == 0 => return Err(Exhausted),
                None => {}
            }
            others -= 1;
            let region = &self.layout.regions[usize::from(request.pool)];
            let available = region.bits(self.memory, request.class, address).available;
            let own = next(available, address + 1, addresses).or_else(|| next(available, 0, address));
            // If the shard's own ports of all addresses are exhausted, continue with the shared ports of the next address.
            let shared = || (region.geometry.shared > 0).then_some((address + 1) % addresses);
            address = own.or_else(shared).ok_or(Exhausted)?;
        }
    }

    /// Finds a free port of an address. RSS delivery of the replies to this shard takes precedence over parity, because
    /// it avoids a hand-off of each reply.
    fn find_at(&mut self, request: &LeaseRequest, address: usize) -> Option<Found> {
        let (shards, shard) = (self.layout.shards, self.shard);
        let region = self.layout.regions.get(usize::from(request.pool))?;
        let outside = region.pool.address(address as u32);
        let own = region.ranges(shards, shard, address as u32, request.range);
        let shared = region.shared_ranges(shards, shard, address as u32, request.range);
        let rss_ports = self.rss_ports.as_deref().zip(request.preference.required_hash);
        let fits = |block: u32| {
            rss_ports.map_or(u64::MAX, |(rss_ports, wanted): (&RssPorts, u32)| {
                rss_ports.of_word::<A>(wanted, outside, block * BLOCK)
            })
        };
        let both = |block| fits(block) & request.preference.parity;
        let prefers = request.preference.parity != u64::MAX || request.preference.required_hash.is_some();
        let memory = &mut *self.memory;
        let matching = |memory: &mut [u64]| {
            let ranges = (own[0], shared[0]);
            let place = (shards, shard, address);
            find_preferred(region, memory, place, request, ranges, both)
                .or_else(|| find_preferred(region, memory, place, request, ranges, fits))
        };
        if let Some(found) = prefers.then(|| matching(memory)).flatten() {
            return Some(found);
        }
        for (own, shared) in own.into_iter().zip(shared) {
            if let Some((at, bit)) = region.bits(memory, request.class, address).find(own, request.flow) {
                return Some(Found::Own(at, bit));
            }
            let any = |memory: &mut [u64]| {
                let place = (shards, address);
                let found = region.find_shared(memory, place, request.class, (shared, request.flow), |_| u64::MAX);
                found.map(|(block, ports)| Found::Shared(block, pick(ports, request.flow)))
            };
            if let Some(found) = any(memory) {
                return Some(found);
            }
            let claimed = region.claim_within(memory, (shards, shard), address, shared, request.flow);
            if claimed.is_some() {
                let matching = prefers.then(|| matching(memory)).flatten();
                return matching.or_else(|| any(memory));
            }
        }
        None
    }
}

/// Finds a free preferred port of an address. `preference` returns the preferred ports of a block.
fn find_preferred<A: Address>(
    region: &Region<A>,
    memory: &mut [u64],
    (shards, shard, address): (crate::shard::Shards, u32, usize),
    request: &LeaseRequest,
    (own, shared): ((usize, usize), (usize, usize)),
    preference: impl Fn(u32) -> u64,
) -> Option<Found> {
    let outside = region.pool.address(address as u32);
    let block = |at| region.block_at(shards, shard, outside, at);
    let bits = region.bits(memory, request.class, address);
    if let Some((at, bit)) = bits.find_preferred(own, request.flow, |at| preference(block(at))) {
        return Some(Found::Own(at, bit));
    }
    let found = region.find_shared(
        memory,
        (shards, address),
        request.class,
        (shared, request.flow),
        preference,
    );
    found.map(|(block, ports)| Found::Shared(block, pick(ports, request.flow)))
}
