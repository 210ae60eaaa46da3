//! Converts interfaces, their ports and their routes.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use sluice_config::Config;
use sluice_config::config::{Interface as Configured, InterfaceIndex, Link, RouteNextHop, RouterIndex, SourceAction};
use sluice_config::schema;
use sluice_config::value::VlanPriority;
use sluice_engine::packet::io::{NO_PORT, PortIndex};
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_engine::snapshot::{Advertise, Bridge, Interface, NeighbourSettings, Priority, bridge_context};
use sluice_route::{
    Address, Balance, DropKind, Prefix, Route, RouteError, RouteSet, SourceTables, SourceValidation, Via,
};
use sluice_wire::ethernet::ethertype;
use sluice_wire::vlan::Tag;
use sluice_wire::{ndp, validity};

use super::{LoweringError, VALIDATED, relays};

/// Ports of a configuration, each with the interface that uses the port's device. At the start of the process,
/// interfaces are numbered without gaps, in the order of the file.
pub fn ports(config: &Config) -> Vec<(PortIndex, InterfaceIndex)> {
    let named = (0..).zip(config.numbering.ports.names());
    named
        .filter_map(|(port, name)| Some((port, config.interface(name?)?.0)))
        .collect()
}

/// Port of an interface that has its own device.
pub fn port(config: &Config, interface: InterfaceIndex) -> Option<PortIndex> {
    let mut ports = ports(config).into_iter();
    ports.find(|&(_, owner)| owner == interface).map(|(port, _)| port)
}

/// Port and VLAN tags of an interface.
fn place(config: &Config, ports: &[(PortIndex, InterfaceIndex)], index: InterfaceIndex) -> (PortIndex, Vec<Tag>) {
    let interface = config.interfaces.get(usize::from(index));
    let (device, tags) = match interface.map(|interface| &interface.link) {
        Some(Link::Vlan { parent, tags }) => {
            let outer = Tag {
                protocol: interface.map_or(ethertype::VLAN, |interface| interface.tag_protocol.number()),
                ..Tag::vlan(tags.outer())
            };
            let inner = tags.inner().map(Tag::vlan);
            (*parent, [outer].into_iter().chain(inner).collect())
        }
        _ => (index, Vec::new()),
    };
    let port = ports.iter().find(|&&(_, owner)| owner == device);
    (port.map_or(NO_PORT, |&(port, _)| port), tags)
}

/// Convert all interfaces to the type of the engine. The argument `macs` contains the Ethernet address of each port.
pub fn interfaces(config: &Config, macs: &[[u8; 6]]) -> Vec<Interface> {
    let ports = ports(config);
    let translates = |router: RouterIndex| {
        config.source.iter().any(|rule| rule.router == router)
            || config.destination.iter().any(|rule| rule.router == router)
    };
    (0..)
        .zip(config.interfaces.iter().zip(sides(config)))
        .map(|(index, (configured, side))| {
            let (port, tags) = place(config, &ports, index);
            // Tunnels and the interfaces of inter-router links get a locally administered address.
            let [high, low] = index.to_be_bytes();
            let own = macs
                .get(usize::from(port))
                .copied()
                .unwrap_or([2, 0x53, 0x6c, 2, high, low]);
            let mac = configured.mac.map_or(own, |mac| mac.bytes());
            Interface {
                name: configured.name.clone(),
                port,
                tags,
                priority: match configured.vlan_priority {
                    VlanPriority::Keep => Priority::Keep,
                    VlanPriority::Set(priority) => Priority::Set(priority),
                },
                mac,
                mtu: configured.mtu,
                link: link(config, configured, index, mac),
                router: configured.router,
                context: configured
                    .bridge
                    .as_ref()
                    .map_or(configured.router.into(), |bridge| bridge_context(bridge.number)),
                stateful: [translates(configured.router) && configured.bridge.is_none(), false],
                outside: side != Side::Inside && configured.bridge.is_none(),
                validation: match configured.source_validation {
                    schema::SourceValidation::Strict => SourceValidation::Strict,
                    schema::SourceValidation::Loose => SourceValidation::Loose,
                    schema::SourceValidation::Off => SourceValidation::Off,
                },
                validity: validity::Policy {
                    reserved: !config.document.system.allow_reserved_ranges,
                    ..validity::Policy::default()
                },
                neighbours: NeighbourSettings {
                    proxy: configured.proxy,
                    announces: configured.announce_addresses,
                    redirects: configured.redirects,
                },
                complete_checksums: configured.partial_checksums == schema::PartialChecksums::Complete,
                advertise: advertise(configured),
                host: configured.bridge.is_none()
                    && config
                        .routers
                        .get(usize::from(configured.router))
                        .is_some_and(|router| router.daemon),
                segment_size: configured.mss_clamp.map(|clamp| clamp.segment_size(configured.mtu)),
                peer: match configured.link {
                    Link::Virtual { peer } => Some(peer),
                    _ => None,
                },
                tunnel: match &configured.link {
                    Link::Tunnel(written) => Some(tunnel(written)),
                    _ => None,
                },
                bridge: configured.bridge.as_ref().map(|bridge| Bridge {
                    peer: bridge.peer,
                    drops_invalid: bridge.settings.invalid == schema::Invalid::Drop,
                    fails_open: bridge.settings.fail == schema::Fail::Open,
                }),
            }
        })
        .collect()
}

