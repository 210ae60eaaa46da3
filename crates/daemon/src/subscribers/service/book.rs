//! The book: which lease is where, and whose MACs are in more than one site. Data alone; who changes it is the service.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::ops::Bound;
use std::sync::Arc;

use sluice_wire::Mac;

use crate::subscribers::Site;
use crate::subscribers::leases::Lease;

/// Why a lease of a site is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its address is none of the site's.
    Network,
    /// There was no room.
    Full,
}

/// Where a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a site, whose terminal it is.
    Mapped(Site),
    /// In a site, and not mapped.
    Refused(Site, Refusal),
    /// No site is known.
    Outside,
}

impl Place {
    /// The site, mapped or not.
    pub fn site(self) -> Option<Site> {
        match self {
            Self::Mapped(site) | Self::Refused(site, _) => Some(site),
            Self::Outside => None,
        }
    }
}

/// An answer that was seen on its way to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The site that it went to.
    pub site: Site,
    /// When, in Unix seconds.
    pub unix: u32,
}

/// A lease, and what is known of it.
#[derive(Clone, Debug)]
pub struct Held {
    /// As the file has it; the same memory.
    pub lease: Arc<Lease>,
    /// Where it is.
    pub place: Place,
    /// What the terminal was answered.
    pub acknowledged: Option<Acknowledged>,
    /// Since when it has been there, in Unix seconds.
    pub since: u32,
}

/// An answer whose lease the file does not have yet.
#[derive(Clone, Copy, Debug)]
struct Heard {
    hardware: Mac,
    acknowledged: Acknowledged,
}

/// Answers of a server that wait for their leases, at most.
const MOST_HEARD: usize = 4_096;

/// How long they do, in seconds.
const PATIENCE: u32 = 60;

/// Leases of all servers.
#[derive(Debug)]
pub struct Book {
    /// By server and address.
    servers: Vec<HashMap<Ipv4Addr, Held>>,
    heard: Vec<HashMap<Ipv4Addr, Heard>>,
    /// Terminals of sites.
    mapped: BTreeSet<(Site, Ipv4Addr)>,
    /// Leases without.
    apart: BTreeSet<(usize, Ipv4Addr)>,
    /// Those of them that wait for room.
    waiting: BTreeSet<(usize, Ipv4Addr)>,
    /// The one of these that was tried last.
    turn: (usize, Ipv4Addr),
    macs: Macs,
}

impl Book {
    /// An empty one for so many servers.
    pub fn new(servers: usize) -> Self {
        Self {
            servers: (0..servers).map(|_| HashMap::new()).collect(),
            heard: (0..servers).map(|_| HashMap::new()).collect(),
            mapped: BTreeSet::new(),
            apart: BTreeSet::new(),
            waiting: BTreeSet::new(),
            turn: (0, Ipv4Addr::UNSPECIFIED),
            macs: Macs::default(),
        }
    }

    /// A server's lease of an address.
    pub fn get(&self, server: usize, address: Ipv4Addr) -> Option<&Held> {
        self.servers.get(server)?.get(&address)
    }

    /// The same, to be told what the terminal was answered.
    pub fn acknowledge(&mut self, server: usize, address: Ipv4Addr, acknowledged: Acknowledged) {
        let held = self.servers.get_mut(server).and_then(|held| held.get_mut(&address));
        if let Some(held) = held {
            held.acknowledged = Some(acknowledged);
        }
    }

    /// There is a lease, here, instead of what there was. The MAC of a terminal is told that came to be in several sites.
    pub fn put(&mut self, server: usize, held: Held) -> Option<Mac> {
        let address = held.lease.address;
        self.take(server, address);
        let mut several = None;
        match held.place {
            Place::Mapped(site) => {
                self.mapped.insert((site, address));
                let hardware = held.lease.hardware;
                several = self.macs.enter(hardware, site).then_some(hardware);
            }
            Place::Refused(_, refusal) => {
                self.apart.insert((server, address));
                if refusal == Refusal::Full {
                    self.waiting.insert((server, address));
                }
            }
            Place::Outside => drop(self.apart.insert((server, address))),
        }
        if let Some(leases) = self.servers.get_mut(server) {
            leases.insert(address, held);
        }
        several
    }

