//! Sites at work: private leases become terminals, sites with terminals get public addresses, DHCP is relayed.
//!
//! A pure state machine: it reads no clock and opens no socket. Who drives it hands in what lease files say
//! ([`Service::change`]) and what workers heard ([`Service::frame`]), and asks for what is due ([`Service::poll`]). What
//! becomes of it goes to the [`Turn`]: entries that workers translate by, frames to be sent, and what is to be told.

mod book;
mod count;
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
use book::Book;
pub use book::{Acknowledged, Held, Place, Refusal};
pub use count::{Count, Counts};
pub use listing::{LeaseView, SiteView, Standing};
pub use mapping::Mapping;
pub use note::Note;
use note::Told;
pub use parameters::{Finder, Interface, Parameters};
use public::Client;

const SECOND: Nanoseconds = 1_000_000_000;

/// Busy terminals that a relay tells apart, at most.
const MOST_BUSY: usize = 65_536;

/// How a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the interface, as it is.
    AsItIs,
    /// Routed by the interface's router: it is an IPv4 packet that the gateway makes.
    Routed,
    /// To the host of the interface's router.
    Host,
}

/// A frame to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The interface's number.
    pub interface: u16,
    /// How.
    pub way: Way,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What is to be done outside.
#[derive(Debug, Default)]
pub struct Output {
    /// To be sent, in this order.
    pub frames: Vec<Frame>,
    /// What happened to public leases: the client's place, and the event.
    pub events: Vec<(usize, Event)>,
    /// What is to be told.
    pub notes: Vec<Note>,
}

/// What a turn has at hand.
pub struct Turn<'a> {
    /// The present.
    pub present: Present,
    /// Who writes the entries of workers.
    pub mapping: &'a mut dyn Mapping,
    /// What is to be done outside.
    pub out: &'a mut Output,
}

/// What is known of a site besides its terminals.
#[derive(Clone, Copy, Debug)]
struct Standings {
    /// Terminals that are mapped.
    terminals: u32,
    /// The public address that is mapped; unspecified where none is.
    public: Ipv4Addr,
    /// It waits for its turn to be announced.
    announcing: bool,
    /// Until when an answer to the probe of its address counts.
    probed: Nanoseconds,
    /// When somebody else claimed its address last.
    claimed: Option<Nanoseconds>,
}

/// What a machine that failed has left in the workers' entries, and of its public leases.
#[derive(Debug, Default)]
pub struct Remains {
    /// Terminals that may be mapped.
    pub terminals: BTreeSet<(Site, Ipv4Addr)>,
    /// Public addresses that may be mapped.
    pub publics: BTreeMap<Site, Ipv4Addr>,
    /// Public leases by client.
    pub leases: Vec<Vec<(Mac, agent::Lease)>>,
    /// What was counted.
    pub counts: Counts,
}

/// The sites at work.
#[derive(Debug)]
pub struct Service {
    parameters: Arc<Parameters>,
    /// By the server's place.
    relays: Vec<Relay>,
    /// Servers by router and relay's address.
    answering: HashMap<(u16, Ipv4Addr), BTreeSet<usize>>,
    /// Groups whose server is in their router's host.
    in_host: Vec<bool>,
    clients: Vec<Client>,
    book: Book,
    /// By site.
    standings: Vec<Standings>,
    /// Terminals that an answer has put elsewhere than the file says, until the file says so too: server and address, in
    /// the order of time.
    doubts: VecDeque<(Nanoseconds, usize, Ipv4Addr)>,
    /// What a machine before this one has left.
    remains: Remains,
    counts: Counts,
    told: Told,
    buffer: Vec<u8>,
}

