//! The RIB of a virtual router. Interfaces, the configuration, routing daemons and the kernel offer routes. For each
//! prefix, the RIB selects the best usable offer and passes its next hops to a [`Sink`].
//!
//! Offers change individually, and [`Rib::publish`] passes the combined result to the sink. A prefix that is withdrawn
//! and offered again between two publications causes no change. Recursive next hops are resolved through other routes,
//! and again when these routes change.

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

/// Limits and options of a router's routes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Maximum number of learned offers.
    pub quota: usize,
    /// Maximum number of distinct next-hop sets.
    pub sets: usize,
    /// Whether gateways may be resolved through the default route.
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

/// Statistics of a RIB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of offers by origin, in the order of [`Origin::ALL`].
    pub offers: [usize; 4],
    /// Number of stale offers by origin. An offer is stale if its origin has not announced the offer again since the
    /// start of the replay.
    pub stale: [usize; 4],
    /// Number of published prefixes: IPv4 and IPv6.
    pub published: [usize; 2],
    /// Number of prefixes with offers.
    pub prefixes: usize,
    /// Number of next-hop sets.
    pub sets: usize,
    /// Number of recursive gateways.
    pub gateways: usize,
    /// Number of recursive gateways that are unreachable.
    pub unreachable: usize,
    /// Number of recursive gateways that were not resolved because of a loop or of too many steps.
    pub loops: usize,
    /// Number of offers rejected because of the quota.
    pub refused_quota: u64,
    /// Number of offers rejected because of their next hops.
    pub refused_hops: u64,
}

/// A recursive gateway: a gateway that is resolved through routes.
#[derive(Debug, Default)]
struct Floating {
    uses: u32,
    shares: BTreeMap<NextHop, u64>,
    loops: u64,
}

/// State that IPv4 and IPv6 share.
#[derive(Debug)]
struct Common {
    sets: Sets,
    floating: BTreeMap<Address, Floating>,
    /// New gateways that are not yet resolved.
    fresh: Vec<Address>,
    /// Whether all gateways must be resolved again.
    needs_resolution: bool,
    down: BTreeSet<InterfaceIndex>,
    /// Gateways of uplinks that are down.
    lost: BTreeSet<(InterfaceIndex, Address)>,
    /// Entries of each family that the next publication must examine.
    dirty: [Vec<u32>; 2],
    offers: [usize; 4],
    stale: [usize; 4],
    published: [usize; 2],
    refused_quota: u64,
    refused_hops: u64,
}

