//! Converts subscribers' sites: the classification of frames to sites, and the networks of public addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use sluice_config::Config;
use sluice_config::config::{InterfaceIndex, PublicClient, SiteFrames, SiteGroup, SiteRow, SitesOutside, Subscribers};
use sluice_engine::snapshot::sites::{SINGLE, SiteClassifier, SiteKey, SiteSettings, TagRange};
use sluice_nat::sites::{Network, Sites, context};
use sluice_wire::Context;

/// Context of a site in a group of sites.
pub fn site_context(group: &SiteGroup, site: u32) -> Context {
    let pooled = matches!(group.outside, SitesOutside::Pool(_));
    context(site, group.router, pooled)
}

/// Public-side DHCP clients that sites use.
fn used(subscribers: &Subscribers) -> impl Iterator<Item = &PublicClient> {
    let all = (0..).zip(&subscribers.public);
    all.filter(|(place, _)| subscribers.clients(*place) > 0)
        .map(|(_, public)| public)
}

/// Networks of the public addresses that are assigned to single sites.
pub fn site_networks(config: &Config) -> Vec<Network> {
    let network = |interface: InterfaceIndex, prefix: &Ipv4Net| {
        let interface = config.interfaces.get(usize::from(interface));
        let router = interface.map_or(0, |interface| interface.router);
        let (first, last) = (prefix.network().to_bits(), prefix.broadcast().to_bits());
        (Context::from(router), first, last)
    };
    let of = |public: &PublicClient| {
        let networks: Vec<_> = public
            .prefixes
            .iter()
            .map(|prefix| network(public.interface, prefix))
            .collect();
        networks
    };
    config.subscribers.iter().flat_map(used).flat_map(of).collect()
}

/// Classifier with which workers assign packets to sites. The classifier reads the site table, which the control plane
/// writes. `None` if no sites are configured.
pub fn access(config: &Config, table: &Arc<Sites>) -> Option<SiteClassifier> {
    let subscribers = config.subscribers.as_ref()?;
    let mut rows: BTreeMap<InterfaceIndex, Vec<&SiteRow>> = BTreeMap::new();
    for row in &subscribers.rows {
        rows.entry(row.interface).or_default().push(row);
    }
    let access_interfaces = rows
        .into_iter()
        .map(|(interface, rows)| (interface, site_key(subscribers, &rows)))
        .collect();
    let settings = SiteSettings {
        access_interfaces,
        publics: used(subscribers).map(|public| public.interface).collect(),
        relays: subscribers
            .groups
            .iter()
            .map(|group| (Context::from(group.router), group.relay.to_bits()))
            .collect(),
    };
    Some(SiteClassifier::new(table.clone(), settings))
}

fn site_key(subscribers: &Subscribers, rows: &[&SiteRow]) -> SiteKey {
    let context_of = |row: &SiteRow| {
        let group = subscribers.groups.get(row.group);
        group.map_or(0, |group| site_context(group, row.first))
    };
    let tags = rows.iter().filter_map(|row| {
        let (outer, first) = match row.frames {
            SiteFrames::Tags(outer, first) => (outer, first),
            SiteFrames::Tag(first) => (SINGLE, first),
            SiteFrames::All | SiteFrames::Prefix(_) => return None,
        };
        let (count, context) = (row.count as u16, context_of(row));
        Some(TagRange {
            outer,
            first,
            count,
            context,
        })
    });
    let tags: Vec<TagRange> = tags.collect();
    let prefixes = rows.iter().filter_map(|row| match row.frames {
        SiteFrames::Prefix(net) => Some((net.network().to_bits(), net.prefix_len(), context_of(row))),
        _ => None,
    });
    let prefixes: Vec<_> = prefixes.collect();
    match rows.iter().find(|row| row.frames == SiteFrames::All) {
        Some(row) => SiteKey::One(context_of(row)),
        None if tags.is_empty() => SiteKey::Prefixes(prefixes),
        None => SiteKey::Tags(tags),
    }
}

