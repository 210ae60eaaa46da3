//! Load balancing among workers. Shards move from the busiest to the least busy worker as long as a move reduces the
//! difference of their loads.

use std::time::{Duration, Instant};

use sluice_config::schema::Rebalance;
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::worker::request::{Reply, Request};

use crate::control::Control;
use crate::handle::WorkerEnded;
use crate::ports::table;

/// Interval between comparisons of the loads. A move takes effect on the loads within this interval.
const PERIOD: Duration = Duration::from_secs(1);

/// Polling interval while workers complete a step of a move.
const STEP: Duration = Duration::from_micros(200);

/// Duration after which a move that is still in progress is logged.
const LONG: Duration = Duration::from_secs(1);

/// A shard and its new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Number of the shard.
    pub shard: u16,
    /// The new worker.
    pub to: WorkerIndex,
}

/// Why a shard did not move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The worker has ended.
    #[error(transparent)]
    WorkerEnded(#[from] WorkerEnded),
    /// The worker does not own the shard, or another shard is moving.
    #[error("worker {0} can't receive shards at present")]
    Refused(WorkerIndex),
    /// A pool migration is still ending sessions, so no shard can move.
    #[error("a previous change of pools is still in progress")]
    Unsettled,
}

/// Choose the move that reduces the load difference most. `busy` is the load of each worker in percent (`None` for
/// workers without sessions); `owners` and `packets` have an entry per shard.
pub fn choose(wanted: &Rebalance, busy: &[Option<f64>], owners: &[WorkerIndex], packets: &[u64]) -> Option<Move> {
    let mut workers: Vec<(f64, WorkerIndex)> = (0..).zip(busy).filter_map(|(at, busy)| Some(((*busy)?, at))).collect();
    workers.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (&(min_load, to), &(max_load, from)) = (workers.first()?, workers.last()?);
    let difference = max_load - min_load;
    if max_load < f64::from(wanted.busy) || difference < f64::from(wanted.difference) {
        return None;
    }
    let own: Vec<(u16, u64)> = (0..)
        .zip(owners.iter().zip(packets))
        .filter(|(_, (owner, _))| **owner == from)
        .map(|(shard, (_, packets))| (shard, *packets))
        .collect();
    let all: u64 = own.iter().map(|(_, packets)| packets).sum();
    let weighed = own
        .iter()
        .map(|&(shard, packets)| (max_load * packets as f64 / all.max(1) as f64, shard));
    // If the load of a shard equals the whole difference, moving the shard would only make the other worker the
    // busiest.
    let useful = weighed.filter(|&(weight, _)| weight > 0.0 && weight < difference);
    let (_, shard) = useful.min_by(|one, other| {
        let off = |weight: f64| (difference - 2.0 * weight).abs();
        off(one.0).total_cmp(&off(other.0))
    })?;
    Some(Move { shard, to })
}

impl Control {
    /// Compare loads and move shards; runs for the life of the process.
    pub(crate) async fn rebalance(&self) {
        let mut before = self.packets();
        loop {
            tokio::time::sleep(PERIOD).await;
            let now = self.packets();
            let packets: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            before = now;
            let Some(chosen) = self.chosen(&packets) else { continue };
            match self.move_shard(chosen).await {
                Ok(took) => tracing::info!("shard {} moved to worker {} in {took:?}", chosen.shard, chosen.to),
                Err(error) => tracing::warn!("shard {} was not moved: {error}", chosen.shard),
            }
            // The loads of the last second still include the moved shard.
            tokio::time::sleep(2 * PERIOD).await;
            before = self.packets();
        }
    }

    fn chosen(&self, packets: &[u64]) -> Option<Move> {
        let config = self.config();
        let wanted = &config.document.system.rebalance;
        let plane = self.plane();
        let start_parameters = plane.start_parameters();
        let has_part = |worker| {
            start_parameters
                .stages
                .has_part(worker, sluice_engine::placement::Part::Session)
        };
        let busy: Vec<_> = (0..self.workers())
            .map(|worker| has_part(worker as WorkerIndex).then(|| self.load(worker).busy * 100.0))
            .collect();
        let owners: Vec<_> = start_parameters.owners.iter().collect();
        wanted
            .enabled
            .then(|| choose(wanted, &busy, &owners, packets))
            .flatten()
    }

    /// Packet counter of each shard.
    fn packets(&self) -> Vec<u64> {
        let shards = self.plane().start_parameters().owners.len();
        let of = |shard: usize| self.counters.iter().filter_map(move |worker| worker.shards.get(shard));
        (0..shards)
            .map(|shard| of(shard).map(|counter| counter.get()).sum())
            .collect()
    }

