//! Reads captures as Ethernet frames, and groups their packets by flow.
#![allow(dead_code)]

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use sluice_wire::{Class, Direction, Fragment, parse};

/// Captures of applications, if they are present.
pub fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/applications");
    let Ok(files) = fs::read_dir(&folder) else {
        eprintln!("skipped: no captures at {}", folder.display());
        return Vec::new();
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "pcap" || extension == "pcapng")
    });
    files.sort();
    files
}

/// A packet, starting at its IP header, and its session.
pub struct Packet {
    pub key: Key,
    pub direction: Direction,
    pub time_ms: u64,
    pub bytes: Vec<u8>,
}

pub type End = (IpAddr, u16);

/// Identity of a session: VLAN, protocol, and endpoints. The sender of the first packet is the first endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub vlan: u32,
    pub protocol: u8,
    pub ends: [End; 2],
}

/// All packets of sessions in a capture, without fragments other than the first.
pub fn packets(path: &Path) -> Vec<Packet> {
    let mut sessions: HashMap<Key, ()> = HashMap::new();
    let mut packets = Vec::new();
    for (time, frame) in frames(path) {
        let Some((mut key, ip)) = session(&frame) else {
            continue;
        };
        let reverse = Key {
            ends: [key.ends[1], key.ends[0]],
            ..key
        };
        let direction = if !sessions.contains_key(&key) && sessions.contains_key(&reverse) {
            key = reverse;
            Direction::Reverse
        } else {
            sessions.insert(key.clone(), ());
            Direction::Forward
        };
        packets.push(Packet {
            key,
            direction,
            time_ms: time.as_millis() as u64,
            bytes: ip.to_vec(),
        });
    }
    packets
}

fn session(frame: &[u8]) -> Option<(Key, &[u8])> {
    let layers = parse(frame).ok()?;
    let ip = &frame[usize::from(layers.l3)..usize::from(layers.end)];
    let address = |at: usize, length: usize| -> IpAddr {
        match length {
            4 => <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into(),
            _ => <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into(),
        }
    };
    let (source, destination) = match layers.class {
        Class::Ipv4 => (address(12, 4), address(16, 4)),
        Class::Ipv6 => (address(8, 16), address(24, 16)),
        _ => return None,
    };
    if layers.fragment == Fragment::Later {
        return None;
    }
    let vlan = frame[12..usize::from(layers.l3)]
        .iter()
        .fold(0, |all, byte| all << 8 | u32::from(*byte));
    let key = Key {
        vlan: if layers.tags == 0 { 0 } else { vlan },
        protocol: layers.protocol,
        ends: [(source, layers.source_port), (destination, layers.destination_port)],
    };
    Some((key, ip))
}

/// The frames of a capture, converted to Ethernet.
fn frames(path: &Path) -> Vec<(Duration, Vec<u8>)> {
    let bytes = fs::read(path).expect("a capture");
    let mut frames = Vec::new();
    if let Ok(mut reader) = PcapReader::new(&bytes[..]) {
        let link = reader.header().datalink;
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.extend(ethernet(link, &packet.data).map(|frame| (packet.timestamp, frame)));
        }
    } else if let Ok(mut reader) = PcapNgReader::new(&bytes[..]) {
        let mut links = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    let link = links[packet.interface_id as usize];
                    frames.extend(ethernet(link, &packet.data).map(|frame| (packet.timestamp, frame)));
                }
                _ => {}
            }
        }
    }
    frames
}

fn ethernet(link: DataLink, data: &[u8]) -> Option<Vec<u8>> {
    let (kind, payload) = match link {
        DataLink::ETHERNET => return Some(data.to_vec()),
        DataLink::LINUX_SLL => (data.get(14..16)?.try_into().unwrap(), &data[16..]),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => (version(data)?, data),
        DataLink::NULL => (version(data.get(4..)?)?, &data[4..]),
        _ => return None,
    };
    Some([&[2; 12][..], &kind, payload].concat())
}

fn version(packet: &[u8]) -> Option<[u8; 2]> {
    match packet.first()? >> 4 {
        4 => Some([0x08, 0x00]),
        6 => Some([0x86, 0xdd]),
        _ => None,
    }
}

/// A TCP packet over IPv4 of a flow with this client port, to or from port 80.
pub fn segment(port: u16, direction: Direction, payload: &[u8]) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let builder = match direction {
        Direction::Forward => PacketBuilder::ipv4(client, server, 64).tcp(port, 80, 1, 65535).ack(1),
        Direction::Reverse => PacketBuilder::ipv4(server, client, 64).tcp(80, port, 1, 65535).ack(1),
    };
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).unwrap();
    packet
}

/// A request with all header fields that nDPI stores.
pub const REQUEST: &[u8] = b"GET /index.html?a=%20b HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (Windows NT 10.0)\r\nX-Forwarded-For: 10.0.0.9\r\nContent-Type: text/html\r\n\r\n";
