//! The routes of a virtual router as they are offered: by its interfaces, its configuration, routing daemons and the
//! kernel. Of the offers for a prefix the best one that leads anywhere is used, and where it leads is handed to a [`Sink`].
//!
//! Offers are changed one by one; [`Rib::publish`] hands on what became of all of them, so that a prefix that is withdrawn
//! and offered again in between is not touched. Next hops that are gateways somewhere behind other routes lead where these
//! do, and follow them.

mod change;
mod offer;
mod publish;
mod resolve;
mod sets;
mod slab;
mod table;

use std::collections::{BTreeMap, BTreeSet};

pub use offer::{
    Group, ListedRoute, MAX_HOPS, Offer, OfferedNextHop, Origin, ResolvedSet, RibError, Sink, Target, UnresolvedReason,
    WeightedNextHop,
};
pub use resolve::DEPTH;

use crate::neighbour::HashKey;
use crate::{Address, InterfaceIndex, NextHop, Prefix, SECOND, Time};
use sets::Sets;
use table::{Family, Table};

/// What a router's routes may be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most offers that are learned.
    pub quota: usize,
    /// Most different sets of next hops.
    pub sets: usize,
    /// Gateways may be found by the default route.
    pub by_default_route: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quota: 2_000_000,
            sets: 65_536,
            by_default_route: false,
        }
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Offers by origin, in the order of [`Origin::ALL`].
    pub offers: [usize; 4],
    /// Those of them that were not made again since their replay began.
    pub stale: [usize; 4],
    /// Prefixes that lead somewhere: IPv4, IPv6.
    pub published: [usize; 2],
    /// Prefixes that have offers.
    pub prefixes: usize,
    /// Sets of next hops.
    pub sets: usize,
    /// Gateways found by routes.
    pub gateways: usize,
    /// Those of them that lead nowhere.
    pub unreachable: usize,
    /// Those of them that were not found on a loop, or on a way that is too long.
    pub loops: usize,
    /// Offers refused because of the quota.
    pub refused_quota: u64,
    /// Offers refused because of their next hops.
    pub refused_hops: u64,
}

/// A gateway that is found by routes.
#[derive(Debug, Default)]
struct Floating {
    uses: u32,
    shares: BTreeMap<NextHop, u64>,
    loops: u64,
}

/// What both families share.
#[derive(Debug)]
struct Common {
    sets: Sets,
    floating: BTreeMap<Address, Floating>,
    /// Gateways to find.
    fresh: Vec<Address>,
    /// All gateways are to be found again.
    unsettled: bool,
    down: BTreeSet<InterfaceIndex>,
    /// Gateways of uplinks that are down.
    lost: BTreeSet<(InterfaceIndex, Address)>,
    /// Entries to look at.
    dirty: [Vec<u32>; 2],
    offers: [usize; 4],
    stale: [usize; 4],
    published: [usize; 2],
    refused_quota: u64,
    refused_hops: u64,
}

impl Common {
    /// Take a use of what an offer leads to.
    fn acquire(&mut self, target: Target<'_>) -> Result<u32, RibError> {
        let taken = match target {
            Target::Group(group) if self.sets.is_group(group) => {
                self.sets.hold(group.0);
                return Ok(group.0);
            }
            Target::Group(_) => Err(RibError::Group),
            Target::Hops(hops) => self.sets.acquire(hops),
        };
        let (index, is_new) = taken.inspect_err(|_| self.refused_hops += 1)?;
        if let (true, Target::Hops(hops)) = (is_new, target) {
            self.follow(hops);
        }
        Ok(index)
    }

    /// Give a use back.
    fn release(&mut self, index: u32) {
        if let Some(hops) = self.sets.release(index) {
            self.unfollow(&hops);
        }
    }

    fn follow(&mut self, hops: &[WeightedNextHop]) {
        for hop in hops {
            let OfferedNextHop::Via(gateway) = hop.way else {
                continue;
            };
            let floating = self.floating.entry(gateway).or_default();
            floating.uses += 1;
            if floating.uses == 1 {
                self.fresh.push(gateway);
            }
        }
    }

    fn unfollow(&mut self, hops: &[WeightedNextHop]) {
        for hop in hops {
            let OfferedNextHop::Via(gateway) = hop.way else {
                continue;
            };
            let Some(floating) = self.floating.get_mut(&gateway) else {
                continue;
            };
            floating.uses -= 1;
            if floating.uses == 0 {
                self.floating.remove(&gateway);
            }
        }
    }

    fn learned(&self) -> usize {
        let of = |origin: &Origin| self.offers[*origin as usize];
        Origin::ALL.iter().filter(|origin| origin.is_learned()).map(of).sum()
    }
}

/// The routes of one virtual router.
#[derive(Debug)]
pub struct Rib {
    v4: Table<u32>,
    v6: Table<u128>,
    common: Common,
    settings: Settings,
    /// How far the sweep of each origin is, by family.
    cursors: [[u32; 2]; 4],
}

