//! The subscriber service: it maps private leases as terminals, acquires public addresses for sites with terminals, and
//! relays DHCP.
//!
//! The service is a pure state machine: it reads no clock and opens no socket. The caller passes changes of lease files
//! to [`Service::change`] and frames from workers to [`Service::frame`], and calls [`Service::poll`] to perform due
//! work. The results are added to the [`Environment`]: table entries for workers, frames to send, and log messages.

mod count;
mod lease_index;
mod listing;
mod mapping;
mod note;
mod parameters;
mod placing;
mod public;
mod relaying;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::config::SitesOutside;
use sluice_table::token_bucket::TokenRate;
use sluice_wire::Mac;
use sluice_wire::ethernet::{Ethernet, ethertype};

use super::agent::store::Present;
use super::agent::{self, Agent, Event, Nanoseconds};
use super::frame::Datagram;
use super::message::{CLIENT_PORT, SERVER_PORT};
use super::relay::{Limits, Rates, Relay};
use super::{Site, frame};
pub use count::{Count, Counts};
use lease_index::LeaseIndex;
pub use lease_index::{Acknowledged, AssignedLease, Assignment, LeaseRefusal};
pub use listing::{LeaseStatus, LeaseView, SiteView};
pub use mapping::Mapping;
use note::LastNotes;
pub use note::Note;
pub use parameters::{Finder, Interface, Parameters};
use public::Client;

const SECOND: Nanoseconds = 1_000_000_000;

/// Maximum number of active terminals that a relay meters individually.
const MAX_ACTIVE_TERMINALS: usize = 65_536;

/// How a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Sent on the interface without changes.
    Unchanged,
    /// Routed by the interface's router, as an IPv4 packet that the gateway originates.
    Routed,
    /// Delivered to the host stack of the interface's router.
    Host,
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the interface.
    pub interface: u16,
    /// How the frame is sent.
    pub delivery: Delivery,
    /// The complete frame.
    pub bytes: Vec<u8>,
}

/// Output of the service.
#[derive(Debug, Default)]
pub struct ServiceOutput {
    /// Frames to send, in this order.
    pub frames: Vec<Frame>,
    /// Events of public leases: index of the client, and the event.
    pub events: Vec<(usize, Event)>,
    /// Log messages.
    pub notes: Vec<Note>,
}

/// Data with which the service is called.
pub struct Environment<'a> {
    /// The current time.
    pub present: Present,
    /// Writer of the tables that workers read.
    pub mapping: &'a mut dyn Mapping,
    /// Output of the call.
    pub out: &'a mut ServiceOutput,
}

/// State of a site except its terminals.
#[derive(Clone, Copy, Debug)]
struct SiteStatus {
    /// Number of mapped terminals.
    terminals: u32,
    /// Mapped public address. The unspecified address if no public address is mapped.
    public: Ipv4Addr,
    /// Whether an announcement of the address is queued.
    announcing: bool,
    /// Time until which a reply to the ARP probe of the address counts as a conflict.
    probed: Nanoseconds,
    /// Time of the last ARP message in which another host claimed the address.
    claimed: Option<Nanoseconds>,
}

/// State that a failed service leaves for its replacement: entries in the workers' tables, and public leases.
#[derive(Debug, Default)]
pub struct SavedState {
    /// Terminals that may be mapped.
    pub terminals: BTreeSet<(Site, Ipv4Addr)>,
    /// Public addresses that may be mapped.
    pub publics: BTreeMap<Site, Ipv4Addr>,
    /// Public leases of each client.
    pub leases: Vec<Vec<(Mac, agent::PublicLease)>>,
    /// Counters.
    pub counts: Counts,
}