fn tunnel(written: &sluice_config::config::Tunnel) -> Tunnel {
    Tunnel {
        kind: match written.kind {
            schema::TunnelType::Vxlan => TunnelKind::Vxlan(written.port),
            schema::TunnelType::Gre => TunnelKind::Gre,
            schema::TunnelType::Ipip => TunnelKind::Ipip,
        },
        local: written.local.into(),
        remote: written.remote.into(),
        id: written.id,
        ttl: written.ttl,
        underlay: written.underlay,
    }
}

/// Side of the address translation on which an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Only inside hosts: no packet from this interface needs a lookup in destination rules or pools.
    Inside,
    /// Inside hosts, or an unknown side. Packets to outside addresses may also arrive on this interface.
    Both,
    /// Outside hosts: packets to outside addresses arrive on this interface.
    Outside,
}

/// Sides of all interfaces. A source rule makes its output interface an outside interface. If the rule names no output
/// interface, all interfaces may be on the outside. A destination rule makes its input interface an outside interface.
/// If the rule names no input interface, it makes all interfaces outside interfaces, except the interfaces of hosts
/// whose source addresses are translated.
fn sides(config: &Config) -> Vec<Side> {
    let mut routers: Vec<_> = config.interfaces.iter().map(|interface| interface.router).collect();
    routers.sort_unstable();
    routers.dedup();
    let found = routers.iter().flat_map(|&router| sides_of(config, router));
    let found: HashMap<InterfaceIndex, Side> = found.collect();
    let side = |index| found.get(&index).copied().unwrap_or(Side::Inside);
    (0..).zip(&config.interfaces).map(|(index, _)| side(index)).collect()
}

/// Sides of a router's interfaces.
fn sides_of(config: &Config, router: RouterIndex) -> Vec<(InterfaceIndex, Side)> {
    let rules: Vec<_> = config
        .source
        .iter()
        .filter(|rule| rule.router == router && rule.action != SourceAction::Exempt)
        .collect();
    let anywhere = rules.iter().any(|rule| rule.out.is_none());
    let forwards = |index: InterfaceIndex| {
        let mut rules = config.destination.iter().filter(|rule| rule.router == router);
        rules.any(|rule| !rule.own && rule.incoming.is_none_or(|incoming| incoming == index))
    };
    let has_hosts = |interface: &Configured| {
        interface.addresses.iter().any(|own| match own.net() {
            IpNet::V4(net) => rules
                .iter()
                .any(|rule| !rule.own && (rule.from.contains(&net) || net.contains(&rule.from))),
            IpNet::V6(_) => false,
        })
    };
    let side = |(index, interface): (InterfaceIndex, &Configured)| {
        let named = rules.iter().any(|rule| rule.out == Some(index));
        let has_hosts = has_hosts(interface);
        let side = match named {
            true => Side::Outside,
            false if has_hosts && anywhere => Side::Both,
            false if has_hosts || !anywhere && !forwards(index) => Side::Inside,
            // An interface without addresses is probably used only for its VLANs.
            false if interface.addresses.is_empty() => Side::Both,
            false => Side::Outside,
        };
        (index, side)
    };
    let interfaces = (0..).zip(&config.interfaces);
    interfaces
        .filter(|(_, interface)| interface.router == router)
        .map(side)
        .collect()
}

