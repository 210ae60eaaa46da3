//! Public addresses of sites: DHCP frames of the client, mapping of its leases, and detection of address conflicts in
//! the upstream network.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use sluice_config::config::{PublicClient, SitesOutside};
use sluice_config::schema::ClientIdentifier;
use sluice_wire::Mac;
use sluice_wire::arp::Arp;
use sluice_wire::ethernet::{self, BROADCAST, is_group};

use super::{Count, Delivery, Environment, Frame, Note, Parameters, SECOND, Service};
use crate::subscribers::Site;
use crate::subscribers::agent::{
    Agent, AgentOutput, AgentSettings, Destination, Identifier, LeaseChange, Nanoseconds, Transmit,
};
use crate::subscribers::frame::{Datagram, announcement, probe};
use crate::subscribers::message::{CLIENT_PORT, Reply, SERVER_PORT};

/// Time to wait for a reply to an ARP probe (RFC 5227, section 1.1): two seconds between the last probe and the use of
/// the address.
const PROBED: Nanoseconds = 2 * SECOND;

/// Minimum interval between two releases of a site's address that are caused by claims of other hosts.
const PAUSE: Nanoseconds = 10 * SECOND;

/// Maximum number of servers whose MACs are stored.
const MAX_SERVER_MACS: usize = 256;

/// Maximum number of delayed announcements that are sent without an interval between them.
const MAX_DELAYED: Nanoseconds = 16;

/// The DHCP client on an interface.
#[derive(Debug)]
pub struct Client {
    pub agent: Agent,
    interface: u16,
    /// Source MAC of the last acknowledgement from each server. The MAC belongs to the server, or to the router towards
    /// the server.
    server_macs: HashMap<Ipv4Addr, Mac>,
    /// Sites whose addresses must be announced.
    announcing: VecDeque<Site>,
    /// Earliest time of the next announcement, and interval between two announcements.
    next: Nanoseconds,
    between: Nanoseconds,
}

impl Client {
    /// Create a client from the configuration. Clients with different values of `place` have independent transaction
    /// IDs.
    pub fn new(parameters: &Parameters, place: u64, client: &PublicClient, now: Nanoseconds) -> Self {
        let secret = sluice_nat::Secret([parameters.secret.hash(&[place, 0]), parameters.secret.hash(&[place, 1])]);
        let settings = AgentSettings {
            identifier: match client.identifier {
                ClientIdentifier::Mac => Identifier::Mac,
                ClientIdentifier::Node => Identifier::Node,
                ClientIdentifier::None => Identifier::None,
            },
            host_name: client.host_name.clone(),
            broadcast: client.broadcast,
            servers: client.servers.clone(),
            prefixes: client.prefixes.clone(),
            // Addresses in 240.0.0.0/4 are accepted if a configured network is in that range.
            refuses_reserved: client.prefixes.iter().all(|net| net.network().octets()[0] < 240),
            window: client.window,
            hold: client.hold,
            rate: client.rate,
            shortest_lease: client.shortest_lease,
            use_while_confirming: client.use_while_confirming,
            ..AgentSettings::new(secret)
        };
        Self {
            agent: Agent::new(settings, now),
            interface: client.interface,
            server_macs: HashMap::new(),
            announcing: VecDeque::new(),
            next: now,
            between: SECOND / u64::from(client.rate.max(1)),
        }
    }

    /// Convert a message of the client to a frame.
    fn frame(&self, transmit: &Transmit) -> Option<Frame> {
        let (destination_mac, destination) = match transmit.destination {
            Destination::Broadcast => (BROADCAST, Ipv4Addr::BROADCAST),
            // The MAC of a server is unknown until its first acknowledgement. Before this acknowledgement, frames to
            // the server are broadcast.
            Destination::Unicast { address, .. } => {
                (self.server_macs.get(&address).copied().unwrap_or(BROADCAST), address)
            }
        };
        let datagram = Datagram {
            source_mac: transmit.source_mac,
            destination_mac,
            source: SocketAddrV4::new(transmit.source, CLIENT_PORT),
            destination: SocketAddrV4::new(destination, SERVER_PORT),
            payload: &transmit.payload,
        };
        Some(self.as_it_is(datagram.frame()?))
    }

