//! Mirror of the kernel's routing table, which can contain several ordered routes for a prefix. For each message, the
//! mirror repeats the change that the kernel has made in its table. For each prefix and metric, the route that the
//! kernel uses is offered to the RIB.

mod leads;
mod order;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

pub use leads::KernelTarget;
use leads::KernelTargets;
use order::{Entry, Routes};

use super::netlink::{NextHopMember, REPLACE, RouteMessage};
use crate::{Address, Prefix};

/// Routes of a prefix. Almost all prefixes have one route.
#[derive(Debug)]
enum Kept {
    One(Entry),
    Group(Box<Routes>),
}

impl Kept {
    fn of(mut routes: Routes) -> Option<Self> {
        match routes.len() {
            0 => None,
            1 => routes.pop().map(Kept::One),
            _ => Some(Kept::Group(Box::new(routes))),
        }
    }

    fn entries(&self) -> &[Entry] {
        match self {
            Kept::One(entry) => std::slice::from_ref(entry),
            Kept::Group(routes) => routes,
        }
    }
}

/// Routes of one address family, by address and prefix length.
#[derive(Debug)]
struct Table<A>(HashMap<(A, u8), Kept>);

impl<A> Default for Table<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A: Copy + Eq + Hash> Table<A> {
    fn entries(&self, key: (A, u8)) -> &[Entry] {
        self.0.get(&key).map_or(&[], Kept::entries)
    }

    /// Modifies the routes of a prefix.
    fn change<R>(&mut self, key: (A, u8), change: impl FnOnce(&mut Routes) -> R) -> R {
        let mut routes = match self.0.remove(&key) {
            Some(Kept::One(entry)) => vec![entry],
            Some(Kept::Group(routes)) => *routes,
            None => Routes::new(),
        };
        let result = change(&mut routes);
        if let Some(kept) = Kept::of(routes) {
            self.0.insert(key, kept);
        }
        result
    }

    /// Prefixes that have a route to one of these targets.
    fn leading_to(&self, leads: &HashSet<u32>) -> Vec<(A, u8)> {
        let leads_there = |kept: &Kept| kept.entries().iter().any(|entry| leads.contains(&entry.lead));
        let prefixes = self.0.iter().filter(|(_, kept)| leads_there(kept));
        prefixes.map(|(key, _)| *key).collect()
    }
}

/// The route that the kernel uses for a prefix at one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRoute {
    /// Metric of the route.
    pub metric: u32,
    /// Routing protocol (RTPROT).
    pub protocol: u8,
    /// Targets of the route. A route has one target, except for IPv6 routes with several next hops.
    pub leads: Vec<KernelTarget>,
}

/// The mirrored table.
#[derive(Debug, Default)]
pub struct KernelTable {
    v4: Table<u32>,
    v6: Table<u128>,
    leads: KernelTargets,
    /// Whether a dump is in progress.
    is_listing: bool,
    /// Prefixes for which a change was reported during the dump, before their own routes were dumped.
    early: HashMap<Prefix, Early>,
    /// Prefixes for which a change was reported during the dump, after the first of their own routes was dumped.
    late: HashSet<Prefix>,
    /// Whether the dump may have omitted or repeated routes.
    is_unreliable: bool,
    /// Targets that have changed since the last route selection.
    moved: HashSet<u32>,
    /// Entries that the current message has removed.
    removed: Vec<Entry>,
}

/// A change that was reported before its prefix was dumped. Normally the dump includes the change. The dump lacks the
/// change if the kernel read this prefix before the change and sent the prefix after the change.
#[derive(Debug)]
struct Early {
    /// State after the last change: whether the route exists, metric, and first next hop.
    last: (bool, u32, KernelTarget),
    /// Whether the prefix was dumped after the change.
    is_listed: bool,
}

/// Result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteResult {
    /// The routes of the prefix may have changed.
    Changed,
    /// The route had already been deleted.
    Known,
    /// The mirror lacks the deleted route, so the mirror differs from the kernel's table.
    Diverged,
}

impl KernelTable {
    /// Starts a new dump of the whole table.
    pub fn begin(&mut self) {
        *self = Self {
            is_listing: true,
            ..Self::default()
        };
    }

