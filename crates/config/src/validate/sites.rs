//! Validation of site groups: references, numbering, and the assignment of frames to sites.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::Ipv4Net;

use super::Check;
use super::routers::DEFAULT;
use super::subscribers::{first_ipv4, is_host_of};
use crate::config::{
    Interface, InterfaceIndex, Link, Pool, PoolIndex, RouterIndex, SiteFrames, SiteGroup, SiteRow, SitesOutside,
};
use crate::limits::MAX_SITES;
use crate::problem::{Problem, SubscribersProblem};
use crate::read::{Step, place};
use crate::schema;
use crate::value::{Prefix, Tags};

/// Interfaces, pools, servers and clients to which site groups may refer.
#[derive(Clone, Copy)]
pub(super) struct Named<'s> {
    pub written: &'s schema::Subscribers,
    pub interfaces: &'s [Interface],
    pub pools: &'s [Pool],
}

/// Frames of the groups that were checked so far, by interface.
#[derive(Default)]
struct Claims<'a> {
    tags: HashMap<(InterfaceIndex, Tags), &'a str>,
    whole: HashMap<InterfaceIndex, &'a str>,
    any: HashMap<InterfaceIndex, &'a str>,
    prefixes: Vec<(InterfaceIndex, Ipv4Net, &'a str)>,
}