/// Whether the card should hash by the outside address, because packets to outside addresses arrive on the interface or
/// on one of its VLANs.
pub fn faces_outside(config: &Config, card: InterfaceIndex) -> bool {
    let mut all = (0..).zip(&config.interfaces).zip(sides(config));
    all.any(|((index, interface), side)| {
        let on_card = match interface.link {
            Link::Vlan { parent, .. } => parent == card,
            _ => index == card,
        };
        on_card && side == Side::Outside
    })
}

/// Addresses of an interface. An interface with IPv6 also has a link-local address (RFC 4291, section 2.5.6).
fn link(config: &Config, configured: &Configured, index: InterfaceIndex, mac: [u8; 6]) -> sluice_route::Interface {
    let mut addresses: Vec<(Address, u8)> = configured
        .addresses
        .iter()
        .map(|address| (address.address().into(), address.net().prefix_len()))
        .collect();
    // DHCP servers reply to the addresses of relays, so these addresses also belong to the router.
    let relays = relays(config, index).into_iter();
    addresses.extend(relays.map(|relay| (IpAddr::V4(relay).into(), 32)));
    let v6 = addresses.iter().any(|(address, _)| matches!(address, Address::V6(_)));
    if v6 && !addresses.iter().any(|(address, _)| address.is_link_local()) {
        addresses.push((Address::V6(ndp::link_local(mac)), 64));
    }
    sluice_route::Interface { index, addresses }
}

fn advertise(configured: &Configured) -> Option<Advertise> {
    let settings = configured.advertisements.as_ref()?;
    let seconds = |period: sluice_config::value::Period| u32::try_from(period.duration().as_secs()).unwrap_or(u32::MAX);
    settings.send.then(|| Advertise {
        interval: seconds(settings.interval),
        lifetime: seconds(settings.lifetime).min(u32::from(u16::MAX)) as u16,
        valid: seconds(settings.valid_lifetime),
        preferred: seconds(settings.preferred_lifetime),
        autonomous: settings.autonomous,
        managed: settings.managed,
        other: settings.other,
    })
}

/// Default gateways of each interface: the gateway of the configured default route with the lowest distance. Without
/// such a route, the gateway of an uplink.
pub fn uplinks(config: &Config) -> Vec<[Option<Address>; 2]> {
    let mut uplinks = vec![[None; 2]; config.interfaces.len()];
    let mut defaults: Vec<_> = config
        .routes
        .iter()
        .filter(|route| route.to.net().prefix_len() == 0)
        .collect();
    defaults.sort_by_key(|route| route.distance);
    for route in defaults {
        let RouteNextHop::Gateway(address, interface) = route.next_hop else {
            continue;
        };
        if let Some(of) = uplinks.get_mut(usize::from(interface)) {
            let v6 = usize::from(address.is_ipv6());
            of[v6] = of[v6].or(Some(address.into()));
        }
    }
    for uplink in &config.uplinks {
        let Some(of) = uplinks.get_mut(usize::from(uplink.interface)) else {
            continue;
        };
        for &gateway in &uplink.gateways {
            let v6 = usize::from(gateway.is_ipv6());
            of[v6] = of[v6].or(Some(gateway.into()));
        }
    }
    uplinks
}

