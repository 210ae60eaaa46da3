//! Assigns leases to sites and maps the leases. The relay information in the lease file and observed replies determine
//! the site.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_nat::sites::{Terminal, TerminalsFull};
use sluice_wire::Mac;

use super::lease_index::{Acknowledged, AssignedLease, Assignment, LeaseRefusal};
use super::{Count, Environment, Note, SECOND, Service};
use crate::subscribers::Site;
use crate::subscribers::leases::{Change, Lease};

/// Time within which the lease file must confirm an observed reply.
const PATIENCE: u64 = 2 * SECOND;

/// Maximum number of observed replies that wait for confirmation. Further replies are not checked again.
const MAX_UNCONFIRMED: usize = 65_536;

impl Service {
    /// Apply a change of a server's lease file.
    pub fn change(&mut self, server: usize, change: &Change, environment: &mut Environment<'_>) {
        match change {
            Change::Gained(lease) | Change::Renewed(lease) | Change::Changed { now: lease, .. } => {
                self.hold(server, lease.clone(), environment);
            }
            Change::Lost { was, .. } => self.lose(server, was.address, environment),
        }
    }

    /// Add or update a lease.
    fn hold(&mut self, server: usize, lease: Arc<Lease>, environment: &mut Environment<'_>) {
        let (address, hardware) = (lease.address, lease.hardware);
        let before = self.lease_index.get(server, address);
        let before = before.filter(|assigned| assigned.lease.hardware == hardware);
        // If the file repeats relay information that an observed reply has contradicted, the information is not new.
        let repeated = before.is_some_and(|assigned| assigned.lease.relay == lease.relay);
        let earlier = before.and_then(|assigned| assigned.place.site());
        let answered = before.and_then(|assigned| assigned.acknowledged);
        let answered = self.lease_index.take_pending(server, address, hardware).or(answered);
        let named = self.named(server, &lease);
        let (site, acknowledged) = match (named, answered) {
            (Some(named), Some(answered)) if named == answered.site => (Some(named), Some(answered)),
            (Some(_), Some(answered)) if repeated => (Some(answered.site), Some(answered)),
            (Some(named), Some(answered)) => {
                self.report_mismatch(named, answered.site, &lease, environment);
                match lease.renewed > u64::from(answered.unix) {
                    true => (Some(named), None),
                    false => (Some(answered.site), Some(answered)),
                }
            }
            (Some(named), None) => (Some(named), None),
            (None, Some(answered)) => (Some(answered.site), Some(answered)),
            // The relay information contains a site that is not configured.
            (None, None) if lease.relay.is_some() => (None, None),
            (None, None) => (earlier.or_else(|| self.by_prefix(server, address)), None),
        };
        self.place(server, lease, site, acknowledged, environment);
    }

    /// Remove a lease.
    fn lose(&mut self, server: usize, address: Ipv4Addr, environment: &mut Environment<'_>) {
        if let Some(assigned) = self.lease_index.take(server, address) {
            let vacated = self.unmap(&assigned, environment);
            self.fill(usize::from(vacated), environment);
        }
    }

    /// The site that the relay information identifies, if the site's leases come from this server.
    fn named(&self, server: usize, lease: &Lease) -> Option<Site> {
        let circuit = &lease.relay.as_ref()?.circuit;
        self.parameters.site_of_circuit(server, circuit)
    }

    /// The site that an address alone identifies.
    fn by_prefix(&self, server: usize, address: Ipv4Addr) -> Option<Site> {
        let groups = &self.parameters.subscribers.groups;
        let mut of_server = groups.iter().filter(|group| group.server == server);
        let group = of_server.find(|group| group.prefix.is_some_and(|prefix| prefix.contains(&address)))?;
        Some(Site(group.first))
    }

