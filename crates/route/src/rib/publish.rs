//! Publication of changes to the sink, in three steps: resolution of gateways, resolution of sets, and route selection.

use super::offer::Sink;
use super::resolve::View;
use super::slab::NONE;
use super::table::{Family, RouteRecord, Table};
use super::{Common, Rib, change};
use crate::{Address, Prefix};

impl Rib {
    /// Passes the changes since the last call to `sink`. New and changed prefixes come first, in the order of their
    /// first change. Removed prefixes follow. Thus a reachable destination never becomes temporarily unreachable.
    pub fn publish(&mut self, sink: &mut dyn Sink) {
        self.find_gateways();
        self.resolve_sets();
        let mut removed = Vec::new();
        select(&mut self.v4, &mut self.common, &mut removed, sink);
        select(&mut self.v6, &mut self.common, &mut removed, sink);
        removed.into_iter().for_each(|prefix| sink.remove(prefix));
    }

    /// Resolves new gateways, or all gateways if routes to them have changed. Marks sets with a changed gateway for
    /// another resolution.
    fn find_gateways(&mut self) {
        let fresh = std::mem::take(&mut self.common.fresh);
        let all = std::mem::take(&mut self.common.needs_resolution);
        let wanted: Vec<Address> = match all {
            true => self.common.floating.keys().copied().collect(),
            false => fresh,
        };
        let mut moved = false;
        for gateway in wanted {
            let found = self.view().find(gateway);
            if let Some(floating) = self.common.floating.get_mut(&gateway) {
                moved |= floating.shares != found.shares;
                (floating.shares, floating.loops) = (found.shares, found.loops);
            }
        }
        if moved {
            let sets = self.common.sets.iter().filter(|(_, set)| set.is_floating);
            let sets: Vec<u32> = sets.map(|(index, _)| index).collect();
            sets.into_iter().for_each(|index| self.common.sets.mark(index));
        }
    }

    fn resolve_sets(&mut self) {
        for index in std::mem::take(&mut self.common.sets.dirty) {
            let Some(set) = self.common.sets.get(index) else {
                continue;
            };
            let (before, heads, unselected_uses) = (set.resolved.is_some(), set.heads, set.unselected_uses);
            let resolved = self.view().resolve(&set.hops);
            let flips = before != resolved.is_some();
            if !self.common.sets.resolve(index, resolved) {
                continue;
            }
            let unselected = (flips && unselected_uses > 0).then_some(index);
            mark_users(&mut self.v4, &mut self.common, heads[0], unselected);
            mark_users(&mut self.v6, &mut self.common, heads[1], unselected);
        }
    }

    fn view(&self) -> View<'_> {
        View {
            v4: &self.v4,
            v6: &self.v6,
            common: &self.common,
            settings: &self.settings,
        }
    }
}

/// Marks the entries that use a set. If `unselected` is true, also marks entries that have an unselected offer of this
/// set, because the set has become reachable or unreachable.
fn mark_users<A: Family>(table: &mut Table<A>, common: &mut Common, head: u32, unselected: Option<u32>) {
    let mut users: Vec<u32> = table.users(head).collect();
    if let Some(set) = unselected {
        let of_set = (0..table.unselected.places()).map(|place| table.unselected[place]);
        users.extend(
            of_set
                .filter(|first_unselected| first_unselected.fact.is_some_and(|fact| fact.set == set))
                .map(|first_unselected| first_unselected.entry),
        );
    }
    for place in users {
        if table.entries[place].mark() {
            common.dirty[A::INDEX].push(place);
        }
    }
}

/// Selects and publishes the best offer of every marked entry.
fn select<A: Family>(table: &mut Table<A>, common: &mut Common, removed: &mut Vec<Prefix>, sink: &mut dyn Sink) {
    for place in std::mem::take(&mut common.dirty[A::INDEX]) {
        choose(table, common, place);
        let entry = table.entries[place];
        let resolved = entry.record().and_then(|fact| common.sets.resolved(fact.set));
        if let Some(resolved) = resolved {
            sink.set(entry.prefix(), resolved);
        } else if entry.is_published() {
            removed.push(entry.prefix());
        }
        let published = resolved.is_some();
        common.published[A::INDEX] += usize::from(published);
        common.published[A::INDEX] -= usize::from(entry.is_published());
        table.entries[place].record_examined(published);
        if entry.record().is_none() {
            table.remove(place);
        }
    }
}

/// Selects the best reachable offer, or the best offer if no offer is reachable.
fn choose<A: Family>(table: &mut Table<A>, common: &mut Common, place: u32) {
    if table.entries[place].first_unselected == NONE {
        return;
    }
    let rank = |fact: &RouteRecord| (common.sets.resolved(fact.set).is_none(), fact.rank());
    let used = table.entries[place].record();
    let Some(best) = table.offers(place).min_by_key(rank) else {
        return;
    };
    let same = |fact: &RouteRecord| fact.which() == best.which();
    if used.as_ref().is_some_and(same) {
        return;
    }
    let Some(first_unselected) = table.find_unselected(place, same) else {
        return;
    };
    table.remove_unselected(first_unselected);
    common.sets.count_unselected(best.set, false);
    if let Some(used) = used {
        table.add_unselected(place, used);
        common.sets.count_unselected(used.set, true);
    }
    table.use_offer(place, Some(best), &mut common.sets);
}

/// Marks the sets that have a next hop on an interface, because the state of the interface has changed.
pub(super) fn mark_interface(common: &mut Common, interface: crate::InterfaceIndex) {
    let named = common.sets.iter().filter(|(_, set)| set.names(interface));
    let named: Vec<u32> = named.map(|(index, _)| index).collect();
    named.into_iter().for_each(|index| common.sets.mark(index));
    common.needs_resolution |= !common.floating.is_empty();
}

/// Withdraws at most `max` stale offers of an origin.
pub(super) fn sweep(rib: &mut Rib, origin: super::Origin, max: usize) -> usize {
    let [mut v4, mut v6] = rib.cursors[origin as usize];
    let removed_count = change::sweep(&mut rib.v4, &mut rib.common, origin, (&mut v4, max));
    let removed_count =
        removed_count + change::sweep(&mut rib.v6, &mut rib.common, origin, (&mut v6, max - removed_count));
    rib.cursors[origin as usize] = [v4, v6];
    removed_count
}
