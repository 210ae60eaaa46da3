//! The kernel's table as the kernel keeps it: several routes to one prefix, in order. Messages change it as the kernel
//! changed its own; of each prefix and metric the route that the kernel uses is what the RIB is offered.

mod leads;
mod order;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

pub use leads::KernelTarget;
use leads::KernelTargets;
use order::{Entry, Routes};

use super::netlink::{NextHopMember, REPLACE, RouteMessage};
use crate::{Address, Prefix};

/// The routes of a prefix: nearly all have one.
#[derive(Debug)]
enum Kept {
    One(Entry),
    Several(Box<Routes>),
}

impl Kept {
    fn of(mut routes: Routes) -> Option<Self> {
        match routes.len() {
            0 => None,
            1 => routes.pop().map(Kept::One),
            _ => Some(Kept::Several(Box::new(routes))),
        }
    }

    fn entries(&self) -> &[Entry] {
        match self {
            Kept::One(entry) => std::slice::from_ref(entry),
            Kept::Several(routes) => routes,
        }
    }
}

/// The routes of a family, by address and length.
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

    /// Change the routes of a prefix.
    fn change<R>(&mut self, key: (A, u8), change: impl FnOnce(&mut Routes) -> R) -> R {
        let mut routes = match self.0.remove(&key) {
            Some(Kept::One(entry)) => vec![entry],
            Some(Kept::Several(routes)) => *routes,
            None => Routes::new(),
        };
        let result = change(&mut routes);
        if let Some(kept) = Kept::of(routes) {
            self.0.insert(key, kept);
        }
        result
    }

    /// The prefixes that have a route to one of these.
    fn leading_to(&self, leads: &HashSet<u32>) -> Vec<(A, u8)> {
        let leads_there = |kept: &Kept| kept.entries().iter().any(|entry| leads.contains(&entry.lead));
        let prefixes = self.0.iter().filter(|(_, kept)| leads_there(kept));
        prefixes.map(|(key, _)| *key).collect()
    }
}

/// What the kernel uses of a prefix at a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRoute {
    /// The metric.
    pub metric: u32,
    /// RTPROT.
    pub protocol: u8,
    /// Where it leads: one, but for next hops of IPv6.
    pub leads: Vec<KernelTarget>,
}

/// The table.
#[derive(Debug, Default)]
pub struct KernelTable {
    v4: Table<u32>,
    v6: Table<u128>,
    leads: KernelTargets,
    /// A listing is under way.
    is_listing: bool,
    /// Prefixes that the kernel changed during a listing, before it came to them.
    early: HashMap<Prefix, Early>,
    /// Prefixes that the kernel changed during a listing, after it had begun to list them.
    late: HashSet<Prefix>,
    /// The listing may have left routes out, or has some twice.
    is_doubtful: bool,
    /// Leads that have changed since the routes to them were chosen.
    moved: HashSet<u32>,
    /// What was taken out of order by a message.
    gone: Vec<Entry>,
}

/// A change that was told before its prefix was listed. The listing has it, unless the kernel had read that part of its
/// table before and sent it later.
#[derive(Debug)]
struct Early {
    /// Of the last message: whether the route is there since, its metric, and what its first next hop is.
    last: (bool, u32, KernelTarget),
    /// The prefix was listed behind it.
    is_listed: bool,
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteResult {
    /// The prefix may have changed.
    Changed,
    /// The route was gone.
    Known,
    /// It is about a route that is not there.
    Diverged,
}

impl KernelTable {
    /// Everything is listed anew.
    pub fn begin(&mut self) {
        *self = Self {
            is_listing: true,
            ..Self::default()
        };
    }

    /// All was listed: what is told from now on is a change of it. False where a part of the listing is older than a change
    /// that was told before it, and all has to be listed again.
    pub fn end_listing(&mut self) -> bool {
        self.is_listing = false;
        self.late = HashSet::new();
        let early = std::mem::take(&mut self.early);
        let is_whole = !std::mem::take(&mut self.is_doubtful);
        let mut listed = early.iter().filter(|(_, early)| early.is_listed);
        let has_it = |(prefix, early): (&Prefix, &Early)| {
            let (is_there, metric, lead) = &early.last;
            let is_it = |entry: &Entry| entry.metric == *metric && self.leads.get(entry.lead).is_same(lead);
            self.entries(*prefix).iter().any(is_it) == *is_there
        };
        is_whole && listed.all(has_it)
    }

    /// The kernel goes on with a listing of IPv6 behind as many routes as it had listed before (`fib6_dump_table`): one that
    /// comes or goes meanwhile shifts the place.
    fn doubt(&mut self, message: &RouteMessage<'_>) {
        let is_v6 = matches!(message.prefix.address(), Address::V6(_));
        self.is_doubtful |= self.is_listing && is_v6 && message.flags & REPLACE == 0;
    }

