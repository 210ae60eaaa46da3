//! Validation of interfaces: links, addresses, and conflicts between them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::routers::{DEFAULT, of_router};
use super::tunnels::overhead;
use super::{Check, is_link_local};
use crate::config::{Interface, InterfaceIndex, Link, RouterIndex};
use crate::limits::MAX_INTERFACES;
use crate::problem::{Problem, RouterProblem, TunnelProblem};
use crate::read::place;
use crate::schema;
use crate::value::{Device, DeviceKind, InterfaceAddress, Period, TagProtocol};

/// Default MTU of Ethernet (RFC 894).
const ETHERNET_MTU: u16 = 1_500;

/// Maximum number of nested tunnels for which the default MTU accounts. Packets do not pass more nested tunnels.
const MAX_NESTED_TUNNELS: usize = 3;

impl Check<'_> {
    /// All interfaces by number. `None` if an interface is invalid.
    pub(super) fn interfaces(&mut self, workers: usize) -> Option<Vec<Interface>> {
        let document = self.document;
        if document.interfaces.is_empty() {
            self.report(place!["interfaces"], Problem::NoInterfaces);
        }
        let count = document.interfaces.len();
        self.in_range(
            place!["interfaces"],
            "a number of interfaces",
            count,
            0..=MAX_INTERFACES,
        );
        let numbers = self.numbering.interfaces.clone();
        let made: Vec<_> = numbers
            .names()
            .map(
                |name| match name.and_then(|name| document.interfaces.get_key_value(name)) {
                    Some((name, written)) => self.interface(name, written, workers),
                    None => Some(Interface::removed()),
                },
            )
            .collect();
        self.devices();
        self.link_shares();
        self.vlans();
        self.links();
        made.into_iter().collect()
    }

    fn interface(&mut self, name: &str, written: &schema::Interface, workers: usize) -> Option<Interface> {
        let at = |key| [place!["interfaces", name], place![key]].concat();
        self.name(place!["interfaces", name], name);
        // RFC 791, section 3.1: every host accepts 576 bytes. The maximum is the length of the longest frame that fits
        // into the buffers of all drivers.
        let mtu = self.mtu(written);
        self.in_range(&at("mtu"), "an MTU", mtu, 576..=9_216);
        let ipv6 = written.addresses.iter().any(|address| address.address().is_ipv6());
        if ipv6 && mtu < 1_280 {
            self.report(&at("mtu"), Problem::MtuTooSmallForIpv6(mtu));
        }
        if let Some(queues) = written.queues {
            self.in_range(&at("queues"), "a number of queues", queues, 1..=1_024);
            if usize::from(queues) > workers && workers != 0 && written.parent.is_none() {
                self.report(&at("queues"), Problem::MoreQueuesThanWorkers { queues, workers });
            }
        }
        for (k, address) in written.addresses.iter().enumerate() {
            self.host(place!["interfaces", name, "addresses", k], address.address());
        }
        let advertisements = self.advertisements(name, written);
        Some(Interface {
            name: name.to_owned(),
            router: self.router_in_namespace(name, written),
            link: self.link(name, written)?,
            addresses: written.addresses.clone(),
            mtu,
            tag_protocol: tag_protocol(written),
            vlan_priority: written.vlan_priority.unwrap_or_default(),
            mac: written.mac,
            source_validation: written.source_validation,
            proxy: [written.proxy_arp, written.proxy_ndp],
            announce_addresses: written.announce_addresses,
            redirects: written.redirects,
            advertisements,
            partial_checksums: written.partial_checksums,
            mss_clamp: written.mss_clamp,
            share: written.share,
            rate: written.rate,
            bridge: None,
        })
    }

    pub(super) fn mtu(&self, written: &schema::Interface) -> u16 {
        self.mtu_over(written, MAX_NESTED_TUNNELS)
    }

    /// MTU of an interface, which may be a tunnel. At most `tunnels` further nested tunnels are taken into account.
    fn mtu_over(&self, written: &schema::Interface, tunnels: usize) -> u16 {
        if let (None, Some(tunnel)) = (written.mtu, &written.tunnel) {
            let holder = self.holder(tunnel, tunnel.local).filter(|_| tunnels > 0);
            let underlay = holder.and_then(|holder| self.document.interfaces.get(holder));
            let outer = underlay.map_or(ETHERNET_MTU, |underlay| self.mtu_over(underlay, tunnels - 1));
            return outer.saturating_sub(overhead(tunnel));
        }
        let parent = written
            .parent
            .as_ref()
            .and_then(|parent| self.document.interfaces.get(parent));
        written
            .mtu
            .or(parent.and_then(|parent| parent.mtu))
            .unwrap_or(ETHERNET_MTU)
    }

    fn vlan_link(&mut self, name: &str, written: &schema::Interface, parent: &str) -> Option<Link> {
        let at = |key| [place!["interfaces", name], place![key]].concat();
        for (key, is_there) in [
            ("queues", written.queues.is_some()),
            ("mac", written.mac.is_some()),
            ("in-use", written.in_use != schema::InUse::Refuse),
        ] {
            if is_there {
                self.report(&at(key), Problem::NotOnVlan(key));
            }
        }
        let parent = self.interface_index(&at("parent"), parent);
        let Some(tags) = written.vlan else {
            self.report(&at("parent"), Problem::ParentWithoutVlan);
            return None;
        };
        Some(Link::Vlan { parent: parent?, tags })
    }

    fn link(&mut self, name: &str, written: &schema::Interface) -> Option<Link> {
        let at = |key| [place!["interfaces", name], place![key]].concat();
        let queues = written.queues;
        if written.vlan.is_some() && written.parent.is_none() {
            self.report(&at("vlan"), Problem::VlanWithoutParent);
            return None;
        }
        for (key, is_there) in [
            ("tag-protocol", written.tag_protocol.is_some()),
            ("vlan-priority", written.vlan_priority.is_some()),
        ] {
            if is_there && written.vlan.is_none() {
                self.report(&at(key), Problem::OnlyOnVlan(key));
            }
        }
        if let (Some(peer), None, None, None, None) = (
            &written.peer,
            &written.device,
            &written.bond,
            &written.parent,
            &written.tunnel,
        ) {
            return self.virtual_link(name, written, peer);
        }
        if let (Some(tunnel), None, None, None, None) = (
            &written.tunnel,
            &written.device,
            &written.bond,
            &written.parent,
            &written.peer,
        ) {
            return self.tunnel(name, written, tunnel);
        }
        match (&written.device, &written.bond, &written.parent) {
            _ if written.peer.is_some() || written.tunnel.is_some() => {
                self.report(place!["interfaces", name], Problem::SeveralBehind(name.to_owned()));
                None
            }
            (Some(device), None, None) => Some(Link::Device {
                device: device.clone(),
                queues,
            }),
            (None, Some(bond), None) => {
                if bond.members.is_empty() {
                    self.report(&at("bond"), Problem::EmptyBond);
                }
                for (k, member) in bond.members.iter().enumerate() {
                    if !matches!(member.kind(), DeviceKind::Kernel | DeviceKind::Pci) {
                        let at = place!["interfaces", name, "bond", "members", k];
                        self.report(at, Problem::NotBondable(member.clone()));
                    }
                }
                Some(Link::Bond {
                    members: bond.members.clone(),
                    mode: bond.mode,
                    queues,
                })
            }
            (None, None, Some(parent)) => self.vlan_link(name, written, parent),
            (None, None, None) => {
                self.report(place!["interfaces", name], Problem::NothingBehind(name.to_owned()));
                None
            }
            _ => {
                self.report(place!["interfaces", name], Problem::SeveralBehind(name.to_owned()));
                None
            }
        }
    }

    /// An end of a virtual link. The other end must specify this end as its peer, and must belong to another router.
    fn virtual_link(&mut self, name: &str, written: &schema::Interface, peer: &str) -> Option<Link> {
        let at = |key| [place!["interfaces", name], place![key]].concat();
        for (key, is_there) in [
            ("queues", written.queues.is_some()),
            ("mac", written.mac.is_some()),
            ("in-use", written.in_use != schema::InUse::Refuse),
        ] {
            if is_there {
                self.report(&at(key), RouterProblem::NotOnLink(key).into());
            }
        }
        let index = self.interface_index(&at("peer"), peer)?;
        let other = self.document.interfaces.get(peer)?;
        if other.peer.as_deref() != Some(name) {
            let (name, peer) = (name.to_owned(), peer.to_owned());
            self.report(&at("peer"), RouterProblem::PeerElsewhere { name, peer }.into());
        } else if other.router.as_deref().unwrap_or(DEFAULT) == written.router.as_deref().unwrap_or(DEFAULT) {
            self.report(&at("peer"), RouterProblem::LinkToItself(peer.to_owned()).into());
        } else if self.mtu(other) != self.mtu(written) {
            let (own, its) = (self.mtu(written), self.mtu(other));
            self.report(
                &at("mtu"),
                RouterProblem::LinkMtu {
                    own,
                    peer: peer.to_owned(),
                    its,
                }
                .into(),
            );
        }
        Some(Link::Virtual { peer: index })
    }

    fn advertisements(&mut self, name: &str, written: &schema::Interface) -> Option<schema::RouterAdvertisements> {
        let settings = written
            .router_advertisements
            .as_ref()
            .filter(|settings| settings.send)?;
        let base = place!["interfaces", name, "router-advertisements"];
        let at = |key| [base, place![key]].concat();
        let announced = |address: &&InterfaceAddress| address.address().is_ipv6() && !is_link_local(address.address());
        let mut networks: Vec<_> = written
            .addresses
            .iter()
            .filter(announced)
            .map(|own| own.network())
            .collect();
        networks.dedup();
        if networks.is_empty() {
            self.report(base, Problem::NothingToAnnounce(name.to_owned()));
        }
        for network in networks {
            if settings.autonomous && network.net().prefix_len() != 64 {
                self.report(base, Problem::NotAutonomous(network));
            }
        }
        // Limits of RFC 4861, section 6.2.1; RFC 8319 raises the maximum lifetime to 65,535 s.
        let (min, max) = (Period::seconds(4), Period::seconds(1_800));
        self.in_range(&at("interval"), "an interval", settings.interval, min..=max);
        if settings.lifetime != Period::seconds(0) {
            let range = settings.interval.min(max)..=Period::seconds(65_535);
            self.in_range(&at("lifetime"), "a lifetime", settings.lifetime, range);
        }
        let lifetimes = Period::seconds(0)..=Period::seconds(u64::from(u32::MAX));
        self.in_range(
            &at("valid-lifetime"),
            "a lifetime",
            settings.valid_lifetime,
            lifetimes.clone(),
        );
        self.in_range(
            &at("preferred-lifetime"),
            "a lifetime",
            settings.preferred_lifetime,
            lifetimes,
        );
        if settings.preferred_lifetime > settings.valid_lifetime {
            self.report(&at("preferred-lifetime"), Problem::PreferredBeyondValid);
        }
        Some(settings.clone())
    }

    /// Check that each device belongs to only one interface.
    fn devices(&mut self) {
        let mut seen: Vec<(&Device, &String)> = Vec::new();
        for (name, written) in &self.document.interfaces {
            let own = written.device.iter().map(|device| (device, None));
            let members = written.bond.iter().flat_map(|bond| bond.members.iter().enumerate());
            for (device, member) in own.chain(members.map(|(k, device)| (device, Some(k)))) {
                // Several interfaces may have a null device.
                if device.kind() == DeviceKind::Null {
                    continue;
                }
                if let Some((_, other)) = seen.iter().find(|(seen, _)| *seen == device) {
                    let problem = Problem::DuplicateDevice {
                        device: device.clone(),
                        other: (*other).clone(),
                    };
                    match member {
                        Some(k) => self.report(place!["interfaces", name, "bond", "members", k], problem),
                        None => self.report(place!["interfaces", name, "device"], problem),
                    }
                }
                seen.push((device, name));
            }
        }
    }

    /// Check subinterfaces against their parents.
    fn vlans(&mut self) {
        let document = self.document;
        for (index, (name, written)) in document.interfaces.iter().enumerate() {
            let Some((parent_name, parent)) = written
                .parent
                .as_ref()
                .and_then(|parent| document.interfaces.get_key_value(parent))
            else {
                continue;
            };
            if parent.peer.is_some() {
                let parent = parent_name.clone();
                self.report(
                    place!["interfaces", name, "parent"],
                    RouterProblem::TagsOnLink(parent).into(),
                );
            } else if parent.tunnel.is_some() {
                let parent = parent_name.clone();
                self.report(place!["interfaces", name, "parent"], TunnelProblem::Tags(parent).into());
            } else if parent.parent.is_some() {
                self.report(
                    place!["interfaces", name, "parent"],
                    Problem::ParentIsVlan(parent_name.clone()),
                );
            } else if self.mtu(written) > self.mtu(parent) {
                let (mtu, parent_mtu, parent) = (self.mtu(written), self.mtu(parent), parent_name.clone());
                self.report(
                    place!["interfaces", name, "mtu"],
                    Problem::MtuAboveParent {
                        mtu,
                        parent,
                        parent_mtu,
                    },
                );
            }
            let twin = document.interfaces.iter().take(index).find(|(_, other)| {
                let tags = |of: &schema::Interface| (of.vlan, tag_protocol(of));
                other.parent == written.parent && tags(other) == tags(written)
            });
            if let (Some((other, _)), Some(tags)) = (twin, written.vlan) {
                let problem = Problem::DuplicateTags {
                    tags,
                    parent: parent_name.clone(),
                    other: other.clone(),
                };
                self.report(place!["interfaces", name, "vlan"], problem);
            }
        }
    }

    /// Check that addresses of a router are unique, and that the networks of its links do not overlap. IPv6 link-local
    /// addresses must be unique only on their link.
    fn links(&mut self) {
        // Routers are compared by name. An unknown router is reported elsewhere.
        let mut seen: Vec<(&String, Option<&String>, InterfaceAddress)> = Vec::new();
        for (name, written) in &self.document.interfaces {
            for (k, &address) in written.addresses.iter().enumerate() {
                let at = place!["interfaces", name, "addresses", k];
                let router = written.router.as_ref().filter(|router| *router != DEFAULT);
                let of_link = address.address().is_ipv6() && is_link_local(address.address());
                let near = |other: &String| other == name || !of_link;
                let mut of_router = seen.iter().filter(|(_, other, _)| *other == router);
                if let Some((other, ..)) = of_router
                    .clone()
                    .find(|(other, _, seen)| near(other) && seen.address() == address.address())
                {
                    let other = (*other).clone();
                    self.report(
                        at,
                        Problem::DuplicateAddress {
                            address: address.address(),
                            other,
                        },
                    );
                } else if let Some((other, _, other_address)) = of_router
                    .find(|(other, _, seen)| *other != name && near(other) && overlap(seen.net(), address.net()))
                {
                    let (other, other_address) = ((*other).clone(), *other_address);
                    self.report(
                        at,
                        Problem::OverlappingLinks {
                            address,
                            other_address,
                            other,
                        },
                    );
                }
                seen.push((name, router, address));
            }
        }
    }
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// Interface on whose link an address is. The longest matching network determines the interface.
pub(super) fn attached(interfaces: &[Interface], router: RouterIndex, address: IpAddr) -> Option<InterfaceIndex> {
    of_router(interfaces, router)
        .flat_map(|(index, interface)| interface.addresses.iter().map(move |own| (index, own.net())))
        .filter(|(_, net)| net.contains(&address))
        .max_by_key(|(_, net)| net.prefix_len())
        .map(|(index, _)| index)
}

/// Tag protocol of the outermost tag of a VLAN.
fn tag_protocol(written: &schema::Interface) -> TagProtocol {
    let service = written.vlan.is_some_and(|tags| tags.inner().is_some());
    let usual = if service {
        TagProtocol::Service
    } else {
        TagProtocol::Vlan
    };
    written.tag_protocol.unwrap_or(usual)
}
