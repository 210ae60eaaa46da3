//! Frames of the benchmark: UDP over IPv4, one flow per number, with correct checksums.
//!
//! Consecutive flows belong to different networks; the networks are not used in the order of their addresses. With many
//! networks, each network has few hosts. The last bytes of each frame contain the flow's number. By this number, the
//! receiver identifies the flow after source translation.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::traffic::Direction;
use crate::rig::frames::{Filled, Filling, Frame, Tagged, Written, mark};
use crate::rig::sites::{TAGS, tag_bytes, terminal_mac};

/// Minimum number of hosts behind the gateway, and maximum number of hosts per network.
pub const HOSTS: u32 = 250;

/// Maximum number of networks. The distance between the networks of consecutive flows is this number plus one, which is
/// prime, so that all networks are used in turn.
pub const MOST_NETWORKS: u32 = 1 << 16;

/// Distance between the first ports of two networks whose hosts may share a public address, so that these hosts rarely
/// use the same port.
const PORT_STRIDE: u32 = 4_099;

/// Number of ports that each host sends from, starting at [`FIRST_PORT`].
const PORTS: u32 = 64_000;

/// First port that a host sends from.
const FIRST_PORT: u32 = 1_024;

pub const SERVER_PORT: u16 = 9_000;

/// Parameters from which the endpoints of the frames are computed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ends {
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    /// First of the inside networks, each with 256 addresses.
    pub inside: Ipv4Addr,
    /// Number of consecutive inside networks.
    pub networks: u32,
    pub server: Ipv4Addr,
    /// Number of terminals per subscriber site, whose frames are tagged; 0 if there are no sites.
    pub terminals: u32,
}

/// The endpoint of a flow other than the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub address: u32,
    pub port: u16,
    /// MAC address of the frames from or to this endpoint.
    pub mac: [u8; 6],
}

/// Template of the frames of all flows.
#[derive(Clone, Debug)]
pub struct Template {
    ends: Ends,
    direction: Direction,
    hosts: u32,
    filling: Filling,
}

impl Template {
    /// Creates a template for frames of `bytes` bytes (at least 64, including the frame check sequence) to or from the
    /// server.
    pub fn new(ends: &Ends, bytes: usize, direction: Direction) -> Self {
        let networks = ends.networks.clamp(1, MOST_NETWORKS);
        Self {
            ends: Ends { networks, ..*ends },
            direction,
            hosts: HOSTS.div_ceil(networks),
            filling: Filling::new(bytes.max(64)),
        }
    }

    /// Length in memory in bytes, without frame check sequence and VLAN tags.
    pub fn len(&self) -> usize {
        self.filling.length() + if self.ends.terminals > 0 { TAGS } else { 0 }
    }

    /// Number of a flow's host in its network.
    fn host(&self, flow: u32) -> u32 {
        flow / self.ends.networks % self.hosts
    }

    /// Source endpoint of a flow; different flows may have the same source if their numbers differ by 16,000,000 or
    /// more.
    pub fn source(&self, flow: u32) -> End {
        let networks = self.ends.networks;
        let network = flow % networks * (MOST_NETWORKS + 1) % networks;
        let round = flow / networks / self.hosts;
        End {
            address: (u32::from(self.ends.inside) & !0xff) + (network << 8) + 1 + self.host(flow),
            port: (FIRST_PORT + (round + network * PORT_STRIDE) % PORTS) as u16,
            mac: match self.ends.terminals {
                0 => self.ends.source_mac,
                _ => terminal_mac(self.host(flow)),
            },
        }
    }

    /// Writes the frame of a flow whose endpoint other than the server is `end`; the buffer `into` must be long enough.
    pub fn write(&self, flow: u32, end: End, into: &mut [u8]) {
        let (own, server) = ((end.address, end.port), (self.ends.server.into(), SERVER_PORT));
        let (source, destination, macs) = match self.direction {
            Direction::Up => (own, server, (self.ends.destination_mac, end.mac)),
            Direction::Down => (server, own, (end.mac, self.ends.source_mac)),
        };
        let written = Written {
            source,
            destination,
            tcp: false,
            flags: 0,
            numbers: (0, 0),
            macs,
            mark: flow,
        };
        let site = self.host(flow).checked_div(self.ends.terminals);
        if let Some(into) = into.get_mut(..self.len()) {
            let (frame, tags) = (Filled::new(written, &self.filling), site.map(tag_bytes));
            Tagged { frame, tags }.write(into);
        }
    }
}

/// Returns the flow and source of a frame that was sent to the server; `None` for other frames.
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
    Some((mark(frame), end)).filter(|_| is_ours && to_server)
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

    /// Parses addresses and ports of a frame, after verifying its checksums.
    fn read(frame: &[u8]) -> [([u8; 4], u16); 2] {
        let ip = Ipv4HeaderSlice::from_slice(&frame[14..])
            .expect("an IPv4 header")
            .to_header();
        assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
        let udp = UdpHeaderSlice::from_slice(&frame[34..])
            .expect("a UDP header")
            .to_header();
        assert_eq!(Ok(udp.checksum), udp.calc_checksum_ipv4(&ip, &frame[42..]));
        [(ip.source, udp.source_port), (ip.destination, udp.destination_port)]
    }

    #[test]
    fn frame_of_a_flow_has_right_checksums_and_tells_where_it_came_from() {
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
            assert_eq!((ENDS.source_mac, bytes - 4), (template.source(flow).mac, frame.len()));
            assert_eq!(Some((flow, template.source(flow))), arrived(&frame));
            assert_eq!([10, 39, 15], read(&frame)[0].0[..3], "flow {flow} of {bytes} bytes");
        }
    }

    #[test]
    fn flows_of_many_networks_have_each_in_turn() {
        for networks in [7, 1_000, 10_000, MOST_NETWORKS] {
            let inside = Ipv4Addr::new(10, 0, 0, 0);
            let ends = Ends {
                inside,
                networks,
                ..ENDS
            };
            let template = Template::new(&ends, 64, Direction::Up);
            let (mut frame, mut seen) = ([0; 60], HashSet::new());
            let mut drawn = vec![0; networks as usize];
            for flow in 0..2 * networks {
                template.write(flow, template.source(flow), &mut frame);
                let [source, _] = read(&frame);
                assert!(seen.insert(source), "flow {flow}");
                drawn[((u32::from_be_bytes(source.0) - u32::from(inside)) >> 8) as usize] += 1;
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
            let expected = [(ENDS.server.octets(), SERVER_PORT), ([203, 0, 113, 255], 65_535)];
            assert_eq!(expected, read(&frame), "flow {flow}");
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
        // Flow 256 belongs to the seventh host, in the second site.
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