/// Routing tables that are selected by source network.
pub fn sources(config: &Config) -> SourceTables {
    let networks = config
        .routes
        .iter()
        .filter_map(|route| Some((route.router, prefix(route.from?))));
    SourceTables::new(config.routers.len(), networks)
}

/// Routes of each router, followed by the routes of the tables for source networks. A set contains the configured
/// routes, and routes for the addresses and networks of interfaces.
///
/// # Errors
/// A route contradicts the link-local address that an interface derives from the MAC address of its device.
pub fn routes(config: &Config, interfaces: &[Interface]) -> Result<Vec<RouteSet>, LoweringError> {
    let mut links = vec![Vec::new(); config.routers.len()];
    for interface in interfaces.iter().filter(|interface| interface.bridge.is_none()) {
        if let Some(links) = links.get_mut(usize::from(interface.router)) {
            links.push(interface.link.clone());
        }
    }
    let sources = sources(config);
    // Connected networks also take precedence over routes of tables for source networks.
    let of_tables = sources
        .iter()
        .map(|(router, ..)| links.get(usize::from(router)).cloned());
    let of_tables: Vec<_> = of_tables.map(Option::unwrap_or_default).collect();
    links.extend(of_tables);
    let mut configured = vec![Vec::new(); links.len()];
    for written in &config.routes {
        let table = match written.from.map(prefix) {
            None => Some(written.router),
            Some(from) => sources.table(written.router, from),
        };
        if let Some(routes) = table.and_then(|table| configured.get_mut(usize::from(table))) {
            routes.push(route(written));
        }
    }
    let sets = links.iter().zip(&configured);
    let sets = sets.map(|(links, configured)| RouteSet::new(links, configured));
    let sets: Result<_, _> = sets.collect();
    debug_assert!(
        !matches!(&sets, Err(error) if !concerns_link_local(error)),
        "{VALIDATED}: {sets:?}"
    );
    Ok(sets?)
}

/// Whether an error of routes concerns a link-local address, which may depend on a device.
fn concerns_link_local(error: &RouteError) -> bool {
    match error {
        RouteError::RouteTwice(prefix) => prefix.address().is_link_local(),
        RouteError::GatewayIsLocal { gateway, .. } => gateway.is_link_local(),
        _ => false,
    }
}

fn prefix(network: sluice_config::value::Prefix) -> Prefix {
    let net = network.net();
    Prefix::new(net.addr().into(), net.prefix_len())
}

