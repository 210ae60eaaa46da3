//! The frames of the bench: UDP over IPv4, one flow per number, with right checksums.
//!
//! Flows in turn are of different networks, in an order that is not that of their addresses; where there are many
//! networks each has few hosts. Each frame carries its flow's number, by which the other end knows it when it comes with
//! another source.

use std::net::Ipv4Addr;

use sluice_wire::checksum;

use super::traffic::Direction;
use crate::rig::frames::put_tags;
use crate::rig::sites::{TAGS, tag_bytes, terminal_mac};

/// Hosts behind the gateway, at least; in one network no more.
pub const HOSTS: u32 = 250;

/// Most networks. Between two flows in turn lie this many and one: a prime, so that all networks have their turn.
pub const MOST_NETWORKS: u32 = 1 << 16;

/// Between the first ports of two networks, whose hosts may share an outside address: they seldom want the same.
const PORT_STRIDE: u32 = 4_099;

/// Ports that each host sends from, from [`FIRST_PORT`] on.
const PORTS: u32 = 64_000;

/// First port that a host sends from.
const FIRST_PORT: u32 = 1_024;

/// Port of the server.
pub const SERVER_PORT: u16 = 9_000;

/// Bytes of the check sequence, which count in a frame's length but are not in memory.
const CHECK_SEQUENCE: usize = 4;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

/// Where the flow's number is: right behind the headers.
const NUMBER: usize = ETHERNET + IPV4 + UDP;

/// Where the frames go and come from.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Address of the generator's interface.
    pub source_mac: [u8; 6],
    /// Address of the gateway's inside interface.
    pub destination_mac: [u8; 6],
    /// First network of the inside hosts, 256 addresses.
    pub inside: Ipv4Addr,
    /// Networks, one behind the other.
    pub networks: u32,
    pub server: Ipv4Addr,
    /// Terminals of each subscriber's site, whose frames are tagged; 0: there are no sites.
    pub terminals: u32,
}

/// The end of a flow that is not the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub address: u32,
    pub port: u16,
    /// The MAC address that it is seen by.
    pub mac: [u8; 6],
}

/// A frame with everything filled in but what differs by flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    direction: Direction,
    inside: u32,
    networks: u32,
    hosts: u32,
    header: u32,
    payload: u32,
    source_mac: [u8; 6],
    terminals: u32,
}

