//! RIBs of all routers, and installation of their routes in the FIB.

use crate::fib::FibError;
use crate::neighbour::HashKey;
use crate::rib::{Origin, ResolvedSet, Rib, Settings, Sink};
use crate::{Address, Fib, HopSet, InterfaceIndex, NextHopWriter, Prefix, RouteSet, RouterIndex, Time};

/// Routes of all routers.
#[derive(Debug)]
pub struct Ribs {
    ribs: Vec<Rib>,
    settings: Settings,
    key: HashKey,
    fib_full: u64,
}

/// The sink of one router, which installs routes in the FIB.
struct Table<'f> {
    router: RouterIndex,
    fib: &'f mut Fib,
    writer: &'f mut NextHopWriter,
    unable: &'f mut u64,
}

impl Sink for Table<'_> {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        let is_set = match set.members() {
            [] => return,
            [(next_hop, _)] => self.fib.insert(self.router, prefix, *next_hop, self.writer).is_ok(),
            members => HopSet::new(members).is_ok_and(|hops| {
                let set = hops.with_balance(set.balance());
                let inserted = self.fib.insert_set(self.router, prefix, &set, self.writer);
                inserted.is_ok()
            }),
        };
        if !is_set {
            *self.unable += 1;
        }
    }

    fn remove(&mut self, prefix: Prefix) {
        if self.fib.remove(self.router, prefix, self.writer).is_err() {
            *self.unable += 1;
        }
    }
}

impl Ribs {
    /// Creates a collection without routers. `key` must be random, because attackers may choose prefixes.
    pub fn new(settings: Settings, key: HashKey) -> Self {
        Self {
            ribs: Vec::new(),
            settings,
            key,
            fib_full: 0,
        }
    }

    /// Routes of a router.
    pub fn get(&self, router: RouterIndex) -> Option<&Rib> {
        self.ribs.get(usize::from(router))
    }

    /// Sets the maximum number of learned routes of a router. Existing routes are not removed.
    pub fn set_quota(&mut self, router: RouterIndex, routes: Option<usize>) {
        let quota = routes.unwrap_or(self.settings.quota);
        let settings = Settings { quota, ..self.settings };
        if let Some(rib) = self.ribs.get_mut(usize::from(router)) {
            rib.set_settings(settings);
        }
    }

    /// Number of route changes that were lost because the FIB was full.
    pub fn fib_full(&self) -> u64 {
        self.fib_full
    }

    /// Modifies the routes of a router, and updates the FIB. Returns false if the router does not exist.
    pub fn change(
        &mut self,
        router: RouterIndex,
        fib: &mut Fib,
        writer: &mut NextHopWriter,
        change: impl FnOnce(&mut Rib),
    ) -> bool {
        let Some(rib) = self.ribs.get_mut(usize::from(router)) else {
            return false;
        };
        change(rib);
        let unable = &mut self.fib_full;
        rib.publish(&mut Table {
            router,
            fib,
            writer,
            unable,
        });
        true
    }

    /// Replaces the connected and configured routes of each router by the routes in `wanted`. Routers without an
    /// element in `wanted` are removed with all of their routes. The other routers keep their learned routes, except
    /// for the routers in `others`: the numbers in `others` now belong to different routers. If there are too many next
    /// hops, no route is changed. Gateways that are reachable only by learned routes are resolved after the
    /// replacement. [`Ribs::fib_full`] counts changes that don't fit into the FIB.
    ///
    /// # Errors
    /// The next hops of `wanted` don't fit in the next-hop table.
    pub fn apply_all(
        &mut self,
        wanted: &[RouteSet],
        others: impl Fn(RouterIndex) -> bool,
        fib: &mut Fib,
        writer: &mut NextHopWriter,
        now: Time,
    ) -> Result<(), FibError> {
        let mut held = Vec::new();
        let all = wanted.iter().flat_map(RouteSet::next_hops);
        let taken = all.map(|set| writer.acquire_set(&set)).try_for_each(|index| {
            held.push(index?);
            Ok(())
        });
        if taken.is_ok() {
            while self.ribs.len() < wanted.len() {
                self.ribs.push(Rib::new(self.settings, self.key));
            }
            for (router, wanted) in (0..).zip(wanted) {
                if others(router) {
                    fib.clear(router, writer);
                    self.ribs[usize::from(router)] = Rib::new(self.settings, self.key);
                }
                self.change(router, fib, writer, |rib| apply(rib, wanted, now));
            }
            for router in wanted.len()..self.ribs.len() {
                fib.clear(router as RouterIndex, writer);
            }
            self.ribs.truncate(wanted.len());
        }
        held.into_iter().for_each(|index| writer.release(index));
        taken
    }

    /// Sets whether an interface of a router is up. A removed interface counts as down. Returns false if the interface
    /// already had this state.
    pub fn set_link(
        &mut self,
        (router, interface, up): (RouterIndex, InterfaceIndex, bool),
        fib: &mut Fib,
        writer: &mut NextHopWriter,
    ) -> bool {
        let known = self.get(router).map(|rib| rib.link_is_up(interface));
        known == Some(!up) && self.change(router, fib, writer, |rib| rib.set_link(interface, up))
    }

    /// Sets whether a gateway of a router may be used. Returns false if the gateway already had this state.
    pub fn set_gateway(
        &mut self,
        router: RouterIndex,
        (gateway, up): ((InterfaceIndex, Address), bool),
        fib: &mut Fib,
        writer: &mut NextHopWriter,
    ) -> bool {
        let known = self.get(router).map(|rib| rib.gateway_is_up(gateway));
        known == Some(!up)
            && self.change(router, fib, writer, |rib| {
                rib.set_gateway(gateway, up);
            })
    }

    /// Number of bytes that the routes of all routers use.
    pub fn bytes(&self) -> usize {
        self.ribs.iter().map(|rib| rib.bytes() + size_of::<Rib>()).sum()
    }
}

fn apply(rib: &mut Rib, wanted: &RouteSet, now: Time) {
    for origin in [Origin::Connected, Origin::Static] {
        rib.start_replay(origin);
    }
    for (prefix, offer) in wanted.iter() {
        // The offer fails only at the router's maximum number of sets. The RIB counts these failures.
        let _ = rib.offer(prefix, &offer, now);
    }
    for origin in [Origin::Connected, Origin::Static] {
        rib.end_replay(origin, usize::MAX);
    }
}
