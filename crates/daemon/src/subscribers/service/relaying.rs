//! Relays DHCP between terminals and the servers of their private addresses.

use std::net::{Ipv4Addr, SocketAddrV4};

use sluice_wire::Mac;
use sluice_wire::ethernet::BROADCAST;

use super::{Count, Delivery, Environment, Frame, Note, Service};
use crate::subscribers::Site;
use crate::subscribers::frame::{Datagram, tagged};
use crate::subscribers::message::{CLIENT_PORT, SERVER_PORT};
use crate::subscribers::relay::{Home, Origin, Refused, ReplyDestination};

/// Source MAC of packets that the gateway originates. The MAC is fixed, so no ARP resolution is needed.
const GATEWAY: Mac = [2, 0, 0, 0, 0, 1];

impl Service {
    /// Process a datagram for the DHCP server port. The datagram is either from a terminal to a server, or from a
    /// server to the relay.
    pub(super) fn receive_relay(
        &mut self,
        interface: u16,
        tags: &[u16],
        datagram: &Datagram<'_>,
        environment: &mut Environment<'_>,
    ) -> Result<(), Count> {
        let finder = &self.parameters.finder;
        if let Some(site) = finder.find(interface, tags, *datagram.source.ip()) {
            self.relay_request(site, datagram.payload, environment);
            return Ok(());
        }
        let unknown = match finder.serves(interface) {
            true => Count::FrameSite,
            false => Count::FrameOther,
        };
        let router = self.parameters.router_of(interface).ok_or(unknown)?;
        let relay = *datagram.destination.ip();
        let servers = self.answering.get(&(router, relay)).ok_or(unknown)?;
        let configured = &self.parameters.subscribers.servers;
        let is_source = |place: &&usize| {
            let server = configured.get(**place);
            server.is_some_and(|server| server.server == *datagram.source.ip())
        };
        // Two configured servers may have the same address. If the addresses are equal, the site of the reply
        // identifies the server.
        let candidates: Vec<usize> = servers.iter().filter(is_source).copied().collect();
        let server = match candidates[..] {
            [] => return Err(Count::ReplySource),
            [server] => server,
            [first, ..] => {
                let named = self.named_server(&candidates, datagram.payload);
                named.unwrap_or(first)
            }
        };
        self.relay_reply(server, datagram.payload, environment);
        Ok(())
    }

    /// Select the server from which the site of a reply gets its leases.
    fn named_server(&self, servers: &[usize], payload: &[u8]) -> Option<usize> {
        let of_servers = |circuit: &[u8]| {
            let mut servers = servers.iter().copied();
            servers.find(|server| self.parameters.site_of_circuit(*server, circuit).is_some())
        };
        let mut found = None;
        let _ = crate::subscribers::relay::reply(
            payload,
            |trace| {
                found = trace.circuit.and_then(of_servers);
                Err(Refused::Circuit)
            },
            &mut Vec::new(),
        );
        found
    }

    /// Relay a terminal's message to the server of its site.
    fn relay_request(&mut self, site: Site, payload: &[u8], environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        let Some((place, group)) = parameters.group_of(site) else {
            return;
        };
        let Some(server) = parameters.subscribers.servers.get(group.server) else {
            return;
        };
        let Some(relay) = self.relays.get_mut(group.server) else {
            return;
        };
        let name = parameters.subscribers.name(site.0);
        let origin = Origin {
            site,
            gateway: group.relay,
            circuit: name.as_bytes(),
            remote: b"",
            link: None,
            trusted: parameters.subscribers.trust_option_82,
        };
        let mut message = Vec::new();
        match relay.request(payload, &origin, environment.present.now, &mut message) {
            Ok(_) => {}
            Err(refused @ (Refused::TerminalRate | Refused::SiteRate)) => {
                if let Some((site, hardware)) = relay.tally().flood {
                    let of_site = refused == Refused::SiteRate;
                    let note = Note::Flood {
                        site,
                        hardware,
                        of_site,
                    };
                    if self.last_notes.should_report_flood(environment.present.now) {
                        environment.out.notes.push(note);
                    }
                }
                return;
            }
            Err(_) => return,
        }
        let in_host = self.in_host.get(place).copied().unwrap_or(false);
        let mac = parameters.mac_of(group.interface);
        let datagram = Datagram {
            source_mac: GATEWAY,
            destination_mac: mac,
            source: SocketAddrV4::new(group.relay, SERVER_PORT),
            destination: SocketAddrV4::new(server.server, SERVER_PORT),
            payload: &message,
        };
        environment.out.frames.extend(datagram.frame().map(|bytes| Frame {
            interface: group.interface,
            delivery: if in_host { Delivery::Host } else { Delivery::Routed },
            bytes,
        }));
    }

    /// Relay a server's message to the terminal.
    fn relay_reply(&mut self, server: usize, payload: &[u8], environment: &mut Environment<'_>) {
        let parameters = self.parameters.clone();
        let Some(relay) = self.relays.get_mut(server) else {
            return;
        };
        let home = |circuit: &[u8]| {
            let site = parameters.site_of_circuit(server, circuit)?;
            let (_, group) = parameters.group_of(site)?;
            let gateway = group.relay;
            Some(Home { site, gateway })
        };
        let mut message = Vec::new();
        let relayed = relay.reply(payload, home, environment.present.now, &mut message);
        let Ok(relayed) = relayed else { return };
        let site = relayed.site;
        let Some((_, group)) = parameters.group_of(site) else {
            return;
        };
        if let Some((address, _)) = relayed.lease {
            self.acknowledge(server, address, relayed.hardware, site, environment);
        }
        let (destination_mac, address) = match relayed.to {
            ReplyDestination::Broadcast => (BROADCAST, Ipv4Addr::BROADCAST),
            ReplyDestination::Terminal(address, mac) => (mac, address),
        };
        let datagram = Datagram {
            source_mac: parameters.mac_of(group.interface),
            destination_mac,
            source: SocketAddrV4::new(relayed.gateway, SERVER_PORT),
            destination: SocketAddrV4::new(address, CLIENT_PORT),
            payload: &message,
        };
        environment.out.frames.extend(datagram.frame().map(|bytes| Frame {
            interface: group.interface,
            delivery: Delivery::Unchanged,
            bytes: tagged(bytes, parameters.tags(site)),
        }));
    }
}
