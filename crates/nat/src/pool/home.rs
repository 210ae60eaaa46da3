//! Ownership of outside addresses and ports. The owner is given as a shard, as a port unit from which NICs compute the
//! shard, or as the inside address whose shard is the owner.

use std::sync::Arc;

use super::ValidPool;
use crate::Address;
use crate::behaviour::PortSelection;
use crate::deterministic::Plan;
use crate::ports::SharedPorts;
use crate::shard::{BLOCK, BLOCKS, Shards};

/// Owner of an outside address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<A> {
    /// The shard that owns the port unit (a range of consecutive ports) with this number. NICs can compute this shard
    /// ([`Shards::shard_of_unit`]).
    Unit(u32),
    /// A shard that NICs can't compute.
    Shard(u32),
    /// The shard to which an inside address belongs.
    Inside(A),
}

impl<A: Address> ValidPool<A> {
    /// Number of 64-port words in a port unit. All words of a port unit belong to one shard.
    #[inline(always)]
    pub fn unit(&self) -> u32 {
        match (self.selection, self.blocks) {
            (PortSelection::Preserve, _) => BLOCKS,
            (_, Some(blocks)) => u32::from(blocks.size) / BLOCK,
            _ => 1,
        }
    }

    /// Owner that the distribution assigns to an address and port, even if another shard has borrowed the port.
    #[inline(always)]
    pub fn home(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        match self.inside(address, port) {
            Some(inside) => Home::Inside(inside),
            None if self.is_wide(shards) => Home::Unit(self.unit_of(port)),
            None => Home::Shard(self.shard_of(shards, address, port)),
        }
    }

    /// Whether the NIC's RSS hash distributes addresses and ports over the shards. The RSS hash is used only if it
    /// gives ports to every shard.
    #[inline(always)]
    pub(crate) fn is_wide(&self, shards: Shards) -> bool {
        self.units >= shards.count()
    }

    /// Whether shards share ports of the pool's addresses. Sharing requires that the pool has a port bitmap, that
    /// sessions don't share ports, that the pool doesn't use deterministic NAT, and that each address has at least one
    /// whole port unit for each shard. If there are only two shards, they share no ports, because each shard owns half
    /// of the ports anyway.
    #[inline(always)]
    pub fn shares(&self, shards: Shards) -> bool {
        let by_bits = self.has_bits() && self.plan.is_none() && !self.overlap;
        by_bits && shards.count() > 2 && self.units >= 2 * shards.count()
    }

    /// Shared ports of the address with this index in the pool.
    #[inline(always)]
    pub(crate) fn shared(&self, place: u32) -> Option<&Arc<SharedPorts>> {
        self.shared.0.as_ref()?.get(place as usize)
    }

    /// Shared ports of an address, if the unit that contains the port is shared.
    pub(super) fn shared_at(&self, shards: Shards, address: A, port: u16) -> Option<&SharedPorts> {
        let of_unit = self.shared.0.is_some() && shards.is_shared(self.unit_of(port));
        self.shared(self.index_of(address).filter(|_| of_unit)?)
            .map(Arc::as_ref)
    }

    /// Whether a session keeps its address and port after a change of pools. The port must belong to the session's
    /// shard, or to a shared port unit that no other shard has claimed. The shard claims such a port unit when it
    /// migrates to the new pools.
    pub fn keeps(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        match self.shared_at(shards, address, port) {
            Some(shared) => shared.owner(u32::from(port) / BLOCK).is_none_or(|owner| owner == shard),
            None => self.shard_of(shards, address, port) == shard,
        }
    }

    /// Whether a shard owns an address and port that deterministic NAT does not compute. The owner is the shard that
    /// has claimed the port, or else the shard to which the distribution assigns the port.
    pub fn is_of(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        let shared = self.shared_at(shards, address, port);
        let owner = shared.and_then(|shared| shared.owner(u32::from(port) / BLOCK));
        owner.unwrap_or_else(|| self.shard_of(shards, address, port)) == shard
    }

    /// Current owner of an address and port: the shard that has borrowed the port, or else the owner according to the
    /// distribution.
    #[inline(never)]
    pub(super) fn current_home(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        let shared = self.shared_at(shards, address, port);
        match shared.and_then(|shared| shared.borrower(u32::from(port) / BLOCK)) {
            Some(borrower) => Home::Shard(borrower),
            None => self.home(shards, address, port),
        }
    }

    /// Distribution of port units over the shards, if the ports of an address may belong to different shards.
    #[inline(always)]
    pub(super) fn spread(&self, shards: Shards) -> Shards {
        if self.is_wide(shards) {
            shards
        } else {
            shards.spread_over()
        }
    }

    /// Shard to which an address belongs if the pool preserves ports. Addresses are then assigned to shards
    /// round-robin. `None` if ports are distributed individually or by the NIC's RSS hash.
    #[inline(always)]
    pub(super) fn turn(&self, shards: Shards, address: A) -> Option<u32> {
        let is_round_robin = self.selection == PortSelection::Preserve && !self.is_wide(shards);
        is_round_robin.then(|| self.index_of(address).unwrap_or_default() & (shards.count() - 1))
    }

    /// First port unit of an address, at or after `from`, that the distribution assigns to a shard. Further port units
    /// of the shard follow at intervals of [`Shards::count`].
    #[inline(always)]
    pub(crate) fn first_unit(&self, shards: Shards, address: A, from: u32, shard: u32) -> u32 {
        match self.turn(shards, address) {
            Some(own) if own == shard => from,
            Some(_) => BLOCKS,
            None => self.spread(shards).first_unit(address, from, shard),
        }
    }

    /// Index of the port unit that contains a port.
    #[inline(always)]
    pub fn unit_of(&self, port: u16) -> u32 {
        unit(port, self.per_port)
    }

    /// The factor by which [`unit()`] multiplies ports.
    pub(super) fn per_port(&self) -> u64 {
        self.per_port
    }

    /// Whether each port of the pool's range is allocated and belongs to its unit, and units are distributed by the NIC's
    /// RSS hash.
    pub(super) fn spreads_plainly(&self, shards: Shards) -> bool {
        self.is_wide(shards) && self.plan.is_none() && self.reserved.is_empty()
    }

    /// Inside address to which deterministic NAT assigns a port of the pool (RFC 7422).
    #[inline(always)]
    pub fn inside(&self, address: A, port: u16) -> Option<A> {
        self.plan.as_ref()?.inside(address, port)
    }

    /// Deterministic plan of the pool (RFC 7422); `None` if none is configured.
    pub fn plan(&self) -> Option<&Plan<A>> {
        self.plan.as_deref()
    }

    /// Shard that owns a port of an address. The port must not be one that deterministic NAT computes.
    #[inline(always)]
    pub fn shard_of(&self, shards: Shards, address: A, port: u16) -> u32 {
        self.turn(shards, address)
            .unwrap_or_else(|| self.spread(shards).shard_of_unit(address, self.unit_of(port)))
    }
}

/// Unit of a port. The multiplication replaces a division, and is exact for 16-bit values.
#[inline(always)]
pub(super) fn unit(port: u16, per_port: u64) -> u32 {
    ((u64::from(port) * per_port) >> 32) as u32
}