    /// Move a shard while its traffic continues. Returns the duration of the move.
    ///
    /// # Errors
    /// See [`MoveError`]. On an error, the shard remains with its worker.
    pub(crate) async fn move_shard(&self, Move { shard, to }: Move) -> Result<Duration, MoveError> {
        let _one = self.committing.lock().await;
        let started_at = Instant::now();
        let owner = {
            let plane = self.plane();
            if !plane.is_migrated() {
                return Err(MoveError::Unsettled);
            }
            plane.start_parameters().owners.of(shard)
        };
        let from = owner.ok_or(MoveError::Refused(to))?;
        // The request queue stays locked. A list request during the move would scan a whole table and thus delay the
        // packets of the shard.
        let mut sender = self.handle(from.into()).await?;
        if from == to || !matches!(self.ask(to.into(), Request::Expect { shard }).await?, Reply::Done) {
            return Err(MoveError::Refused(to));
        }
        let taken = self.taken(to);
        if !matches!(sender.ask(Request::StartRelease { shard, to }).await?, Reply::Done) {
            self.ask(to.into(), Request::Release).await?;
            return Err(MoveError::Refused(from));
        }
        // Wait for two rounds of each worker, because the current round may have started before the change.
        let then: Vec<u64> = self.counters.iter().map(|worker| worker.rounds.get()).collect();
        let seen = || {
            self.counters
                .iter()
                .zip(&then)
                .all(|(worker, then)| worker.rounds.get() - then >= 2)
        };
        self.until(started_at, seen).await;
        self.log_devices();
        let released = sender.ask(Request::Release).await?;
        drop(sender);
        if !matches!(released, Reply::Done) {
            return Err(MoveError::Refused(from));
        }
        self.until(started_at, || self.taken(to) != taken).await;
        Ok(started_at.elapsed())
    }

    fn taken(&self, worker: WorkerIndex) -> u64 {
        let counters = self.counters.get(usize::from(worker));
        counters.map_or(0, |worker| worker.shards_taken.get())
    }

    async fn until(&self, started_at: Instant, done: impl Fn() -> bool) {
        let mut reported = false;
        while !done() {
            tokio::time::sleep(STEP).await;
            if !reported && started_at.elapsed() > LONG {
                reported = true;
                tracing::warn!("the move of a shard takes longer than {LONG:?}, and its packets wait");
            }
        }
    }

    /// Configure the cards to send each shard's packets to its owner's queue.
    fn log_devices(&self) {
        for port in self.devices.ports().iter().filter(|port| port.queues() > 1) {
            let table = table(self.plane().start_parameters(), port.queues());
            if let Err(error) = port.set_table(&table) {
                tracing::debug!(
                    "{}: {error}: its packets are handed to the workers of their shards",
                    port.name()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(busy: &[f64], owners: &[WorkerIndex], packets: &[u64]) -> Option<Move> {
        let busy: Vec<_> = busy.iter().map(|&busy| Some(busy)).collect();
        choose(&Rebalance::default(), &busy, owners, packets)
    }

    #[test]
    fn shard_moves_that_levels_the_load_most() {
        // The loads are 90 % and 10 %, so 40 % of a core should move, which is the load of shard 2.
        let owners = [0, 0, 0, 1];
        assert_eq!(
            Some(Move { shard: 2, to: 1 }),
            chosen(&[90.0, 10.0], &owners, &[20, 30, 40, 10])
        );
        assert_eq!(
            Some(Move { shard: 0, to: 2 }),
            chosen(&[90.0, 50.0, 10.0], &owners, &[35, 5, 50, 10])
        );
    }

    #[test]
    fn elephant_stays_and_its_companions_go() {
        let owners = [0, 0, 1, 1];
        // Moving the only loaded shard would just move the load to the other worker.
        assert_eq!(None, chosen(&[95.0, 5.0], &owners, &[1000, 0, 5, 5]));
        assert_eq!(
            Some(Move { shard: 1, to: 1 }),
            chosen(&[95.0, 5.0], &owners, &[1000, 20, 5, 5])
        );
    }

    #[test]
    fn nothing_moves_while_nobody_is_busy_or_all_are() {
        let owners = [0, 0, 1, 1];
        assert_eq!(None, chosen(&[50.0, 1.0], &owners, &[10, 10, 1, 1]));
        assert_eq!(None, chosen(&[95.0, 90.0], &owners, &[10, 10, 9, 9]));
        assert_eq!(None, chosen(&[95.0], &[0, 0], &[10, 10]));
        let without = [Some(95.0), None];
        assert_eq!(None, choose(&Rebalance::default(), &without, &[0, 0], &[10, 10]));
    }
}
