//! Three hosts in a row: generator, gateway, sink. The sink counts packets by their source addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::frame::SERVER_PORT;
use super::machine::{Cores, Packets, packets};
use super::traffic::{Direction, Receiver};
use crate::netns::{Namespaces, bring_up, wire, within};
use crate::process::{Background, command, feed, run};
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

/// Maximum time to wait for the last packets.
const DRAIN: Duration = Duration::from_secs(3);

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
        let inside = end(GATEWAY, INSIDE, INSIDE_MAC);
        wire([end(GENERATOR, GENERATOR_INTERFACE, GENERATOR_MAC), inside])?;
        wire([end(GATEWAY, OUTSIDE, OUTSIDE_MAC), end(SINK, SINK_INTERFACE, SINK_MAC)])?;
        // If each core has a generator, it also receives the packets of its own flows.
        if topology.cores.are_apart() && receiver == Receiver::Traffic {
            steer(SINK, SINK_INTERFACE, topology.cores.traffic)?;
            steer(GENERATOR, GENERATOR_INTERFACE, topology.cores.traffic)?;
        }
        topology.furnish()
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
            bring_up(&within(host), interface)?;
        }
        topology.furnish()
    }

    fn hosts(cores: Cores, hosts: &[&'static str]) -> Result<Self, Failure> {
        let stay = |host| -> Result<_, Failure> {
            let mut sleep = command(&format!("{} sleep infinity", within(host)));
            Ok(Background(sleep.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
        };
        let namespaces = Namespaces::new(hosts)?;
        Ok(Self {
            cores,
            ends: [stay(GENERATOR)?, stay(SINK)?],
            _namespaces: namespaces,
        })
    }

    fn furnish(self) -> Result<Self, Failure> {
        run(&format!(
            "ip -n {SINK} address add {SINK_ADDRESS}/24 dev {SINK_INTERFACE}"
        ))?;
        self.look(true)?;
        Ok(self)
    }

    /// Sets whether both ends inspect and count packets at their ingress before they drop them. Otherwise the ends drop
    /// packets without inspection, because inspection takes more of the traffic core's time than sending. The sink
    /// counts packets from the pool as `translated` and packets from inside hosts as `plain`. The generator counts
    /// packets from the server to inside hosts as `returned`.
    pub fn look(&self, look: bool) -> Result<(), Failure> {
        let server = format!("ip daddr {SERVER} udp dport {SERVER_PORT}");
        let of_sink = [
            (
                "translated",
                format!("ip saddr {{ {}, {} }} {server}", POOL[2], SITES[0]),
            ),
            ("plain", format!("ip saddr {INSIDE_NETWORKS} {server}")),
        ];
        let of_server = format!("ip saddr {SERVER} ip daddr {INSIDE_NETWORKS} udp sport {SERVER_PORT}");
        let of_generator = [
            ("returned", of_server),
            ("returned", "meta protocol { 8021q, 8021ad }".into()),
        ];
        for (host, interface, rules) in [
            (SINK, SINK_INTERFACE, of_sink),
            (GENERATOR, GENERATOR_INTERFACE, of_generator),
        ] {
            let hook = format!("type filter hook ingress device {interface} priority 0; policy accept;");
            let mut text =
                format!("table netdev end {{ chain arrive {{ {hook} }}\n}}\nflush chain netdev end arrive\n");
            for (counter, packets) in rules {
                text += &format!("add counter netdev end {counter}\n");
                if look {
                    text += &format!("add rule netdev end arrive {packets} counter name {counter} drop\n");
                }
            }
            if !look {
                text += "add rule netdev end arrive drop\n";
            }
            feed(&format!("{} nft -f -", within(host)), &text)?;
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

    /// Numbers of packets that have arrived at both ends.
    pub fn arrived(&self) -> Result<Arrived, Failure> {
        let mut arrived = Arrived::default();
        for host in [GENERATOR, SINK] {
            arrived.add(&run(&format!("{} nft -j list counters", within(host)))?);
        }
        Ok(arrived)
    }

    /// Numbers of packets that have arrived, read when no further packets arrive.
    pub fn drained(&self) -> Result<Arrived, Failure> {
        let began = Instant::now();
        let mut arrived = self.arrived()?;
        while began.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(100));
            let before = std::mem::replace(&mut arrived, self.arrived()?);
            if before == arrived {
                break;
            }
        }
        Ok(arrived)
    }
}

/// Numbers of packets received at both ends, by the names of their counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived(BTreeMap<String, u64>);

impl Arrived {
    /// Number of packets that arrived as expected: with or without source translation, depending on the gateway.
    pub fn right(&self, direction: Direction, translates: bool) -> u64 {
        let counter = match (direction, translates) {
            (Direction::Down, _) => "returned",
            (Direction::Up, true) => "translated",
            (Direction::Up, false) => "plain",
        };
        self.0.get(counter).copied().unwrap_or(0)
    }

    /// Adds the counters of an end, listed by nft as JSON.
    fn add(&mut self, listing: &str) {
        let listing: Value = serde_json::from_str(listing).unwrap_or_default();
        let counters = listing["nftables"].as_array().into_iter().flatten();
        self.0.extend(counters.filter_map(|entry| {
            let counter = entry.get("counter")?;
            Some((counter["name"].as_str()?.to_owned(), counter["packets"].as_u64()?))
        }));
    }
}

/// Makes a core process the packets received on an interface (RPS).
pub fn steer(host: &str, interface: &str, core: usize) -> Result<(), Failure> {
    let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    feed(&format!("{} tee {file}", within(host)), &Cores::mask(core)).map(drop)
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
    fn packets_count_where_they_are_as_the_gateway_leaves_them() {
        let counter = |name: &str, packets: u64| {
            format!(r#"{{"counter": {{"family": "netdev", "name": "{name}", "table": "end", "packets": {packets}}}}}"#)
        };
        let mut arrived = Arrived::default();
        arrived.add(&format!(
            r#"{{"nftables": [{{"metainfo": {{}}}}, {}]}}"#,
            counter("returned", 3)
        ));
        let counters = [counter("translated", 12), counter("plain", 2)].join(",");
        arrived.add(&format!(r#"{{"nftables": [{counters}]}}"#));
        arrived.add("nothing of the kind");
        assert_eq!(12, arrived.right(Direction::Up, true));
        assert_eq!(2, arrived.right(Direction::Up, false));
        assert_eq!(3, arrived.right(Direction::Down, true));
        assert_eq!(0, Arrived::default().right(Direction::Down, false));
    }

    #[test]
    fn mac_is_written_in_hexadecimal() {
        assert_eq!("02:00:00:00:01:01", mac_text(GENERATOR_MAC));
    }
}
