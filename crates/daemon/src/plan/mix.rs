//! The carrier mix: generated sessions between inside hosts and remote hosts through this configuration, with packets
//! in both directions.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use sluice_config::Config;
use sluice_engine::packet::io::PortIndex;
use sluice_engine::snapshot::Interface;
use sluice_engine::worker::request::Filter;
use sluice_route::Address;
use sluice_wire::Checksums;
use sluice_wire::layers::{Class, parse};
use sluice_wire::tcp::flag;

use super::PlanError;
use super::frames::{End, HEADERS, Written, write};
use super::path::{Path, path};
use super::profile::Profile;
use crate::replay::world::World;

/// Maximum number of sessions in the mix.
const SESSIONS: u32 = 1 << 15;

/// Packets per pass.
const PACKETS: u32 = 1 << 15;

/// Sessions per inside host.
const PER_HOST: u32 = 16;

/// Source MAC address of all generated frames.
const SENDER: [u8; 6] = [2, 0x53, 0x6c, 1, 0, 1];

/// A frame with its input port.
pub type Frame = (PortIndex, Vec<u8>);

/// Frames for a measurement.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Frames that create all sessions.
    pub opening: Vec<Frame>,
    /// Frames of a pass over existing sessions.
    pub data: Vec<Frame>,
}

struct Mix<'w, 'm> {
    world: &'w mut World<'m>,
    path: Path,
    inside: Interface,
    outside: Interface,
    checksums: Checksums,
}

/// Create the sessions of a mix, and build the later frames of these sessions.
///
/// # Errors
/// IPv4 packets can't be forwarded, or all packets are dropped.
pub fn establish(
    config: &Config,
    world: &mut World<'_>,
    profile: &Profile,
    checksums: Checksums,
) -> Result<Traffic, PlanError> {
    let path = path(config).ok_or(PlanError::NoPath)?;
    let interface = |index| {
        world
            .plane()
            .snapshot()
            .interface(index)
            .cloned()
            .ok_or(PlanError::NoPath)
    };
    let (inside, outside) = (interface(path.inside)?, interface(path.outside)?);
    let flows = SESSIONS.min(config.document.sessions.ipv4 / 4).max(1);
    let flows = flows.min(path.host_count().saturating_mul(PER_HOST));
    let mut mix = Mix {
        world,
        path,
        inside,
        outside,
        checksums,
    };
    mix.introduce(flows);
    let opening: Vec<Frame> = (0..flows).map(|flow| mix.out(flow, flag::SYN, (1, 0), 0)).collect();
    let seen = mix.publics(&opening, flows);
    if seen.is_empty() {
        return Err(PlanError::NothingPasses);
    }
    let answers: Vec<Frame> = seen
        .iter()
        .map(|&(flow, public)| mix.back(flow, public, flag::SYN | flag::ACK, (1, 2), 0))
        .collect();
    mix.send(&answers);
    let longest = [&mix.inside, &mix.outside]
        .map(|interface| interface.mtu)
        .into_iter()
        .min()
        .unwrap_or(1500);
    let data = (0..PACKETS).filter_map(|number| {
        // The order is pseudo-random, so that consecutive packets belong to different sessions, as in traffic of many
        // hosts.
        let (flow, public) = *seen.get((number.wrapping_mul(2_654_435_761) >> 7) as usize % seen.len())?;
        let length = profile.size(number).min(longest.saturating_add(14));
        Some(match number % 2 {
            0 => mix.out(flow, flag::ACK, (2, 2), length),
            _ => mix.back(flow, public, flag::ACK, (2, 2), length),
        })
    });
    Ok(Traffic {
        data: data.collect(),
        opening,
    })
}

impl Mix<'_, '_> {
    /// Set the MAC addresses of neighbours, so that no packet waits for address resolution.
    fn introduce(&mut self, flows: u32) {
        let hosts = flows.div_ceil(PER_HOST);
        if self.path.hosts_on_link {
            for host in 0..hosts {
                self.neighbour(self.path.inside, self.path.host(host));
            }
        }
        if self.path.remotes_on_link {
            for remote in 0..flows.min(self.path.remote_count()) {
                self.neighbour(self.path.outside, self.path.remote(remote));
            }
        }
        // The first packet triggers the resolution of the gateways.
        let first = self.out(0, flag::SYN, (1, 0), 0);
        self.send(&[first]);
        self.world.end_sessions(&Filter::default());
    }

    fn neighbour(&mut self, interface: u16, host: Ipv4Addr) {
        self.world.set_neighbour(interface, Address::V4(host.into()), SENDER);
    }

    fn inside_end(&self, flow: u32) -> End {
        let hosts = self.path.host_count();
        let port = 1024 + flow % PER_HOST + PER_HOST * (flow / PER_HOST / hosts);
        (self.path.host(flow / PER_HOST), port as u16)
    }

    /// Each flow has its own remote endpoint. The endpoint identifies the flow of a forwarded packet.
    fn remote_end(&self, flow: u32) -> End {
        let remotes = self.path.remote_count();
        (self.path.remote(flow), (443 + flow / remotes) as u16)
    }

    fn out(&self, flow: u32, flags: u8, numbers: (u32, u32), length: u16) -> Frame {
        let ends = [self.inside_end(flow), self.remote_end(flow)];
        self.frame(&self.inside, flow, ends, flags, numbers, length)
    }

    fn back(&self, flow: u32, public: End, flags: u8, numbers: (u32, u32), length: u16) -> Frame {
        let ends = [self.remote_end(flow), public];
        self.frame(&self.outside, flow, ends, flags, numbers, length)
    }

    fn frame(
        &self,
        by: &Interface,
        flow: u32,
        [source, destination]: [End; 2],
        flags: u8,
        numbers: (u32, u32),
        length: u16,
    ) -> Frame {
        let packet = Written {
            source,
            destination,
            // One fifth of the sessions use UDP.
            tcp: (!flow.is_multiple_of(5)).then_some(flags),
            numbers,
            macs: [by.mac, SENDER],
            tags: &by.tags,
            length: length.max(HEADERS),
        };
        (by.port, write(&packet))
    }

    fn send(&mut self, frames: &[Frame]) -> Vec<sluice_engine::packet::io::memory::Sent> {
        let mut sent = Vec::new();
        for some in frames.chunks(1024) {
            for (port, frame) in some {
                self.world.feed(*port, frame, self.checksums);
            }
            sent.extend(self.world.drain());
        }
        sent
    }

    /// Send the packets that create sessions. Returns the forwarded flows with their translated source endpoints.
    fn publics(&mut self, opening: &[Frame], flows: u32) -> Vec<(u32, End)> {
        let sent = self.send(opening);
        let by_remote: HashMap<End, u32> = (0..flows).map(|flow| (self.remote_end(flow), flow)).collect();
        let outside = sent.iter().filter(|sent| sent.port == self.outside.port);
        let seen = outside.filter_map(|sent| {
            let (source, destination) = ends(&sent.frame)?;
            Some((*by_remote.get(&destination)?, source))
        });
        let mut seen: Vec<_> = seen.collect();
        seen.sort_unstable();
        seen
    }
}

/// Source and destination endpoint of an IPv4 frame.
fn ends(frame: &[u8]) -> Option<(End, End)> {
    let layers = parse(frame).ok().filter(|layers| layers.class == Class::Ipv4)?;
    let address = |at: usize| {
        let bytes = frame.get(usize::from(layers.l3) + at..)?.first_chunk::<4>()?;
        Some(Ipv4Addr::from(*bytes))
    };
    Some((
        (address(12)?, layers.source_port),
        (address(16)?, layers.destination_port),
    ))
}
