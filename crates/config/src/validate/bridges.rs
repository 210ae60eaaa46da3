//! Validation of bridges. Each bridge has two interfaces that are in no other bridge.

use super::Check;
use crate::config::{Bridged, DEFAULT_ROUTER, Interface, InterfaceIndex, Link};
use crate::limits::MAX_BRIDGES;
use crate::problem::BridgeProblem;
use crate::read::{Step, place};
use crate::schema;

impl Check<'_> {
    /// Set the bridges of interfaces.
    pub(super) fn bridges(&mut self, interfaces: &mut [Interface]) {
        let document = self.document;
        if document.bridges.len() > MAX_BRIDGES {
            let many = BridgeProblem::TooMany(document.bridges.len());
            self.report(place!["bridges"], many.into());
        }
        for (number, (name, written)) in document.bridges.iter().enumerate() {
            self.name(place!["bridges", name], name);
            self.bridge(number, name, written, interfaces);
        }
    }

    fn bridge(&mut self, number: usize, name: &str, written: &schema::Bridge, interfaces: &mut [Interface]) {
        let at = place!["bridges", name, "interfaces"];
        if written.interfaces.len() != 2 {
            let place = if written.interfaces.is_empty() { &at[..2] } else { at };
            self.report(place, BridgeProblem::NotTwo(written.interfaces.len()).into());
            return;
        }
        let members: Vec<Option<InterfaceIndex>> = (0..)
            .zip(&written.interfaces)
            .map(|(k, member)| {
                let at = place!["bridges", name, "interfaces", k];
                let index = self.interface_index(at, member)?;
                self.member(at, index, interfaces).then_some(index)
            })
            .collect();
        let [Some(one), Some(other)] = members[..] else { return };
        if one == other {
            let twice = BridgeProblem::Twice(written.interfaces[1].clone());
            return self.report(place!["bridges", name, "interfaces", 1], twice.into());
        }
        let mtu = |index: InterfaceIndex| {
            let interface = &interfaces[usize::from(index)];
            (interface.name.clone(), interface.mtu)
        };
        if mtu(one).1 != mtu(other).1 {
            self.report(at, BridgeProblem::Mtu(mtu(one), mtu(other)).into());
        }
        let both = [one, other].map(|index| &interfaces[usize::from(index)]);
        if both.iter().any(|member| matches!(member.link, Link::Vlan { .. })) {
            self.is_not_watched(at, both.map(|member| member.name.clone()));
        }
        for (own, peer) in [(one, other), (other, one)] {
            interfaces[usize::from(own)].bridge = Some(Bridged {
                number,
                peer,
                settings: written.clone(),
            });
        }
    }

    /// Check that a bridge that changes tags is not inspected, because the two directions of a flow would have
    /// different tags.
    fn is_not_watched(&mut self, at: &[Step<'_>], members: [String; 2]) {
        let inspection = self.document.inspection.as_ref().map(|table| &table.interfaces);
        let applications = self.document.applications.as_ref().map(|table| &table.interfaces);
        for (table, named) in [("inspection", inspection), ("applications", applications)] {
            let named = members
                .iter()
                .find(|&member| named.is_some_and(|named| named.contains(member)));
            if let Some(interface) = named.cloned() {
                self.report(at, BridgeProblem::Watched { table, interface }.into());
            }
        }
    }

    /// Whether an interface may be in a bridge.
    fn member(&mut self, at: &[Step<'_>], index: InterfaceIndex, interfaces: &[Interface]) -> bool {
        let interface = &interfaces[usize::from(index)];
        let name = || interface.name.clone();
        let vlan = interfaces
            .iter()
            .find(|other| matches!(other.link, Link::Vlan { parent, .. } if parent == index));
        let routed = [
            (matches!(interface.link, Link::Virtual { .. }), "peer"),
            (matches!(interface.link, Link::Tunnel(_)), "tunnel"),
            (interface.router != DEFAULT_ROUTER, "router"),
            (!interface.addresses.is_empty(), "addresses"),
            (interface.advertisements.is_some(), "router-advertisements"),
            (interface.proxy[0], "proxy-arp"),
            (interface.proxy[1], "proxy-ndp"),
            (interface.announce_addresses, "announce-addresses"),
            (interface.redirects, "redirects"),
            (interface.mss_clamp.is_some(), "mss-clamp"),
            (interface.share.is_some(), "share"),
            (interface.rate.is_some(), "rate"),
        ];
        let problem = if interface.bridge.is_some() {
            Some(BridgeProblem::Twice(name()))
        } else if let Some(vlan) = vlan {
            Some(BridgeProblem::Parent(name(), vlan.name.clone()))
        } else {
            let routed = routed.iter().find(|(is, _)| *is);
            routed.map(|(_, key)| BridgeProblem::Routed(name(), key))
        };
        match problem {
            Some(problem) => {
                self.report(at, problem.into());
                false
            }
            None => true,
        }
    }
}