/// State of the subscriber service.
#[derive(Debug)]
pub struct Service {
    parameters: Arc<Parameters>,
    /// Relays by the index of their server.
    relays: Vec<Relay>,
    /// Indexes of servers, by router and relay address.
    answering: HashMap<(u16, Ipv4Addr), BTreeSet<usize>>,
    /// For each group, whether its server is in the router's host stack.
    in_host: Vec<bool>,
    clients: Vec<Client>,
    lease_index: LeaseIndex,
    /// State of each site.
    statuses: Vec<SiteStatus>,
    /// Terminals for which an observed reply indicates a different site than the lease file. Each entry consists of the
    /// deadline for a confirmation by the lease file, the server and the address. The entries are ordered by deadline.
    unconfirmed: VecDeque<(Nanoseconds, usize, Ipv4Addr)>,
    /// State that a failed service has left.
    saved: SavedState,
    counts: Counts,
    last_notes: LastNotes,
    buffer: Vec<u8>,
}

impl Service {
    /// Create a service without terminals. The workers' tables are not changed. `saved` is the state that a failed
    /// service has left. The state is kept until [`Service::settle`] is called.
    pub fn new(parameters: Arc<Parameters>, mut saved: SavedState, environment: &mut Environment<'_>) -> Self {
        let subscribers = &parameters.subscribers;
        let sites = subscribers.sites();
        let of = |rate: sluice_config::schema::Rate| TokenRate::new(rate.rate.into(), rate.burst.into());
        let relays = subscribers.servers.iter().enumerate().map(|(place, server)| {
            let rates = Rates {
                terminal: of(server.terminal_rate),
                site: of(server.site_rate),
            };
            let groups = subscribers.groups.iter().filter(|group| group.server == place);
            let behind = groups.map(|group| group.first + group.count).max();
            Relay::new(Limits::default(), rates, behind.unwrap_or(0), MAX_ACTIVE_TERMINALS)
        });
        let clients = (0..).zip(&subscribers.public);
        let clients = clients.map(|(place, client)| Client::new(&parameters, place, client, environment.present.now));
        let status = SiteStatus {
            terminals: 0,
            public: Ipv4Addr::UNSPECIFIED,
            announcing: false,
            probed: 0,
            claimed: None,
        };
        let mut service = Self {
            relays: relays.collect(),
            answering: HashMap::new(),
            in_host: Vec::new(),
            clients: clients.collect(),
            lease_index: LeaseIndex::new(subscribers.servers.len()),
            statuses: vec![status; sites as usize],
            unconfirmed: VecDeque::new(),
            counts: std::mem::take(&mut saved.counts),
            last_notes: LastNotes::default(),
            buffer: Vec::new(),
            saved,
            parameters: parameters.clone(),
        };
        service.follow(parameters);
        for (client, leases) in std::mem::take(&mut service.saved.leases).into_iter().enumerate() {
            service.restore(client, leases);
        }
        service.set_sites(environment);
        service
    }

    /// Apply a change of interfaces. The sites must be unchanged.
    pub fn follow(&mut self, parameters: Arc<Parameters>) {
        let subscribers = &parameters.subscribers;
        self.answering.clear();
        for group in &subscribers.groups {
            let servers = self.answering.entry((group.router, group.relay)).or_default();
            servers.insert(group.server);
        }
        let in_host = subscribers.groups.iter().map(|group| {
            let server = subscribers.servers.get(group.server);
            server.is_some_and(|server| parameters.is_of_host(group.router, server.server))
        });
        self.in_host = in_host.collect();
        self.parameters = parameters;
    }

    /// Write the virtual MAC or the pool of each site.
    fn set_sites(&mut self, environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        for group in &parameters.subscribers.groups {
            for site in group.first..group.first + group.count {
                let set = match group.outside {
                    SitesOutside::Public(_) => {
                        environment
                            .mapping
                            .set_site(site, Some(parameters.mac(Site(site))), None)
                    }
                    SitesOutside::Pool(pool) => {
                        let pool = parameters.pools.get(usize::from(pool)).copied();
                        environment.mapping.set_site(site, None, pool)
                    }
                };
                if let Err(taken) = set {
                    let (site, other) = (Site(site), Site(taken.0));
                    self.report(Count::PublicRefused, Note::MacTwice { site, other }, environment);
                }
            }
        }
    }

    /// Restore a client's public leases from before a restart.
    pub fn restore(&mut self, client: usize, leases: impl IntoIterator<Item = (Mac, agent::PublicLease)>) {
        if let Some(client) = self.clients.get_mut(client) {
            client.agent.restore(leases);
        }
    }

