//! Assigns leases to sites and maps the leases. The relay information in the lease file and observed replies determine
//! the site.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_nat::sites::{Terminal, TerminalsFull};
use sluice_wire::Mac;

use super::book::{Acknowledged, Held, Place, Refusal};
use super::{Count, Note, SECOND, Service, Turn};
use crate::subscribers::Site;
use crate::subscribers::leases::{Change, Lease};

/// Time within which the lease file must confirm an observed reply.
const PATIENCE: u64 = 2 * SECOND;

/// Maximum number of observed replies that wait for confirmation. Further replies are not checked again.
const MOST_DOUBTS: usize = 65_536;

impl Service {
    /// Apply a change of a server's lease file.
    pub fn change(&mut self, server: usize, change: &Change, turn: &mut Turn<'_>) {
        match change {
            Change::Gained(lease) | Change::Renewed(lease) | Change::Changed { now: lease, .. } => {
                self.hold(server, lease.clone(), turn);
            }
            Change::Lost { was, .. } => self.lose(server, was.address, turn),
        }
    }

    /// Add or update a lease.
    fn hold(&mut self, server: usize, lease: Arc<Lease>, turn: &mut Turn<'_>) {
        let (address, hardware) = (lease.address, lease.hardware);
        let before = self.book.get(server, address);
        let before = before.filter(|held| held.lease.hardware == hardware);
        // If the file repeats relay information that an observed reply has contradicted, the information is not new.
        let repeated = before.is_some_and(|held| held.lease.relay == lease.relay);
        let earlier = before.and_then(|held| held.place.site());
        let answered = before.and_then(|held| held.acknowledged);
        let answered = self.book.recall(server, address, hardware).or(answered);
        let named = self.named(server, &lease);
        let (site, acknowledged) = match (named, answered) {
            (Some(named), Some(answered)) if named == answered.site => (Some(named), Some(answered)),
            (Some(_), Some(answered)) if repeated => (Some(answered.site), Some(answered)),
            (Some(named), Some(answered)) => {
                self.tell_mismatch(named, answered.site, &lease, turn);
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
        self.place(server, lease, site, acknowledged, turn);
    }

    /// Remove a lease.
    fn lose(&mut self, server: usize, address: Ipv4Addr, turn: &mut Turn<'_>) {
        if let Some(held) = self.book.take(server, address) {
            let vacated = self.unmap(&held, turn);
            self.fill(usize::from(vacated), turn);
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
        turn: &mut Turn<'_>,
    ) {
        let address = lease.address;
        let kept = self.book.get(server, address);
        let kept = kept.filter(|held| held.lease.hardware == lease.hardware);
        let kept = kept.map(|held| (held.place, held.since));
        let place = match site {
            None => {
                if kept.is_none_or(|(place, _)| place != Place::Outside) {
                    let circuit = lease.relay.as_ref().map(|relay| relay.circuit.clone());
                    self.tell(Count::TerminalOutside, Note::Outside { address, circuit }, turn);
                }
                Place::Outside
            }
            Some(site) if !self.allows(site, address) => {
                let place = Place::Refused(site, Refusal::Network);
                if kept.is_none_or(|(before, _)| before != place) {
                    self.tell(Count::TerminalNetwork, Note::Network { site, address }, turn);
                }
                place
            }
            Some(site) => Place::Mapped(site),
        };
        // The state of a lease that waits for capacity does not change.
        let waits = Place::Refused(site.unwrap_or(Site(0)), Refusal::Full);
        let stays = |before: Place| before == place || (before == waits && place.site() == before.site());
        if kept.is_some_and(|(before, _)| stays(before)) {
            return self.book.renew(server, lease, acknowledged);
        }
        let since = match kept {
            Some((before, since)) if before.site() == place.site() => since,
            _ => unix(turn),
        };
        let before = self.book.take(server, address);
        let vacated = match (before.map(|held| (held.place, held)), place) {
            // If a terminal of the same site has a new MAC, the mapping is changed in one step, so that the site keeps
            // its public address.
            (Some((Place::Mapped(was), _)), Place::Mapped(is)) if was == is => {
                self.count_terminals(is, -1);
                false
            }
            (Some((_, held)), _) => self.unmap(&held, turn),
            (None, _) => false,
        };
        let place = match place {
            Place::Mapped(site) => match self.map(site, &lease, turn) {
                Err(TerminalsFull) => {
                    self.tell(Count::TerminalFull, Note::Full { site, address }, turn);
                    Place::Refused(site, Refusal::Full)
                }
                Ok(()) => place,
            },
            place => place,
        };
        let held = Held {
            lease,
            place,
            acknowledged,
            since,
        };
        self.keep(server, held, turn);
        self.fill(usize::from(vacated), turn);
    }

    /// Store a lease.
    fn keep(&mut self, server: usize, held: Held, turn: &mut Turn<'_>) {
        let site = held.place.site();
        if let (Some(hardware), Some(site)) = (self.book.put(server, held), site) {
            self.tell(Count::MacInTwoSites, Note::MacInTwoSites { hardware, site }, turn);
        }
    }

    fn allows(&self, site: Site, address: Ipv4Addr) -> bool {
        let group = self.parameters.group_of(site);
        group.is_some_and(|(_, group)| self.parameters.allows(group, address))
    }

    /// Map a terminal. If the terminal is the first one of its site, a public address is acquired for the site.
    fn map(&mut self, site: Site, lease: &Lease, turn: &mut Turn<'_>) -> Result<(), TerminalsFull> {
        let parameters = self.parameters.clone();
        let (_, group) = parameters.group_of(site).ok_or(TerminalsFull)?;
        self.remains.terminals.remove(&(site, lease.address));
        let terminal = Terminal {
            context: parameters.context(site, group),
            address: lease.address.to_bits(),
            mac: lease.hardware,
            interface: group.interface,
            tags: parameters.tags(site),
        };
        let added = turn.mapping.add_terminal(&terminal);
        if added.is_ok() {
            self.count_terminals(site, 1);
        }
        match (added, self.terminals_of(site)) {
            (Ok(()), 1) => self.want(site, turn),
            // The site's only terminal had a different MAC before, and the mapping of that MAC has been removed.
            (Err(TerminalsFull), 0) => self.part(site, turn),
            _ => {}
        }
        added
    }

    /// Unmap a terminal. If the terminal was the last one of its site, the public address is released after the hold
    /// time. Returns whether the lease was mapped.
    fn unmap(&mut self, held: &Held, turn: &mut Turn<'_>) -> bool {
        let parameters = self.parameters.clone();
        let Place::Mapped(site) = held.place else { return false };
        let Some((_, group)) = parameters.group_of(site) else {
            return false;
        };
        let context = parameters.context(site, group);
        turn.mapping.remove_terminal(context, held.lease.address.to_bits());
        self.count_terminals(site, -1);
        if self.terminals_of(site) == 0 {
            self.part(site, turn);
        }
        true
    }

    fn terminals_of(&self, site: Site) -> u32 {
        self.standing(site).map_or(0, |standing| standing.terminals)
    }

    fn count_terminals(&mut self, site: Site, more: i32) {
        if let Some(standing) = self.standing_mut(site) {
            standing.terminals = standing.terminals.saturating_add_signed(more);
        }
    }

    /// Map up to `most` leases that wait for capacity.
    pub(super) fn fill(&mut self, most: usize, turn: &mut Turn<'_>) {
        for _ in 0..most {
            let Some((server, address)) = self.book.waiting() else {
                break;
            };
            let Some(held) = self.book.get(server, address) else {
                break;
            };
            let (lease, site) = (held.lease.clone(), held.place.site());
            let Some(site) = site.filter(|site| self.map(*site, &lease, turn).is_ok()) else {
                break;
            };
            if let Some(held) = self.book.take(server, address) {
                let place = Place::Mapped(site);
                self.keep(server, Held { place, ..held }, turn);
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
        turn: &mut Turn<'_>,
    ) {
        let acknowledged = Acknowledged { site, unix: unix(turn) };
        let held = self
            .book
            .get(server, address)
            .filter(|held| held.lease.hardware == hardware);
        let Some(held) = held else {
            return self.book.hear(server, address, hardware, acknowledged);
        };
        if held.place.site() == Some(site) {
            return self.book.acknowledge(server, address, acknowledged);
        }
        let lease = held.lease.clone();
        let contradicted = self.named(server, &lease).is_some_and(|named| named != site);
        if contradicted && self.doubts.len() < MOST_DOUBTS {
            let due = turn.present.now.saturating_add(PATIENCE);
            self.doubts.push_back((due, server, address));
        }
        self.place(server, lease, Some(site), Some(acknowledged), turn);
    }

    /// Check the terminals for which the lease file has not confirmed an observed reply in time.
    pub(super) fn resolve_doubts(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(due, server, address)) = self.doubts.front()
            && due <= turn.present.now
        {
            self.doubts.pop_front();
            let Some(held) = self.book.get(server, address) else {
                continue;
            };
            let (lease, answered) = (held.lease.clone(), held.acknowledged);
            if let (Some(named), Some(answered)) = (self.named(server, &lease), answered)
                && named != answered.site
            {
                self.tell_mismatch(named, answered.site, &lease, turn);
            }
        }
    }

    fn tell_mismatch(&mut self, file: Site, answer: Site, lease: &Lease, turn: &mut Turn<'_>) {
        let (address, hardware) = (lease.address, lease.hardware);
        let note = Note::Mismatch {
            address,
            hardware,
            file,
            answer,
        };
        self.tell(Count::TerminalMismatch, note, turn);
    }
}

fn unix(turn: &Turn<'_>) -> u32 {
    u32::try_from(turn.present.unix).unwrap_or(u32::MAX)
}