    fn as_it_is(&self, bytes: Vec<u8>) -> Frame {
        Frame {
            interface: self.interface,
            delivery: Delivery::Unchanged,
            bytes,
        }
    }
}

impl Service {
    /// Acquire a public address for a site that has its first terminal.
    pub(super) fn want(&mut self, site: Site, environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        let Some(client) = self.client_of(site) else { return };
        let wanted = match self.clients.get_mut(client) {
            Some(client) => client.agent.want(site, parameters.mac(site), environment.present.now),
            None => return,
        };
        if let Err(error) = wanted {
            self.report(Count::PublicRefused, Note::Refused(error), environment);
        }
    }

    /// Release the public address of a site that has lost its last terminal.
    pub(super) fn part(&mut self, site: Site, environment: &mut Environment<'_>) {
        let client = self.client_of(site);
        if let Some(client) = client.and_then(|client| self.clients.get_mut(client)) {
            client.agent.release(site, environment.present.now);
        }
    }

    /// Index of a site's client. `None` if the site uses a pool.
    pub(super) fn client_of(&self, site: Site) -> Option<usize> {
        match self.parameters.group_of(site)?.1.outside {
            SitesOutside::Public(client) => Some(client),
            SitesOutside::Pool(_) => None,
        }
    }

    /// Index of the client on an interface.
    fn client_on(&self, interface: u16) -> Option<usize> {
        self.clients.iter().position(|client| client.interface == interface)
    }

    /// Process a server's message that was received on a public interface.
    pub(super) fn receive_server(
        &mut self,
        interface: u16,
        datagram: &Datagram<'_>,
        now: Nanoseconds,
    ) -> Result<(), Count> {
        let place = self.client_on(interface).ok_or(Count::FrameOther)?;
        let client = self.clients.get_mut(place).ok_or(Count::FrameOther)?;
        let before = client.agent.counters().acknowledgements;
        client.agent.receive(datagram.payload, datagram.destination_mac, now);
        // The sender of an acknowledgement is the server that the message states, or the router towards this server.
        let taken = client.agent.counters().acknowledgements != before && !is_group(datagram.source_mac);
        if taken && let Some(server) = Reply::read(datagram.payload).ok().and_then(|reply| reply.server) {
            if client.server_macs.len() >= MAX_SERVER_MACS && !client.server_macs.contains_key(&server) {
                client.server_macs.clear();
            }
            client.server_macs.insert(server, datagram.source_mac);
        }
        Ok(())
    }

    /// Process an ARP message that was received on a public interface.
    pub(super) fn receive_arp(
        &mut self,
        interface: u16,
        frame: &[u8],
        environment: &mut Environment<'_>,
    ) -> Result<(), Count> {
        let body = frame.get(ethernet::LENGTH..).and_then(Arp::new);
        let message = body.filter(|arp| arp.is_ipv4_over_ethernet());
        let message = message.ok_or(Count::FrameUnread)?;
        let place = self.client_on(interface).ok_or(Count::FrameOther)?;
        let (address, hardware) = (Ipv4Addr::from_bits(message.sender()), message.sender_mac());
        let owner = self.clients.get(place).and_then(|client| client.agent.owner(address));
        let site = owner.ok_or(Count::FrameOther)?;
        if hardware == self.parameters.mac(site) {
            return Err(Count::FrameOther);
        }
        let now = environment.present.now;
        let status = self.status_mut(site).ok_or(Count::FrameOther)?;
        let probed = now < status.probed;
        let lately = status
            .claimed
            .is_some_and(|claimed| now.saturating_sub(claimed) < PAUSE);
        if lately && !probed {
            return Err(Count::PublicClaim);
        }
        (status.claimed, status.probed) = (Some(now), 0);
        if let Some(client) = self.clients.get_mut(place) {
            client.agent.conflict(site, now);
        }
        let note = Note::Conflict {
            site,
            address,
            hardware,
        };
        self.report(Count::PublicConflict, note, environment);
        Ok(())
    }

