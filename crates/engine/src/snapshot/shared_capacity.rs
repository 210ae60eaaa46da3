//! Table capacity that all shards share. A shard with full tables takes parts of the shared capacity. One host can
//! therefore have far more sessions than an even share of the capacity.

use std::sync::Arc;

use sluice_nat::bindings::MappingsPart;
use sluice_nat::{Address, Bindings};
use sluice_table::flow::{FlowTable, Part, Record, TableSizeError};
use sluice_table::memory::Line;
use sluice_table::reserve::Reserve;

use crate::session::family::{V4, V6};
use crate::session::record::{Session4, Session6};
use crate::session::shard::Shard;
use crate::snapshot::{Snapshot, StartParameters};

/// Maximum number of parts of the whole table. A part therefore has at least a sixteenth of the capacity; with more
/// than 16 shards, it is larger than a shard's own share. Because parts are large, a lookup has to search only a few of
/// them.
const PARTS: usize = 16;

/// Division of the shared capacity of a family into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    parts: usize,
    /// Number of sessions in a part.
    sessions: usize,
    /// Number of mappings in a part, including filtering entries.
    mappings: usize,
}

impl Division {
    /// Computes the division. A shard's own share and the shared capacity together can store half of all sessions.
    fn new(all: usize, share: usize, mappings: usize) -> Self {
        let sessions = all.div_ceil(PARTS).max(share);
        Self {
            parts: all.div_ceil(2).saturating_sub(share).div_ceil(sessions),
            sessions,
            mappings: sessions * mappings.div_ceil(share),
        }
    }

    fn lines<R: Record, A: Address>(&self) -> [usize; 2] {
        let sessions = FlowTable::<R>::lines_for(self.sessions);
        let mappings = match self.mappings {
            0 => 0,
            mappings => Bindings::<A>::lines_of_part(mappings),
        };
        // Each part starts at an even line number, like the memory of a shard.
        [sessions, mappings].map(|lines| lines.next_multiple_of(2))
    }

    fn total<R: Record, A: Address>(&self) -> usize {
        self.parts * self.lines::<R, A>().iter().sum::<usize>()
    }
}

fn divisions(start: &StartParameters, snapshot: &Snapshot) -> [Division; 2] {
    let capacities = [start.capacity::<V4>(snapshot), start.capacity::<V6>(snapshot)];
    let [v4, v6] = start.sessions_per_shard();
    let [all4, all6] = start.sessions.map(|all| all as usize);
    [
        Division::new(all4, v4, capacities[0].mappings),
        Division::new(all6, v6, capacities[1].mappings),
    ]
}

/// Maximum number of IPv4 sessions, and of IPv6 sessions, in one shard, including the shared capacity.
pub fn max_sessions(start: &StartParameters) -> [usize; 2] {
    let shares = start.sessions_per_shard();
    [0, 1].map(|family| {
        let division = Division::new(start.sessions[family] as usize, shares[family], 0);
        shares[family] + division.parts * division.sessions
    })
}

/// Number of memory lines for the shared capacity. The number is 0 for one or two shards, because each shard has at
/// least half of the table.
pub fn lines(start: &StartParameters, snapshot: &Snapshot) -> usize {
    let [v4, v6] = divisions(start, snapshot);
    v4.total::<Session4, u32>() + v6.total::<Session6, [u64; 2]>()
}

/// Parts of one family that no shard uses now.
#[derive(Debug)]
struct Parts<'m, R, A: Address> {
    sessions: Option<Arc<Reserve<Part<'m, R>>>>,
    mappings: Option<Arc<Reserve<MappingsPart<'m, A>>>>,
}

impl<'m, R: Record, A: Address> Parts<'m, R, A> {
    fn new(division: Division, memory: &'m mut [Line]) -> Result<Self, TableSizeError> {
        let (mut sessions, mut mappings) = (Vec::new(), Vec::new());
        let [of_sessions, of_mappings] = division.lines::<R, A>();
        let mut rest = memory.chunks_exact_mut((of_sessions + of_mappings).max(1));
        for _ in 0..division.parts {
            let (one, other) = rest
                .next()
                .unwrap_or_default()
                .split_at_mut_checked(of_sessions)
                .unwrap_or_default();
            sessions.push(Part::new(one, division.sessions)?);
            if division.mappings > 0 {
                mappings.push(MappingsPart::new(other, division.mappings));
            }
        }
        Ok(Self {
            sessions: Reserve::new(sessions).map(Arc::new),
            mappings: Reserve::new(mappings).map(Arc::new),
        })
    }

    fn share(&self, table: &mut FlowTable<'m, R>, bindings: &mut Bindings<'m, A>) {
        if let Some(reserve) = &self.sessions {
            table.share(reserve.clone());
        }
        if let Some(reserve) = &self.mappings {
            bindings.share(reserve.clone());
        }
    }
}

/// Parts that no shard uses now.
#[derive(Debug)]
pub struct SharedCapacity<'m> {
    v4: Parts<'m, Session4, u32>,
    v6: Parts<'m, Session6, [u64; 2]>,
}

impl<'m> SharedCapacity<'m> {
    /// Creates all parts in `memory`, which must have [`lines`] lines.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn new(start: &StartParameters, snapshot: &Snapshot, memory: &'m mut [Line]) -> Result<Self, TableSizeError> {
        let [v4, v6] = divisions(start, snapshot);
        let (needed, provided) = (lines(start, snapshot), memory.len());
        let Some((memory4, memory6)) = memory.split_at_mut_checked(v4.total::<Session4, u32>()) else {
            return Err(TableSizeError::Memory { needed, provided });
        };
        Ok(Self {
            v4: Parts::new(v4, memory4)?,
            v6: Parts::new(v6, memory6)?,
        })
    }

    /// Permits a shard to take parts when its tables are full.
    pub fn share(&self, shard: &mut Shard<'m>) {
        self.v4.share(&mut shard.sessions4, &mut shard.bindings4);
        self.v6.share(&mut shard.sessions6, &mut shard.bindings6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_gives_one_shard_half_of_all_and_no_more_than_it_needs() {
        for shards in [1usize, 2, 4, 8, 16, 32, 1024] {
            for all in [shards, 1000.max(shards), 65_536, 1_000_000] {
                let share = all.div_ceil(shards);
                let division = Division::new(all, share, 2 * share);
                let max = share + division.parts * division.sessions;
                assert!(2 * max >= all, "{shards} {all} {division:?}");
                assert!(max <= all.div_ceil(2).max(share) + division.sessions);
                assert!(division.parts <= PARTS / 2, "{shards} {all} {division:?}");
                assert_eq!(2 * division.sessions, division.mappings);
            }
        }
        assert_eq!(0, Division::new(1000, 1000, 1000).parts);
        assert_eq!(0, Division::new(1000, 500, 0).parts);
    }
}