    /// Ends the dump. All later messages report changes. Returns false if a dumped route may be older than an earlier
    /// reported change. The caller must then request another dump.
    pub fn end_listing(&mut self) -> bool {
        self.is_listing = false;
        self.late = HashSet::new();
        let early = std::mem::take(&mut self.early);
        let is_whole = !std::mem::take(&mut self.is_unreliable);
        let mut listed = early.iter().filter(|(_, early)| early.is_listed);
        let is_listed = |(prefix, early): (&Prefix, &Early)| {
            let (is_present, metric, lead) = &early.last;
            let is_match = |entry: &Entry| entry.metric == *metric && self.leads.get(entry.lead).is_same(lead);
            self.entries(*prefix).iter().any(is_match) == *is_present
        };
        is_whole && listed.all(is_listed)
    }

    /// Marks the dump as unreliable if the change in a message may have shifted the position of the dump. The kernel
    /// resumes an IPv6 dump by skipping as many routes as it has dumped (`fib6_dump_table`). A route that is added or
    /// deleted in the meantime shifts this position.
    fn check_reliability(&mut self, message: &RouteMessage) {
        let is_v6 = matches!(message.prefix.address(), Address::V6(_));
        self.is_unreliable |= self.is_listing && is_v6 && message.flags & REPLACE == 0;
    }

    /// Records a change of a prefix that has not been dumped.
    fn note_early(&mut self, prefix: Prefix, is_present: bool, metric: u32, lead: &KernelTarget) {
        if !self.is_listing {
            return;
        }
        let is_new = match self.early.get(&prefix) {
            Some(early) => !early.is_listed,
            None => self.entries(prefix).is_empty(),
        };
        if !is_new {
            self.late.insert(prefix);
        } else {
            let first = split(prefix, lead.clone()).next().unwrap_or(KernelTarget::KernelOnly);
            let last = (is_present, metric, first);
            let is_listed = false;
            self.early.insert(prefix, Early { last, is_listed });
        }
    }

    /// Routes of a prefix in the kernel's order.
    fn entries(&self, prefix: Prefix) -> &[Entry] {
        match prefix.address() {
            Address::V4(bits) => self.v4.entries((bits, prefix.length())),
            Address::V6(bits) => self.v6.entries((bits, prefix.length())),
        }
    }

    fn change<R>(
        &mut self,
        prefix: Prefix,
        change: impl FnOnce(&mut Routes, &KernelTargets, &mut Vec<Entry>) -> R,
    ) -> R {
        let (leads, removed, length) = (&self.leads, &mut self.removed, prefix.length());
        let result = match prefix.address() {
            Address::V4(bits) => self.v4.change((bits, length), |routes| change(routes, leads, removed)),
            Address::V6(bits) => self.v6.change((bits, length), |routes| change(routes, leads, removed)),
        };
        for entry in std::mem::take(&mut self.removed) {
            self.leads.release(entry.lead);
        }
        result
    }

    /// Whether a prefix has no route.
    pub fn is_empty(&self, prefix: Prefix) -> bool {
        self.entries(prefix).is_empty()
    }

    /// Whether the route with this prefix and metric uses a next-hop object.
    pub fn has_object(&self, prefix: Prefix, metric: u32, id: u32) -> bool {
        let lead = self.leads.of_object(id);
        let is_match = |entry: &Entry| entry.metric == metric && Some(entry.lead) == lead;
        self.entries(prefix).iter().any(is_match)
    }

    /// Adds or changes a route, or adds a dumped route. `lead` is the target with all next hops of the route.
    pub fn new_route(&mut self, message: &RouteMessage, lead: KernelTarget, is_listed: bool) {
        let prefix = message.prefix;
        self.is_unreliable |= is_listed && self.late.contains(&prefix);
        if !is_listed {
            self.check_reliability(message);
            self.note_early(prefix, true, message.metric, &lead);
        } else if let Some(early) = self.early.get_mut(&prefix)
            && !std::mem::replace(&mut early.is_listed, true)
        {
            self.forget(prefix);
        }
        let entries: Vec<Entry> = split(prefix, lead)
            .map(|lead| Entry {
                metric: message.metric,
                lead: self.leads.acquire(lead),
                identity: message.identity,
                protocol: message.protocol,
            })
            .collect();
        let flags = message.flags;
        self.change(prefix, |routes, leads, removed| {
            if is_listed {
                entries.iter().for_each(|entry| order::listed(routes, *entry));
                return;
            }
            match (prefix.address(), entries.first()) {
                (Address::V4(_), Some(&entry)) => removed.extend(order::new_v4(routes, entry, flags)),
                _ => order::new_v6(routes, &entries, flags, leads, removed),
            }
        });
    }

