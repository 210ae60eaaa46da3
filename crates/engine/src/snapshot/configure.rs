//! Methods that configure the features of a new snapshot, and derive data from them.

use std::collections::HashSet;
use std::sync::Arc;

use sluice_filter::Filters;
use sluice_nat::sites::{is_pooled, outer};
use sluice_table::token_bucket::SharedTokenBucket;
use sluice_wire::Context;

use crate::session::identification::IdentificationSettings;
use crate::snapshot::inside_hosts::InsideHosts;
use crate::snapshot::inspection::InspectionPolicy;
use crate::snapshot::shares::{LinkShare, RouterShare, Shares};
use crate::snapshot::translation_targets::TranslationTargets;

use super::{Interface, Link, REDIRECTS, SiteClassifier, Snapshot};

impl Snapshot {
    /// Derives the networks of inside hosts. There may be very many rules, so this function is called only if rules or
    /// interfaces have changed.
    pub(crate) fn derive_inside_networks(&mut self) {
        self.nat4.find_inside_hosts(&self.interfaces);
        self.nat6.find_inside_hosts(&self.interfaces);
    }

    /// Derives worker data from all interfaces, so that workers need not search them. Must be called after all other changes.
    pub(crate) fn link(&mut self) {
        let numbered = (0..).zip(&self.interfaces);
        let advertising = numbered.filter(|(_, interface)| interface.advertise.is_some());
        self.advertising = advertising.map(|(number, _)| number).collect();
        let announces = |interface: &Interface| {
            interface.neighbours.announces && interface.bridge.is_none() && !interface.is_pair()
        };
        let numbered = (0..).zip(&self.interfaces);
        let announcing = numbered.filter(|(_, interface)| announces(interface));
        self.announcing = announcing.map(|(number, _)| number).collect();
        if self.interfaces.iter().any(|interface| interface.neighbours.redirects) {
            let bucket = |_| SharedTokenBucket::new(REDIRECTS);
            self.redirects = self.interfaces.iter().map(bucket).collect();
        }
        self.links = self
            .interfaces
            .iter()
            .map(|interface| Link::of(interface, self))
            .collect();
    }

    /// Derives the translation targets. A translation target is an endpoint in a translation rule; each of its flows
    /// belongs to the shard of the flow's client. Must be called after interfaces and translation rules were set.
    pub fn spread_flows(&mut self) {
        self.nat4.spread = TranslationTargets::of(&self.nat4, &self.interfaces);
        self.nat6.spread = TranslationTargets::of(&self.nat6, &self.interfaces);
    }

    /// Applies a filter to the routers that have filtering enabled, or to all routers if no router has it enabled. Must
    /// be called after routers, interfaces and translation rules were set.
    pub fn filter_by(&mut self, filter: Arc<Filters>) {
        if !self.routers.iter().any(|router| router.filters) {
            self.routers.iter_mut().for_each(|router| router.filters = true);
        }
        if filter.sessions {
            let filters: Vec<bool> = self.routers.iter().map(|router| router.filters).collect();
            self.keep_sessions(|context, _| filters.get(context as usize).is_some_and(|filters| *filters));
        }
        self.filter = Some(filter);
    }

    /// Inspects the flows of some interfaces. Must be called after interfaces and translation rules were set.
    pub fn inspect_by(&mut self, inspection: Arc<InspectionPolicy>) {
        self.keep_sessions(|_, interface| inspection.is_on(interface));
        self.inspection = Some(inspection);
    }

    /// Identifies the applications of sessions of some interfaces. Must be called after interfaces and translation rules were set.
    pub fn identify_by(&mut self, identification: Arc<IdentificationSettings>) {
        self.keep_sessions(|_, interface| identification.is_on(interface));
        self.applications = Some(identification);
    }

    /// Enables subscribers' sites. Must be called after interfaces and translation rules were set.
    pub fn serve_sites(&mut self, sites: SiteClassifier) {
        let settings = sites.settings();
        let access_interfaces = settings
            .access_interfaces
            .iter()
            .flat_map(|(_, behind)| behind.contexts());
        let pooled: HashSet<Context> = access_interfaces
            .filter(|&context| is_pooled(context))
            .map(outer)
            .collect();
        self.nat4.sites = Some(sites.table.clone());
        for (number, interface) in (0..).zip(&mut self.interfaces).filter(|(_, one)| one.bridge.is_none()) {
            let is_access_interface = sites.is_access(number);
            // Packets to the address of a pool may arrive on any interface of the router except access interfaces.
            let is_outside = sites.is_public(number) || !is_access_interface && pooled.contains(&interface.context);
            interface.stateful[0] |= is_access_interface || is_outside;
            interface.outside |= is_outside;
        }
        self.sites = Some(Arc::new(sites));
    }

    /// Sets the division of capacity among routers and among interfaces, by number.
    pub fn share_by(&mut self, routers: Vec<RouterShare>, links: Vec<LinkShare>) {
        self.shares = Shares::new(routers, links, &self.interfaces, self.untagged.len()).map(Arc::new);
    }

    /// Requires that untranslated flows have sessions in all routers that have a selected interface. All packets of
    /// these routers then look up sessions.
    fn keep_sessions(&mut self, wanted: impl Fn(Context, u16) -> bool) {
        let routed = |interface: &&Interface| interface.bridge.is_none();
        let wanting = (0..).zip(&self.interfaces).filter(|(_, interface)| routed(interface));
        let wanting = wanting.filter(|(number, interface)| wanted(interface.context, *number));
        let contexts: HashSet<Context> = wanting.map(|(_, interface)| interface.context).collect();
        if contexts.is_empty() {
            return;
        }
        for interface in &mut self.interfaces {
            if interface.bridge.is_none() && contexts.contains(&interface.context) {
                interface.stateful = [true; 2];
            }
        }
        self.nat4.hosts = Some(InsideHosts::of(&self.nat4, &self.interfaces, false));
        self.nat6.hosts = Some(InsideHosts::of(&self.nat6, &self.interfaces, false));
    }
}