    /// Perform due work of a client. Returns the time of the next call.
    pub(super) fn poll_client(&mut self, place: usize, environment: &mut Environment<'_>) -> Option<Nanoseconds> {
        let mut output = AgentOutput::default();
        let client = self.clients.get_mut(place)?;
        let due = client.agent.poll(environment.present.now, &mut output);
        let frames = output.transmits.iter().filter_map(|transmit| client.frame(transmit));
        environment.out.frames.extend(frames);
        for event in output.events {
            match event.lease_change() {
                Some((site, LeaseChange::Gained(lease) | LeaseChange::Extended(lease))) => {
                    self.set_public(site, Some(lease.address), environment);
                }
                Some((site, LeaseChange::Ended(_))) => self.set_public(site, None, environment),
                None => {}
            }
            environment.out.events.push((place, event));
        }
        let announced = self.announce(place, environment);
        [due, announced].into_iter().flatten().min()
    }

    /// Set or remove the public address of a site.
    pub(super) fn set_public(&mut self, site: Site, address: Option<Ipv4Addr>, environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        let Some((_, group)) = parameters.group_of(site) else {
            return;
        };
        let SitesOutside::Public(place) = group.outside else {
            return;
        };
        let client = parameters.subscribers.public.get(place);
        let router = client.and_then(|client| parameters.router_of(client.interface));
        let router = router.unwrap_or(group.router);
        let wanted = address.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let Some(status) = self.statuses.get_mut(site.0 as usize) else {
            return;
        };
        let mapped_before = self.saved.publics.remove(&site);
        if status.public == wanted && mapped_before.is_none() {
            return;
        }
        let bits = address.map(Ipv4Addr::to_bits);
        let mut set = environment.mapping.set_public(site.0, router, bits);
        // The failed service has left an obsolete mapping of the address to another site in the workers' table.
        if let Err(taken) = set
            && self.saved.publics.remove(&Site(taken.0)).is_some()
        {
            let _ = environment.mapping.set_public(taken.0, router, None);
            set = environment.mapping.set_public(site.0, router, bits);
        }
        status.public = if set.is_ok() { wanted } else { Ipv4Addr::UNSPECIFIED };
        match (set, address) {
            (Ok(()), Some(_)) => {
                let queued = std::mem::replace(&mut status.announcing, true);
                if let Some(client) = self.clients.get_mut(place).filter(|_| !queued) {
                    client.announcing.push_back(site);
                }
            }
            (Err(taken), Some(address)) => {
                let other = Site(taken.0);
                self.report(Count::PublicTaken, Note::Taken { site, other, address }, environment);
            }
            _ => {}
        }
    }

    /// Send an ARP probe and an announcement for each newly mapped address, limited to the client's message rate.
    /// Returns the time of the next call.
    fn announce(&mut self, place: usize, environment: &mut Environment<'_>) -> Option<Nanoseconds> {
        let now = environment.present.now;
        let client = self.clients.get_mut(place)?;
        client.next = client.next.max(now.saturating_sub(MAX_DELAYED * client.between));
        while client.next <= now
            && let Some(site) = client.announcing.pop_front()
        {
            let Some(status) = self.statuses.get_mut(site.0 as usize) else {
                continue;
            };
            status.announcing = false;
            if status.public.is_unspecified() {
                continue;
            }
            client.next = client.next.saturating_add(client.between);
            status.probed = now.saturating_add(PROBED);
            let (mac, address) = (self.parameters.mac(site), status.public);
            let frames = [probe(mac, address), announcement(mac, address)];
            environment
                .out
                .frames
                .extend(frames.into_iter().map(|bytes| client.as_it_is(bytes)));
            self.counts.add(Count::PublicAnnounced);
        }
        (!client.announcing.is_empty()).then_some(client.next)
    }
}
