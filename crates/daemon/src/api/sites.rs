//! Subscribers' sites, their leases, and the state of DHCP on the private and the public side.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::api::{
    Counter, DhcpStatus, Lease, LeaseFilter, LeaseServerStatus, NetFilter, Page, Position, PublicClientStatus, Site,
    SiteFilter, operation,
};
use sluice_config::config::{SiteGroup, SitesOutside, Subscribers};
use sluice_wire::Context;

use super::{Refusal, Serve, ServePages};
use crate::control::Control;
use crate::sites::context_of;
use crate::subscribers;
use crate::subscribers::agent::State as Client;
use crate::subscribers::agent::store::Present;
use crate::subscribers::leases::Expiry;
use crate::subscribers::relay::Tally;
use crate::subscribers::service::{LeaseView, Service, SiteView};
use crate::subscribers::virtual_mac::text;

/// Default and maximum number of entries per page. The service is locked while a page is collected.
const PAGE: (u32, u32) = (1_024, 8_192);

/// Maximum number of leases examined for one page. The service is locked meanwhile.
const MAX_EXAMINED: usize = 8_192;

const SECOND: u64 = 1_000_000_000;

/// Context of the site with a name.
pub(super) fn context(control: &Control, name: &str) -> Result<Context, Refusal> {
    context_of(&control.config(), name).ok_or_else(|| unknown("site", name))
}

fn unknown(kind: &str, name: &str) -> Refusal {
    Refusal::Wrong(format!(
        "there is no {kind} `{name}`: `sluice show sites` lists the sites and their groups"
    ))
}

fn bad_cursor(text: &str) -> Refusal {
    Refusal::Wrong(format!("`{text}` is not a valid cursor of a list"))
}

fn limit(position: &Position) -> usize {
    position.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize
}

/// Range of site numbers that a filter selects: the first, and one past the last.
fn meant(config: &Config, site: Option<&str>, group: Option<&str>) -> Result<(u32, u32), Refusal> {
    let Some(subscribers) = &config.subscribers else {
        return Ok((0, 0));
    };
    let group = group.map(|name| subscribers.group(name).ok_or_else(|| unknown("group of sites", name)));
    let group = group.transpose()?.map(|group| (group.first, group.first + group.count));
    let site = site.map(|name| subscribers.find(name).ok_or_else(|| unknown("site", name)));
    let site = site.transpose()?.map(|site| (site, site + 1));
    let (all, none) = ((0, subscribers.sites()), (0, 0));
    Ok(match (site, group) {
        (Some(site), Some(group)) if site.0 < group.0 || site.1 > group.1 => none,
        (Some(site), _) => site,
        (None, Some(group)) => group,
        (None, None) => all,
    })
}

impl ServePages for operation::Sites {
    async fn serve(control: Arc<Control>, filter: SiteFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let (first, sites_end) = meant(&config, filter.site.as_deref(), filter.group.as_deref())?;
        let first = match &position.cursor {
            Some(text) => text.parse().map_err(|_| bad_cursor(text))?,
            None => first,
        };
        let (Some(subscribers), Some(served)) = (&config.subscribers, &control.sites) else {
            return Ok(Page::whole(Vec::new()));
        };
        let last = sites_end.min(first.saturating_add(limit(&position) as u32));
        let present = served.service().present();
        let views: Vec<SiteView> = served.service().with(|service| {
            let numbers = (first..last).map(subscribers::Site);
            numbers.filter_map(|number| service.site(number)).collect()
        });
        let items = views.into_iter().filter_map(|view| {
            let group = subscribers.groups.get(view.group)?;
            Some(site(view, group, (&config, subscribers), present))
        });
        Ok(Page {
            items: items.collect(),
            next: (last < sites_end).then(|| last.to_string()),
        })
    }
}

fn site(view: SiteView, group: &SiteGroup, (config, subscribers): (&Config, &Subscribers), present: Present) -> Site {
    let name = |index: u16| {
        let interface = config.interfaces.get(usize::from(index));
        interface.map_or_else(String::new, |interface| interface.name.clone())
    };
    let seconds = |time: u64| (time != u64::MAX).then(|| time.saturating_sub(present.now) / SECOND);
    let (outside, pool) = match group.outside {
        SitesOutside::Public(client) => (
            subscribers.public.get(client).map(|client| name(client.interface)),
            None,
        ),
        SitesOutside::Pool(pool) => (None, config.pools.get(usize::from(pool)).map(|pool| pool.name.clone())),
    };
    let flags = [
        (view.shares_mac, "mac-in-two-sites"),
        (
            view.state == Some(Client::Rebooting) && view.public.is_some(),
            "confirming",
        ),
        (view.terminals == 0 && view.public.is_some(), "held"),
    ];
    Site {
        name: subscribers.name(view.site.0),
        group: group.name.clone(),
        number: view.site.0,
        interface: name(group.interface),
        tags: subscribers.tags(view.site.0).map(|tags| tags.to_string()),
        prefix: group.prefix.map(|prefix| prefix.to_string()),
        mac: view.mac.map(text),
        public: view.public,
        outside_interface: outside,
        pool,
        state: view.state.map(|state| state.word().to_owned()),
        server: view.lease.map(|lease| lease.server),
        renews: view.lease.and_then(|lease| seconds(lease.renew)),
        expires: view.lease.and_then(|lease| seconds(lease.expires)),
        terminals: view.terminals,
        flags: flags
            .into_iter()
            .filter(|(so, _)| *so)
            .map(|(_, flag)| flag.to_owned())
            .collect(),
    }
}

