//! Changes of single rules, routes and links, between commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_filter::{CompiledRule, Filters};
use sluice_route::rib::Rib;
use sluice_route::{InterfaceIndex, RouterIndex};

use crate::features::filter;
use crate::packet::time::Now;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Nat;

use super::{ControlPlane, MIN_PUBLISH_INTERVAL};

impl ControlPlane {
    /// Modifies individual NAT rules of the newest snapshot. New flows use the modified rules immediately; existing
    /// sessions use them after [`ControlPlane::publish_changes`]. The next commit replaces all rules.
    pub fn edit_rules<F: Family, R>(&mut self, edit: impl FnOnce(&Nat<F>) -> R) -> R {
        self.edited = true;
        edit(self.snapshot.current().nat::<F>())
    }

    /// Records that a filter rule was added or removed. New flows are matched against the changed rules immediately,
    /// and existing sessions after [`ControlPlane::publish_changes`].
    pub fn filter_changed(&mut self, rule: &CompiledRule) {
        self.edited = true;
        let [v4, v6] = &mut self.filter_changed;
        rule.v4.iter().for_each(|rule| filter::mark::<V4>(v4, rule));
        rule.v6.iter().for_each(|rule| filter::mark::<V6>(v6, rule));
    }

    /// Replaces the filters. They may differ from the newest filters only in rules that are passed to [`ControlPlane::filter_changed`].
    pub fn replace_filter(&mut self, filters: Arc<Filters>) {
        let mut snapshot = self.snapshot.current().clone();
        if !snapshot.routers.iter().any(|router| router.filters) {
            snapshot.routers.iter_mut().for_each(|router| router.filters = true);
        }
        snapshot.filter = Some(filters);
        let marks = [snapshot.marks.take(), snapshot.code_points.take()];
        snapshot.keep_marks(marks, &self.start);
        let local_flows = snapshot.local_flows.take();
        snapshot.keep_local_flows(local_flows);
        snapshot.link();
        self.snapshot.publish(snapshot);
    }

    /// If individual rules or routes have changed, publishes a generation, so that workers revalidate sessions. The
    /// interval between two such generations is at least [`MIN_PUBLISH_INTERVAL`] nanoseconds. The control thread must
    /// call this function periodically. Returns the generation if one was published.
    pub fn publish_changes(&mut self, now: Now) -> Option<u32> {
        self.now = now;
        if !(self.edited || self.fib.has_changed())
            || now.nanoseconds.saturating_sub(self.followed) < MIN_PUBLISH_INTERVAL
        {
            return None;
        }
        (self.edited, self.followed) = (false, now.nanoseconds);
        let mut snapshot = self.snapshot.current().clone();
        snapshot.generation = snapshot.generation.wrapping_add(1);
        snapshot.nat4.changes = snapshot.nat4.changes.with_changes(snapshot.nat4.rules.take_changed());
        snapshot.nat6.changes = snapshot.nat6.changes.with_changes(snapshot.nat6.rules.take_changed());
        for (changes, changed) in snapshot.filter_changes.iter_mut().zip(&mut self.filter_changed) {
            *changes = changes.with_changes(std::mem::take(changed));
        }
        snapshot.route_changes = snapshot.route_changes.with_changes(self.fib.take_changed());
        let generation = snapshot.generation;
        self.snapshot.publish(snapshot);
        Some(generation)
    }

    /// Changes the RIB of a router and updates its routes. Packets without sessions use the new routes immediately;
    /// sessions use them after [`ControlPlane::publish_changes`]. Returns `false` if the router doesn't exist.
    pub fn change_routes(&mut self, router: RouterIndex, change: impl FnOnce(&mut Rib)) -> bool {
        self.ribs.change(router, &mut self.fib, &mut self.next_hops, change)
    }

    /// Sets the link state of an interface, which is initially up. Routes through an interface that is down are not used, but its
    /// addresses remain. [`ControlPlane::publish_changes`] then revalidates sessions. Returns `false` if the state is unchanged.
    pub fn set_link(&mut self, interface: InterfaceIndex, up: bool) -> bool {
        let snapshot = self.snapshot.current();
        let router = snapshot.router_of(interface);
        for &(_, table) in snapshot.sources.of(router) {
            let link = (table, interface, up);
            self.ribs.set_link(link, &mut self.fib, &mut self.next_hops);
        }
        let link = (router, interface, up);
        let is_change = self.ribs.set_link(link, &mut self.fib, &mut self.next_hops);
        if is_change
            && up
            && let Some(ups) = self.ups.get(usize::from(interface))
        {
            ups.fetch_add(1, Ordering::Relaxed);
        }
        is_change
    }

    /// Sets whether routes may use the uplink gateway with this interface and address. Returns `false` if the state is unchanged.
    pub fn set_gateway(&mut self, gateway: (InterfaceIndex, sluice_route::Address), up: bool) -> bool {
        let snapshot = self.snapshot.current();
        let router = snapshot.router_of(gateway.0);
        let by_source = snapshot.sources.of(router).iter().map(|&(_, table)| table);
        by_source.chain([router]).fold(false, |is_change, table| {
            let change = (gateway, up);
            is_change | self.ribs.set_gateway(table, change, &mut self.fib, &mut self.next_hops)
        })
    }
}