impl Template {
    /// Frames of `bytes` bytes, check sequence counted: at least 64. They go to the server, or come from it.
    pub fn new(ends: &Ends, bytes: usize, direction: Direction) -> Self {
        let length = bytes.max(64) - CHECK_SEQUENCE;
        let mut frame = Vec::with_capacity(length);
        frame.extend(ends.destination_mac);
        frame.extend(ends.source_mac);
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(((length - ETHERNET) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        let (server, port, datagram) = (
            ends.server.octets(),
            SERVER_PORT.to_be_bytes(),
            (length - ETHERNET - IPV4) as u16,
        );
        match direction {
            Direction::Up => frame.extend([[0; 4], server, [0, 0, port[0], port[1]]].concat()),
            Direction::Down => frame.extend([server, [0; 4], [port[0], port[1], 0, 0]].concat()),
        }
        frame.extend(datagram.to_be_bytes());
        frame.extend([0; 6]);
        frame.extend((frame.len()..length).map(|at| at as u8));
        let sum = |from: usize, to: usize| u32::from(checksum::sum(&frame[from..to]));
        let networks = ends.networks.clamp(1, MOST_NETWORKS);
        let l4 = ETHERNET + IPV4;
        let pseudo = checksum::pseudo4(0, u32::from(ends.server), 17, datagram);
        Self {
            inside: u32::from(ends.inside) & !0xff,
            networks,
            hosts: HOSTS.div_ceil(networks),
            header: sum(ETHERNET, l4),
            payload: sum(l4, length) + u32::from(pseudo),
            bytes: frame,
            direction,
            source_mac: ends.source_mac,
            terminals: ends.terminals,
        }
    }

    /// Bytes in memory, without the check sequence: tags come on top.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.room()
    }

    /// Bytes of tags.
    fn room(&self) -> usize {
        if self.terminals > 0 { TAGS } else { 0 }
    }

    /// The number of a flow's host in its network.
    fn host(&self, flow: u32) -> u32 {
        flow / self.networks % self.hosts
    }

    /// Where a flow comes from: there are 16,000,000 flows or more, then they repeat.
    pub fn source(&self, flow: u32) -> End {
        let network = flow % self.networks * (MOST_NETWORKS + 1) % self.networks;
        let round = flow / self.networks / self.hosts;
        End {
            address: self.inside + (network << 8) + 1 + self.host(flow),
            port: (FIRST_PORT + (round + network * PORT_STRIDE) % PORTS) as u16,
            mac: match self.terminals {
                0 => self.source_mac,
                _ => terminal_mac(self.host(flow)),
            },
        }
    }

    /// Write the frame of a flow, whose end that is not the server is `end`; `into` is at least as long.
    pub fn write(&self, flow: u32, end: End, into: &mut [u8]) {
        let Some(into) = into.get_mut(..self.len()) else {
            return;
        };
        let frame = &mut into[self.room()..];
        frame.copy_from_slice(&self.bytes);
        let (mac, address, port) = match self.direction {
            Direction::Up => (6, 26, 34),
            Direction::Down => (0, 30, 36),
        };
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        frame[mac..mac + 6].copy_from_slice(&end.mac);
        frame[address..address + 4].copy_from_slice(&end.address.to_be_bytes());
        frame[24..26].copy_from_slice(&complement(self.header + halves(end.address)).to_be_bytes());
        frame[port..port + 2].copy_from_slice(&end.port.to_be_bytes());
        frame[NUMBER..NUMBER + 4].copy_from_slice(&flow.to_be_bytes());
        // Zero would say that there is no checksum (RFC 768).
        let sum = self.payload + halves(end.address) + u32::from(end.port) + halves(flow);
        let whole = match complement(sum) {
            0 => 0xffff,
            whole => whole,
        };
        frame[40..42].copy_from_slice(&whole.to_be_bytes());
        if let Some(site) = self.host(flow).checked_div(self.terminals) {
            put_tags(into, tag_bytes(site));
        }
    }
}

/// The flow and the source of a frame that went to the server; `None` for another frame.
pub fn arrived(frame: &[u8]) -> Option<(u32, End)> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let ports = word(34)?;
    let is_ours = frame.get(12..15) == Some(&[0x08, 0x00, 0x45]) && frame.get(23) == Some(&17);
    let to_server = ports as u16 == SERVER_PORT;
    let end = End {
        address: word(26)?,
        port: (ports >> 16) as u16,
        mac: *frame.get(6..)?.first_chunk()?,
    };
    Some((word(NUMBER)?, end)).filter(|_| is_ours && to_server)
}

const _: () = assert!(ETHERNET + IPV4 + UDP <= 60);

