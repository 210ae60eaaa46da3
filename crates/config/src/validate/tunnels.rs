//! Validation of tunnels: their end addresses, their MTU, and conflicts between tunnels.

use std::net::IpAddr;

use super::Check;
use super::routers::DEFAULT;
use crate::config::{InterfaceIndex, Link, Tunnel};
use crate::problem::{RouterProblem, TunnelProblem};
use crate::read::place;
use crate::schema::{self, TunnelType};

/// UDP port of VXLAN (RFC 7348, section 5).
const VXLAN_PORT: u16 = 4_789;

/// Number of bits of the VXLAN network identifier.
const VXLAN_BITS: u32 = 24;

/// Length of the headers that encapsulation adds, in bytes.
pub(super) fn overhead(tunnel: &schema::Tunnel) -> u16 {
    let outer = if tunnel.local.is_ipv4() { 20 } else { 40 };
    outer
        + match (tunnel.kind, tunnel.id) {
            // UDP, VXLAN and Ethernet headers.
            (TunnelType::Vxlan, _) => 8 + 8 + 14,
            (TunnelType::Gre, Some(_)) => 8,
            (TunnelType::Gre, None) => 4,
            (TunnelType::Ipip, _) => 0,
        }
}

/// Fields in which the packets of a tunnel differ from those of other tunnels.
fn mark(tunnel: &schema::Tunnel) -> impl PartialEq + use<> {
    let underlay = tunnel.underlay.clone().unwrap_or_else(|| DEFAULT.to_owned());
    let port = tunnel.port.unwrap_or(VXLAN_PORT);
    (underlay, tunnel.kind, tunnel.local, tunnel.remote, tunnel.id, port)
}

impl Check<'_> {
    /// Link of a tunnel.
    pub(super) fn tunnel(&mut self, name: &str, written: &schema::Interface, tunnel: &schema::Tunnel) -> Option<Link> {
        let at = |key| [place!["interfaces", name], place![key]].concat();
        let within = |key| [place!["interfaces", name, "tunnel"], place![key]].concat();
        if written.queues.is_some() {
            self.report(&at("queues"), TunnelProblem::NotOf("queues", "a tunnel").into());
        }
        if written.in_use != schema::InUse::Refuse {
            self.report(&at("in-use"), TunnelProblem::NotOf("in-use", "a tunnel").into());
        }
        if written.mac.is_some() && tunnel.kind != TunnelType::Vxlan {
            let problem = TunnelProblem::NotOf("mac", "a tunnel that carries no Ethernet");
            self.report(&at("mac"), problem.into());
        }
        match (tunnel.kind, tunnel.id) {
            (TunnelType::Vxlan, None) => self.report(place!["interfaces", name, "tunnel"], TunnelProblem::NoId.into()),
            (TunnelType::Vxlan, Some(id)) => {
                self.in_range(&within("id"), "an identifier of VXLAN", id, 0..=(1 << VXLAN_BITS) - 1);
            }
            (TunnelType::Ipip, Some(_)) => {
                self.report(&within("id"), TunnelProblem::NotOf("id", "IP in IP").into());
            }
            _ => {}
        }
        if let Some(port) = tunnel.port {
            if tunnel.kind == TunnelType::Vxlan {
                self.in_range(&within("port"), "a port", port, 1..=u16::MAX);
            } else {
                self.report(
                    &within("port"),
                    TunnelProblem::NotOf("port", "a tunnel without UDP").into(),
                );
            }
        }
        self.in_range(&within("ttl"), "a time to live", tunnel.ttl, 1..=u8::MAX);
        let is_host = self.host(&within("remote"), tunnel.remote);
        if is_host && tunnel.local.is_ipv4() != tunnel.remote.is_ipv4() {
            self.report(&within("remote"), TunnelProblem::Families.into());
        } else if let Some(own) = self.holder(tunnel, tunnel.remote) {
            let problem = TunnelProblem::ToItself(tunnel.remote, own.to_owned());
            self.report(&within("remote"), problem.into());
        }
        let router = tunnel.underlay.as_deref().unwrap_or(DEFAULT);
        if self.router_number(router).is_none() {
            let known = self.document.routers.keys().cloned().collect();
            let name = router.to_owned();
            self.report(&within("underlay"), RouterProblem::Unknown { name, known }.into());
            return None;
        }
        let underlay = self.underlay(name, written, tunnel)?;
        let document = self.document;
        let mut before = document.interfaces.iter().take_while(|(other, _)| *other != name);
        let same = before.find(|(_, other)| other.tunnel.as_ref().is_some_and(|other| mark(other) == mark(tunnel)));
        if let Some((other, _)) = same {
            self.report(
                place!["interfaces", name, "tunnel"],
                TunnelProblem::Twice(other.clone()).into(),
            );
        }
        Some(Link::Tunnel(Tunnel {
            kind: tunnel.kind,
            local: tunnel.local,
            remote: tunnel.remote,
            id: tunnel.id,
            port: tunnel.port.unwrap_or(VXLAN_PORT),
            ttl: tunnel.ttl,
            underlay,
        }))
    }

    /// Interface that has the local address of a tunnel. The MTU of the interface must be large enough for outer
    /// packets.
    fn underlay(&mut self, name: &str, written: &schema::Interface, tunnel: &schema::Tunnel) -> Option<InterfaceIndex> {
        let at = place!["interfaces", name, "tunnel", "local"];
        let Some(holder) = self.holder(tunnel, tunnel.local) else {
            let router = tunnel.underlay.clone().unwrap_or_else(|| DEFAULT.to_owned());
            self.report(at, TunnelProblem::NotLocal(tunnel.local, router).into());
            return None;
        };
        if holder == name {
            self.report(at, TunnelProblem::OverItself.into());
            return None;
        }
        let number = self.numbering.interfaces.of(holder)?;
        let (own, its) = (self.mtu(written), self.mtu(&self.document.interfaces[holder]));
        let outer = own.saturating_add(overhead(tunnel));
        if written.mtu.is_some() && outer > its {
            let (underlay, at) = (holder.to_owned(), place!["interfaces", name, "mtu"]);
            self.report(at, TunnelProblem::Mtu { outer, underlay, its }.into());
        }
        InterfaceIndex::try_from(number).ok()
    }

    /// Interface that has an address and belongs to the tunnel's underlay router.
    pub(super) fn holder(&self, tunnel: &schema::Tunnel, address: IpAddr) -> Option<&str> {
        let router = tunnel.underlay.as_deref().unwrap_or(DEFAULT);
        let has = |interface: &schema::Interface| {
            interface.router.as_deref().unwrap_or(DEFAULT) == router
                && interface.addresses.iter().any(|own| own.address() == address)
        };
        let mut interfaces = self.document.interfaces.iter();
        let found = interfaces.find(|(_, interface)| has(interface))?;
        Some(found.0)
    }
}
