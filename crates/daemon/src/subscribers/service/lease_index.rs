//! Stores leases with their sites, and the MACs that are in more than one site. The service makes all decisions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::ops::Bound;
use std::sync::Arc;

use sluice_wire::Mac;

use crate::subscribers::Site;
use crate::subscribers::leases::Lease;

/// Why a lease that belongs to a site is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRefusal {
    /// The address is not in the site's network.
    Network,
    /// The table of terminals is full.
    Full,
}

/// Result of the assignment of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The lease is mapped, as a terminal of this site.
    Mapped(Site),
    /// The lease belongs to this site, but is not mapped.
    Refused(Site, LeaseRefusal),
    /// The lease belongs to no known site.
    Outside,
}

impl Assignment {
    /// The site to which the lease belongs, whether or not the lease is mapped.
    pub fn site(self) -> Option<Site> {
        match self {
            Self::Mapped(site) | Self::Refused(site, _) => Some(site),
            Self::Outside => None,
        }
    }
}

/// A DHCPACK that the relay has observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Site to which the acknowledgement was sent.
    pub site: Site,
    /// Time of the acknowledgement, as Unix time in seconds.
    pub unix: u32,
}

/// A lease with its assignment.
#[derive(Clone, Debug)]
pub struct AssignedLease {
    /// The lease, shared with the lease file's table.
    pub lease: Arc<Lease>,
    /// Assignment of the lease.
    pub place: Assignment,
    /// The acknowledgement that was sent to the terminal, if the relay has observed one.
    pub acknowledged: Option<Acknowledged>,
    /// Time at which the lease was assigned to its site, as Unix time in seconds.
    pub since: u32,
}

/// An acknowledgement for a lease that is not in the lease file yet.
#[derive(Clone, Copy, Debug)]
struct PendingAcknowledgement {
    hardware: Mac,
    acknowledged: Acknowledged,
}

/// Maximum number of acknowledgements per server that wait for their leases.
const MAX_PENDING: usize = 4_096;

/// Maximum time in seconds for which an acknowledgement waits for its lease.
const PATIENCE: u32 = 60;

/// Leases of all DHCP servers.
#[derive(Debug)]
pub struct LeaseIndex {
    /// Leases of each server, by address.
    servers: Vec<HashMap<Ipv4Addr, AssignedLease>>,
    pending: Vec<HashMap<Ipv4Addr, PendingAcknowledgement>>,
    /// Mapped terminals of sites.
    mapped: BTreeSet<(Site, Ipv4Addr)>,
    /// Leases that are not mapped.
    unmapped: BTreeSet<(usize, Ipv4Addr)>,
    /// Unmapped leases that wait until the table of terminals has capacity.
    waiting: BTreeSet<(usize, Ipv4Addr)>,
    /// The waiting lease for which mapping was tried last.
    last_tried: (usize, Ipv4Addr),
    macs: Macs,
}

impl LeaseIndex {
    /// Create an empty store for a number of servers.
    pub fn new(servers: usize) -> Self {
        Self {
            servers: (0..servers).map(|_| HashMap::new()).collect(),
            pending: (0..servers).map(|_| HashMap::new()).collect(),
            mapped: BTreeSet::new(),
            unmapped: BTreeSet::new(),
            waiting: BTreeSet::new(),
            last_tried: (0, Ipv4Addr::UNSPECIFIED),
            macs: Macs::default(),
        }
    }

    /// The lease of an address from one server.
    pub fn get(&self, server: usize, address: Ipv4Addr) -> Option<&AssignedLease> {
        self.servers.get(server)?.get(&address)
    }

    /// Record that the acknowledgement of a lease was observed.
    pub fn acknowledge(&mut self, server: usize, address: Ipv4Addr, acknowledged: Acknowledged) {
        let assigned = self
            .servers
            .get_mut(server)
            .and_then(|assigned| assigned.get_mut(&address));
        if let Some(assigned) = assigned {
            assigned.acknowledged = Some(acknowledged);
        }
    }

