//! Virtual routers, and the settings that a snapshot contains for each of them.

use sluice_filter::Filters;
use sluice_nat::sites::outer;
use sluice_route::{Address, Lookup, RouterIndex};
use sluice_wire::Context;

use crate::packet::counters::WorkerCounters;
use crate::packet::punt;
use crate::session::family::Family;
use crate::snapshot::chains::Chains;

use super::{Express, Interface, MAX_TAGS, Snapshot};

/// A virtual router. The number of the router is the context of packets that arrive on its interfaces.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// Name in the configuration; empty if the number is unused.
    pub name: String,
    /// Session limits. The limits apply to both families together.
    pub limits: sluice_nat::Limits,
    /// Whether the packet filter applies to forwarded packets of the router.
    pub filters: bool,
    /// Quotas in addition to the session limits.
    pub quotas: Quotas,
}

/// Quotas of a router; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Maximum number of learned routes.
    pub routes: Option<usize>,
    /// Maximum number of neighbours, including neighbours that are being resolved.
    pub neighbours: Option<u32>,
    /// Maximum number of packets that each worker parks for the router. The number includes packets that wait for
    /// neighbours, fragments, packets in stream reassembly, and unsolicited SYNs.
    pub buffers: Option<u32>,
}

impl Snapshot {
    /// The virtual router of a context; `None` if the context belongs to a bridge.
    #[inline(always)]
    pub fn router(&self, context: Context) -> Option<&Router> {
        self.routers.get(outer(context) as usize)
    }

    /// Number of the virtual router with this name.
    pub fn router_named(&self, name: &str) -> Option<RouterIndex> {
        let place = self.routers.iter().position(|router| router.name == name)?;
        Some(place as RouterIndex)
    }

    /// The router of an interface, or router 0 if the interface doesn't exist.
    #[inline(always)]
    pub fn router_of(&self, interface: u16) -> RouterIndex {
        self.router_of.get(interface as usize).copied().unwrap_or(0)
    }

    /// The router of each interface, by interface number.
    pub fn routers_of(&self) -> impl Iterator<Item = RouterIndex> + '_ {
        (0..self.interfaces.len()).map(|number| self.router_of(number as u16))
    }

    /// The gateway of an uplink, for one address family.
    pub fn uplink(&self, interface: u16, v6: bool) -> Option<Address> {
        *self.uplinks.get(usize::from(interface))?.get(usize::from(v6))?
    }

    /// The lookup context with which a router looks up the routes of packets from a source address.
    #[inline(always)]
    pub fn lookup<F: Family>(&self, router: RouterIndex, source: F::Address) -> Lookup<'_> {
        self.sources.lookup(router, F::address(source))
    }

    /// The filter; `None` if it does not apply to a router's packets.
    #[inline(always)]
    pub fn filter_of(&self, context: Context) -> Option<&Filters> {
        let filter = self.filter.as_deref()?;
        self.router(context)?.filters.then_some(filter)
    }

    /// Whether the filter is stateful for a router, so that only the first packet of an untranslated flow is evaluated.
    #[inline(always)]
    pub fn filters_sessions(&self, context: Context) -> bool {
        self.filter_of(context).is_some_and(|filter| filter.sessions)
    }

    /// Whether one more packet from an interface may be parked. `counters` are the counters of the worker.
    pub fn may_wait(&self, interface: u16, counters: &WorkerCounters) -> bool {
        let router = usize::from(self.router_of(interface));
        let Some(max) = self.routers.get(router).and_then(|router| router.quotas.buffers) else {
            return true;
        };
        let own = self.interfaces_of.get(router).into_iter().flatten();
        let own = own.filter_map(|&number| counters.interfaces.get(usize::from(number)));
        let waiting = own.map(|one| one.parked.get().wrapping_sub(one.unparked.get()));
        waiting.fold(0, u64::wrapping_add) < u64::from(max)
    }

    /// Whether plain IPv4 packets of an interface need only a route lookup.
    #[inline]
    pub fn needs_routes_alone(&self, interface: &Interface) -> bool {
        !interface.stateful[0]
            && self.chains_of(interface.router).is_none()
            && self.needs_routes_if_stateless(interface)
    }

    /// Whether the plain packets of an interface need only a route lookup, after their chain, if they have no session.
    fn needs_routes_if_stateless(&self, interface: &Interface) -> bool {
        self.has_plain_routes(interface) && !self.limits_segments && !interface.neighbours.redirects
    }

    /// Whether no feature of an interface depends on the headers after IP.
    #[inline]
    pub fn only_routes(&self, interface: &Interface) -> bool {
        !interface.stateful[0] && self.chains_of(interface.router).is_none() && self.has_plain_routes(interface)
    }

    /// Whether neither filters nor source-based routes apply to the packets of an interface that have no session.
    fn has_plain_routes(&self, interface: &Interface) -> bool {
        self.filter_of(interface.context).is_none() && self.sources.of(interface.router).is_empty()
    }

    /// What the express lane may do with the plain packets of an interface, for IPv4 and for IPv6: nothing but sessions, or nothing
    /// but a route, must determine what happens to them.
    pub fn express(&self, interface: &Interface) -> [Express; 2] {
        let is_alone = interface.bridge.is_none() && interface.tags.len() <= MAX_TAGS && self.shares.is_none();
        let chains = self.chains_of(interface.router);
        let has_sessions_alone = is_alone
            && chains.is_none_or(|chains| chains.is_express() && !chains.bypasses_sessions())
            && !self.tunnels.end_in(interface.router);
        let has_routes_alone =
            is_alone && chains.is_none_or(Chains::is_express) && self.needs_routes_if_stateless(interface);
        let spreads = [self.nat4.spread.is_some(), self.nat6.spread.is_some()];
        [0, 1].map(|family| match interface.stateful[family] {
            true if has_sessions_alone && !spreads[family] => Express::Translates,
            false if has_routes_alone => Express::Routes,
            _ => Express::Nothing,
        })
    }

    /// Whether any router has chains.
    #[inline(always)]
    pub fn is_chained(&self) -> bool {
        !self.chains.is_empty()
    }

    /// The chains for packets that arrive on an interface.
    #[inline]
    pub fn chains_at(&self, interface: u16) -> Option<&Chains> {
        self.chains_of(self.router_of(interface))
    }

    /// The chains of a router.
    #[inline]
    pub fn chains_of(&self, router: RouterIndex) -> Option<&Chains> {
        self.chains.get(usize::from(router))?.as_deref()
    }

    /// The host of the router to which the interface `number` belongs.
    pub fn host(&self, number: u16) -> Option<&punt::Host> {
        let interface = self.interface(number).filter(|interface| interface.host)?;
        self.hosts.get(usize::from(interface.router)).map(|host| &**host)
    }
}
