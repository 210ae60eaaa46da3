//! Pool migration: after a change of pools, shards allocate from the new pools, and sessions end if no pool contains
//! their port.
//!
//! The allocations of a shard are migrated at its next allocation, or at the latest when the worker's scan reaches the
//! shard. When all shards are migrated, all sessions are checked, a few per burst. The control plane permits the next
//! change of pools only after these checks. A port that a pool loses and regains is therefore never allocated twice.

use sluice_nat::pool::ValidPool;
use sluice_nat::{PoolIndex, PortClass, Tuple};
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;

use crate::features::session_end::{SessionTools, end};
use crate::session::family::{Family, Session, V4, V6};
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;

/// Number of sessions that one call of [`PoolMigration::advance`] checks.
const SESSIONS_PER_ROUND: u32 = 64;

/// Owner of a session's port after a change of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// The session needs no port.
    None,
    /// The port belongs to this pool.
    Pool(PoolIndex),
    /// No pool contains the port.
    Unowned,
}

/// The owner, according to a snapshot, of the port that a session of the shard `shard` uses.
pub fn port_owner<F: Family>(session: &F::Session, snapshot: &Snapshot, shard: u16) -> PortOwner {
    use sluice_nat::Resources;
    let Some(then) = session.nat().pool() else {
        return PortOwner::None;
    };
    let pools = &snapshot.nat::<F>().pools;
    // If the allocation scheme of the pool has changed, a port that was allocated under the old scheme is not valid.
    if snapshot.leases.is_reshaped_since(F::IS_V6, then, session.generation()) {
        return PortOwner::Unowned;
    }
    let public = match session.nat().outbound(Direction::Forward) {
        true => &session.reverse(),
        false => &session.forward(),
    };
    let (address, port) = (public.destination(), public.destination_port());
    if PortClass::of(session.protocol(), <F::Address as sluice_nat::Address>::BITS).is_none() {
        let pool = pools.get(then).filter(|pool| pool.translates(session.protocol()));
        let has = pool.is_some_and(|pool| pool.index_of(address).is_some());
        return if has { PortOwner::Pool(then) } else { PortOwner::Unowned };
    }
    // A session loses a port that now belongs to another shard, because that shard gets the answers. A shared port can be kept.
    let shards = snapshot.leases.v4.shards();
    let stays = |pool: &ValidPool<F::Address>| pool.keeps(shards, shard.into(), address, port);
    let includes = |pool: &ValidPool<F::Address>| {
        pool.includes(address, port) && (pool.inside(address, port).is_some() || stays(pool))
    };
    if pools.get(then).is_some_and(includes) {
        return PortOwner::Pool(then);
    }
    // Mappings and blocks stay in their pool. A port can move to another pool only if it belongs to neither a mapping
    // nor a block.
    let successor = pools
        .includes(public.context(), address, port, port)
        .filter(|&successor| {
            let takes = |pool: &ValidPool<F::Address>| pool.is_plain() && stays(pool);
            session.nat().resources().allocated() == Resources::PORT && pools.get(successor).is_some_and(takes)
        });
    successor.map_or(PortOwner::Unowned, PortOwner::Pool)
}

/// Records that another pool now owns the session's port. The session does not count against the limit of that pool.
pub fn transfer_port<F: Family>(session: &mut F::Session, pool: PoolIndex, tools: &SessionTools<'_>) {
    if session.nat().pool() == Some(pool) {
        return;
    }
    if session.nat().resources().has(sluice_nat::Resources::POOL) {
        tools.leave_pool(session.nat());
    }
    session.set_pool(pool);
}

/// Position of the scan over all sessions.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    shard: usize,
    v6: bool,
    record: u32,
}

/// Pool migration of a worker's shards.
#[derive(Debug, Default)]
pub struct PoolMigration {
    /// Generation of the last change of pools that was seen.
    generation: u32,
    /// Position of the session scan; `None` if the migration is complete.
    place: Option<Place>,
}

impl PoolMigration {
    /// Whether a migration is in progress.
    pub fn is_under_way(&self) -> bool {
        self.place.is_some()
    }

    /// Generation of the last change of pools that was seen.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Starts a migration if the snapshot has changed pools. The worker must call this function before it uses the
    /// snapshot for anything else.
    #[inline(always)]
    pub fn follow(&mut self, shards: &mut [Option<Box<Shard<'_>>>], snapshot: &Snapshot) {
        if snapshot.leases.generation != self.generation {
            self.start(shards, snapshot);
        }
    }

    #[cold]
    fn start(&mut self, shards: &mut [Option<Box<Shard<'_>>>], snapshot: &Snapshot) {
        self.generation = snapshot.leases.generation;
        self.place = Some(Place::default());
        for shard in shards.iter_mut().flatten() {
            shard.bindings4.ports_mut().prepare_migration(&snapshot.leases.v4);
            shard.bindings6.ports_mut().prepare_migration(&snapshot.leases.v6);
        }
    }

    /// Continues the migration: migrates the allocations of one shard, or checks [`SESSIONS_PER_ROUND`] records.
    pub fn advance(&mut self, shards: &mut [Option<Box<Shard<'_>>>], snapshot: &Snapshot, tools: &SessionTools<'_>) {
        let Some(place) = self.place else { return };
        let prepared = |shard: &&mut Box<Shard<'_>>| {
            shard.bindings4.ports().is_migration_due() || shard.bindings6.ports().is_migration_due()
        };
        if let Some(shard) = shards.iter_mut().flatten().find(prepared) {
            shard.bindings4.ports_mut().migrate();
            shard.bindings6.ports_mut().migrate();
            return;
        }
        let remaining = shards.iter_mut().enumerate().skip(place.shard);
        let next = remaining
            .filter_map(|(number, shard)| Some((number, shard.as_mut()?)))
            .next();
        let Some((number, shard)) = next else {
            self.place = None;
            tools.counters.migrated_generation.set(self.generation.into());
            return;
        };
        // Shards of other workers are skipped.
        let place = match number == place.shard {
            true => place,
            false => Place {
                shard: number,
                ..Place::default()
            },
        };
        let record = match place.v6 {
            false => look::<V4>(shard, place.record, snapshot, tools),
            true => look::<V6>(shard, place.record, snapshot, tools),
        };
        self.place = Some(match record {
            Some(record) => Place { record, ..place },
            None => Place {
                shard: number + usize::from(place.v6),
                v6: !place.v6,
                record: 0,
            },
        });
    }
}

/// Checks some records. Returns the position at which to continue.
fn look<F: Family>(shard: &mut Shard<'_>, from: u32, snapshot: &Snapshot, tools: &SessionTools<'_>) -> Option<u32> {
    let mut found = [(RecordIndex(0), PortOwner::None); SESSIONS_PER_ROUND as usize];
    let mut count = 0;
    let number = shard.number;
    let next = F::table_ref(shard).scan(from, SESSIONS_PER_ROUND, |index, session| {
        let owner = port_owner::<F>(session, snapshot, number);
        let stays = session.nat().pool().map_or(PortOwner::None, PortOwner::Pool);
        if let Some(place) = found.get_mut(count).filter(|_| owner != stays) {
            *place = (index, owner);
            count += 1;
        }
    });
    for &(index, owner) in &found[..count] {
        match owner {
            PortOwner::Pool(pool) => {
                if let Some(session) = F::table(shard).get_mut(index) {
                    transfer_port::<F>(session, pool, tools);
                }
            }
            _ => {
                end::<F>(shard, index, tools);
                tools.counters.sessions_withdrawn.add(1);
            }
        }
    }
    next
}
