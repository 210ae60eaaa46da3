//! Three hosts in a row: generator, gateway, sink. The sink counts packets by their source addresses.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::command::{feed, run};
use super::frame::SERVER_PORT;
use super::machine::{Cores, Packets, packets};
use super::traffic::{Direction, Receiver};
use crate::netns::{Namespaces, bring_up, wire};
use crate::process::Background;
use crate::rows::Failure;

pub const GENERATOR: &str = "slb-generator";
pub const GATEWAY: &str = "slb-gateway";
pub const SINK: &str = "slb-sink";

pub const GENERATOR_INTERFACE: &str = "slb-gen";
/// Interface of the gateway to the generator.
pub const INSIDE: &str = "slb-in";
/// Interface of the gateway to the sink.
pub const OUTSIDE: &str = "slb-out";
pub const SINK_INTERFACE: &str = "slb-sink";

pub const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
pub const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];

/// Inside address of the gateway with prefix length; the generator is the next hop to the inside networks.
pub const INSIDE_ADDRESS: &str = "192.168.0.1/24";
/// Address of the generator on that link: next hop to the inside networks.
pub const GENERATOR_ADDRESS: &str = "192.168.0.2";
/// Outside address of the gateway with prefix length.
pub const OUTSIDE_ADDRESS: &str = "198.51.100.2/24";
/// Address of the sink: next hop to the server.
pub const SINK_ADDRESS: &str = "198.51.100.1";
/// Address of the server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// First and last address of the NAT pool, and the prefix that contains the pool.
pub const POOL: [&str; 3] = ["203.0.113.0", "203.0.113.255", "203.0.113.0/24"];
/// Prefix of the sites' public addresses, and the range from which the DHCP server leases them.
pub const SITES: [&str; 2] = ["203.0.112.0/24", "203.0.112.1 - 203.0.112.250"];
pub const INSIDE_NETWORKS: &str = "10.0.0.0/8";

/// Network of source-NAT rule `rule` (counted from 0): a /24.
pub fn inside_network(rule: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 | (rule << 8 & 0x00ff_ff00))
}

pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The hosts and their links, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Topology {
    pub cores: Cores,
    /// Processes in the namespaces of generator and sink; the packet counters of these namespaces are read from their
    /// folders in /proc.
    ends: [Background; 2],
    _namespaces: Namespaces,
}

impl Topology {
    pub fn build(cores: Cores, receiver: Receiver) -> Result<Self, Failure> {
        let topology = Self::hosts(cores, &[GENERATOR, GATEWAY, SINK])?;
        let end = |host, interface, mac| (host, interface, format!("address {}", mac_text(mac)));
        wire([
            end(GENERATOR, GENERATOR_INTERFACE, GENERATOR_MAC),
            end(GATEWAY, INSIDE, INSIDE_MAC),
        ])?;
        wire([end(GATEWAY, OUTSIDE, OUTSIDE_MAC), end(SINK, SINK_INTERFACE, SINK_MAC)])?;
        // If each core has a generator, it also receives the packets of its own flows.
        if topology.cores.are_apart() && receiver == Receiver::Traffic {
            steer(SINK, SINK_INTERFACE, topology.cores.traffic)?;
            steer(GENERATOR, GENERATOR_INTERFACE, topology.cores.traffic)?;
        }
        topology.count()?;
        Ok(topology)
    }

    /// Creates generator and sink with the two TAP interfaces of a guest, which must already have the names of the
    /// generator's and the sink's interface.
    pub fn at_taps(cores: Cores) -> Result<Self, Failure> {
        let topology = Self::hosts(cores, &[GENERATOR, SINK])?;
        for (host, interface, mac) in [
            (GENERATOR, GENERATOR_INTERFACE, GENERATOR_MAC),
            (SINK, SINK_INTERFACE, SINK_MAC),
        ] {
            run(&format!("ip link set {interface} netns {host}"))?;
            run(&format!("ip -n {host} link set {interface} address {}", mac_text(mac)))?;
            bring_up(&format!("ip netns exec {host}"), interface)?;
        }
        topology.count()?;
        Ok(topology)
    }