impl Service {
    /// For sites without terminals; what workers read of sites is as it was before. `remains` is what a machine before this
    /// one has left, until [`Service::settle`].
    pub fn new(parameters: Arc<Parameters>, mut remains: Remains, turn: &mut Turn<'_>) -> Self {
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
            Relay::new(Limits::default(), rates, behind.unwrap_or(0), MOST_BUSY)
        });
        let clients = (0..).zip(&subscribers.public);
        let clients = clients.map(|(place, client)| Client::new(&parameters, place, client, turn.present.now));
        let standing = Standings {
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
            book: Book::new(subscribers.servers.len()),
            standings: vec![standing; sites as usize],
            doubts: VecDeque::new(),
            counts: std::mem::take(&mut remains.counts),
            told: Told::default(),
            buffer: Vec::new(),
            remains,
            parameters: parameters.clone(),
        };
        service.follow(parameters);
        for (client, leases) in std::mem::take(&mut service.remains.leases).into_iter().enumerate() {
            service.restore(client, leases);
        }
        service.set_sites(turn);
        service
    }

    /// The same sites, with what follows from the interfaces as they are now.
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

    /// Say by what each site is seen.
    fn set_sites(&mut self, turn: &mut Turn<'_>) {
        let parameters = self.parameters.clone();
        for group in &parameters.subscribers.groups {
            for site in group.first..group.first + group.count {
                let set = match group.outside {
                    SitesOutside::Public(_) => turn.mapping.set_site(site, Some(parameters.mac(Site(site))), None),
                    SitesOutside::Pool(pool) => {
                        let pool = parameters.pools.get(usize::from(pool)).copied();
                        turn.mapping.set_site(site, None, pool)
                    }
                };
                if let Err(taken) = set {
                    let (site, other) = (Site(site), Site(taken.0));
                    self.tell(Count::PublicRefused, Note::MacTwice { site, other }, turn);
                }
            }
        }
    }

    /// Public leases of before a restart, of one of the clients.
    pub fn restore(&mut self, client: usize, leases: impl IntoIterator<Item = (Mac, agent::Lease)>) {
        if let Some(client) = self.clients.get_mut(client) {
            client.agent.restore(leases);
        }
    }

    /// Public leases that may be used, of one of the clients: what outlives a restart.
    pub fn public_leases(&self, client: usize) -> impl Iterator<Item = (Mac, agent::Lease)> + '_ {
        let agent = self.clients.get(client).map(|client| &client.agent);
        let leases = agent.into_iter().flat_map(Agent::leases);
        leases.map(|(_, mac, lease)| (mac, lease))
    }

    /// What this machine leaves to the one that follows it.
    pub fn remains(&self) -> Remains {
        let none = (Site(0), Ipv4Addr::UNSPECIFIED);
        let mut terminals = self.remains.terminals.clone();
        terminals.extend(self.book.mapped(none));
        let mut publics = self.remains.publics.clone();
        let standings = (0..).map(Site).zip(&self.standings);
        publics.extend(
            standings
                .filter(|(_, standing)| !standing.public.is_unspecified())
                .map(|(site, standing)| (site, standing.public)),
        );
        Remains {
            terminals,
            publics,
            leases: (0..self.clients.len())
                .map(|client| self.public_leases(client).collect())
                .collect(),
            counts: self.counts.clone(),
        }
    }

    /// All lease files have been read since the start: what a machine before this one mapped, and this one did not, goes.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        let parameters = self.parameters.clone();
        for (site, address) in std::mem::take(&mut self.remains.terminals) {
            if let Some((_, group)) = parameters.group_of(site) {
                let context = parameters.context(site, group);
                turn.mapping.remove_terminal(context, address.to_bits());
            }
        }
        for site in self.remains.publics.keys().copied().collect::<Vec<_>>() {
            self.set_public(site, None, turn);
        }
        self.remains.publics.clear();
        self.fill(usize::MAX, turn);
    }

    /// A frame that a worker has for this service, whole, as it came in by an interface.
    pub fn frame(&mut self, interface: u16, bytes: &[u8], turn: &mut Turn<'_>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (tags, plain) = frame::plain(bytes, &mut buffer);
        let heard = match Ethernet::new(plain).map(|link| link.ethertype()) {
            Some(ethertype::ARP) => self.hear_arp(interface, plain, turn),
            Some(ethertype::IPV4) => match Datagram::of(plain) {
                Some(datagram) if datagram.destination.port() == CLIENT_PORT => {
                    self.hear_server(interface, &datagram, turn.present.now)
                }
                Some(datagram) if datagram.destination.port() == SERVER_PORT => {
                    self.hear_relay(interface, tags.numbers(), &datagram, turn)
                }
                Some(_) => Err(Count::FrameOther),
                None => Err(Count::FrameUnread),
            },
            _ => Err(Count::FrameUnread),
        };
        if let Err(count) = heard {
            self.counts.add(count);
        }
        self.buffer = buffer;
    }

    /// What is due. Returns when to come back at the latest; none where nothing happens by itself.
    pub fn poll(&mut self, turn: &mut Turn<'_>) -> Option<Nanoseconds> {
        let mut next = None;
        for client in 0..self.clients.len() {
            let due = self.poll_client(client, turn);
            next = [next, due].into_iter().flatten().min();
        }
        self.resolve_doubts(turn);
        let doubt = self.doubts.front().map(|(due, ..)| *due);
        [next, doubt].into_iter().flatten().min()
    }

    /// Something is counted that is not this machine's doing.
    pub fn count(&mut self, count: Count, times: u64) {
        self.counts.add_all(count, times);
    }

    /// What is worth a line in the log is counted, and told once a second of each kind.
    fn tell(&mut self, count: Count, note: Note, turn: &mut Turn<'_>) {
        self.counts.add(count);
        if self.told.is_news(count, turn.present.now) {
            turn.out.notes.push(note);
        }
    }

    fn standing_mut(&mut self, site: Site) -> Option<&mut Standings> {
        self.standings.get_mut(site.0 as usize)
    }

    fn standing(&self, site: Site) -> Option<&Standings> {
        self.standings.get(site.0 as usize)
    }
}

#[cfg(test)]
pub(crate) mod tests;