    /// Assign a lease to a site, or record that the lease belongs to no site.
    fn place(
        &mut self,
        server: usize,
        lease: Arc<Lease>,
        site: Option<Site>,
        acknowledged: Option<Acknowledged>,
        environment: &mut Environment<'_>,
    ) {
        let address = lease.address;
        let previous = self.lease_index.get(server, address);
        let previous = previous.filter(|assigned| assigned.lease.hardware == lease.hardware);
        let previous = previous.map(|assigned| (assigned.place, assigned.since));
        let place = match site {
            None => {
                if previous.is_none_or(|(place, _)| place != Assignment::Outside) {
                    let circuit = lease.relay.as_ref().map(|relay| relay.circuit.clone());
                    self.report(Count::TerminalOutside, Note::Outside { address, circuit }, environment);
                }
                Assignment::Outside
            }
            Some(site) if !self.allows(site, address) => {
                let place = Assignment::Refused(site, LeaseRefusal::Network);
                if previous.is_none_or(|(before, _)| before != place) {
                    self.report(Count::TerminalNetwork, Note::Network { site, address }, environment);
                }
                place
            }
            Some(site) => Assignment::Mapped(site),
        };
        // The state of a lease that waits for capacity does not change.
        let waits = Assignment::Refused(site.unwrap_or(Site(0)), LeaseRefusal::Full);
        let stays = |before: Assignment| before == place || (before == waits && place.site() == before.site());
        if previous.is_some_and(|(before, _)| stays(before)) {
            return self.lease_index.renew(server, lease, acknowledged);
        }
        let since = match previous {
            Some((before, since)) if before.site() == place.site() => since,
            _ => unix(environment),
        };
        let before = self.lease_index.take(server, address);
        let vacated = match (before.map(|assigned| (assigned.place, assigned)), place) {
            // If a terminal of the same site has a new MAC, the mapping is changed in one step, so that the site keeps
            // its public address.
            (Some((Assignment::Mapped(was), _)), Assignment::Mapped(is)) if was == is => {
                self.count_terminals(is, -1);
                false
            }
            (Some((_, assigned)), _) => self.unmap(&assigned, environment),
            (None, _) => false,
        };
        let place = match place {
            Assignment::Mapped(site) => match self.map(site, &lease, environment) {
                Err(TerminalsFull) => {
                    self.report(Count::TerminalFull, Note::Full { site, address }, environment);
                    Assignment::Refused(site, LeaseRefusal::Full)
                }
                Ok(()) => place,
            },
            place => place,
        };
        let assigned = AssignedLease {
            lease,
            place,
            acknowledged,
            since,
        };
        self.keep(server, assigned, environment);
        self.fill(usize::from(vacated), environment);
    }

    /// Store a lease.
    fn keep(&mut self, server: usize, assigned: AssignedLease, environment: &mut Environment<'_>) {
        let site = assigned.place.site();
        if let (Some(hardware), Some(site)) = (self.lease_index.put(server, assigned), site) {
            self.report(
                Count::MacInTwoSites,
                Note::MacInTwoSites { hardware, site },
                environment,
            );
        }
    }

    fn allows(&self, site: Site, address: Ipv4Addr) -> bool {
        let group = self.parameters.group_of(site);
        group.is_some_and(|(_, group)| self.parameters.allows(group, address))
    }

    /// Map a terminal. If the terminal is the first one of its site, a public address is acquired for the site.
    fn map(&mut self, site: Site, lease: &Lease, environment: &mut Environment<'_>) -> Result<(), TerminalsFull> {
        let parameters = self.parameters.clone();
        let (_, group) = parameters.group_of(site).ok_or(TerminalsFull)?;
        self.saved.terminals.remove(&(site, lease.address));
        let terminal = Terminal {
            context: parameters.context(site, group),
            address: lease.address.to_bits(),
            mac: lease.hardware,
            interface: group.interface,
            tags: parameters.tags(site),
        };
        let added = environment.mapping.add_terminal(&terminal);
        if added.is_ok() {
            self.count_terminals(site, 1);
        }
        match (added, self.terminals_of(site)) {
            (Ok(()), 1) => self.want(site, environment),
            // The site's only terminal had a different MAC before, and the mapping of that MAC has been removed.
            (Err(TerminalsFull), 0) => self.part(site, environment),
            _ => {}
        }
        added
    }

