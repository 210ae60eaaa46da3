//! What `show` lists.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::column::{Column, Row, age, grouped, or_dash};
use crate::value::Protocol;

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
    /// Cycles in a second of the clock by which `cycles-…` of cores are counted.
    pub tsc_hz: u64,
    /// What an operator should look at: stuck cores, tasks that were restarted.
    pub warnings: Vec<String>,
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

/// Two interfaces that pass each other everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// The two sides.
    pub sides: Vec<BridgeSide>,
    /// Frames that passed although there was a reason against it, by the reason.
    pub exempted: Vec<Counter>,
}

/// One side of a bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BridgeSide {
    /// The interface.
    pub interface: String,
    /// `up`, `down`, or `held`: taken down because the other side is down.
    pub link: String,
    /// Frames that came in here.
    pub received: u64,
    /// Frames that left here.
    pub sent: u64,
    /// Frames that came in here and were dropped.
    pub dropped: u64,
}

/// An interface. Over all of them, `received + made + unparked = sent + dropped + to-host + parked`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interface {
    /// Its name in the configuration.
    pub name: String,
    /// The virtual router that it is in; empty where it is in a bridge.
    #[serde(default)]
    pub router: String,
    /// Its device as written; of a VLAN, its parent and tags.
    pub device: String,
    /// What moves its frames: `AF_XDP`, `AF_PACKET`, the driver of a card.
    pub driver: String,
    /// `up` or `down`.
    pub link: String,
    /// Ethernet address.
    pub mac: String,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Receive queues.
    pub queues: u16,
    /// What chooses the queue of a frame, and what the device does not do as wished.
    pub steering: String,
    /// DPDK's driver of a card, and the queues and the hash that the card offers; empty for other devices.
    #[serde(default)]
    pub card: String,
    /// Addresses, each with prefix length.
    pub addresses: Vec<String>,
    /// Frames taken from the device.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames given to the device.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that the gateway made, counted where they leave.
    pub originated: u64,
    /// Packets dropped, counted where they came in.
    pub dropped: u64,
    /// Packets for the gateway itself, counted where they came in.
    pub to_host: u64,
    /// Packets that were made to wait, counted where they came in.
    pub parked: u64,
    /// Packets that went on after waiting.
    pub unparked: u64,
    /// What the driver counts beside.
    pub counters: Vec<Counter>,
}

impl Row for Interface {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("INTERFACE", |row| row.name.clone()),
        Column::text("ROUTER", |row| {
            or_dash(Some(&row.router).filter(|router| !router.is_empty()))
        }),
        Column::text("DEVICE", |row| row.device.clone()),
        Column::text("DRIVER", |row| {
            or_dash(Some(&row.driver).filter(|driver| !driver.is_empty()))
        }),
        Column::text("LINK", |row| row.link.clone()),
        Column::number("MTU", |row| row.mtu.to_string()),
        Column::number("QUEUES", |row| row.queues.to_string()),
        Column::number("RECEIVED", |row| grouped(row.received)),
        Column::number("SENT", |row| grouped(row.sent)),
        Column::number("DROPPED", |row| grouped(row.dropped)),
        Column::text("ADDRESSES", |row| row.addresses.join(" ")),
    ];
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

/// One direction of a session, as its packets are on the wire before the gateway changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Source port, or identifier of an ICMP query; 0 for protocols without either.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port, or identifier of an ICMP query; 0 for protocols without either.
    pub destination_port: u16,
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

impl Flow {
    /// Where its packets come from.
    pub fn from(&self) -> Endpoint {
        Endpoint {
            address: self.source,
            port: self.source_port,
        }
    }

    /// Where its packets go to.
    pub fn to(&self) -> Endpoint {
        Endpoint {
            address: self.destination,
            port: self.destination_port,
        }
    }
}

/// Which side sent the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// The inside host.
    Inside,
    /// The remote host.
    Remote,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Session {
    /// The virtual router that has it; empty on a bridge.
    #[serde(default)]
    pub router: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The direction of the first packet.
    pub forward: Flow,
    /// The other direction.
    pub reverse: Flow,
    /// Which side sent the first packet.
    pub initiator: Initiator,
    /// State of TCP by the kernel's names in small letters: `none`, `syn-sent`, `established`, `fin-wait`, `time-wait`,
    /// `close`; of others `unanswered` or `answered`.
    pub state: String,
    /// Whether both directions have been seen.
    pub answered: bool,
    /// Seconds until it ends if nothing more comes.
    pub expires: u64,
    /// Interface towards the inside host, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_interface: Option<String>,
    /// Interface towards the remote host, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_interface: Option<String>,
    /// The site of a subscriber whose terminal the inside host is, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The pool that its outside address is from, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its application by nDPI's name, such as `TLS.Google`, once it is known; `Unknown` where it was looked for in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The mark that rules of the filter have set; 0 where none has.
    #[serde(default)]
    pub mark: u32,
    /// The shard that it lives in.
    pub shard: u16,
}

impl Session {
    /// The inside host, before translation.
    pub fn inside(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.forward.from(),
            Initiator::Remote => self.reverse.from(),
        }
    }

    /// What the outside sees in its place; the same where nothing is translated.
    pub fn outside(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.reverse.to(),
            Initiator::Remote => self.forward.to(),
        }
    }

    /// The other host.
    pub fn remote(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.forward.to(),
            Initiator::Remote => self.forward.from(),
        }
    }

    /// The directions away from the inside host, and towards it.
    pub fn up_and_down(&self) -> [&Flow; 2] {
        match self.initiator {
            Initiator::Inside => [&self.forward, &self.reverse],
            Initiator::Remote => [&self.reverse, &self.forward],
        }
    }
}

