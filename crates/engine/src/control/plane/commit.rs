//! Commits: replacement of the whole snapshot.

use std::sync::Arc;

use sluice_nat::Bindings;
use sluice_route::RouteSet;
use sluice_table::changes::Changes;
use sluice_table::memory::Line;

use crate::snapshot::{self, PortLayouts, Snapshot};

use super::{ControlPlane, ControlPlaneError, set_pairs, set_quotas};

impl ControlPlane {
    /// Applies a new snapshot and new routes of all routers as one commit, or rejects both. The memory reserved at
    /// start limits the number of interfaces and the size of the pools. Sets three fields of the snapshot: the
    /// generation, the port layouts and the owner.
    pub fn commit(&mut self, mut snapshot: Snapshot, routes: &[RouteSet]) -> Result<u32, ControlPlaneError> {
        let max = self.counters.first().map_or(0, |counters| counters.interfaces.len());
        if snapshot.interfaces.len() > max {
            return Err(ControlPlaneError::MoreInterfaces(snapshot.interfaces.len(), max));
        }
        let current = self.snapshot.current();
        snapshot.generation = current.generation.wrapping_add(1);
        snapshot.committed = snapshot.generation;
        snapshot.owner = current.owner;
        snapshot.probes = current.probes.clone();
        snapshot.adopt_hosts(current);
        Arc::make_mut(&mut snapshot.tunnels).adopt(&current.tunnels);
        snapshot.adopt_shares(current);
        snapshot.adopt_chains(current);
        snapshot.keep_marks([current.marks.clone(), current.code_points.clone()], &self.start);
        snapshot.keep_local_flows(current.local_flows.clone());
        snapshot.nat4.rules.take_changed();
        snapshot.nat6.rules.take_changed();
        (snapshot.nat4.changes, snapshot.nat6.changes) = Default::default();
        snapshot.filter_changes = Default::default();
        snapshot.route_changes = Changes::default();
        snapshot.nat4.rules.adopt_hits(&current.nat4.rules);
        snapshot.nat6.rules.adopt_hits(&current.nat6.rules);
        snapshot.nat4.rules.adopt_states(&current.nat4.rules);
        snapshot.nat6.rules.adopt_states(&current.nat6.rules);
        let generation = snapshot.generation;
        let leases = self.new_leases(&snapshot)?;
        snapshot.inspected = current.inspected;
        let (before, after) = (current.inspection.as_deref(), snapshot.inspection.as_deref());
        let next = snapshot.inspected.wrapping_add(1);
        let fresh = self
            .renewals
            .make(self.start.inspection.as_ref(), (before, after), next)?;
        let (before, after) = (&current.routers, &snapshot.routers);
        let name =
            |routers: &[snapshot::Router], number| routers.get(usize::from(number)).map(|router| router.name.clone());
        let others = |number| name(before, number) != name(after, number);
        let (fib, next_hops) = (&mut self.fib, &mut self.next_hops);
        // The kinds of new links must be set first, because the FIB may use the links immediately.
        for (number, interface) in (0..).zip(&snapshot.interfaces) {
            if interface.is_pair() {
                self.neighbours.set_pair(number, true);
            }
        }
        let applied = self
            .ribs
            .apply_all(routes, others, fib, next_hops, self.now.nanoseconds);
        set_pairs(&self.neighbours, if applied.is_ok() { &snapshot } else { current });
        applied?;
        self.fib.take_changed();
        set_quotas(&mut self.ribs, &snapshot);
        snapshot.share_ports(Some(self.snapshot.current()), &self.start);
        if leases.is_some() {
            let mut leases = PortLayouts::of(&snapshot, self.start.steering.shards());
            self.before = self.snapshot.current().leases.clone();
            leases.follow(&self.before, generation);
            snapshot.leases = leases;
        } else {
            snapshot.leases = self.snapshot.current().leases.clone();
        }
        self.filter_changed = Default::default();
        if let Some(fresh) = fresh {
            snapshot.inspected = next;
            self.renewals.send(fresh);
        }
        snapshot.derive_inside_networks();
        snapshot.link();
        self.snapshot.publish(snapshot);
        Ok(generation)
    }

    /// Updates a port after its device has changed. `change` modifies the interfaces of the newest snapshot, and selects the
    /// worker that transmits on the port. `routes` are the routes of all routers, with link-local addresses derived from the new MAC addresses.
    pub fn change_device(
        &mut self,
        change: impl FnOnce(&mut Snapshot),
        routes: &[RouteSet],
    ) -> Result<(), ControlPlaneError> {
        let mut snapshot = self.snapshot.current().clone();
        change(&mut snapshot);
        let (fib, next_hops) = (&mut self.fib, &mut self.next_hops);
        self.ribs
            .apply_all(routes, |_| false, fib, next_hops, self.now.nanoseconds)?;
        snapshot.link();
        self.snapshot.publish(snapshot);
        Ok(())
    }

    /// Checks that the reserved memory suffices for the pools of a snapshot, and that pools may change now.
    pub fn admits_pools(&self, snapshot: &Snapshot) -> Result<(), ControlPlaneError> {
        self.new_leases(snapshot).map(|_| ())
    }

    /// The port layouts of a snapshot; `None` if they have not changed.
    fn new_leases(&self, snapshot: &Snapshot) -> Result<Option<PortLayouts>, ControlPlaneError> {
        let steering = &self.start.steering;
        if !steering.admits(&snapshot.nat4) || !steering.admits(&snapshot.nat6) {
            return Err(ControlPlaneError::SteeringConflict);
        }
        let leases = PortLayouts::of(snapshot, self.start.steering.shards());
        if leases.is_same(&self.snapshot.current().leases) {
            return Ok(None);
        }
        let taken = [
            (Bindings::lines(&leases.v4, 0, &self.capacity[0]), self.lines.bindings4),
            (Bindings::lines(&leases.v6, 0, &self.capacity[1]), self.lines.bindings6),
        ];
        if let Some((needed, reserved)) = taken.into_iter().find(|(needed, reserved)| needed > reserved) {
            let bytes = |lines: usize| lines * size_of::<Line>() * self.start.owners.len();
            return Err(ControlPlaneError::PoolsTooLarge {
                needed: bytes(needed),
                reserved: bytes(reserved),
            });
        }
        match self.is_migrated() {
            true => Ok(Some(leases)),
            false => Err(ControlPlaneError::MigrationPending),
        }
    }

    /// Whether pool migration is complete: all shards allocate from the new pools, and no session uses a port that no pool
    /// contains. While pool migration is incomplete, pools can't be changed.
    pub fn is_migrated(&self) -> bool {
        let generation = u64::from(self.snapshot.current().leases.generation);
        self.counters
            .iter()
            .all(|worker| worker.migrated_generation.get() == generation)
    }
}