    /// A lease lasts longer, and is where it was: the same terminal has it.
    pub fn renew(&mut self, server: usize, lease: Arc<Lease>, acknowledged: Option<Acknowledged>) {
        let held = self
            .servers
            .get_mut(server)
            .and_then(|held| held.get_mut(&lease.address));
        if let Some(held) = held {
            (held.lease, held.acknowledged) = (lease, acknowledged);
        }
    }

    /// There is no such lease any more.
    pub fn take(&mut self, server: usize, address: Ipv4Addr) -> Option<Held> {
        let held = self.servers.get_mut(server)?.remove(&address)?;
        match held.place {
            Place::Mapped(site) => {
                self.mapped.remove(&(site, address));
                self.macs.leave(held.lease.hardware, site);
            }
            Place::Refused(..) | Place::Outside => {
                self.apart.remove(&(server, address));
                self.waiting.remove(&(server, address));
            }
        }
        Some(held)
    }

    /// The lease that has its turn to wait for room no more.
    pub fn waiting(&mut self) -> Option<(usize, Ipv4Addr)> {
        let behind = (Bound::Excluded(self.turn), Bound::Unbounded);
        let next = self.waiting.range(behind).next().or(self.waiting.first()).copied()?;
        self.turn = next;
        Some(next)
    }

    /// A terminal was answered whose lease the file does not have yet.
    pub fn hear(&mut self, server: usize, address: Ipv4Addr, hardware: Mac, acknowledged: Acknowledged) {
        let Some(heard) = self.heard.get_mut(server) else {
            return;
        };
        if heard.len() >= MOST_HEARD {
            heard.retain(|_, heard| heard.acknowledged.unix.saturating_add(PATIENCE) > acknowledged.unix);
        }
        if heard.len() < MOST_HEARD {
            heard.insert(address, Heard { hardware, acknowledged });
        }
    }

    /// What a terminal was answered whose lease the file has now.
    pub fn recall(&mut self, server: usize, address: Ipv4Addr, hardware: Mac) -> Option<Acknowledged> {
        let heard = self.heard.get_mut(server)?.remove(&address)?;
        (heard.hardware == hardware).then_some(heard.acknowledged)
    }

    /// Terminals of sites, by site and address, from one on.
    pub fn mapped(&self, from: (Site, Ipv4Addr)) -> impl Iterator<Item = (Site, Ipv4Addr)> + '_ {
        self.mapped.range(from..).copied()
    }

    /// Leases that are not mapped, by server and address, from one on.
    pub fn apart(&self, from: (usize, Ipv4Addr)) -> impl Iterator<Item = (usize, Ipv4Addr)> + '_ {
        self.apart.range(from..).copied()
    }

    /// How many terminals are mapped, and how many leases are not.
    pub fn len(&self) -> [usize; 2] {
        [self.mapped.len(), self.apart.len()]
    }

    /// Whether a MAC is in more than one site.
    pub fn is_in_several(&self, hardware: Mac) -> bool {
        self.macs.several.contains_key(&hardware)
    }
}

/// In which sites MACs are.
#[derive(Debug, Default)]
struct Macs {
    /// MACs in one site alone: it, and how many of its addresses they have.
    one: HashMap<Mac, (Site, u32)>,
    /// The others.
    several: HashMap<Mac, BTreeMap<Site, u32>>,
}

impl Macs {
    /// A MAC has one more address in a site. True where that is a second site, or a third.
    fn enter(&mut self, mac: Mac, site: Site) -> bool {
        if let Some(sites) = self.several.get_mut(&mac) {
            let count = sites.entry(site).or_default();
            *count += 1;
            return *count == 1;
        }
        let &mut (first, ref mut count) = self.one.entry(mac).or_insert((site, 0));
        if first == site {
            *count += 1;
            return false;
        }
        let sites = BTreeMap::from([(first, *count), (site, 1)]);
        self.one.remove(&mac);
        self.several.insert(mac, sites);
        true
    }

    /// It has one less.
    fn leave(&mut self, mac: Mac, site: Site) {
        if let Some((_, count)) = self.one.get_mut(&mac) {
            *count -= 1;
            if *count == 0 {
                self.one.remove(&mac);
            }
            return;
        }
        let Some(sites) = self.several.get_mut(&mac) else {
            return;
        };
        if let Some(count) = sites.get_mut(&site) {
            *count -= 1;
            if *count == 0 {
                sites.remove(&site);
            }
        }
        if let (1, Some((&site, &count))) = (sites.len(), sites.first_key_value()) {
            self.several.remove(&mac);
            self.one.insert(mac, (site, count));
        }
    }
}
