//! Shared code of the application tests: sends sessions of real captures through a gateway.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../inspect/tests/captured/mod.rs"]
pub mod captured;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

use captured::{Key, Packet};
use sluice_engine::session::identification::IdentificationSettings;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::{Filter, SessionInfo};
use sluice_inspect::applications::{
    ApplicationCapacity, ApplicationDetector, ApplicationNames, DetectionResult, ProtocolPair,
};
use sluice_wire::{Checksums, Class, Direction, layers};

use crate::rig::{HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, v4};

/// Identification capacity for every session of a capture.
pub const CAPACITY: ApplicationCapacity = ApplicationCapacity {
    flows: 256,
    memory: 4 << 20,
    tcp_packets: 80,
    other_packets: 24,
};

/// Enables application identification on the inside interface.
pub fn seek(snapshot: &mut Snapshot) {
    let names = ApplicationNames::installed().unwrap();
    snapshot.identify_by(Arc::new(IdentificationSettings::new(
        vec![true, false],
        Arc::new(names),
    )));
}

/// A gateway that identifies applications.
pub fn plan() -> Plan {
    Plan {
        applications: Some(CAPACITY),
        snapshot: seek,
        ..Plan::default()
    }
}

/// The packets of a capture. `None` if the captures are not installed.
pub fn capture(name: &str) -> Option<Vec<Packet>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/applications");
    let path = folder.join(name);
    if !path.exists() {
        println!("no captures at {}: none was read", folder.display());
        return None;
    }
    Some(captured::packets(&path))
}

/// Those sessions of a capture that a gateway accepts: IPv4 sessions between two unicast hosts whose first packet is in
/// the capture. The sessions are sorted by the times of their first packets.
pub fn sessions(packets: &[Packet]) -> Vec<Vec<&Packet>> {
    let mut keys: Vec<&Key> = Vec::new();
    for packet in packets {
        if !keys.contains(&&packet.key) {
            keys.push(&packet.key);
        }
    }
    let of = |key: &Key| packets.iter().filter(|packet| packet.key == *key).collect::<Vec<_>>();
    let fits = |session: &Vec<&Packet>| {
        let first = session[0];
        let [from, to] = first.key.ends.map(|(address, _)| address);
        let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else {
            return false;
        };
        let opens = match first.key.protocol {
            6 => first.bytes[usize::from(first.bytes[0] & 15) * 4 + 13] & 0x17 == 2,
            protocol => protocol == 17,
        };
        let hosts = [from, to]
            .iter()
            .all(|a| !a.is_multicast() && !a.is_broadcast() && !a.is_unspecified());
        opens && hosts
    };
    keys.into_iter().map(of).filter(fits).collect()
}

/// The result of nDPI for a session that does not pass the gateway.
pub fn by_itself(session: &[&Packet]) -> ProtocolPair {
    let mut applications = ApplicationDetector::new(CAPACITY).unwrap();
    let state = applications.allocate().unwrap();
    let mut pair = ProtocolPair::default();
    let mut note = |guess| {
        if let DetectionResult::Application {
            master, application, ..
        } = guess
        {
            pair = ProtocolPair { master, application };
        }
    };
    for packet in session {
        note(applications.packet(state, &packet.bytes, packet.direction, packet.time_ms));
    }
    note(applications.give_up(state));
    pair
}

/// A session of a capture that is replayed between the inside host and a remote host.
pub struct Played {
    pub host: SocketAddrV4,
    pub remote: SocketAddrV4,
    /// The host's outside address and port; `None` until the host has sent a packet.
    pub public: Option<SocketAddrV4>,
}

impl Played {
    pub fn new(session: &[&Packet], port: u16) -> Self {
        let [_, (to, remote_port)] = session[0].key.ends;
        let IpAddr::V4(to) = to else { panic!("IPv4") };
        // Addresses in the networks of the test gateway are mapped to a different network.
        let [a, b, c, d] = to.octets();
        let to = match (a, b, c) {
            (192, 168, 1) | (203, 0, 113) | (127, ..) | (169, 254, _) => Ipv4Addr::new(198, 51, 100, d),
            _ => to,
        };
        Self {
            host: SocketAddrV4::new(HOST.parse().unwrap(), port),
            remote: SocketAddrV4::new(to, remote_port),
            public: None,
        }
    }

    /// Sends a packet to worker `worker`. Returns the number of frames that leave.
    pub fn send(&mut self, rig: &mut Rig, worker: usize, packet: &Packet) -> usize {
        let (interface, macs, from, to) = match packet.direction {
            Direction::Forward => (INSIDE, [INSIDE_MAC, HOST_MAC], self.host, self.remote),
            Direction::Reverse => {
                let Some(public) = self.public else { return 0 };
                (OUTSIDE, [OUTSIDE_MAC, ROUTER_MAC], self.remote, public)
            }
        };
        let frame = addressed(&packet.bytes, macs, from, to);
        rig.wires[worker].inject(interface, &frame, Checksums::Unverified);
        rig.round();
        let sent = rig.sent();
        if packet.direction == Direction::Forward
            && let Some(first) = sent.first()
        {
            self.public = Some(flow(&first.frame).0);
        }
        sent.len()
    }

    /// Sends all packets of a session. Returns the number of frames that leave.
    pub fn play(&mut self, rig: &mut Rig, session: &[&Packet]) -> usize {
        session.iter().map(|packet| self.send(rig, 0, packet)).sum()
    }

    /// The session, as listed by the gateway.
    pub fn shown(&self, rig: &mut Rig) -> Option<SessionInfo> {
        let filter = Filter {
            source: Some((*self.host.ip()).into()),
            source_port: Some(self.host.port()),
            destination: Some((*self.remote.ip()).into()),
            ..Filter::default()
        };
        rig.sessions(filter).first().copied()
    }

    /// The name of the session's application, as listed by the gateway.
    pub fn application(&self, rig: &mut Rig) -> Option<String> {
        let names = rig.plane.snapshot().applications.as_ref().unwrap().names.clone();
        self.shown(rig)?.application.map(|pair| names.text(pair))
    }
}

/// Replaces the addresses and ports of a packet, with correct checksums.
pub fn addressed(packet: &[u8], [to_mac, from_mac]: [[u8; 6]; 2], from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut frame = [&to_mac[..], &from_mac, &[8, 0], packet].concat();
    let ip = &mut frame[14..];
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]])).min(ip.len());
    let header = usize::from(ip[0] & 15) * 4;
    ip[8] = 64;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..20].copy_from_slice(&to.ip().octets());
    ip[10..12].fill(0);
    let sum = checksum(0, &ip[..header]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let protocol = ip[9];
    let (head, segment) = ip[..length].split_at_mut(header);
    segment[..2].copy_from_slice(&from.port().to_be_bytes());
    segment[2..4].copy_from_slice(&to.port().to_be_bytes());
    let place = if protocol == 6 { 16 } else { 6 };
    segment[place..place + 2].fill(0);
    let pseudo = head[12..20]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = checksum(
        pseudo.sum::<u32>() + u32::from(protocol) + segment.len() as u32,
        segment,
    );
    segment[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    let class = layers::parse(&frame).map(|layers| layers.class);
    assert!(class.is_err() || class == Ok(Class::Ipv4));
    frame
}

fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The address of the inside host.
pub fn host() -> u32 {
    v4(HOST)
}