    /// Note a change of a prefix that was not listed yet.
    fn note_early(&mut self, prefix: Prefix, is_there: bool, metric: u32, lead: &KernelTarget) {
        if !self.is_listing {
            return;
        }
        let is_unlisted = match self.early.get(&prefix) {
            Some(early) => !early.is_listed,
            None => self.entries(prefix).is_empty(),
        };
        if !is_unlisted {
            self.late.insert(prefix);
        } else {
            let first = split(prefix, lead.clone()).next().unwrap_or(KernelTarget::Unfollowed);
            let last = (is_there, metric, first);
            let is_listed = false;
            self.early.insert(prefix, Early { last, is_listed });
        }
    }

    /// The routes to a prefix, in the kernel's order.
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
        let (leads, gone, length) = (&self.leads, &mut self.gone, prefix.length());
        let result = match prefix.address() {
            Address::V4(bits) => self.v4.change((bits, length), |routes| change(routes, leads, gone)),
            Address::V6(bits) => self.v6.change((bits, length), |routes| change(routes, leads, gone)),
        };
        for entry in std::mem::take(&mut self.gone) {
            self.leads.release(entry.lead);
        }
        result
    }

    /// Whether a prefix has no route.
    pub fn is_empty(&self, prefix: Prefix) -> bool {
        self.entries(prefix).is_empty()
    }

    /// Whether there is a route by a next-hop object.
    pub fn has_object(&self, prefix: Prefix, metric: u32, id: u32) -> bool {
        let lead = self.leads.of_object(id);
        let is_it = |entry: &Entry| entry.metric == metric && Some(entry.lead) == lead;
        self.entries(prefix).iter().any(is_it)
    }

    /// A route is new, changed or listed. `lead` is what all of it leads to.
    pub fn new_route(&mut self, message: &RouteMessage<'_>, lead: KernelTarget, is_listed: bool) {
        let prefix = message.prefix;
        self.is_doubtful |= is_listed && self.late.contains(&prefix);
        if !is_listed {
            self.doubt(message);
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
        self.change(prefix, |routes, leads, gone| {
            if is_listed {
                entries.iter().for_each(|entry| order::listed(routes, *entry));
                return;
            }
            match (prefix.address(), entries.first()) {
                (Address::V4(_), Some(&entry)) => gone.extend(order::new_v4(routes, entry, flags)),
                _ => order::new_v6(routes, &entries, flags, leads, gone),
            }
        });
    }

    /// A prefix that can't be offered is not kept.
    pub fn forget(&mut self, prefix: Prefix) {
        self.change(prefix, |routes, _, gone| gone.append(routes));
    }

    /// A route, or next hops of it, is gone.
    pub fn delete_route(&mut self, message: &RouteMessage<'_>, lead: KernelTarget) -> DeleteResult {
        self.doubt(message);
        self.note_early(message.prefix, false, message.metric, &lead);
        if self.entries(message.prefix).is_empty() {
            // It is not listed yet, or went with its next-hop object.
            return DeleteResult::Known;
        }
        let is_object = matches!(lead, KernelTarget::Object(_));
        let (metric, identity) = (message.metric, message.identity);
        let found = self.change(message.prefix, |routes, leads, gone| {
            let mut found = true;
            for lead in split(message.prefix, lead) {
                let entry = order::delete(routes, metric, &lead, identity, leads);
                found &= entry.is_some();
                gone.extend(entry);
            }
            found
        });
        match found {
            true => DeleteResult::Changed,
            false if is_object || self.is_listing => DeleteResult::Known,
            false => DeleteResult::Diverged,
        }
    }

    /// A next-hop object is gone: so are the routes that lead to it, of which the kernel may say nothing.
    pub fn delete_object(&mut self, id: u32) {
        self.moved.extend(self.leads.delete_object(id));
    }

    /// A next-hop object has become another.
    pub fn move_object(&mut self, id: u32) {
        self.moved.extend(self.leads.of_object(id));
    }

    /// Routes to what has moved or gone since: their prefixes, whose routes have to be chosen again, each with the metrics
    /// that it had. It takes a look at all routes where there are any.
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
            self.change(prefix, |routes, leads, gone| {
                gone.extend(routes.extract_if(.., |entry| *leads.get(entry.lead) == KernelTarget::Deleted));
            });
            settled.push((prefix, metrics));
        }
        settled
    }

    /// What the kernel uses of a prefix, by metric: the first route that can be used, as `is_usable` says.
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

/// What a route leads to, as the entries that it has.
fn split(prefix: Prefix, lead: KernelTarget) -> impl Iterator<Item = KernelTarget> {
    let (whole, legs) = match (prefix.address(), lead) {
        (Address::V6(_), KernelTarget::Legs(legs)) => (None, legs),
        (_, lead) => (Some(lead), Box::from([])),
    };
    let one = |leg: NextHopMember| KernelTarget::Legs([leg].into());
    whole.into_iter().chain(legs.into_iter().map(one))
}
