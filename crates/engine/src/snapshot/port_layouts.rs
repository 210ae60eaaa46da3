//! Memory layouts of port allocations.

use std::sync::Arc;

use sluice_nat::shard::Shards;
use sluice_nat::{Layout, PoolIndex};

use super::Snapshot;

/// Memory layouts of port allocations. The control plane creates the layouts.
#[derive(Clone, Debug, Default)]
pub struct PortLayouts {
    /// Generation of the last commit that changed the layouts.
    pub generation: u32,
    /// Layout of IPv4 pools.
    pub v4: Layout<u32>,
    /// Layout of IPv6 pools.
    pub v6: Layout<[u64; 2]>,
    /// IPv4 pools and IPv6 pools whose allocation scheme has changed, each with the generation of the change. The
    /// scheme comprises the mapping, the selection and the distribution of ports.
    pub reshaped: Arc<[Vec<(PoolIndex, u32)>; 2]>,
}

impl PortLayouts {
    /// Creates the layouts of a snapshot's pools.
    pub fn of(snapshot: &Snapshot, shards: Shards) -> Self {
        Self {
            generation: 0,
            reshaped: Arc::default(),
            v4: Layout::shared(&snapshot.nat4.pools, shards),
            v6: Layout::shared(&snapshot.nat6.pools, shards),
        }
    }

    /// Whether a pool's allocation scheme has changed since a generation.
    #[inline]
    pub fn is_reshaped_since(&self, v6: bool, pool: PoolIndex, generation: u32) -> bool {
        let reshaped = &self.reshaped[usize::from(v6)];
        reshaped
            .iter()
            .any(|&(index, since)| index == pool && (generation.wrapping_sub(since) as i32) < 0)
    }

    /// Records the changes since the layouts `before`, as changes of a generation.
    pub fn follow(&mut self, before: &Self, generation: u32) {
        let mut reshaped = (*before.reshaped).clone();
        let [v4, v6] = &mut reshaped;
        note(v4, &before.v4, &self.v4, generation);
        note(v6, &before.v6, &self.v6, generation);
        self.generation = generation;
        self.reshaped = Arc::new(reshaped);
    }

    /// Whether the layouts are equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.v4.is_same(&other.v4) && self.v6.is_same(&other.v6)
    }
}

fn note<A: sluice_nat::Address>(
    reshaped: &mut Vec<(PoolIndex, u32)>,
    before: &Layout<A>,
    now: &Layout<A>,
    generation: u32,
) {
    for index in 0.. {
        let (Some(old), Some(new)) = (before.pool(index), now.pool(index)) else {
            return;
        };
        // If a pool was added or removed, there is no previous allocation scheme to compare.
        if old.addresses() > 0 && new.addresses() > 0 && !new.has_shape_of(old) {
            reshaped.retain(|&(known, _)| known != index);
            reshaped.push((index, generation));
        }
    }
}
