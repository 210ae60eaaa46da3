//! What there is to show: sites, leases, and how much of it there is.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::config::SitesOutside;
use sluice_wire::{Context, Mac};

use super::{Place, Refusal, Service};
use crate::subscribers::Site;
use crate::subscribers::agent::{self, Agent};
use crate::subscribers::leases::Lease;

/// A site as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteView {
    /// Its number.
    pub site: Site,
    /// The place of its group.
    pub group: usize,
    /// Context of its sessions.
    pub context: Context,
    /// Its virtual MAC, where it has one.
    pub mac: Option<Mac>,
    /// The public address that is mapped.
    pub public: Option<Ipv4Addr>,
    /// Where its client is.
    pub state: Option<agent::State>,
    /// Its public lease; times by the clock of the client.
    pub lease: Option<agent::Lease>,
    /// Terminals that are mapped.
    pub terminals: u32,
    /// A terminal's MAC is in another site, too.
    pub shares_mac: bool,
}

/// How a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its terminal is mapped.
    Active,
    /// It is, and waits for its site's public address.
    Waiting,
    /// It is of no site that is known.
    Outside,
    /// Its site can't have this address.
    Network,
    /// There was no room.
    Full,
}

impl Standing {
    /// As it is shown.
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

/// A private lease as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The place of its server.
    pub server: usize,
    /// Its site, where one is known.
    pub site: Option<Site>,
    /// As the file has it.
    pub lease: Arc<Lease>,
    /// Since when it has been there, in Unix seconds.
    pub since: u64,
    /// How it stands.
    pub standing: Standing,
    /// Its MAC is in another site, too.
    pub shares_mac: bool,
}

impl Service {
    /// A site, where there is one of this number.
    pub fn site(&self, site: Site) -> Option<SiteView> {
        let (place, group) = self.parameters.group_of(site)?;
        let standing = self.standing(site)?;
        let agent = match group.outside {
            SitesOutside::Public(client) => self.clients.get(client).map(|client| &client.agent),
            SitesOutside::Pool(_) => None,
        };
        Some(SiteView {
            site,
            group: place,
            context: self.parameters.context(site, group),
            mac: agent.map(|_| self.parameters.mac(site)),
            public: Some(standing.public).filter(|public| !public.is_unspecified()),
            state: agent.map(|agent| agent.state(site)),
            lease: agent.and_then(|agent| agent.lease(site)),
            terminals: standing.terminals,
            shares_mac: self.leases_of(site).any(|lease| lease.shares_mac),
        })
    }

    /// Terminals of a site, by address.
    pub fn leases_of(&self, site: Site) -> impl Iterator<Item = LeaseView> + '_ {
        let from = self.leases((site, Ipv4Addr::UNSPECIFIED));
        from.take_while(move |lease| lease.site == Some(site))
    }

    /// Terminals by site and address, from one on.
    pub fn leases(&self, from: (Site, Ipv4Addr)) -> impl Iterator<Item = LeaseView> + '_ {
        let mapped = self.book.mapped(from);
        mapped.filter_map(|(site, address)| self.lease(self.parameters.group_of(site)?.1.server, address))
    }

    /// Leases that are not mapped, by server and address, from one on.
    pub fn leases_apart(&self, from: (usize, Ipv4Addr)) -> impl Iterator<Item = LeaseView> + '_ {
        let apart = self.book.apart(from);
        apart.filter_map(|(server, address)| self.lease(server, address))
    }

    /// A server's lease of an address.
    pub fn lease(&self, server: usize, address: Ipv4Addr) -> Option<LeaseView> {
        let held = self.book.get(server, address)?;
        let standing = match held.place {
            Place::Mapped(site) => match self.client_of(site) {
                Some(_) if self.standing(site)?.public.is_unspecified() => Standing::Waiting,
                _ => Standing::Active,
            },
            Place::Refused(_, Refusal::Network) => Standing::Network,
            Place::Refused(_, Refusal::Full) => Standing::Full,
            Place::Outside => Standing::Outside,
        };
        Some(LeaseView {
            server,
            site: held.place.site(),
            lease: held.lease.clone(),
            since: held.since.into(),
            standing,
            shares_mac: matches!(held.place, Place::Mapped(_)) && self.book.is_in_several(held.lease.hardware),
        })
    }

    /// How many terminals are mapped, and how many leases are not.
    pub fn terminals(&self) -> [usize; 2] {
        self.book.len()
    }

    /// What it is made of.
    pub fn parameters(&self) -> &super::Parameters {
        &self.parameters
    }

    /// What was counted.
    pub fn counts(&self) -> &super::Counts {
        &self.counts
    }

    /// What the relay of a server did.
    pub fn relay(&self, server: usize) -> Option<&crate::subscribers::relay::Tally> {
        self.relays.get(server).map(crate::subscribers::relay::Relay::tally)
    }

    /// The client of a place.
    pub fn agent(&self, client: usize) -> Option<&Agent> {
        self.clients.get(client).map(|client| &client.agent)
    }
}