/// Position in the list of leases. Mapped leases come first, ordered by site and address. Unmapped leases follow,
/// ordered by server and address.
#[derive(Clone, Copy)]
enum Place {
    Mapped(u32, Ipv4Addr),
    Unmapped(usize, Ipv4Addr),
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split('-');
        let (kind, number, address) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        match kind {
            "site" => Some(Self::Mapped(number.parse().ok()?, address)),
            "server" => Some(Self::Unmapped(number.parse().ok()?, address)),
            _ => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Mapped(site, address) => format!("site-{site}-{address}"),
            Self::Unmapped(server, address) => format!("server-{server}-{address}"),
        }
    }
}

/// Filter of a list of leases.
struct LeaseSelection {
    /// Range of site numbers: the first, and one past the last.
    sites: (u32, u32),
    /// Whether leases without a site are included.
    any: bool,
    /// Network that must contain the leased address.
    address: Option<NetFilter>,
    /// Maximum number of leases.
    most: usize,
}

/// Returns leases, starting at a position, and the position of the next page.
fn leases_from(service: &Service, place: Place, wanted: &LeaseSelection) -> (Vec<LeaseView>, Option<Place>) {
    let (first, sites_end) = wanted.sites;
    let meant = |view: &LeaseView| {
        let there = view
            .site
            .map_or(wanted.any, |site| (first..sites_end).contains(&site.0));
        there && wanted.address.is_none_or(|net| net.matches(view.lease.address.into()))
    };
    let (mut found, mut remaining) = (Vec::new(), MAX_EXAMINED);
    let mut unmapped = (0, Ipv4Addr::UNSPECIFIED);
    match place {
        Place::Mapped(site, address) => {
            for view in service.leases((subscribers::Site(site.max(first)), address)) {
                let Some(site) = view.site.filter(|site| site.0 < sites_end) else {
                    break;
                };
                if found.len() >= wanted.most || remaining == 0 {
                    return (found, Some(Place::Mapped(site.0, view.lease.address)));
                }
                remaining -= 1;
                found.extend(Some(view).filter(meant));
            }
        }
        Place::Unmapped(server, address) => unmapped = (server, address),
    }
    for view in service.leases_apart(unmapped) {
        if found.len() >= wanted.most || remaining == 0 {
            return (found, Some(Place::Unmapped(view.server, view.lease.address)));
        }
        remaining -= 1;
        found.extend(Some(view).filter(meant));
    }
    (found, None)
}

impl ServePages for operation::Leases {
    async fn serve(control: Arc<Control>, filter: LeaseFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let range = meant(&config, filter.site.as_deref(), filter.group.as_deref())?;
        let place = match &position.cursor {
            Some(text) => Place::read(text).ok_or_else(|| bad_cursor(text))?,
            None => Place::Mapped(0, Ipv4Addr::UNSPECIFIED),
        };
        let (Some(subscribers), Some(served)) = (&config.subscribers, &control.sites) else {
            return Ok(Page::whole(Vec::new()));
        };
        let present = served.service().present();
        let wanted = LeaseSelection {
            sites: range,
            any: filter.site.is_none() && filter.group.is_none(),
            address: filter.address,
            most: limit(&position),
        };
        let (views, next) = served.service().with(|service| leases_from(service, place, &wanted));
        let items = views.into_iter().filter_map(|view| lease(view, subscribers, present));
        Ok(Page {
            items: items.collect(),
            next: next.map(Place::text),
        })
    }
}

fn lease(view: LeaseView, subscribers: &Subscribers, present: Present) -> Option<Lease> {
    let server = subscribers.servers.get(view.server)?;
    let group = view.site.and_then(|site| subscribers.group_of(site.0));
    Some(Lease {
        address: view.lease.address,
        mac: text(view.lease.hardware),
        host_name: view.lease.host_name.as_deref().map(str::to_owned),
        site: view.site.map(|site| subscribers.name(site.0)),
        group: group.map(|group| group.name.clone()),
        server: server.name.clone(),
        source: server.leases.display().to_string(),
        since: present.unix.saturating_sub(view.lease.renewed),
        expires: match view.lease.expires {
            Expiry::At(end) => Some(end.saturating_sub(present.unix)),
            Expiry::Never => None,
        },
        state: view.status.word().into(),
    })
}