impl Check<'_> {
    /// Site groups with their rows. `None` only if a problem was reported.
    pub(super) fn sites(&mut self, named: Named<'_>) -> Option<(Vec<SiteGroup>, Vec<SiteRow>)> {
        let Named {
            written, interfaces, ..
        } = named;
        if written.sites.is_empty() {
            self.report(place!["subscribers"], SubscribersProblem::NoSites.into());
        }
        let count = written.count();
        // Overlapping tags are searched for only if the number of sites is within its limit.
        let few = count <= u64::from(MAX_SITES);
        if !few {
            let problem = SubscribersProblem::TooManySites(count);
            self.report(place!["subscribers", "sites"], problem.into());
        }
        let (mut groups, mut rows, mut claims) = (Vec::new(), Vec::new(), Claims::default());
        let mut first = 0;
        for (name, entry) in &written.sites {
            let at = place!["subscribers", "sites", name];
            self.name(at, name);
            self.name_alone(name, entry, written);
            let group = self.site_group(named, (name, entry), first);
            let interface = self.numbering.interfaces.of(&entry.interface);
            let interface = interface.and_then(|index| InterfaceIndex::try_from(index).ok());
            if let Some(index) = interface.filter(|_| few) {
                self.claim(index, (name, entry), interfaces, &mut claims);
            }
            let Some(group) = group else { continue };
            first = first.saturating_add(group.count);
            push_rows(groups.len(), &group, &mut rows);
            groups.push(group);
        }
        self.prefixes_apart(claims.prefixes);
        self.relays(written, interfaces, &groups);
        Some((groups, rows)).filter(|(groups, _)| groups.len() == written.sites.len())
    }

    /// Validate a group, given the number of its first site.
    fn site_group(
        &mut self,
        named: Named<'_>,
        (name, entry): (&str, &schema::SiteGroup),
        first: u32,
    ) -> Option<SiteGroup> {
        let Named {
            written, interfaces, ..
        } = named;
        let at = |key| place!["subscribers", "sites", name, key].to_vec();
        if entry.tags.is_some() && entry.prefix.is_some() {
            self.report(&at("prefix"), SubscribersProblem::TagsAndPrefix.into());
        }
        let prefix = entry.prefix.map(|prefix| self.network_ipv4(&at("prefix"), prefix));
        let index = self.interface_of_sites(&at("interface"), &entry.interface, interfaces);
        let interface = index.and_then(|index| interfaces.get(usize::from(index)));
        let server = self.lease_server(written, (name, entry));
        let outside = self.outside(named, (name, entry), interface);
        let interface = interface?;
        let gateway = first_ipv4(interface);
        if gateway.is_none() {
            let problem = SubscribersProblem::NoGateway(entry.interface.clone());
            self.report(&at("interface"), problem.into());
        }
        let relay = server.and_then(|server| written.dhcp.get_index(server)?.1.relay);
        Some(SiteGroup {
            name: name.to_owned(),
            interface: index?,
            router: interface.router,
            first,
            count: entry.tags.map_or(1, |tags| tags.count()),
            tags: entry.tags,
            prefix: match prefix {
                Some(prefix) => Some(prefix?),
                None => None,
            },
            server: server?,
            relay: match relay {
                Some(IpAddr::V4(relay)) => relay,
                _ => gateway?,
            },
            outside: outside?,
        })
    }

    /// Index of the DHCP server of a group's terminals.
    fn lease_server(
        &mut self,
        written: &schema::Subscribers,
        (name, entry): (&str, &schema::SiteGroup),
    ) -> Option<usize> {
        let Some(server) = &entry.dhcp else {
            let at = place!["subscribers", "sites", name];
            self.report(at, SubscribersProblem::NoServer.into());
            return None;
        };
        let found = written.dhcp.get_index_of(server);
        if found.is_none() {
            let at = place!["subscribers", "sites", name, "dhcp"];
            self.unknown(at, "dhcp", server, written.dhcp.keys());
        }
        found
    }

    fn unknown<'k>(
        &mut self,
        at: &[Step<'_>],
        table: &'static str,
        name: &str,
        known: impl Iterator<Item = &'k String>,
    ) {
        let (name, known) = (name.to_owned(), known.cloned().collect());
        self.report(at, SubscribersProblem::Unknown { table, name, known }.into());
    }

    /// Check that relay addresses are in networks of the sites' access interfaces. Each problem is reported once.
    fn relays(&mut self, written: &schema::Subscribers, interfaces: &[Interface], groups: &[SiteGroup]) {
        let mut reported = HashSet::new();
        for group in groups {
            let (Some((server, _)), Some(interface)) = (
                written.dhcp.get_index(group.server),
                interfaces.get(usize::from(group.interface)),
            ) else {
                continue;
            };
            if !is_host_of(interface, group.relay) && reported.insert(group.server) {
                let problem = SubscribersProblem::RelayElsewhere {
                    relay: group.relay,
                    interface: interface.name.clone(),
                    group: group.name.clone(),
                };
                self.report(place!["subscribers", "dhcp", server, "relay"], problem.into());
            }
        }
    }

    /// How the sites of a group get their outside addresses. `None` only if a problem was reported.
    fn outside(
        &mut self,
        named: Named<'_>,
        (name, entry): (&str, &schema::SiteGroup),
        interface: Option<&Interface>,
    ) -> Option<SitesOutside> {
        let table = place!["subscribers", "sites", name];
        let at = |key| [table, place![key]].concat();
        match (&entry.public, &entry.pool) {
            (None, None) => {
                self.report(table, SubscribersProblem::NoOutside.into());
                None
            }
            (Some(_), Some(_)) => {
                self.report(&at("pool"), SubscribersProblem::TwoOutsides.into());
                None
            }
            (Some(public), None) => {
                let known = &named.written.public;
                let Some(found) = known.get_index_of(public) else {
                    self.unknown(&at("public"), "public", public, known.keys());
                    return None;
                };
                let outside = named.interfaces.iter().find(|outside| outside.name == *public);
                if let (Some(interface), Some(outside)) = (interface, outside)
                    && interface.router != outside.router
                {
                    let problem = SubscribersProblem::Routers {
                        access: interface.name.clone(),
                        router: self.router_name(interface.router),
                        public: public.clone(),
                        other: self.router_name(outside.router),
                    };
                    self.report(&at("public"), problem.into());
                }
                Some(SitesOutside::Public(found))
            }
            (None, Some(pool)) => self.pool_of_sites(&at("pool"), pool, interface?, named.pools),
        }
    }

    /// Pool of a group's sites. The pool must belong to the router of the sites, and must not be deterministic.
    fn pool_of_sites(
        &mut self,
        at: &[Step<'_>],
        name: &str,
        interface: &Interface,
        made: &[Pool],
    ) -> Option<SitesOutside> {
        let pools = &self.document.nat.pools;
        let Some((index, _, pool)) = pools.get_full(name) else {
            let known = pools.keys().cloned().collect();
            let name = name.to_owned();
            self.report(at, Problem::UnknownPool { name, known });
            return None;
        };
        if pool.deterministic.is_some() {
            self.report(at, SubscribersProblem::PoolComputes(name.to_owned()).into());
        }
        let made = made.iter().find(|pool| pool.name == name);
        if let Some(router) = made.map(|pool| pool.router)
            && router != interface.router
        {
            let problem = SubscribersProblem::PoolElsewhere {
                pool: name.to_owned(),
                other: self.router_name(router),
                router: self.router_name(interface.router),
            };
            self.report(at, problem.into());
        }
        PoolIndex::try_from(index).ok().map(SitesOutside::Pool)
    }

    fn router_name(&self, router: RouterIndex) -> String {
        let name = self.numbering.routers.names().nth(router.into()).flatten();
        name.unwrap_or(DEFAULT).to_owned()
    }

    /// Check that the name of a group without tags differs from the names of all sites in other groups.
    fn name_alone(&mut self, name: &str, entry: &schema::SiteGroup, written: &schema::Subscribers) {
        let Some((group, tags)) = name.rsplit_once('-').filter(|_| entry.tags.is_none()) else {
            return;
        };
        let Some((own, Ok(tags))) = written
            .sites
            .get(group)
            .and_then(|other| Some((other.tags?, tags.parse())))
        else {
            return;
        };
        if own.contains(tags) {
            let (name, group) = (name.to_owned(), group.to_owned());
            let at = place!["subscribers", "sites", &name];
            self.report(
                at,
                SubscribersProblem::NameTwice {
                    name: name.clone(),
                    group,
                }
                .into(),
            );
        }
    }

    /// Record the frames of a group, and check that they belong to no other group or VLAN.
    fn claim<'a>(
        &mut self,
        index: InterfaceIndex,
        (name, entry): (&'a str, &schema::SiteGroup),
        interfaces: &[Interface],
        claims: &mut Claims<'a>,
    ) {
        let at = |key| place!["subscribers", "sites", name, key].to_vec();
        let not_alone = |whole: &str, other: &str| SubscribersProblem::NotAlone {
            interface: entry.interface.clone(),
            whole: whole.to_owned(),
            other: other.to_owned(),
        };
        let is_whole = entry.tags.is_none() && entry.prefix.is_none();
        match (claims.whole.get(&index), claims.any.get(&index)) {
            (Some(whole), _) => self.report(&at("interface"), not_alone(whole, name).into()),
            (None, Some(other)) if is_whole => self.report(&at("interface"), not_alone(name, other).into()),
            _ => {}
        }
        claims.any.entry(index).or_insert(name);
        if is_whole {
            claims.whole.entry(index).or_insert(name);
        }
        if let Some(net) = entry.prefix.and_then(|prefix| prefix.ipv4()) {
            claims.prefixes.push((index, net, name));
        }
        let Some(tags) = entry.tags else { return };
        let interface = || entry.interface.clone();
        for own in (0..tags.count()).filter_map(|place| tags.at(place)) {
            if let Some(other) = claims.tags.insert((index, own), name) {
                let problem = SubscribersProblem::TagsTwice {
                    interface: interface(),
                    tags: own,
                    group: name.to_owned(),
                    other: other.to_owned(),
                };
                self.report(&at("tags"), problem.into());
                break;
            }
        }
        let vlan = interfaces.iter().find_map(|other| match other.link {
            Link::Vlan { parent, tags: own } if parent == index && tags.contains(own) => Some((own, other)),
            _ => None,
        });
        if let Some((tags, vlan)) = vlan {
            let (interface, vlan) = (interface(), vlan.name.clone());
            let problem = SubscribersProblem::TagsOfVlan { interface, tags, vlan };
            self.report(&at("tags"), problem.into());
        }
    }

    /// Check that prefixes don't overlap. Two networks are either disjoint, or one contains the other. Therefore the
    /// prefixes are sorted, and each is compared only with the last prefix that no other prefix contains.
    fn prefixes_apart(&mut self, mut prefixes: Vec<(InterfaceIndex, Ipv4Net, &str)>) {
        prefixes.sort_by_key(|&(interface, net, _)| (interface, net.network(), net.prefix_len()));
        let mut widest: Option<(InterfaceIndex, Ipv4Net, &str)> = None;
        for (interface, net, name) in prefixes {
            match widest {
                Some((other, wide, holder)) if other == interface && wide.contains(&net) => {
                    let problem = SubscribersProblem::PrefixesOverlap {
                        prefix: Prefix::of(net.into()),
                        other_prefix: Prefix::of(wide.into()),
                        other: holder.to_owned(),
                    };
                    self.report(place!["subscribers", "sites", name, "prefix"], problem.into());
                }
                _ => widest = Some((interface, net, name)),
            }
        }
    }
}