    /// Removes a prefix whose routes can't be offered.
    pub fn forget(&mut self, prefix: Prefix) {
        self.change(prefix, |routes, _, removed| removed.append(routes));
    }

    /// Deletes a route, or some of its next hops.
    pub fn delete_route(&mut self, message: &RouteMessage, lead: KernelTarget) -> DeleteResult {
        self.check_reliability(message);
        self.note_early(message.prefix, false, message.metric, &lead);
        if self.entries(message.prefix).is_empty() {
            // The route has not been dumped, or was deleted together with its next-hop object.
            return DeleteResult::Known;
        }
        let is_object = matches!(lead, KernelTarget::Object(_));
        let (metric, identity) = (message.metric, message.identity);
        let found = self.change(message.prefix, |routes, leads, removed| {
            let mut found = true;
            for lead in split(message.prefix, lead) {
                let entry = order::delete(routes, metric, &lead, identity, leads);
                found &= entry.is_some();
                removed.extend(entry);
            }
            found
        });
        match found {
            true => DeleteResult::Changed,
            false if is_object || self.is_listing => DeleteResult::Known,
            false => DeleteResult::Diverged,
        }
    }

    /// Deletes a next-hop object and the routes that use it. The kernel may not report the deletion of these routes.
    pub fn delete_object(&mut self, id: u32) {
        self.moved.extend(self.leads.delete_object(id));
    }

    /// Records that a next-hop object has changed.
    pub fn move_object(&mut self, id: u32) {
        self.moved.extend(self.leads.of_object(id));
    }

    /// Prefixes that need a new route selection because a target of one of their routes has changed or was deleted
    /// since the last call. Each prefix is returned with the metrics of its earlier routes. If any target has changed,
    /// the function examines all routes.
    pub fn settle(&mut self) -> Vec<(Prefix, Vec<u32>)> {
        if self.moved.is_empty() {
            return Vec::new();
        }
        let moved = std::mem::take(&mut self.moved);
        let v4 = self.v4.leading_to(&moved).into_iter();
        let v6 = self.v6.leading_to(&moved).into_iter();
        let v4 = v4.map(|(bits, length)| Prefix::new(Address::V4(bits), length));
        let v6 = v6.map(|(bits, length)| Prefix::new(Address::V6(bits), length));
        let prefixes: Vec<Prefix> = v4.chain(v6).collect();
        let mut settled = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            let metrics = self.entries(prefix).iter().map(|entry| entry.metric).collect();
            self.change(prefix, |routes, leads, removed| {
                removed.extend(routes.extract_if(.., |entry| *leads.get(entry.lead) == KernelTarget::Deleted));
            });
            settled.push((prefix, metrics));
        }
        settled
    }

    /// Routes that the kernel uses for a prefix: the first usable route of each metric. `is_usable` determines whether
    /// a target is usable.
    pub fn chosen(&self, prefix: Prefix, is_usable: impl Fn(&KernelTarget) -> bool) -> Vec<SelectedRoute> {
        let mut chosen: Vec<SelectedRoute> = Vec::new();
        let lead = |entry: &Entry| self.leads.get(entry.lead).clone();
        let is_sibling = |entry: &Entry| matches!(prefix.address(), Address::V6(_)) && entry.is_sibling(&self.leads);
        let mut siblings_at = None;
        for entry in self.entries(prefix) {
            let at_metric = chosen.last_mut().filter(|chosen| chosen.metric == entry.metric);
            let joins = siblings_at == Some(entry.metric) && is_sibling(entry);
            if at_metric.is_some() && !joins || !is_usable(self.leads.get(entry.lead)) {
                continue;
            }
            match at_metric {
                Some(chosen) => chosen.leads.push(lead(entry)),
                None => {
                    siblings_at = is_sibling(entry).then_some(entry.metric);
                    chosen.push(SelectedRoute {
                        metric: entry.metric,
                        protocol: entry.protocol,
                        leads: vec![lead(entry)],
                    });
                }
            }
        }
        chosen
    }
}

/// Splits a route's target into the entries that the table stores.
fn split(prefix: Prefix, lead: KernelTarget) -> impl Iterator<Item = KernelTarget> {
    let (whole, legs) = match (prefix.address(), lead) {
        (Address::V6(_), KernelTarget::Legs(legs)) => (None, legs),
        (_, lead) => (Some(lead), Box::from([])),
    };
    let one = |leg: NextHopMember| KernelTarget::Legs([leg].into());
    whole.into_iter().chain(legs.into_iter().map(one))
}