    /// Public leases of a client that may be used. The leases are stored for the next start.
    pub fn public_leases(&self, client: usize) -> impl Iterator<Item = (Mac, agent::PublicLease)> + '_ {
        let agent = self.clients.get(client).map(|client| &client.agent);
        let leases = agent.into_iter().flat_map(Agent::leases);
        leases.map(|(_, mac, lease)| (mac, lease))
    }

    /// State that the service leaves for its replacement.
    pub fn saved(&self) -> SavedState {
        let none = (Site(0), Ipv4Addr::UNSPECIFIED);
        let mut terminals = self.saved.terminals.clone();
        terminals.extend(self.lease_index.mapped(none));
        let mut publics = self.saved.publics.clone();
        let statuses = (0..).map(Site).zip(&self.statuses);
        publics.extend(
            statuses
                .filter(|(_, status)| !status.public.is_unspecified())
                .map(|(site, status)| (site, status.public)),
        );
        SavedState {
            terminals,
            publics,
            leases: (0..self.clients.len())
                .map(|client| self.public_leases(client).collect())
                .collect(),
            counts: self.counts.clone(),
        }
    }

    /// Remove mappings of a failed service that were not renewed. Must be called after all lease files have been read
    /// completely.
    pub fn settle(&mut self, environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        for (site, address) in std::mem::take(&mut self.saved.terminals) {
            if let Some((_, group)) = parameters.group_of(site) {
                let context = parameters.context(site, group);
                environment.mapping.remove_terminal(context, address.to_bits());
            }
        }
        for site in self.saved.publics.keys().copied().collect::<Vec<_>>() {
            self.set_public(site, None, environment);
        }
        self.saved.publics.clear();
        self.fill(usize::MAX, environment);
    }

    /// Process a complete frame that a worker received on an interface.
    pub fn frame(&mut self, interface: u16, bytes: &[u8], environment: &mut Environment<'_>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (tags, plain) = frame::plain(bytes, &mut buffer);
        let result = match Ethernet::new(plain).map(|link| link.ethertype()) {
            Some(ethertype::ARP) => self.receive_arp(interface, plain, environment),
            Some(ethertype::IPV4) => match Datagram::of(plain) {
                Some(datagram) if datagram.destination.port() == CLIENT_PORT => {
                    self.receive_server(interface, &datagram, environment.present.now)
                }
                Some(datagram) if datagram.destination.port() == SERVER_PORT => {
                    self.receive_relay(interface, tags.numbers(), &datagram, environment)
                }
                Some(_) => Err(Count::FrameOther),
                None => Err(Count::FrameUnread),
            },
            _ => Err(Count::FrameUnread),
        };
        if let Err(count) = result {
            self.counts.add(count);
        }
        self.buffer = buffer;
    }

    /// Perform due work. Returns the latest time of the next call. `None` if no timer is pending.
    pub fn poll(&mut self, environment: &mut Environment<'_>) -> Option<Nanoseconds> {
        let mut next = None;
        for client in 0..self.clients.len() {
            let due = self.poll_client(client, environment);
            next = [next, due].into_iter().flatten().min();
        }
        self.resolve_unconfirmed(environment);
        let unconfirmed_due = self.unconfirmed.front().map(|(due, ..)| *due);
        [next, unconfirmed_due].into_iter().flatten().min()
    }

    /// Count events that occurred outside of the service.
    pub fn count(&mut self, count: Count, times: u64) {
        self.counts.add_all(count, times);
    }

    /// Count an event. Events of one kind are logged at most once per second.
    fn report(&mut self, count: Count, note: Note, environment: &mut Environment<'_>) {
        self.counts.add(count);
        if self.last_notes.should_report(count, environment.present.now) {
            environment.out.notes.push(note);
        }
    }

    fn status_mut(&mut self, site: Site) -> Option<&mut SiteStatus> {
        self.statuses.get_mut(site.0 as usize)
    }

    fn status(&self, site: Site) -> Option<&SiteStatus> {
        self.statuses.get(site.0 as usize)
    }
}

#[cfg(test)]
pub(crate) mod tests;
