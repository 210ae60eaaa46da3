//! Pairing: assignment of an outside address to an inside host (RFC 4787, REQ-2).

use crate::behaviour::PortSelection;
use crate::bindings::Bindings;
use crate::keyed::{reduce, sip};
use crate::ports::PortClass;
use crate::{Address, PoolIndex, Tuple};

impl<A: Address> Bindings<'_, A> {
    /// The outside address to which an inside host is translated in protocols that are translated by address alone. All
    /// shards compute the same address, because it depends only on the inside address and the pool.
    pub fn address_of<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let valid = self.pool(pool)?;
        let computed = valid.plan().and_then(|plan| plan.outside(key.source()));
        if let Some(address) = computed.and_then(|share| share.address()) {
            return Some(address);
        }
        let place = match valid.has_subscribers(PortClass::Tcp) {
            true => self.paired_index(key, pool),
            false => self.ports.paired_index(pool, key.context(), key.source(), A::BITS),
        };
        (valid.addresses() > 0).then(|| valid.address(place))
    }

    /// The outside address with which an inside host is paired. The address is computed (RFC 7422) or selected by a
    /// keyed hash (RFC 4787, REQ-2).
    pub(super) fn pair<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let computed = self.pool(pool)?.plan().and_then(|plan| plan.outside(key.source()));
        if let Some(address) = computed.and_then(|share| share.address()) {
            return Some(address);
        }
        self.paired(self.paired_index(key, pool), pool)
    }

    pub(super) fn pair_other<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let host = self.host_hash(key.context(), self.prefix(key.context(), key.source()), pool);
        let other = sip::<1, 3>(self.secret, &[host], 1);
        let count = self.pool(pool)?.addresses();
        self.paired(reduce((other >> 32) as u32, count), pool)
    }

    pub(super) fn paired(&self, first: u32, pool: PoolIndex) -> Option<A> {
        let valid = self.pool(pool)?;
        let count = valid.addresses();
        if count == 0 {
            return None;
        }
        if valid.selection() == PortSelection::Random {
            return Some(valid.address(self.ports.address_from(pool, first)));
        }
        // Select an address whose ports all belong to this shard.
        let (shards, shard) = (self.ports.layout().shards(), self.ports.shard());
        let mut order = (first..count).chain(0..first).map(|place| valid.address(place));
        order.find(|&address| valid.shard_of(shards, address, 0) == shard)
    }

    /// Index of the pool address that is assigned to a subscriber.
    pub(super) fn paired_index<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> u32 {
        let prefix = self.prefix(key.context(), key.source());
        self.ports.paired_index(pool, key.context(), prefix, self.subscriber)
    }
}