    /// Store a lease with its assignment; a previous lease of the address is replaced. Returns the MAC of the terminal
    /// if this MAC is now in more than one site.
    pub fn put(&mut self, server: usize, assigned: AssignedLease) -> Option<Mac> {
        let address = assigned.lease.address;
        self.take(server, address);
        let mut several = None;
        match assigned.place {
            Assignment::Mapped(site) => {
                self.mapped.insert((site, address));
                let hardware = assigned.lease.hardware;
                several = self.macs.enter(hardware, site).then_some(hardware);
            }
            Assignment::Refused(_, refusal) => {
                self.unmapped.insert((server, address));
                if refusal == LeaseRefusal::Full {
                    self.waiting.insert((server, address));
                }
            }
            Assignment::Outside => drop(self.unmapped.insert((server, address))),
        }
        if let Some(leases) = self.servers.get_mut(server) {
            leases.insert(address, assigned);
        }
        several
    }

    /// Update a lease whose terminal and assignment are unchanged.
    pub fn renew(&mut self, server: usize, lease: Arc<Lease>, acknowledged: Option<Acknowledged>) {
        let assigned = self
            .servers
            .get_mut(server)
            .and_then(|assigned| assigned.get_mut(&lease.address));
        if let Some(assigned) = assigned {
            (assigned.lease, assigned.acknowledged) = (lease, acknowledged);
        }
    }

    /// Remove a lease.
    pub fn take(&mut self, server: usize, address: Ipv4Addr) -> Option<AssignedLease> {
        let assigned = self.servers.get_mut(server)?.remove(&address)?;
        match assigned.place {
            Assignment::Mapped(site) => {
                self.mapped.remove(&(site, address));
                self.macs.leave(assigned.lease.hardware, site);
            }
            Assignment::Refused(..) | Assignment::Outside => {
                self.unmapped.remove(&(server, address));
                self.waiting.remove(&(server, address));
            }
        }
        Some(assigned)
    }

    /// Returns the next lease for which mapping should be tried. All leases that wait for capacity take turns.
    pub fn waiting(&mut self) -> Option<(usize, Ipv4Addr)> {
        let remaining = (Bound::Excluded(self.last_tried), Bound::Unbounded);
        let next = self.waiting.range(remaining).next().or(self.waiting.first()).copied()?;
        self.last_tried = next;
        Some(next)
    }

    /// Record an acknowledgement for a lease that is not in the lease file yet.
    pub fn add_pending(&mut self, server: usize, address: Ipv4Addr, hardware: Mac, acknowledged: Acknowledged) {
        let Some(pending) = self.pending.get_mut(server) else {
            return;
        };
        if pending.len() >= MAX_PENDING {
            pending.retain(|_, pending| pending.acknowledged.unix.saturating_add(PATIENCE) > acknowledged.unix);
        }
        if pending.len() < MAX_PENDING {
            pending.insert(address, PendingAcknowledgement { hardware, acknowledged });
        }
    }

    /// Remove and return the acknowledgement that was observed before its lease was in the lease file.
    pub fn take_pending(&mut self, server: usize, address: Ipv4Addr, hardware: Mac) -> Option<Acknowledged> {
        let pending = self.pending.get_mut(server)?.remove(&address)?;
        (pending.hardware == hardware).then_some(pending.acknowledged)
    }

    /// Mapped terminals in the order of site and address, starting at a position.
    pub fn mapped(&self, from: (Site, Ipv4Addr)) -> impl Iterator<Item = (Site, Ipv4Addr)> + '_ {
        self.mapped.range(from..).copied()
    }

    /// Unmapped leases in the order of server and address, starting at a position.
    pub fn unmapped(&self, from: (usize, Ipv4Addr)) -> impl Iterator<Item = (usize, Ipv4Addr)> + '_ {
        self.unmapped.range(from..).copied()
    }

    /// Number of mapped terminals, and number of unmapped leases.
    pub fn len(&self) -> [usize; 2] {
        [self.mapped.len(), self.unmapped.len()]
    }

    /// Whether a MAC is in more than one site.
    pub fn is_in_several(&self, hardware: Mac) -> bool {
        self.macs.several.contains_key(&hardware)
    }
}

/// Sites by MAC.
#[derive(Debug, Default)]
struct Macs {
    /// MACs that are in a single site. For each MAC, the site and the number of addresses with this MAC.
    one: HashMap<Mac, (Site, u32)>,
    /// MACs in several sites.
    several: HashMap<Mac, BTreeMap<Site, u32>>,
}

impl Macs {
    /// Add an address of a MAC in a site. Returns whether the MAC was already in another site.
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

    /// Remove an address of a MAC in a site.
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
