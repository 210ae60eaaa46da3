//! Quotas of the neighbour table. Quotas prevent one virtual router, one interface or one announcing host from
//! displacing all other neighbours.

use std::collections::HashMap;

use sluice_table::token_bucket::TokenBucket;

use super::table::Mac;
use super::timing::Timing;
use crate::{InterfaceIndex, MAX_ROUTERS, RouterIndex, Time};

/// Number of interfaces with a stored router number. Interfaces with higher indexes count as interfaces of router 0.
const INTERFACES: usize = 2048;

/// Maximum number of addresses that one MAC on an interface may announce unsolicited. Few hosts need more addresses.
const OF_MAC: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct OfInterface {
    unresolved: u32,
    unconfirmed: u32,
}

#[derive(Clone, Copy, Debug)]
struct OfRouter {
    max: u32,
    count: u32,
    unresolved: u32,
    requests: TokenBucket,
}

/// Neighbour counts and limits of each router. If there is only one router, it may use the whole table.
#[derive(Debug)]
pub(super) struct Quotas {
    router_of: Box<[RouterIndex]>,
    routers: Box<[OfRouter]>,
    of_interface: Box<[OfInterface]>,
    /// Number of unconfirmed neighbours, by interface and announcing MAC.
    of_mac: HashMap<(InterfaceIndex, Mac), u32>,
    /// Maximum number of unresolved entries per router, and per interface.
    unresolved: u32,
    /// Maximum number of unconfirmed entries per interface.
    unconfirmed: u32,
    is_single_router: bool,
    /// Whether there is only one interface.
    is_single: bool,
}

impl Quotas {
    /// Creates quotas for a single router.
    pub fn new(timing: &Timing, capacity: usize, now: Time) -> Self {
        let rate = (timing.requests_per_second / 2).max(1);
        let router = OfRouter {
            max: u32::MAX,
            count: 0,
            unresolved: 0,
            requests: TokenBucket::new(rate, rate.div_ceil(10), now),
        };
        Self {
            router_of: vec![0; INTERFACES].into(),
            routers: vec![router; MAX_ROUTERS].into(),
            of_interface: vec![OfInterface::default(); INTERFACES].into(),
            // The map never reallocates, because it has at most one entry per neighbour.
            of_mac: HashMap::with_capacity(capacity),
            unresolved: (timing.unresolved / 2).max(1) as u32,
            unconfirmed: (capacity / 2).max(1) as u32,
            is_single_router: true,
            is_single: true,
        }
    }

    /// Sets the router of each interface, and the maximum number of neighbours of each router. The caller must count
    /// all entries again after this call.
    pub fn set(&mut self, interfaces: impl Iterator<Item = RouterIndex>, max: impl Iterator<Item = u32>) {
        self.router_of.fill(0);
        let mut number = 0;
        for (own, router) in self.router_of.iter_mut().zip(interfaces) {
            *own = router;
            number += 1;
        }
        self.is_single = number < 2;
        self.of_interface.fill(OfInterface::default());
        self.of_mac.clear();
        self.is_single_router = self.router_of.iter().all(|router| *router == 0);
        for router in &mut self.routers {
            (router.max, router.count, router.unresolved) = (u32::MAX, 0, 0);
        }
        for (own, max) in self.routers.iter_mut().zip(max) {
            own.max = max;
        }
    }

    /// Router of an interface.
    pub fn router_of(&self, interface: InterfaceIndex) -> RouterIndex {
        self.router_of.get(usize::from(interface)).copied().unwrap_or(0)
    }

    fn of(&self, interface: InterfaceIndex) -> &OfRouter {
        &self.routers[usize::from(self.router_of(interface)) % MAX_ROUTERS]
    }

    fn of_mut(&mut self, interface: InterfaceIndex) -> &mut OfRouter {
        let router = self.router_of(interface);
        &mut self.routers[usize::from(router) % MAX_ROUTERS]
    }

    /// Whether the router of an interface has reached its maximum number of neighbours.
    pub fn is_full(&self, interface: InterfaceIndex) -> bool {
        let of = self.of(interface);
        of.count >= of.max
    }

    /// Whether the router of an interface has reached its maximum number of unresolved entries. A single router has no
    /// maximum.
    pub fn is_unresolved_full(&self, interface: InterfaceIndex) -> bool {
        !self.is_single_router && self.of(interface).unresolved >= self.unresolved
    }

    /// Whether an interface has reached its maximum number of unresolved entries. A single interface has no maximum.
    pub fn is_unresolved_full_of(&self, interface: InterfaceIndex) -> bool {
        !self.is_single && self.of_interface(interface).unresolved >= self.unresolved
    }

    /// Whether an interface has reached its maximum number of unconfirmed entries. A single interface has no maximum.
    pub fn is_unconfirmed_full_of(&self, interface: InterfaceIndex) -> bool {
        !self.is_single && self.of_interface(interface).unconfirmed >= self.unconfirmed
    }

    /// Whether a MAC has announced the maximum number of addresses.
    pub fn is_full_of(&self, interface: InterfaceIndex, mac: Mac) -> bool {
        self.of_mac.get(&(interface, mac)).is_some_and(|count| *count >= OF_MAC)
    }

    fn of_interface(&self, interface: InterfaceIndex) -> OfInterface {
        self.of_interface[usize::from(interface) % INTERFACES]
    }

    /// Whether the router of an interface may send another request. A single router has no rate limit here.
    pub fn may_request(&mut self, interface: InterfaceIndex, now: Time) -> bool {
        self.is_single_router || self.of_mut(interface).requests.take(now)
    }

    /// Counts an added (`is_added`) or removed entry.
    pub fn count(&mut self, interface: InterfaceIndex, is_added: bool) {
        add(&mut self.of_mut(interface).count, is_added);
    }

    /// Updates the counts when an entry becomes unresolved (`condition`) or resolved (`!condition`).
    pub fn count_unresolved(&mut self, interface: InterfaceIndex, condition: bool) {
        add(&mut self.of_mut(interface).unresolved, condition);
        add(
            &mut self.of_interface[usize::from(interface) % INTERFACES].unresolved,
            condition,
        );
    }

    /// Updates the counts when an entry that a MAC announced becomes unconfirmed (`condition`) or confirmed
    /// (`!condition`).
    pub fn count_unconfirmed(&mut self, interface: InterfaceIndex, mac: Mac, condition: bool) {
        add(
            &mut self.of_interface[usize::from(interface) % INTERFACES].unconfirmed,
            condition,
        );
        let key = (interface, mac);
        if condition {
            *self.of_mac.entry(key).or_insert(0) += 1;
        } else if let Some(count) = self.of_mac.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.of_mac.remove(&key);
            }
        }
    }
}

fn add(count: &mut u32, one: bool) {
    *count = match one {
        true => count.saturating_add(1),
        false => count.saturating_sub(1),
    };
}