impl Common {
    /// Adds a use of an offer's target.
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
            self.register_hops(hops);
        }
        Ok(index)
    }

    /// Removes a use of an offer's target.
    fn release(&mut self, index: u32) {
        if let Some(hops) = self.sets.release(index) {
            self.unregister_hops(&hops);
        }
    }

    fn register_hops(&mut self, hops: &[WeightedNextHop]) {
        for hop in hops {
            let OfferedNextHop::Via(gateway) = hop.next_hop else {
                continue;
            };
            let floating = self.floating.entry(gateway).or_default();
            floating.uses += 1;
            if floating.uses == 1 {
                self.fresh.push(gateway);
            }
        }
    }

    fn unregister_hops(&mut self, hops: &[WeightedNextHop]) {
        for hop in hops {
            let OfferedNextHop::Via(gateway) = hop.next_hop else {
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

/// Routes of one virtual router.
#[derive(Debug)]
pub struct Rib {
    v4: Table<u32>,
    v6: Table<u128>,
    common: Common,
    settings: Settings,
    /// Position of the sweep of stale offers, by origin and family.
    cursors: [[u32; 2]; 4],
}

impl Rib {
    /// Creates a RIB without routes. `key` must be random, because attackers may choose prefixes.
    pub fn new(settings: Settings, key: HashKey) -> Self {
        Self {
            v4: Table::new(key),
            v6: Table::new(key),
            common: Common {
                sets: Sets::new(settings.sets),
                floating: BTreeMap::new(),
                fresh: Vec::new(),
                needs_resolution: false,
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

    /// Changes the limits for future offers.
    pub fn set_settings(&mut self, settings: Settings) {
        self.common.needs_resolution |= self.settings.by_default_route != settings.by_default_route;
        self.settings = settings;
    }

    /// Adds an offer, or replaces the earlier offer of the origin.
    ///
    /// # Errors
    /// See [`RibError`]. The earlier offer remains.
    pub fn offer(&mut self, prefix: Prefix, offer: &Offer<'_>, now: Time) -> Result<(), RibError> {
        let (common, settings, length) = (&mut self.common, &self.settings, prefix.length());
        match prefix.address() {
            Address::V4(bits) => change::offer(&mut self.v4, common, settings, (bits, length), offer, now),
            Address::V6(bits) => change::offer(&mut self.v6, common, settings, (bits, length), offer, now),
        }
    }

    /// Withdraws an offer. `which` distinguishes the offers of an origin: the metric of a kernel route, or the distance
    /// of a static route. Returns false if the offer does not exist.
    pub fn withdraw(&mut self, prefix: Prefix, origin: Origin, which: u32) -> bool {
        let wanted = (origin, origin.which(which.min(255) as u8, which));
        let is_match = |fact: &table::RouteRecord| fact.which() == wanted;
        let length = prefix.length();
        match prefix.address() {
            Address::V4(bits) => change::withdraw(&mut self.v4, &mut self.common, (bits, length), is_match),
            Address::V6(bits) => change::withdraw(&mut self.v6, &mut self.common, (bits, length), is_match),
        }
    }

    /// Creates a group of next hops. A group without next hops is unreachable.
    ///
    /// # Errors
    /// The group has too many next hops, or there are too many sets.
    pub fn add_group(&mut self, hops: &[WeightedNextHop]) -> Result<Group, RibError> {
        let group = self.common.sets.add_group(hops);
        let group = group.inspect_err(|_| self.common.refused_hops += 1)?;
        self.common.register_hops(hops);
        Ok(group)
    }

    /// Changes the next hops of a group for every route that uses the group.
    ///
    /// # Errors
    /// The group would have too many next hops, or does not exist.
    pub fn change_group(&mut self, group: Group, hops: &[WeightedNextHop]) -> Result<(), RibError> {
        let old = self.common.sets.change_group(group, hops);
        let old = old.inspect_err(|_| self.common.refused_hops += 1)?;
        self.common.register_hops(hops);
        self.common.unregister_hops(&old);
        self.common.needs_resolution |= !self.common.floating.is_empty();
        Ok(())
    }

    /// Releases a group. Routes that use the group keep its current next hops.
    pub fn drop_group(&mut self, group: Group) {
        if self.common.sets.is_group(group) {
            self.common.release(group.0);
        }
    }

    /// Sets whether an interface is up. Interfaces are up by default. A removed interface counts as down.
    pub fn set_link(&mut self, interface: InterfaceIndex, up: bool) {
        let changed = match up {
            true => self.common.down.remove(&interface),
            false => self.common.down.insert(interface),
        };
        if changed {
            publish::mark_interface(&mut self.common, interface);
        }
    }

    /// Sets whether a gateway on an interface's link may be used. A gateway must not be used while its uplink is down.
    /// Gateways are usable by default. Returns false if the gateway already had this state.
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

    /// Whether a gateway may be used, as set by the last [`Rib::set_gateway`].
    pub fn gateway_is_up(&self, gateway: (InterfaceIndex, Address)) -> bool {
        !self.common.lost.contains(&gateway)
    }

    /// Whether an interface is up, as set by the last [`Rib::set_link`].
    pub fn link_is_up(&self, interface: InterfaceIndex) -> bool {
        !self.common.down.contains(&interface)
    }

    /// Why a next hop of an offer was unreachable at the last publication; `None` for a reachable next hop.
    pub fn unresolved_reason(&self, next_hop: OfferedNextHop) -> Option<UnresolvedReason> {
        let found = |gateway| {
            self.common
                .floating
                .get(&gateway)
                .is_some_and(|found| !found.shares.is_empty())
        };
        match next_hop {
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

    /// Starts a replay, in which an origin offers all of its routes again. Each offer of the origin is stale until the
    /// origin announces the offer again.
    pub fn start_replay(&mut self, origin: Origin) {
        change::mark_stale(&mut self.v4, &mut self.common, origin);
        change::mark_stale(&mut self.v6, &mut self.common, origin);
        self.cursors[origin as usize] = [0; 2];
    }

    /// Ends the replay: withdraws at most `max` stale offers, and returns their number. A result below `max` means
    /// that no stale offers remain.
    pub fn end_replay(&mut self, origin: Origin, max: usize) -> usize {
        let removed_count = publish::sweep(self, origin, max);
        if removed_count < max {
            self.cursors[origin as usize] = [0; 2];
        }
        removed_count
    }

    /// Statistics of the RIB.
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

    /// Number of stale offers of an origin.
    pub fn stale(&self, origin: Origin) -> usize {
        self.common.stale[origin as usize]
    }

    /// Number of heap bytes that the RIB uses.
    pub fn bytes(&self) -> usize {
        let waiting: usize = self.common.dirty.iter().map(|dirty| dirty.capacity() * 4).sum();
        self.v4.bytes() + self.v6.bytes() + self.common.sets.bytes() + waiting
    }

    /// All offers: IPv4, then IPv6. The order within a family is unspecified.
    pub fn iter(&self) -> impl Iterator<Item = ListedRoute<'_>> {
        self.page(0).map(|(_, shown)| shown)
    }

    /// Offers in order, starting at a position. Each offer is returned with the following position. Positions remain
    /// valid while routes change.
    pub fn page(&self, from: u64) -> impl Iterator<Item = (u64, ListedRoute<'_>)> {
        const SIX: u64 = 1 << 32;
        let v4 = from..u64::from(self.v4.entries.places());
        let v6 = from.max(SIX)..SIX + u64::from(self.v6.entries.places());
        let v4 = v4.flat_map(|place| self.listed(&self.v4, place as u32).map(move |shown| (place + 1, shown)));
        let v6 = v6.flat_map(|place| self.listed(&self.v6, place as u32).map(move |shown| (place + 1, shown)));
        v4.chain(v6)
    }

    /// Offers for exactly this prefix. The selected offer comes first.
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

    /// Offers for the longest published prefix that contains an address.
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
        // A free entry has no offers, selected or unselected.
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