impl Serve for operation::Dhcp {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let (Some(subscribers), Some(served)) = (&config.subscribers, &control.sites) else {
            return Ok(DhcpStatus::default());
        };
        let service = served.service();
        let (now, most) = (service.present().now, u64::from(subscribers.terminals));
        let statuses = (0..subscribers.servers.len()).map(|place| service.status(place).unwrap_or_default());
        let statuses: Vec<_> = statuses.collect();
        let status = service.with(|service| {
            let [terminals, left_out] = service.terminals().map(|count| count as u64);
            let servers = subscribers.servers.iter().zip(statuses).enumerate();
            let servers = servers.map(|(place, (server, status))| {
                let relay = service.relay(place).map(Tally::named);
                let of_file = status.named();
                LeaseServerStatus {
                    name: server.name.clone(),
                    source: server.leases.display().to_string(),
                    there: status.there,
                    watched: status.watched,
                    error: status.error,
                    leases: status.leases as u64,
                    counters: counters(of_file.into_iter().chain(relay.unwrap_or_default())),
                }
            });
            let clients = subscribers.public.iter().enumerate().filter_map(|(place, client)| {
                let agent = service.agent(place)?;
                let interface = config.interfaces.get(usize::from(client.interface))?;
                Some(PublicClientStatus {
                    interface: interface.name.clone(),
                    servers: agent.servers(now).word().into(),
                    bound: agent.leases().count() as u64,
                    counters: counters(agent.counters().named()),
                })
            });
            DhcpStatus {
                sites: subscribers.sites().into(),
                terminals: [terminals, most],
                left_out,
                servers: servers.collect(),
                clients: clients.collect(),
                counters: counters(service.counts().named()),
            }
        });
        Ok(status)
    }
}

fn counters(named: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<Counter> {
    let counter = |(name, count): (&str, u64)| Counter {
        name: name.into(),
        count,
    };
    named.into_iter().map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscribers::service::tests::{World, lease as leased};

    /// A service with five leases in two sites and two leases without a site.
    fn world() -> World {
        let mut world = World::new();
        for (last, circuit) in (1..).zip(["homes-100.6", "homes-100.5", "homes-100.5", "shops-8", "shops-8"]) {
            world.gain(leased(last, last, circuit));
        }
        world.gain(leased(9, 9, "nobody"));
        world.gain(leased(8, 8, "nobody"));
        world
    }

    /// For each page, the last byte of each address on it.
    fn pages(world: &World, wanted: &LeaseSelection) -> Vec<Vec<u8>> {
        let mut place = Some(Place::Mapped(0, Ipv4Addr::UNSPECIFIED));
        let mut pages = Vec::new();
        while let Some(from) = place {
            let (views, next) = leases_from(&world.service, from, wanted);
            pages.push(views.iter().map(|view| view.lease.address.octets()[3]).collect());
            // Parsing the text of the cursor must yield the same position.
            place = next.map(|next| Place::read(&next.text()).expect("a cursor"));
        }
        pages
    }

    fn all(most: usize) -> LeaseSelection {
        LeaseSelection {
            sites: (0, 9),
            any: true,
            address: None,
            most,
        }
    }

    #[test]
    fn leases_come_by_site_and_address_and_those_of_no_site_last() {
        let world = world();
        assert_eq!(vec![vec![2, 3, 1, 4, 5, 8, 9]], pages(&world, &all(100)));
        assert_eq!(
            vec![vec![2, 3], vec![1, 4], vec![5, 8], vec![9]],
            pages(&world, &all(2))
        );
        assert_eq!(7, pages(&world, &all(1)).len());
    }

    #[test]
    fn leases_of_a_site_or_a_network_are_those_alone() {
        let world = world();
        let of_site = |site| LeaseSelection {
            sites: (site, site + 1),
            any: false,
            ..all(1)
        };
        // The last page is empty, because no lease without a site matches.
        assert_eq!(vec![vec![2], vec![3], vec![]], pages(&world, &of_site(0)));
        assert_eq!(vec![Vec::<u8>::new()], pages(&world, &of_site(2)));
        let network = LeaseSelection {
            address: Some("10.0.1.4/31".parse().expect("a network")),
            ..all(9)
        };
        assert_eq!(vec![vec![4, 5]], pages(&world, &network));
    }

    #[test]
    fn cursor_that_nobody_gave_out_is_none() {
        for text in [
            "",
            "site",
            "site-1",
            "site-x-10.0.0.1",
            "site-1-10.0.0",
            "group-1-10.0.0.1",
        ] {
            assert!(Place::read(text).is_none(), "{text}");
        }
    }
}