/// Addresses of the DHCP relays on an interface, without the interface's own addresses.
pub fn relays(config: &Config, interface: InterfaceIndex) -> Vec<Ipv4Addr> {
    let groups = config.subscribers.iter().flat_map(|subscribers| &subscribers.groups);
    let mut relays: Vec<Ipv4Addr> = groups
        .filter(|group| group.interface == interface)
        .map(|group| group.relay)
        .collect();
    relays.sort_unstable();
    relays.dedup();
    if let Some(configured) = config.interfaces.get(usize::from(interface)) {
        relays.retain(|relay| configured.addresses.iter().all(|own| own.address() != *relay));
    }
    relays
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use sluice_nat::sites::{POOLED, SiteWriter};

    const TEXT: &str = r#"
[interfaces.access]
device = "null:"
addresses = ["10.0.0.1/16"]
[interfaces.flat]
device = "null:"
addresses = ["10.1.0.1/16"]
[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/22"]
[nat.pools.shared]
addresses = ["203.0.113.0/28"]
[subscribers.sites.homes]
interface = "access"
tags = "100-101.5-7"
dhcp = "inside"
public = "outside"
[subscribers.sites.shops]
interface = "access"
tags = "8-9"
dhcp = "inside"
pool = "shared"
[subscribers.sites.hall]
interface = "flat"
prefix = "10.1.7.0/24"
dhcp = "inside"
public = "outside"
[subscribers.dhcp.inside]
server = "192.0.2.10"
leases = "/tmp/leases"
format = "kea"
[subscribers.public.outside]
prefixes = ["198.51.100.0/25", "203.0.113.128/25"]
"#;

    #[test]
    fn sites_of_the_configuration_are_rows_with_the_contexts_of_their_numbers() {
        let config = config(TEXT);
        let (_, table) = SiteWriter::new(20, 1, &site_networks(&config), [1, 2]);
        let access = access(&config, &table).expect("sites");
        let row = |outer, first, count, context| TagRange {
            outer,
            first,
            count,
            context,
        };
        let tags = vec![
            row(100, 5, 3, context(0, 0, false)),
            row(101, 5, 3, context(3, 0, false)),
            row(SINGLE, 8, 2, context(6, 0, true)),
        ];
        let hall = SiteKey::Prefixes(vec![(0x0a01_0700, 24, context(8, 0, false))]);
        let settings = access.settings();
        assert_eq!(vec![(0, SiteKey::Tags(tags)), (1, hall)], settings.access_interfaces);
        assert_eq!(vec![2], settings.publics);
        let networks = vec![(0, 0xc633_6400, 0xc633_647f), (0, 0xcb00_7180, 0xcb00_71ff)];
        assert_eq!(networks, table.networks().collect::<Vec<_>>());
        assert!(settings.relays.contains(&(0, 0x0a00_0001)) && settings.relays.contains(&(0, 0x0a01_0001)));
        let subscribers = config.subscribers.as_ref().expect("subscribers");
        assert_eq!(POOLED, site_context(&subscribers.groups[1], 6) & POOLED);
    }

    #[test]
    fn relay_that_is_no_address_of_its_interface_is_answered_for() {
        let text = TEXT.replace(
            "server = \"192.0.2.10\"",
            "server = \"192.0.2.10\"\nrelay = \"10.0.0.2\"",
        );
        let text = text.replace(
            "[interfaces.flat]\ndevice = \"null:\"\naddresses = [\"10.1.0.1/16\"]",
            "",
        );
        let (before, after) = text.split_once("[subscribers.sites.hall]").expect("the hall");
        let after = after.split_once("[subscribers.dhcp").expect("a server").1;
        let config = config(&format!("{before}[subscribers.dhcp{after}"));
        assert_eq!(vec![Ipv4Addr::new(10, 0, 0, 2)], relays(&config, 0));
        assert!(relays(&super::super::tests::config(TEXT), 0).is_empty());
    }
}