impl Row for Session {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("PROTOCOL", |row| row.protocol.to_string()),
        Column::text("INSIDE", |row| row.inside().to_string()),
        Column::text("OUTSIDE", |row| row.outside().to_string()),
        Column::text("REMOTE", |row| row.remote().to_string()),
        Column::text("STATE", |row| row.state.clone()),
        Column::number("EXPIRES", |row| format!("{} s", row.expires)),
        Column::number("UP", |row| grouped(row.up_and_down()[0].packets)),
        Column::number("DOWN", |row| grouped(row.up_and_down()[1].packets)),
        Column::text("SITE", |row| or_dash(row.site.as_ref())),
        Column::text("APPLICATION", |row| or_dash(row.application.as_ref())),
        Column::text("MARK", |row| {
            or_dash((row.mark != 0).then(|| format!("{:#x}", row.mark)))
        }),
    ];
}

/// A way of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Route {
    /// The router that has it.
    #[serde(default)]
    pub router: String,
    /// Destination network.
    pub to: String,
    /// Network of the sources that it is for, where it is not for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The gateway, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The interface, where it leads to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What it does with packets where it does not forward them: `blackhole`, `unreachable`, `prohibit` or `throw`; of an
    /// address that is asked for, `directed-broadcast` and `link-local` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// `connected`, `static`, `local`, `blackhole`, `unreachable` or `prohibit`; what told it where it is learned: `bgp`, `ospf`, …
    pub kind: String,
    /// Administrative distance: of the routes to one network that lead anywhere, the lowest is used.
    #[serde(default)]
    pub distance: u8,
    /// Metric: the lowest among equal distances.
    #[serde(default)]
    pub metric: u32,
    /// Its part beside other ways of the route.
    #[serde(default)]
    pub weight: u8,
    /// Seconds since the route has been as it is.
    #[serde(default)]
    pub age: u64,
    /// Who told it is gone, or has not told it again yet.
    #[serde(default)]
    pub stale: bool,
    /// Packets take it.
    #[serde(default)]
    pub used: bool,
    /// Why none does: `not-preferred`, as another route to the network comes before it, `link-down`, `gateway-unreachable` or
    /// `uplink-down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

impl Row for Route {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("ROUTER", |row| row.router.clone()),
        Column::text("FROM", |row| or_dash(row.from.as_ref())),
        Column::text("TO", |row| row.to.clone()),
        Column::text("VIA", |row| {
            or_dash(row.via.map(|via| via.to_string()).or_else(|| row.action.clone()))
        }),
        Column::text("INTERFACE", |row| or_dash(row.interface.as_ref())),
        Column::text("KIND", |row| {
            format!("{}{}", row.kind, if row.stale { " (stale)" } else { "" })
        }),
        Column::number("DISTANCE", |row| row.distance.to_string()),
        Column::number("METRIC", |row| row.metric.to_string()),
        Column::number("WEIGHT", |row| row.weight.to_string()),
        Column::number("AGE", |row| age(row.age)),
        Column::text("USED", |row| {
            row.unused
                .as_ref()
                .map_or_else(|| "yes".into(), |why| format!("no: {why}"))
        }),
    ];
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Neighbour {
    /// The router whose interface it is behind.
    #[serde(default)]
    pub router: String,
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

impl Row for Neighbour {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("ADDRESS", |row| row.address.to_string()),
        Column::text("MAC", |row| or_dash(row.mac.as_ref())),
        Column::text("ROUTER", |row| row.router.clone()),
        Column::text("INTERFACE", |row| row.interface.clone()),
        Column::text("STATE", |row| row.state.clone()),
        Column::number("WAITING", |row| row.parked.to_string()),
    ];
}

/// A worker and its core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Core {
    /// The worker, counted from 0.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: u16,
    /// `running`, `asleep` or `stuck`.
    pub state: String,
    /// The parts of a packet's way that it does: `receive+parse+session+transmit` where packets run to completion.
    pub parts: String,
    /// Shards that it owns.
    pub shards: u16,
    /// Sessions in them.
    pub sessions: u64,
    /// Packets that went through its nodes.
    pub packets: u64,
    /// Packets a second in the last second.
    pub rate: u64,
    /// Share of the last second spent on packets, 0 to 1.
    pub busy: f64,
    /// Buffers that no node disposed of: 0, or a fault of the program.
    pub leaked: u64,
    /// Everything else that it counts.
    pub counters: Vec<Counter>,
}

impl Row for Core {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::number("WORKER", |row| row.worker.to_string()),
        Column::number("CORE", |row| row.core.to_string()),
        Column::text("STATE", |row| row.state.clone()),
        Column::number("BUSY", |row| format!("{:.0} %", row.busy * 100.0)),
        Column::number("PACKETS/S", |row| grouped(row.rate)),
        Column::number("PACKETS", |row| grouped(row.packets)),
        Column::number("SESSIONS", |row| grouped(row.sessions)),
        Column::number("SHARDS", |row| row.shards.to_string()),
        Column::text("PARTS", |row| row.parts.clone()),
    ];
}

/// Dropped packets of one reason, over all interfaces and workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Drop {
    /// The reason's name.
    pub name: String,
    /// What it means.
    pub help: String,
    /// How many.
    pub packets: u64,
}

impl Row for Drop {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::number("PACKETS", |row| grouped(row.packets)),
        Column::text("REASON", |row| row.name.clone()),
        Column::text("MEANING", |row| row.help.clone()),
    ];
}