fn complement(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Ipv4HeaderSlice, UdpHeaderSlice};
    use std::collections::HashSet;

    const ENDS: Ends = Ends {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        inside: Ipv4Addr::new(10, 39, 15, 0),
        networks: 1,
        server: Ipv4Addr::new(198, 18, 0, 1),
        terminals: 0,
    };

    #[test]
    fn frame_of_a_flow_has_right_checksums() {
        for (flow, bytes) in [
            (0, 64),
            (1, 64),
            (249, 65),
            (250, 512),
            (7_654_321, 1518),
            (15_999_999, 64),
        ] {
            let template = Template::new(&ENDS, bytes, Direction::Up);
            let mut frame = vec![0xff; template.len()];
            template.write(flow, template.source(flow), &mut frame);
            assert_eq!(ENDS.source_mac, frame[6..12]);
            assert_eq!(Some((flow, template.source(flow))), arrived(&frame));
            assert_eq!(bytes - 4, frame.len());
            let ip = Ipv4HeaderSlice::from_slice(&frame[14..])
                .expect("an IPv4 header")
                .to_header();
            assert_eq!(ip.calc_header_checksum(), ip.header_checksum, "flow {flow}");
            let udp = UdpHeaderSlice::from_slice(&frame[34..])
                .expect("a UDP header")
                .to_header();
            let whole = udp.calc_checksum_ipv4(&ip, &frame[42..]).expect("a short payload");
            assert_eq!(whole, udp.checksum, "flow {flow} of {bytes} bytes");
            assert_eq!([10, 39, 15], ip.source[..3]);
        }
    }

    #[test]
    fn flows_of_many_networks_have_each_in_turn_and_right_checksums() {
        for networks in [7, 1_000, 10_000, MOST_NETWORKS] {
            let inside = Ipv4Addr::new(10, 0, 0, 0);
            let ends = Ends {
                inside,
                networks,
                ..ENDS
            };
            let template = Template::new(&ends, 64, Direction::Up);
            let mut frame = [0; 60];
            let mut seen = HashSet::new();
            let mut drawn = vec![0; networks as usize];
            for flow in 0..2 * networks {
                template.write(flow, template.source(flow), &mut frame);
                let ip = Ipv4HeaderSlice::from_slice(&frame[14..])
                    .expect("an IPv4 header")
                    .to_header();
                assert_eq!(ip.calc_header_checksum(), ip.header_checksum, "flow {flow}");
                let udp = UdpHeaderSlice::from_slice(&frame[34..]).expect("a UDP header");
                let whole = udp.to_header().calc_checksum_ipv4(&ip, &frame[42..]);
                assert_eq!(Ok(udp.checksum()), whole, "flow {flow}");
                assert!(seen.insert((ip.source, udp.source_port())), "flow {flow}");
                let network = (u32::from_be_bytes(ip.source) - u32::from(inside)) >> 8;
                drawn[network as usize] += 1;
            }
            assert!(drawn.iter().all(|&drawn| drawn == 2), "{networks} networks");
        }
    }

    #[test]
    fn frame_from_the_server_has_right_checksums_and_is_none_that_went_there() {
        let public = End {
            address: u32::from(Ipv4Addr::new(203, 0, 113, 255)),
            port: 65_535,
            mac: [2, 7, 7, 7, 7, 7],
        };
        for (flow, bytes) in [(0, 64), (65_535, 65), (7_654_321, 1518)] {
            let template = Template::new(&ENDS, bytes, Direction::Down);
            let mut frame = vec![0xff; template.len()];
            template.write(flow, public, &mut frame);
            let ip = Ipv4HeaderSlice::from_slice(&frame[14..]).expect("an IPv4 header");
            let ip = ip.to_header();
            assert_eq!(ip.calc_header_checksum(), ip.header_checksum, "flow {flow}");
            assert_eq!((ENDS.server.octets(), [203, 0, 113, 255]), (ip.source, ip.destination));
            let udp = UdpHeaderSlice::from_slice(&frame[34..]).expect("a UDP header");
            let whole = udp.to_header().calc_checksum_ipv4(&ip, &frame[42..]);
            assert_eq!(Ok(udp.checksum()), whole, "flow {flow}");
            assert_eq!((SERVER_PORT, 65_535), (udp.source_port(), udp.destination_port()));
            assert_eq!((&public.mac[..], None), (&frame[..6], arrived(&frame)));
        }
        assert_eq!(None, arrived(&[0; 45]));
    }

    #[test]
    fn frame_of_a_terminal_is_the_plain_one_in_the_tags_of_its_site() {
        let ends = Ends { terminals: 4, ..ENDS };
        let [plain, tagged] = [&ENDS, &ends].map(|ends| Template::new(ends, 64, Direction::Up));
        assert_eq!((60, 68), (plain.len(), tagged.len()));
        let (mut one, mut other) = ([0; 60], [0; 68]);
        // The seventh host, of the second site.
        plain.write(256, plain.source(256), &mut one);
        tagged.write(256, tagged.source(256), &mut other);
        assert_eq!(
            (one[..6].to_vec(), terminal_mac(6).to_vec()),
            (other[..6].to_vec(), other[6..12].to_vec())
        );
        assert_eq!([0x88, 0xa8, 0, 100, 0x81, 0, 0, 2], other[12..20]);
        assert_eq!(one[12..], other[20..]);
    }
}
