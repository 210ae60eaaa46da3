//! Where an outside address and port belong: to a shard, to a unit that cards hash, or to an inside address.

use std::sync::Arc;

use super::ValidPool;
use crate::Address;
use crate::behaviour::PortSelection;
use crate::deterministic::Plan;
use crate::ports::SharedPorts;
use crate::shard::{BLOCK, BLOCKS, Shards};

/// Where an outside address and port belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<A> {
    /// To the shard of a unit of an address's ports, as cards know it ([`Shards::shard_of_unit`]).
    Unit(u32),
    /// To a shard that cards do not know.
    Shard(u32),
    /// To the shard of an inside address.
    Inside(A),
}

impl<A: Address> ValidPool<A> {
    /// Words of 64 ports that always share a shard.
    #[inline(always)]
    pub fn unit(&self) -> u32 {
        match (self.selection, self.blocks) {
            (PortSelection::Preserve, _) => BLOCKS,
            (_, Some(blocks)) => u32::from(blocks.size) / BLOCK,
            _ => 1,
        }
    }

    /// Where an address and port belong by computation.
    #[inline(always)]
    pub fn home(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        match self.inside(address, port) {
            Some(inside) => Home::Inside(inside),
            None if self.is_wide(shards) => Home::Unit(self.unit_of(port)),
            None => Home::Shard(self.shard_of(shards, address, port)),
        }
    }

    /// Whether addresses and ports spread over shards as cards hash: where that gives ports to every shard.
    #[inline(always)]
    pub(crate) fn is_wide(&self, shards: Shards) -> bool {
        self.units >= shards.count()
    }

    /// Whether shards share ports of its addresses: where bits say which are free, no sessions have a port together and no
    /// computation says who has it, and each shard keeps a whole unit of each address for itself. Of two shards each has half anyway.
    #[inline(always)]
    pub fn shares(&self, shards: Shards) -> bool {
        let by_bits = self.has_bits() && self.plan.is_none() && !self.overlap;
        by_bits && shards.count() > 2 && self.units >= 2 * shards.count()
    }

    /// The ports that shards share of an address, by its place in the pool.
    #[inline(always)]
    pub(crate) fn shared(&self, place: u32) -> Option<&Arc<SharedPorts>> {
        self.shared.0.as_ref()?.get(place as usize)
    }

    /// The same of a port's address, where its unit is one of those.
    pub(super) fn shared_at(&self, shards: Shards, address: A, port: u16) -> Option<&SharedPorts> {
        let of_unit = self.shared.0.is_some() && shards.is_shared(self.unit_of(port));
        self.shared(self.index_of(address).filter(|_| of_unit)?)
            .map(Arc::as_ref)
    }

    /// Whether a session keeps its address and port after a change of pools: they belong to its shard, or to a unit that shards share
    /// and no other shard has claimed. The shard claims such a unit when it takes up the new pools.
    pub fn keeps(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        match self.shared_at(shards, address, port) {
            Some(shared) => shared.owner(u32::from(port) / BLOCK).is_none_or(|owner| owner == shard),
            None => self.shard_of(shards, address, port) == shard,
        }
    }

    /// Whether a shard has an address and port that is not computed: it has claimed it, or nobody has and it is the one that
    /// computation names.
    pub fn is_of(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        let shared = self.shared_at(shards, address, port);
        let owner = shared.and_then(|shared| shared.owner(u32::from(port) / BLOCK));
        owner.unwrap_or_else(|| self.shard_of(shards, address, port)) == shard
    }

    /// Where an address and port belong, as it is now: shards may have ports of others.
    #[inline(never)]
    pub(super) fn home_now(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        let shared = self.shared_at(shards, address, port);
        match shared.and_then(|shared| shared.borrower(u32::from(port) / BLOCK)) {
            Some(borrower) => Home::Shard(borrower),
            None => self.home(shards, address, port),
        }
    }

    /// How units of ports spread over shards, where addresses do not as a whole.
    #[inline(always)]
    pub(super) fn spread(&self, shards: Shards) -> Shards {
        if self.is_wide(shards) {
            shards
        } else {
            shards.spread_over()
        }
    }

    /// The shard of an address as a whole that cards do not know: each has one in turn. None where ports spread, or as cards
    /// hash.
    #[inline(always)]
    pub(super) fn turn(&self, shards: Shards, address: A) -> Option<u32> {
        let in_turn = self.selection == PortSelection::Preserve && !self.is_wide(shards);
        in_turn.then(|| self.index_of(address).unwrap_or_default() & (shards.count() - 1))
    }

    /// The first unit from `from` on that a shard has of an address by computation; the next are each [`Shards::count`] on.
    #[inline(always)]
    pub(crate) fn first_unit(&self, shards: Shards, address: A, from: u32, shard: u32) -> u32 {
        match self.turn(shards, address) {
            Some(own) if own == shard => from,
            Some(_) => BLOCKS,
            None => self.spread(shards).first_unit(address, from, shard),
        }
    }

    /// Which of an address's units a port is of.
    #[inline(always)]
    pub fn unit_of(&self, port: u16) -> u32 {
        // Exact for 16 bits, and no division.
        ((u64::from(port) * self.per_port) >> 32) as u32
    }

    /// The inside address that has a port of the pool by computation (RFC 7422).
    #[inline(always)]
    pub fn inside(&self, address: A, port: u16) -> Option<A> {
        self.plan.as_ref()?.inside(address, port)
    }

    /// How ports are computed, where they are (RFC 7422).
    pub fn plan(&self) -> Option<&Plan<A>> {
        self.plan.as_deref()
    }

    /// The shard that an address and port that is not computed belong to.
    #[inline(always)]
    pub fn shard_of(&self, shards: Shards, address: A, port: u16) -> u32 {
        self.turn(shards, address)
            .unwrap_or_else(|| self.spread(shards).shard_of_unit(address, self.unit_of(port)))
    }
}
