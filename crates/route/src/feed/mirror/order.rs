//! The order of the routes of one prefix, as the kernel maintains it.
//!
//! IPv4 (`fib_table_insert`): routes with the same metric form a list, and the first usable route is used. `replace`
//! changes the first route, `append` inserts a route after the last route, and `prepend` inserts a route before the
//! first route.
//!
//! IPv6 (`fib6_add_rt2node`): next hops with a gateway and equal metric form one route with several next hops, even if
//! different messages added them. Each next hop has a position in the list, and each message contains all next hops of
//! the route. Next hops without a gateway form separate routes.

use super::leads::{KernelTarget, KernelTargets};
use crate::feed::netlink::{APPEND, REPLACE};

/// A route (IPv4), or one next hop of a route (IPv6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub metric: u32,
    /// Number of the entry's target.
    pub lead: u32,
    /// Hash of further attributes that distinguish routes.
    pub identity: u32,
    /// Routing protocol (RTPROT).
    pub protocol: u8,
}

/// RTPROT_RA. Routes from router advertisements are never combined into one route with several next hops.
const ADVERTISED: u8 = 9;

/// Routes of a prefix, sorted by metric. Routes with the same metric are in the kernel's order.
pub type Routes = Vec<Entry>;

impl Entry {
    /// Whether the entry is a next hop of a route that may have several next hops (`rt6_qualify_for_ecmp`).
    pub fn is_sibling(&self, leads: &KernelTargets) -> bool {
        match leads.get(self.lead) {
            KernelTarget::Legs(legs) => self.protocol != ADVERTISED && legs.iter().all(|leg| leg.gateway.is_some()),
            _ => false,
        }
    }
}

/// Range of the routes with this metric.
fn of_metric(routes: &Routes, metric: u32) -> std::ops::Range<usize> {
    let begin = routes.partition_point(|entry| entry.metric < metric);
    let end = routes.partition_point(|entry| entry.metric <= metric);
    begin..end
}

/// Adds or changes an IPv4 route. Returns the entry that was replaced.
pub fn new_v4(routes: &mut Routes, new: Entry, flags: u16) -> Option<Entry> {
    let range = of_metric(routes, new.metric);
    if flags & REPLACE != 0
        && let Some(first) = routes[range.clone()].first_mut()
    {
        return Some(std::mem::replace(first, new));
    }
    let place = if flags & APPEND != 0 { range.end } else { range.start };
    routes.insert(place, new);
    None
}

/// Adds or changes an IPv6 route. `new` contains all next hops of the route. Removed entries are appended to `removed`.
pub fn new_v6(routes: &mut Routes, new: &[Entry], flags: u16, leads: &KernelTargets, removed: &mut Vec<Entry>) {
    let Some(first) = new.first() else { return };
    let range = of_metric(routes, first.metric);
    let is_sibling = first.is_sibling(leads);
    if flags & REPLACE != 0 && !range.is_empty() {
        let same_kind = |&place: &usize| routes[place].is_sibling(leads) == is_sibling;
        let place = range.clone().find(same_kind).unwrap_or(range.start);
        let old = std::mem::replace(&mut routes[place], *first);
        removed.push(old);
        if old.is_sibling(leads) {
            let others: Vec<_> = of_metric(routes, first.metric)
                .filter(|other| *other != place)
                .collect();
            take_siblings(routes, others, leads, removed, |_| false);
        }
        let end = of_metric(routes, first.metric).end;
        routes.splice(end..end, new[1..].iter().copied());
        return;
    }
    if is_sibling {
        // The message contains all next hops of the route. The kernel has removed next hops that are not in the
        // message.
        let object_of = |entry: &Entry| {
            new.iter()
                .position(|new| leads.get(new.lead).is_same(leads.get(entry.lead)))
        };
        let mut known = vec![false; new.len()];
        for place in range.clone() {
            if let Some(number) = object_of(&routes[place])
                && !known[number]
            {
                known[number] = true;
                removed.push(std::mem::replace(&mut routes[place], new[number]));
            }
        }
        let kept = |entry: &Entry| new.iter().any(|new| new.lead == entry.lead);
        take_siblings(routes, range, leads, removed, kept);
        let end = of_metric(routes, first.metric).end;
        let fresh = new.iter().zip(known).filter(|(_, known)| !known).map(|(new, _)| *new);
        routes.splice(end..end, fresh);
        return;
    }
    routes.splice(range.end..range.end, new.iter().copied());
}

/// Removes the next hops of a multipath route, except for next hops in `keep`.
fn take_siblings(
    routes: &mut Routes,
    places: impl IntoIterator<Item = usize>,
    leads: &KernelTargets,
    removed: &mut Vec<Entry>,
    kept: impl Fn(&Entry) -> bool,
) {
    let is_occupied = |place: &usize| routes[*place].is_sibling(leads) && !kept(&routes[*place]);
    let taken: Vec<usize> = places.into_iter().filter(is_occupied).collect();
    for place in taken.into_iter().rev() {
        removed.push(routes.remove(place));
    }
}

/// Appends a dumped route or next hop to the routes of its prefix.
pub fn listed(routes: &mut Routes, new: Entry) {
    let end = of_metric(routes, new.metric).end;
    routes.insert(end, new);
}

/// Deletes a route, or one of its next hops.
pub fn delete(
    routes: &mut Routes,
    metric: u32,
    lead: &KernelTarget,
    identity: u32,
    leads: &KernelTargets,
) -> Option<Entry> {
    let mut same = of_metric(routes, metric).filter(|&place| leads.get(routes[place].lead).is_same(lead));
    let first = same.next()?;
    let mut all = std::iter::once(first).chain(same);
    let place = all.find(|&place| routes[place].identity == identity).unwrap_or(first);
    Some(routes.remove(place))
}