    fn hosts(cores: Cores, hosts: &[&'static str]) -> Result<Self, Failure> {
        let stay = |host| {
            Command::new("ip")
                .args(["netns", "exec", host, "sleep", "infinity"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .map(Background)
                .map_err(crate::daemon::of::<std::io::Error>("ip netns exec"))
        };
        let namespaces = Namespaces::new(hosts)?;
        Ok(Self {
            cores,
            ends: [stay(GENERATOR)?, stay(SINK)?],
            _namespaces: namespaces,
        })
    }

    /// Counts packets at the ingress of both ends, and then drops them. The sink counts packets from the pool as
    /// `translated` and packets from inside hosts as `plain`. The generator counts packets from the server to inside
    /// hosts as `returned`.
    fn count(&self) -> Result<(), Failure> {
        for (host, interface, counters) in [
            (SINK, SINK_INTERFACE, ["translated", "plain"].as_slice()),
            (GENERATOR, GENERATOR_INTERFACE, &["returned"]),
        ] {
            let counters: String = counters.iter().map(|name| format!("counter {name} {{ }}\n")).collect();
            let table = format!(
                "table netdev end {{
                    {counters}
                    chain arrive {{
                        type filter hook ingress device {interface} priority 0; policy accept;
                    }}
                }}\n"
            );
            feed(&format!("ip netns exec {host} nft -f -"), &table)?;
        }
        run(&format!(
            "ip -n {SINK} address add {SINK_ADDRESS}/24 dev {SINK_INTERFACE}"
        ))?;
        self.look(true)
    }

    /// Sets whether both ends inspect and count packets before they drop them, because inspection takes more time of
    /// the traffic's core than sending.
    pub fn look(&self, look: bool) -> Result<(), Failure> {
        let server = format!("ip daddr {SERVER} udp dport {SERVER_PORT}");
        let of_sink = [
            format!(
                "ip saddr {{ {}, {} }} {server} counter name translated drop",
                POOL[2], SITES[0]
            ),
            format!("ip saddr {INSIDE_NETWORKS} {server} counter name plain drop"),
        ];
        let of_generator = [
            format!("ip saddr {SERVER} ip daddr {INSIDE_NETWORKS} udp sport {SERVER_PORT} counter name returned drop"),
            "meta protocol { 8021q, 8021ad } counter name returned drop".into(),
        ];
        for (host, rules) in [(SINK, of_sink), (GENERATOR, of_generator)] {
            let rules = if look { rules.to_vec() } else { vec!["drop".into()] };
            let rules = rules.iter().map(|rule| format!("add rule netdev end arrive {rule}\n"));
            let text: String = ["flush chain netdev end arrive\n".into()]
                .into_iter()
                .chain(rules)
                .collect();
            feed(&format!("ip netns exec {host} nft -f -"), &text)?;
        }
        Ok(())
    }

    /// Packet counters of the interface through which measured packets are sent, and of the interface at which they
    /// arrive.
    pub fn packets(&self, direction: Direction) -> [Packets; 2] {
        let [generator, sink] = &self.ends;
        let generator = packets(generator.0.id(), GENERATOR_INTERFACE);
        let sink = packets(sink.0.id(), SINK_INTERFACE);
        match direction {
            Direction::Up => [generator, sink],
            Direction::Down => [sink, generator],
        }
    }

    /// Numbers of packets that have arrived: at the sink from pool addresses and from inside addresses, at the
    /// generator from the server.
    pub fn arrived(&self) -> Result<Arrived, Failure> {
        let list = |host| run(&format!("ip netns exec {host} nft -j list counters"));
        Ok(Arrived {
            returned: Arrived::parse(&list(GENERATOR)?).returned,
            ..Arrived::parse(&list(SINK)?)
        })
    }
}

/// Numbers of packets received at both ends, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    pub translated: u64,
    /// Packets with inside source addresses, which were not translated.
    pub plain: u64,
    pub returned: u64,
}

impl Arrived {
    /// Number of packets that arrived as expected: with or without source translation, depending on the gateway.
    pub fn right(&self, direction: Direction, translates: bool) -> u64 {
        match (direction, translates) {
            (Direction::Down, _) => self.returned,
            (Direction::Up, true) => self.translated,
            (Direction::Up, false) => self.plain,
        }
    }

    fn parse(listing: &str) -> Self {
        let listing: Value = serde_json::from_str(listing).unwrap_or_default();
        let count = |name: &str| {
            let entries = listing.get("nftables")?.as_array()?.iter();
            let mut counters = entries.filter_map(|entry| entry.get("counter"));
            let counter = counters.find(|counter| counter.get("name").and_then(Value::as_str) == Some(name))?;
            counter.get("packets")?.as_u64()
        };
        Self {
            translated: count("translated").unwrap_or(0),
            plain: count("plain").unwrap_or(0),
            returned: count("returned").unwrap_or(0),
        }
    }
}

/// Makes a core process the packets received on an interface (RPS).
pub fn steer(host: &str, interface: &str, core: usize) -> Result<(), Failure> {
    let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    feed(&format!("ip netns exec {host} tee {file}"), &Cores::mask(core)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_a_network_each() {
        assert_eq!("10.0.0.0", inside_network(0).to_string());
        assert_eq!("10.3.231.0", inside_network(999).to_string());
        assert_eq!("10.39.15.0", inside_network(9_999).to_string());
    }

    #[test]
    fn arrived_is_read_from_a_listing_of_counters() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "netdev", "name": "translated", "table": "end", "packets": 12, "bytes": 720}},
            {"counter": {"family": "netdev", "name": "plain", "table": "end", "packets": 3, "bytes": 180}}]}"#;
        let expected = Arrived {
            translated: 12,
            plain: 3,
            returned: 0,
        };
        assert_eq!(expected, Arrived::parse(listing));
        assert_eq!(Arrived::default(), Arrived::parse("nothing of the kind"));
    }

    #[test]
    fn mac_is_written_in_hexadecimal() {
        assert_eq!("02:00:00:00:01:01", mac_text(GENERATOR_MAC));
    }
}