    /// Unmap a terminal. If the terminal was the last one of its site, the public address is released after the hold
    /// time. Returns whether the lease was mapped.
    fn unmap(&mut self, assigned: &AssignedLease, environment: &mut Environment<'_>) -> bool {
        let parameters = self.parameters.clone();
        let Assignment::Mapped(site) = assigned.place else {
            return false;
        };
        let Some((_, group)) = parameters.group_of(site) else {
            return false;
        };
        let context = parameters.context(site, group);
        environment
            .mapping
            .remove_terminal(context, assigned.lease.address.to_bits());
        self.count_terminals(site, -1);
        if self.terminals_of(site) == 0 {
            self.part(site, environment);
        }
        true
    }

    fn terminals_of(&self, site: Site) -> u32 {
        self.status(site).map_or(0, |status| status.terminals)
    }

    fn count_terminals(&mut self, site: Site, more: i32) {
        if let Some(status) = self.status_mut(site) {
            status.terminals = status.terminals.saturating_add_signed(more);
        }
    }

    /// Map up to `max` leases that wait for capacity.
    pub(super) fn fill(&mut self, max: usize, environment: &mut Environment<'_>) {
        for _ in 0..max {
            let Some((server, address)) = self.lease_index.waiting() else {
                break;
            };
            let Some(assigned) = self.lease_index.get(server, address) else {
                break;
            };
            let (lease, site) = (assigned.lease.clone(), assigned.place.site());
            let Some(site) = site.filter(|site| self.map(*site, &lease, environment).is_ok()) else {
                break;
            };
            if let Some(assigned) = self.lease_index.take(server, address) {
                let place = Assignment::Mapped(site);
                self.keep(server, AssignedLease { place, ..assigned }, environment);
            }
        }
    }

    /// Process an acknowledgement that the relay has sent to a terminal of this site.
    pub(super) fn acknowledge(
        &mut self,
        server: usize,
        address: Ipv4Addr,
        hardware: Mac,
        site: Site,
        environment: &mut Environment<'_>,
    ) {
        let acknowledged = Acknowledged {
            site,
            unix: unix(environment),
        };
        let assigned = self
            .lease_index
            .get(server, address)
            .filter(|assigned| assigned.lease.hardware == hardware);
        let Some(assigned) = assigned else {
            return self.lease_index.add_pending(server, address, hardware, acknowledged);
        };
        if assigned.place.site() == Some(site) {
            return self.lease_index.acknowledge(server, address, acknowledged);
        }
        let lease = assigned.lease.clone();
        let contradicted = self.named(server, &lease).is_some_and(|named| named != site);
        if contradicted && self.unconfirmed.len() < MAX_UNCONFIRMED {
            let due = environment.present.now.saturating_add(PATIENCE);
            self.unconfirmed.push_back((due, server, address));
        }
        self.place(server, lease, Some(site), Some(acknowledged), environment);
    }

    /// Check the terminals for which the lease file has not confirmed an observed reply in time.
    pub(super) fn resolve_unconfirmed(&mut self, environment: &mut Environment<'_>) {
        while let Some(&(due, server, address)) = self.unconfirmed.front()
            && due <= environment.present.now
        {
            self.unconfirmed.pop_front();
            let Some(assigned) = self.lease_index.get(server, address) else {
                continue;
            };
            let (lease, answered) = (assigned.lease.clone(), assigned.acknowledged);
            if let (Some(named), Some(answered)) = (self.named(server, &lease), answered)
                && named != answered.site
            {
                self.report_mismatch(named, answered.site, &lease, environment);
            }
        }
    }

    fn report_mismatch(&mut self, file: Site, answer: Site, lease: &Lease, environment: &mut Environment<'_>) {
        let (address, hardware) = (lease.address, lease.hardware);
        let note = Note::Mismatch {
            address,
            hardware,
            file,
            answer,
        };
        self.report(Count::TerminalMismatch, note, environment);
    }
}

fn unix(environment: &Environment<'_>) -> u32 {
    u32::try_from(environment.present.unix).unwrap_or(u32::MAX)
}