impl<'a> Check<'a> {
    /// Pools to which site groups refer, each with the router of the first site group that refers to it.
    pub(super) fn pools_of_sites(&self) -> HashMap<&'a str, RouterIndex> {
        let mut pools = HashMap::new();
        let subscribers = self.document.subscribers.iter();
        for group in subscribers.flat_map(|subscribers| subscribers.sites.values()) {
            let interface = self.document.interfaces.get(&group.interface);
            let router = interface.map(|interface| interface.router.as_deref().unwrap_or(DEFAULT));
            if let (Some(pool), Some(router)) = (&group.pool, router.and_then(|name| self.router_number(name))) {
                pools.entry(pool.as_str()).or_insert(router);
            }
        }
        pools
    }
}

/// Add the rows of a group: one per S-tag, or a single row without S-tags.
fn push_rows(group: usize, sites: &SiteGroup, rows: &mut Vec<SiteRow>) {
    let row = |first, count, frames| SiteRow {
        group,
        interface: sites.interface,
        first,
        count,
        frames,
    };
    let Some(tags) = sites.tags else {
        let frames = sites.prefix.map_or(SiteFrames::All, SiteFrames::Prefix);
        return rows.push(row(sites.first, 1, frames));
    };
    let (first, count) = (tags.last().first(), u32::from(tags.last().count()));
    match tags.outer() {
        None => rows.push(row(sites.first, count, SiteFrames::Tag(first))),
        Some(outer) => rows.extend((0..).zip(outer.tags()).map(|(place, outer)| {
            let number = sites.first.saturating_add(count.saturating_mul(place));
            row(number, count, SiteFrames::Tags(outer, first))
        })),
    }
}
