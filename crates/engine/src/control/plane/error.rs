//! Errors of the control plane.

use sluice_route::fib::FibError;

use crate::features::inspection::rule_updates::RuleUpdateError;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::WorkerIndex;
use crate::snapshot::shard_memory::ShardError;

/// Reason for which the control plane can't be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The routes don't fit the FIB.
    #[error(transparent)]
    Routes(#[from] FibError),
    /// The memory of a shard has a wrong size.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// There are no workers, or a shard is assigned to a worker that doesn't exist.
    #[error("worker {0} does not exist: there are only {1} workers")]
    Workers(WorkerIndex, usize),
    /// Shards are assigned to a worker without the session stage.
    #[error("worker {0} has a shard, but its stages do not process sessions")]
    Stage(WorkerIndex),
    /// Application identification is not available.
    #[error(transparent)]
    Applications(#[from] sluice_inspect::applications::Error),
    /// There are more neighbours or interfaces than an adjacency index can represent.
    #[error(
        "at most {} neighbours and {} interfaces are possible",
        AdjacencyIndex::MAX_NEIGHBOURS,
        AdjacencyIndex::MAX_INTERFACES
    )]
    TooMany,
    /// There are more interfaces than counters for interfaces.
    #[error("{0} interfaces exceed the capacity of {1} interfaces")]
    MoreInterfaces(usize, usize),
    /// The memory that was reserved for port allocations at start is too small for the new pools.
    #[error("the pools need {needed} bytes for port allocation, but only {reserved} bytes were reserved at the start")]
    PoolsTooLarge {
        /// Memory in bytes that the new pools need.
        needed: usize,
        /// Memory in bytes that is reserved.
        reserved: usize,
    },
    /// A pool has mappings, subscribers or computed ports. These pools require that all flows of an inside host belong to one shard.
    #[error(
        "steering spreads the flows of a host over shards, but a pool or a destination rule needs one shard per host"
    )]
    SteeringConflict,
    /// Pool migration is not complete, so sessions may still use ports that the pools no longer contain. If a pool
    /// regained such a port now, the pool would allocate the port twice.
    #[error("the previous change of pools is still ending sessions that have no port in the new pools")]
    MigrationPending,
    /// New inspection rules can't be created.
    #[error(transparent)]
    Renewal(#[from] RuleUpdateError),
}