impl Rib {
    /// No routes. `key` is drawn at random: prefixes come from others.
    pub fn new(settings: Settings, key: HashKey) -> Self {
        Self {
            v4: Table::new(key),
            v6: Table::new(key),
            common: Common {
                sets: Sets::new(settings.sets),
                floating: BTreeMap::new(),
                fresh: Vec::new(),
                unsettled: false,
                down: BTreeSet::new(),
                lost: BTreeSet::new(),
                dirty: [Vec::new(), Vec::new()],
                offers: [0; 4],
                stale: [0; 4],
                published: [0; 2],
                refused_quota: 0,
                refused_hops: 0,
            },
            settings,
            cursors: [[0; 2]; 4],
        }
    }

    /// Other limits, for offers to come.
    pub fn set_settings(&mut self, settings: Settings) {
        self.common.unsettled |= self.settings.by_default_route != settings.by_default_route;
        self.settings = settings;
    }

    /// Make an offer, or change the one that the origin made before.
    ///
    /// # Errors
    /// See [`RibError`]; the offer made before stays.
    pub fn offer(&mut self, prefix: Prefix, offer: &Offer<'_>, now: Time) -> Result<(), RibError> {
        let (common, settings, length) = (&mut self.common, &self.settings, prefix.length());
        match prefix.address() {
            Address::V4(bits) => change::offer(&mut self.v4, common, settings, (bits, length), offer, now),
            Address::V6(bits) => change::offer(&mut self.v6, common, settings, (bits, length), offer, now),
        }
    }

    /// Take an offer back; `which` says which one: the metric of the kernel's, the distance of a static one. False where
    /// there is none.
    pub fn withdraw(&mut self, prefix: Prefix, origin: Origin, which: u32) -> bool {
        let wanted = (origin, origin.which(which.min(255) as u8, which));
        let is_it = |fact: &table::RouteRecord| fact.which() == wanted;
        let length = prefix.length();
        match prefix.address() {
            Address::V4(bits) => change::withdraw(&mut self.v4, &mut self.common, (bits, length), is_it),
            Address::V6(bits) => change::withdraw(&mut self.v6, &mut self.common, (bits, length), is_it),
        }
    }

    /// Make a group of next hops. It may be empty, and leads nowhere then.
    ///
    /// # Errors
    /// Too many next hops, or sets.
    pub fn add_group(&mut self, hops: &[WeightedNextHop]) -> Result<Group, RibError> {
        let group = self.common.sets.add_group(hops);
        let group = group.inspect_err(|_| self.common.refused_hops += 1)?;
        self.common.follow(hops);
        Ok(group)
    }

    /// Give a group other next hops: every route that uses it follows.
    ///
    /// # Errors
    /// Too many next hops, or no such group.
    pub fn change_group(&mut self, group: Group, hops: &[WeightedNextHop]) -> Result<(), RibError> {
        let old = self.common.sets.change_group(group, hops);
        let old = old.inspect_err(|_| self.common.refused_hops += 1)?;
        self.common.follow(hops);
        self.common.unfollow(&old);
        self.common.unsettled |= !self.common.floating.is_empty();
        Ok(())
    }

    /// Let a group go. Routes that use it keep it as it is.
    pub fn drop_group(&mut self, group: Group) {
        if self.common.sets.is_group(group) {
            self.common.release(group.0);
        }
    }

    /// An interface is up, or is down or gone. Interfaces are up until they are said to be down.
    pub fn set_link(&mut self, interface: InterfaceIndex, up: bool) {
        let changed = match up {
            true => self.common.down.remove(&interface),
            false => self.common.down.insert(interface),
        };
        if changed {
            publish::mark_interface(&mut self.common, interface);
        }
    }

    /// A gateway on the link of an interface is to be used, or is not, as its uplink is down. Gateways are used until it is said
    /// that they are not. False where that was known.
    pub fn set_gateway(&mut self, (interface, address): (InterfaceIndex, Address), up: bool) -> bool {
        let changed = match up {
            true => self.common.lost.remove(&(interface, address)),
            false => self.common.lost.insert((interface, address)),
        };
        if changed {
            publish::mark_interface(&mut self.common, interface);
        }
        changed
    }

    /// Whether a gateway is to be used, as far as was said.
    pub fn gateway_is_up(&self, gateway: (InterfaceIndex, Address)) -> bool {
        !self.common.lost.contains(&gateway)
    }

    /// Whether an interface is up, as far as was said.
    pub fn link_is_up(&self, interface: InterfaceIndex) -> bool {
        !self.common.down.contains(&interface)
    }

    /// Why a next hop of an offer leads nowhere, as far as was published; none where it leads anywhere.
    pub fn unresolved_reason(&self, way: OfferedNextHop) -> Option<UnresolvedReason> {
        let found = |gateway| {
            self.common
                .floating
                .get(&gateway)
                .is_some_and(|found| !found.shares.is_empty())
        };
        match way {
            OfferedNextHop::Drop(_) | OfferedNextHop::Local(_) => None,
            OfferedNextHop::Attached(interface) | OfferedNextHop::Gateway { interface, .. }
                if !self.link_is_up(interface) =>
            {
                Some(UnresolvedReason::Link)
            }
            OfferedNextHop::Attached(_) => None,
            OfferedNextHop::Gateway { interface, address } => {
                (!self.gateway_is_up((interface, address))).then_some(UnresolvedReason::Uplink)
            }
            OfferedNextHop::Via(gateway) => (!found(gateway)).then_some(UnresolvedReason::Gateway),
        }
    }

