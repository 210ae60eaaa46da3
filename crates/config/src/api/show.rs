//! What `show` lists.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::Protocol;

/// State of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// `name` of `[system]`.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process number.
    pub process: u32,
    /// Seconds since the start.
    pub uptime: u64,
    /// Number of the commit that runs, counted from 1.
    pub generation: u64,
    /// Sessions that exist, IPv4 and IPv6.
    pub sessions: [u64; 2],
    /// Most that can, IPv4 and IPv6.
    pub capacity: [u64; 2],
    /// What an operator should look at: stuck cores, tasks that were restarted.
    pub warnings: Vec<String>,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// A named number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interface {
    /// Its name in the configuration.
    pub name: String,
    /// Its device as written; of a VLAN, its parent and tags.
    pub device: String,
    /// The driver that moves its frames.
    pub driver: String,
    /// Whether the link is up.
    pub up: bool,
    /// Ethernet address.
    pub mac: String,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Receive queues.
    pub queues: u16,
    /// Addresses, each with prefix length.
    pub addresses: Vec<String>,
    /// What went through.
    pub counters: InterfaceCounters,
}

/// What went through an interface. `received + made + unparked = sent + dropped + to host + parked` over all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceCounters {
    /// Taken from the device.
    pub received: Traffic,
    /// Given to the device.
    pub sent: Traffic,
    /// Dropped after it came in here.
    pub dropped: u64,
    /// For the gateway itself.
    pub to_host: u64,
    /// Made by the gateway, to leave here.
    pub made: u64,
    /// What the driver counts beside.
    pub driver: Vec<Counter>,
}

/// Address and port, or identifier of an ICMP query; port 0 for protocols without either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port or identifier.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// Who sent the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// The inside host.
    Inside,
    /// The other host.
    Remote,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Session {
    /// The protocol.
    pub protocol: Protocol,
    /// The inside host, before translation.
    pub inside: Endpoint,
    /// What the outside sees in its place; the same where nothing is translated.
    pub outside: Endpoint,
    /// The other host.
    pub remote: Endpoint,
    /// Who sent the first packet.
    pub initiator: Initiator,
    /// State of TCP in the words of RFC 7857; of others whether an answer was seen.
    pub state: String,
    /// Whether both directions have been seen.
    pub answered: bool,
    /// Seconds until it ends if nothing more comes.
    pub expires: u64,
    /// From inside to the other host.
    pub up: Traffic,
    /// From the other host to inside.
    pub down: Traffic,
    /// Interface towards the inside host, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_interface: Option<String>,
    /// Interface towards the other host, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_interface: Option<String>,
    /// The pool that its outside address is from, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The shard that it lives in.
    pub shard: u16,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Route {
    /// Destination network.
    pub to: String,
    /// The gateway, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The interface, where it leads to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `connected`, `static`, `local`, `blackhole`, `unreachable` or `prohibit`.
    pub kind: String,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The interface whose link it is on.
    pub interface: String,
    /// `static`, `incomplete`, `reachable`, `stale`, `delay`, `probe` or `failed` (RFC 4861, 7.3.2).
    pub state: String,
    /// Packets that wait for it.
    pub parked: u32,
}

/// A worker and its core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Core {
    /// The worker, counted from 0.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: u16,
    /// `running`, `idle` or `stuck`.
    pub state: String,
    /// Shards that it owns.
    pub shards: u16,
    /// Sessions in them.
    pub sessions: u64,
    /// Taken from devices.
    pub received: Traffic,
    /// Given to devices.
    pub sent: Traffic,
    /// Dropped.
    pub dropped: u64,
    /// Packets a second in the last second.
    pub rate: u64,
    /// Share of the last second spent on packets, 0 to 1.
    pub busy: f64,
    /// Everything else that it counts.
    pub counters: Vec<Counter>,
}

/// Dropped packets of one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Drop {
    /// The node that decided it.
    pub node: String,
    /// The reason's name.
    pub reason: String,
    /// What it means.
    pub help: String,
    /// How many.
    pub count: u64,
}
