//! Parameters that are fixed when the engine starts.

use std::sync::Arc;

use sluice_nat::bindings::Capacity;
use sluice_nat::event::EventKinds;
use sluice_nat::meter::Meters;
use sluice_nat::{Behaviour, Filtering, PortClass};

use crate::session::family::Family;
use crate::snapshot::assist::Assist;
use crate::snapshot::fragment_limits::FragmentLimits;
use crate::snapshot::shard_owners::ShardOwners;
use crate::snapshot::stages::Stages;
use crate::snapshot::steering::Steering;

use super::Snapshot;

/// Parameters that are fixed for the lifetime of the process, because memory and devices depend on them.
#[derive(Clone, Debug)]
pub struct StartParameters {
    /// The shards, and the function that assigns packets to them.
    pub steering: Steering,
    /// The worker that owns each shard.
    pub owners: Arc<ShardOwners>,
    /// The workers of each part of packet processing.
    pub stages: Stages,
    /// State of assistance, in which receiving workers process shards of overloaded session workers.
    pub assist: Option<Arc<Assist>>,
    /// Maximum number of IPv4 sessions, and of IPv6 sessions, in all shards together.
    pub sessions: [u32; 2],
    /// Maximum number of outside ports, which is at least the number of ports at start.
    pub ports: usize,
    /// Secret key of the hashes for session tables and port selection.
    pub secret: [u64; 2],
    /// Limits of the table of fragmented datagrams.
    pub fragments: FragmentLimits,
    /// Maximum number of parked unsolicited SYNs in all shards together.
    pub unsolicited_syns: u32,
    /// Number of public IPv4 addresses that can be added to pools later, because memory for their port allocations is
    /// reserved.
    pub spare_addresses: u32,
    /// Maximum numbers of subscribers and of port blocks.
    pub subscribers: SubscriberCapacity,
    /// Capacity of each worker's application identification, if enabled.
    pub applications: Option<sluice_inspect::applications::ApplicationCapacity>,
    /// Capacity of each shard's inspection, if enabled.
    pub inspection: Option<sluice_inspect::inspector::InspectorCapacity>,
    /// Session counts of the pools and routers that have limits.
    pub meters: Arc<Meters>,
    /// Settings of translation events.
    pub events: EventSettings,
    /// Maximum number of interfaces, which is at least the number of interfaces at start.
    pub interfaces: usize,
}

/// Settings of translation events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSettings {
    /// The kinds of events to record.
    pub wanted: EventKinds,
    /// Capacity of each worker's queue. Events beyond the capacity are counted as lost. With capacity 0, there is no queue.
    pub max: usize,
}

/// Maximum numbers of subscribers and of port blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberCapacity {
    /// Maximum number of subscribers of each family, in all shards together.
    pub max: u32,
    /// Maximum number of port blocks of all subscribers.
    pub blocks: u32,
    /// Maximum number of ports and blocks in quarantine (RFC 6888, REQ-8), in all shards together.
    pub held: u32,
    /// Length of the inside prefix that counts as one subscriber, for IPv4 and for IPv6.
    pub prefix: [u8; 2],
}

impl Default for SubscriberCapacity {
    fn default() -> Self {
        Self {
            max: 65_536,
            blocks: 131_072,
            held: 131_072,
            prefix: [32, 128],
        }
    }
}

impl StartParameters {
    /// Number of IPv4 and of IPv6 sessions in each shard, at least one.
    pub fn sessions_per_shard(&self) -> [usize; 2] {
        self.sessions
            .map(|all| (all as usize).div_ceil(self.steering.shards().count() as usize).max(1))
    }

    /// Capacity of each shard for allocations from the pools of a family. There is space for a separate mapping of
    /// every session, and, if filtering is address-dependent, for a filtering entry of every session. Because
    /// subscribers are distributed unevenly over the shards, the capacity for subscribers is a quarter higher than an
    /// even share.
    pub fn capacity<F: Family>(&self, snapshot: &Snapshot) -> Capacity {
        let family = usize::from(F::IS_V6);
        let nat = snapshot.nat::<F>();
        if F::IS_V6 && nat.pools.is_empty() {
            return Capacity::NONE;
        }
        let shards = self.steering.shards().count() as usize;
        let share = |all: u32| {
            let even = (all as usize).div_ceil(shards);
            if shards == 1 { even } else { even + even / 4 + 64 }
        };
        let permits = |behaviour: Behaviour| behaviour.filtering == Filtering::AddressDependent;
        let permissions = nat
            .pools
            .iter()
            .any(|(_, pool)| PortClass::ALL.iter().any(|&class| permits(pool.behaviour(class))));
        Capacity {
            mappings: self.sessions_per_shard()[family] * (1 + usize::from(permissions)),
            subscribers: share(self.subscribers.max),
            blocks: share(self.subscribers.blocks),
            quarantine: share(self.subscribers.held),
            events: if self.events.max == 0 {
                EventKinds::NONE
            } else {
                self.events.wanted
            },
            subscriber: self.subscribers.prefix[family],
        }
    }
}
