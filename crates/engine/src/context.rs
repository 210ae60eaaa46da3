//! What nodes work with for the length of a burst.

use sluice_table::hash::{Fold, Hasher};

use crate::counters::WorkerCounters;
use crate::io::WorkerIndex;
use crate::paths::Paths;
use crate::policy::{Policy, Setup};
use crate::shard::Shard;
use crate::time::Now;

/// The worker's state, lent to a node.
pub struct Ctx<'c, 'm> {
    /// The moment of the burst.
    pub now: Now,
    /// This worker.
    pub own: WorkerIndex,
    /// What is fixed.
    pub setup: &'c Setup,
    /// What the last commit decided.
    pub policy: &'c Policy,
    /// Routes and neighbours.
    pub paths: &'c Paths,
    /// Session keys' hash.
    pub hasher: &'c Hasher,
    /// Inside addresses' hash.
    pub fold: &'c Fold,
    /// Shards by number; none where another worker is in charge.
    pub shards: &'c mut [Option<Box<Shard<'m>>>],
    /// Counters.
    pub counters: &'c WorkerCounters,
    /// Sessions that may still be decided again in this burst.
    pub revisions: u32,
}