    /// From now on an origin offers all of its routes anew: those that it has not offered again are stale.
    pub fn begin_replay(&mut self, origin: Origin) {
        change::mark_stale(&mut self.v4, &mut self.common, origin);
        change::mark_stale(&mut self.v6, &mut self.common, origin);
        self.cursors[origin as usize] = [0; 2];
    }

    /// The replay is over: take what is stale back, at most so many. Returns how many; none are left where it is fewer.
    pub fn end_replay(&mut self, origin: Origin, most: usize) -> usize {
        let swept = publish::sweep(self, origin, most);
        if swept < most {
            self.cursors[origin as usize] = [0; 2];
        }
        swept
    }

    /// How many there are of what.
    pub fn counts(&self) -> Counts {
        let floating = &self.common.floating;
        let unreachable = floating.values().filter(|gateway| gateway.shares.is_empty());
        let loops = floating.values().filter(|gateway| gateway.loops > 0);
        Counts {
            offers: self.common.offers,
            stale: self.common.stale,
            published: self.common.published,
            prefixes: self.v4.len() + self.v6.len(),
            sets: self.common.sets.len(),
            gateways: floating.len(),
            unreachable: unreachable.count(),
            loops: loops.count(),
            refused_quota: self.common.refused_quota,
            refused_hops: self.common.refused_hops,
        }
    }

    /// Stale offers of an origin.
    pub fn stale(&self, origin: Origin) -> usize {
        self.common.stale[origin as usize]
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let waiting: usize = self.common.dirty.iter().map(|dirty| dirty.capacity() * 4).sum();
        self.v4.bytes() + self.v6.bytes() + self.common.sets.bytes() + waiting
    }

    /// Every offer, IPv4 first, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = ListedRoute<'_>> {
        self.page(0).map(|(_, shown)| shown)
    }

    /// The offers from a place on, each with the place to go on from. Places stay while routes come and go.
    pub fn page(&self, from: u64) -> impl Iterator<Item = (u64, ListedRoute<'_>)> {
        const SIX: u64 = 1 << 32;
        let four = from..u64::from(self.v4.entries.places());
        let six = from.max(SIX)..SIX + u64::from(self.v6.entries.places());
        let four = four.flat_map(|place| self.listed(&self.v4, place as u32).map(move |shown| (place + 1, shown)));
        let six = six.flat_map(|place| self.listed(&self.v6, place as u32).map(move |shown| (place + 1, shown)));
        four.chain(six)
    }

    /// The offers for exactly this prefix, the used one first.
    pub fn get(&self, prefix: Prefix) -> Vec<ListedRoute<'_>> {
        let length = prefix.length();
        match prefix.address() {
            Address::V4(bits) => match self.v4.find(bits, length) {
                Some(place) => self.listed(&self.v4, place).collect(),
                None => Vec::new(),
            },
            Address::V6(bits) => match self.v6.find(bits, length) {
                Some(place) => self.listed(&self.v6, place).collect(),
                None => Vec::new(),
            },
        }
    }

    /// The offers for the longest prefix that holds an address and leads anywhere, as far as was published.
    pub fn lookup(&self, address: Address) -> Vec<ListedRoute<'_>> {
        match address {
            Address::V4(bits) => self.longest(&self.v4, bits),
            Address::V6(bits) => self.longest(&self.v6, bits),
        }
    }

    fn longest<'r, A: Family>(&'r self, table: &'r Table<A>, bits: A) -> Vec<ListedRoute<'r>> {
        let mut covering = table.covering(bits);
        let place = covering.find(|&place| table.entries[place].is_published());
        place
            .map(|place| self.listed(table, place).collect())
            .unwrap_or_default()
    }

    fn listed<'r, A: Family>(&'r self, table: &'r Table<A>, place: u32) -> impl Iterator<Item = ListedRoute<'r>> + 'r {
        let entry = &table.entries[place];
        // A free place has no offer, used or spare.
        let offers = entry
            .record()
            .is_some()
            .then(|| table.offers(place))
            .into_iter()
            .flatten();
        offers.enumerate().filter_map(move |(number, fact)| {
            let set = self.common.sets.get(fact.set)?;
            Some(ListedRoute {
                prefix: entry.prefix(),
                origin: fact.origin(),
                protocol: fact.protocol,
                distance: fact.distance,
                metric: fact.metric,
                hops: &set.hops,
                resolved: set.resolved.as_ref(),
                selected: number == 0 && entry.is_published(),
                stale: fact.is_stale(),
                since: u64::from(fact.since) * SECOND,
            })
        })
    }
}
