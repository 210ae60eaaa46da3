//! Lists for the API: sites, leases, and counters.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::config::SitesOutside;
use sluice_wire::{Context, Mac};

use super::{Assignment, LeaseRefusal, Service};
use crate::subscribers::Site;
use crate::subscribers::agent::{self, Agent};
use crate::subscribers::leases::Lease;

/// A site for the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteView {
    /// Number that identifies the site.
    pub site: Site,
    /// Index of the group of the site.
    pub group: usize,
    /// Context of the site's sessions.
    pub context: Context,
    /// Virtual MAC of the site, if it has one.
    pub mac: Option<Mac>,
    /// Mapped public address.
    pub public: Option<Ipv4Addr>,
    /// State of the site's DHCP client.
    pub state: Option<agent::State>,
    /// Lease of the public address. The times of the lease refer to the clock of the DHCP client.
    pub lease: Option<agent::PublicLease>,
    /// Number of mapped terminals.
    pub terminals: u32,
    /// Whether the MAC of one of the site's terminals is also in another site.
    pub shares_mac: bool,
}

/// Status of a private lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// The terminal is mapped.
    Active,
    /// The terminal is mapped, but the site has no public address yet.
    Waiting,
    /// The site is unknown.
    Outside,
    /// The address is not in the site's network.
    Network,
    /// The table of terminals is full.
    Full,
}

impl LeaseStatus {
    /// Name of the status.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Outside => "outside",
            Self::Network => "conflict",
            Self::Full => "full",
        }
    }
}

/// A private lease for the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Index of the lease's server.
    pub server: usize,
    /// Site of the lease, if known.
    pub site: Option<Site>,
    /// The lease, as in the lease file.
    pub lease: Arc<Lease>,
    /// Time at which the lease was assigned to the site, as Unix time in seconds.
    pub since: u64,
    /// Status of the lease.
    pub status: LeaseStatus,
    /// Whether the terminal's MAC is also in another site.
    pub shares_mac: bool,
}

impl Service {
    /// A site by number. `None` if the site does not exist.
    pub fn site(&self, site: Site) -> Option<SiteView> {
        let (place, group) = self.parameters.group_of(site)?;
        let status = self.status(site)?;
        let agent = match group.outside {
            SitesOutside::Public(client) => self.clients.get(client).map(|client| &client.agent),
            SitesOutside::Pool(_) => None,
        };
        Some(SiteView {
            site,
            group: place,
            context: self.parameters.context(site, group),
            mac: agent.map(|_| self.parameters.mac(site)),
            public: Some(status.public).filter(|public| !public.is_unspecified()),
            state: agent.map(|agent| agent.state(site)),
            lease: agent.and_then(|agent| agent.lease(site)),
            terminals: status.terminals,
            shares_mac: self.leases_of(site).any(|lease| lease.shares_mac),
        })
    }

    /// Terminals of a site, ordered by address.
    pub fn leases_of(&self, site: Site) -> impl Iterator<Item = LeaseView> + '_ {
        let from = self.leases((site, Ipv4Addr::UNSPECIFIED));
        from.take_while(move |lease| lease.site == Some(site))
    }

    /// Mapped terminals in the order of site and address, starting at a position.
    pub fn leases(&self, from: (Site, Ipv4Addr)) -> impl Iterator<Item = LeaseView> + '_ {
        let mapped = self.lease_index.mapped(from);
        mapped.filter_map(|(site, address)| self.lease(self.parameters.group_of(site)?.1.server, address))
    }

    /// Unmapped leases in the order of server and address, starting at a position.
    pub fn leases_apart(&self, from: (usize, Ipv4Addr)) -> impl Iterator<Item = LeaseView> + '_ {
        let unmapped = self.lease_index.unmapped(from);
        unmapped.filter_map(|(server, address)| self.lease(server, address))
    }

    /// The lease of an address from one server.
    pub fn lease(&self, server: usize, address: Ipv4Addr) -> Option<LeaseView> {
        let assigned = self.lease_index.get(server, address)?;
        let status = match assigned.place {
            Assignment::Mapped(site) => match self.client_of(site) {
                Some(_) if self.status(site)?.public.is_unspecified() => LeaseStatus::Waiting,
                _ => LeaseStatus::Active,
            },
            Assignment::Refused(_, LeaseRefusal::Network) => LeaseStatus::Network,
            Assignment::Refused(_, LeaseRefusal::Full) => LeaseStatus::Full,
            Assignment::Outside => LeaseStatus::Outside,
        };
        Some(LeaseView {
            server,
            site: assigned.place.site(),
            lease: assigned.lease.clone(),
            since: assigned.since.into(),
            status,
            shares_mac: matches!(assigned.place, Assignment::Mapped(_))
                && self.lease_index.is_in_several(assigned.lease.hardware),
        })
    }

    /// Number of mapped terminals, and number of unmapped leases.
    pub fn terminals(&self) -> [usize; 2] {
        self.lease_index.len()
    }

    /// Parameters of the service.
    pub fn parameters(&self) -> &super::Parameters {
        &self.parameters
    }

    /// Counters of the service.
    pub fn counts(&self) -> &super::Counts {
        &self.counts
    }

    /// Counters of a server's relay.
    pub fn relay(&self, server: usize) -> Option<&crate::subscribers::relay::Tally> {
        self.relays.get(server).map(crate::subscribers::relay::Relay::tally)
    }

    /// DHCP client with this index.
    pub fn agent(&self, client: usize) -> Option<&Agent> {
        self.clients.get(client).map(|client| &client.agent)
    }
}
