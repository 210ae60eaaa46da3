//! The routes of all routers, on their way into the forwarding table.

use crate::fib::FibError;
use crate::neighbour::HashKey;
use crate::rib::{Origin, ResolvedSet, Rib, Settings, Sink};
use crate::{Address, Fib, HopSet, InterfaceIndex, NextHopWriter, Prefix, RouteSet, RouterIndex, Time};

/// The routes of all routers.
#[derive(Debug)]
pub struct Ribs {
    ribs: Vec<Rib>,
    settings: Settings,
    key: HashKey,
    fib_full: u64,
}

/// The forwarding table of one router.
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
    /// No routers. `key` is drawn at random: prefixes come from others.
    pub fn new(settings: Settings, key: HashKey) -> Self {
        Self {
            ribs: Vec::new(),
            settings,
            key,
            fib_full: 0,
        }
    }

    /// The routes of a router.
    pub fn get(&self, router: RouterIndex) -> Option<&Rib> {
        self.ribs.get(usize::from(router))
    }

    /// A router may learn so many routes from now on; none of those that it has go.
    pub fn set_quota(&mut self, router: RouterIndex, routes: Option<usize>) {
        let quota = routes.unwrap_or(self.settings.quota);
        let settings = Settings { quota, ..self.settings };
        if let Some(rib) = self.ribs.get_mut(usize::from(router)) {
            rib.set_settings(settings);
        }
    }

    /// Changes that the forwarding table had no room for.
    pub fn fib_full(&self) -> u64 {
        self.fib_full
    }

    /// Change the routes of a router, and have the table follow. False where there is no such router.
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

    /// Make what each router's interfaces and configuration offer that of `wanted`, by router; routers beyond are gone,
    /// with all of their routes. What is learned stays, but of those that are `others` now: a router that only has the
    /// number of one that is gone. Nothing changes where next hops run out; gateways that learned routes alone lead to are
    /// known afterwards, and [`Ribs::unable`] counts those that do not fit.
    ///
    /// # Errors
    /// Not all next hops of `wanted` fit.
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

    /// An interface of a router is up, or is down or gone. False where that was known.
    pub fn set_link(
        &mut self,
        (router, interface, up): (RouterIndex, InterfaceIndex, bool),
        fib: &mut Fib,
        writer: &mut NextHopWriter,
    ) -> bool {
        let known = self.get(router).map(|rib| rib.link_is_up(interface));
        known == Some(!up) && self.change(router, fib, writer, |rib| rib.set_link(interface, up))
    }

    /// A gateway of a router is to be used, or is not. False where that was known.
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

    /// Bytes of all routers' routes.
    pub fn bytes(&self) -> usize {
        self.ribs.iter().map(|rib| rib.bytes() + size_of::<Rib>()).sum()
    }
}

fn apply(rib: &mut Rib, wanted: &RouteSet, now: Time) {
    for origin in [Origin::Connected, Origin::Static] {
        rib.begin_replay(origin);
    }
    for (prefix, offer) in wanted.iter() {
        // Only a router that has as many sets as it may refuses, and counts.
        let _ = rib.offer(prefix, &offer, now);
    }
    for origin in [Origin::Connected, Origin::Static] {
        rib.end_replay(origin, usize::MAX);
    }
}