fn route(configured: &sluice_config::config::Route) -> Route {
    Route {
        prefix: prefix(configured.to),
        weight: configured.weight,
        distance: configured.distance,
        balance: match configured.balance {
            Some(schema::RouteBalance::Host) => Balance::Host,
            Some(schema::RouteBalance::Flow) | None => Balance::Flow,
        },
        via: match configured.next_hop {
            RouteNextHop::Gateway(address, interface) => Via::OnLink {
                address: address.into(),
                interface,
            },
            RouteNextHop::Recursive(address) => Via::Recursive(address.into()),
            RouteNextHop::Link(interface) => Via::Attached(interface),
            RouteNextHop::Discard(action) => Via::Refused(match action {
                schema::RouteAction::Blackhole => DropKind::Blackhole,
                schema::RouteAction::Unreachable => DropKind::Unreachable,
                schema::RouteAction::Prohibit => DropKind::Prohibit,
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Machine, check};

    fn config(text: &str) -> Config {
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let valid = check("test", text, &machine).unwrap_or_else(|wrong| panic!("{wrong}"));
        valid.config.into_inner()
    }

    const LAN: &str = "[interfaces.lan]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/24\"]\n";
    const WAN: &str = "[interfaces.wan]\ndevice = \"null:\"\naddresses = [\"192.0.2.2/24\"]\n";
    const POOL: &str = "[nat.pools.a]\naddresses = [\"203.0.113.1\"]\n";
    const FORWARD: &str = "[[nat.destination]]\naddress = \"203.0.113.2\"\nto = \"10.0.0.2\"\n";

    fn source(out: &str) -> String {
        format!("{POOL}[[nat.source]]\nfrom = \"10.0.0.0/16\"\npool = \"a\"\n{out}\n")
    }

    /// Names of the cards that carry outside traffic.
    fn cards_of(text: &str) -> Vec<String> {
        let config = config(text);
        let cards = ports(&config)
            .into_iter()
            .map(|(_, card)| card)
            .filter(|&card| faces_outside(&config, card));
        cards
            .map(|card| config.interfaces[usize::from(card)].name.clone())
            .collect()
    }

    /// Names of the outside interfaces of a gateway that has a LAN, a WAN and these rules.
    fn outside_of(rules: &str) -> Vec<String> {
        let config = config(&format!("{LAN}{WAN}{rules}"));
        let found = interfaces(&config, &[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]);
        let outside = found.into_iter().filter(|interface| interface.outside);
        outside.map(|interface| interface.name).collect()
    }

    #[test]
    fn outside_is_where_rules_lead_and_not_where_their_hosts_are() {
        let named = source("out = \"wan\"");
        assert_eq!(vec!["wan"], outside_of(&named));
        assert_eq!(vec!["wan"], outside_of(&format!("{named}{FORWARD}")));
        // Each of the two networks may contain hosts that are translated towards the other network.
        assert_eq!(vec!["lan", "wan"], outside_of(&source("")));
        assert_eq!(vec!["lan", "wan"], outside_of(FORWARD));
        assert!(outside_of("").is_empty());
        // A rule for an interface affects only that interface. Rules for the router's host stack affect no interface.
        let of_wan = "[[nat.destination]]\nin = \"wan\"\nprotocol = \"tcp\"\nport = 80\nto = \"10.0.0.5\"\n";
        assert_eq!(vec!["wan"], outside_of(of_wan));
        let own = "[routers.default]\ndaemon = true\n[[nat.destination]]\nlocal = true\nto = \"10.0.0.5\"\n";
        assert!(outside_of(own).is_empty());
    }
    #[test]
    fn card_faces_outside_where_rules_lead_by_itself_or_a_vlan_and_not_where_their_hosts_are() {
        let both = format!("{LAN}{WAN}");
        assert_eq!(vec!["wan"], cards_of(&format!("{both}{}", source("out = \"wan\""))));
        // No rule names an interface. The card of the hosts is still an inside card, since it carries the hosts'
        // packets.
        assert_eq!(vec!["wan"], cards_of(&format!("{both}{}", source(""))));
        assert_eq!(
            vec!["wan"],
            cards_of(&format!("{both}{}{FORWARD}", source("out = \"wan\"")))
        );
        // Without translation no interface is on the outside.
        let exempt = "[[nat.exempt]]\nfrom = \"10.0.0.0/16\"\nout = \"wan\"\n";
        assert!(cards_of(&format!("{both}{exempt}")).is_empty());
        let trunk = "[interfaces.trunk]\ndevice = \"null:\"\n[interfaces.wan]\nparent = \"trunk\"\nvlan = 7\n\
                     addresses = [\"192.0.2.2/24\"]\n";
        assert_eq!(
            vec!["trunk"],
            cards_of(&format!("{LAN}{trunk}{}", source("out = \"wan\"")))
        );
        assert_eq!(vec!["trunk"], cards_of(&format!("{LAN}{trunk}{}", source(""))));
        let hosts = "[interfaces.trunk]\ndevice = \"null:\"\n[interfaces.lan]\nparent = \"trunk\"\nvlan = 7\n\
                     addresses = [\"10.0.0.1/24\"]\n";
        assert_eq!(
            vec!["wan"],
            cards_of(&format!("{hosts}{WAN}{}{FORWARD}", source("out = \"wan\"")))
        );
    }
}
