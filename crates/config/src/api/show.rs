//! Rows of the lists that `sluice show` prints.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::WorkerCounter;
use super::column::{Column, Row, age, grouped, or_dash};
use crate::value::Protocol;

/// State of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Name of the gateway: `name` in `[system]`.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process ID.
    pub process: u32,
    /// Seconds since the start.
    pub uptime: u64,
    /// Number of the active commit, counted from 1.
    pub generation: u64,
    /// Number of IPv4 and IPv6 sessions.
    pub sessions: [u64; 2],
    /// Maximum number of IPv4 and IPv6 sessions.
    pub capacity: [u64; 2],
    /// Frequency in Hz of the clock with which the `cycles-…` counters of cores are measured.
    pub tsc_hz: u64,
    /// Warnings for the operator: stuck cores, restarted tasks.
    pub warnings: Vec<String>,
}

/// A counter with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counter {
    /// Name of the counter.
    pub name: String,
    /// Value of the counter.
    pub count: u64,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bridge {
    /// Name of the bridge in the configuration.
    pub name: String,
    /// The two sides of the bridge.
    pub sides: Vec<BridgeSide>,
    /// Frames that were forwarded despite a drop reason, for each reason.
    pub exempted: Vec<Counter>,
}

/// One side of a bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BridgeSide {
    /// Name of the interface.
    pub interface: String,
    /// Link state: `up`, `down`, or `held`. A link is held down if the link of the other side is down.
    pub link: String,
    /// Frames received on this side.
    pub received: u64,
    /// Frames sent on this side.
    pub sent: u64,
    /// Frames received on this side and dropped.
    pub dropped: u64,
}

/// An interface. The sums over all interfaces satisfy `received + originated + unparked = sent + dropped + to-host +
/// parked`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interface {
    /// Name in the configuration.
    pub name: String,
    /// Virtual router of the interface. Empty for an interface in a bridge.
    #[serde(default)]
    pub router: String,
    /// Device in the notation of the configuration. For a VLAN, its parent and its tags.
    pub device: String,
    /// Driver of the interface: `AF_XDP`, `AF_PACKET`, or the driver of a card.
    pub driver: String,
    /// Link state: `up` or `down`.
    pub link: String,
    /// Ethernet address.
    pub mac: String,
    /// MTU: length of the largest IP packet in bytes.
    pub mtu: u16,
    /// Receive queues.
    pub queues: u16,
    /// How the receive queue of a frame is selected, and limitations of the device.
    pub steering: String,
    /// DPDK driver of a card, with the number of queues and the hash that the card supports. The text is empty for
    /// devices other than cards.
    #[serde(default)]
    pub card: String,
    /// Addresses, each with its prefix length.
    pub addresses: Vec<String>,
    /// Frames received from the device.
    pub received: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames sent to the device.
    pub sent: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// Packets that the gateway originated, counted at the output interface.
    pub originated: u64,
    /// Packets dropped, counted at the input interface.
    pub dropped: u64,
    /// Packets for local delivery, counted at the input interface.
    pub to_host: u64,
    /// Packets parked for an unresolved neighbour, counted at the input interface.
    pub parked: u64,
    /// Parked packets that were sent after their neighbour was resolved.
    pub unparked: u64,
    /// Further counters of the driver.
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

/// Address with a port or an ICMP identifier. The port is 0 for protocols that have neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// Port or identifier.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// One direction of a session, with its addresses before the gateway translates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Source port or ICMP identifier. 0 for protocols that have neither.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port or ICMP identifier. 0 for protocols that have neither.
    pub destination_port: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

impl Flow {
    /// Source of the packets.
    pub fn from(&self) -> Endpoint {
        Endpoint {
            address: self.source,
            port: self.source_port,
        }
    }

    /// Destination of the packets.
    pub fn to(&self) -> Endpoint {
        Endpoint {
            address: self.destination,
            port: self.destination_port,
        }
    }
}

/// Host that sent the first packet of a session.
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
    /// Virtual router of the session. Empty on a bridge.
    #[serde(default)]
    pub router: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Direction of the first packet.
    pub forward: Flow,
    /// Direction opposite to the first packet.
    pub reverse: Flow,
    /// Host that sent the first packet.
    pub initiator: Initiator,
    /// TCP state, with the kernel's names in lower case: `none`, `syn-sent`, `established`, `fin-wait`, `time-wait`,
    /// `close`. For protocols other than TCP, the state is `unanswered` or `answered`.
    pub state: String,
    /// Whether packets of both directions have been seen.
    pub answered: bool,
    /// Seconds until the session ends if no further packet arrives.
    pub expires: u64,
    /// Interface towards the inside host, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_interface: Option<String>,
    /// Interface towards the remote host, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_interface: Option<String>,
    /// Subscriber site of the inside host, if the host belongs to a site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Pool of the outside address, if the address is from a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// nDPI's name of the application, such as `TLS.Google`, once the application is identified. `Unknown` if the
    /// application could not be identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Mark that filter rules have set. 0 if no rule has set a mark.
    #[serde(default)]
    pub mark: u32,
    /// Shard of the session.
    pub shard: u16,
}

impl Session {
    /// Address and port of the inside host, before translation.
    pub fn inside(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.forward.from(),
            Initiator::Remote => self.reverse.from(),
        }
    }

    /// Address and port of the inside host after translation.
    pub fn outside(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.reverse.to(),
            Initiator::Remote => self.forward.to(),
        }
    }

    /// Address and port of the remote host.
    pub fn remote(&self) -> Endpoint {
        match self.initiator {
            Initiator::Inside => self.forward.to(),
            Initiator::Remote => self.forward.from(),
        }
    }

    /// The direction from the inside host, then the direction to the inside host.
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

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Route {
    /// Virtual router of the route.
    #[serde(default)]
    pub router: String,
    /// Destination network.
    pub to: String,
    /// Source network of the route. Absent if the route applies to all sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Gateway of the next hop, if the next hop has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Output interface of the next hop, if the next hop has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Action of a route that does not forward: `blackhole`, `unreachable`, `prohibit` or `throw`. A lookup of an
    /// address may also show `directed-broadcast` and `link-local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Origin of the route: `connected`, `static`, `local`, `blackhole`, `unreachable` or `prohibit`. For a learned
    /// route, the origin is its protocol: `bgp`, `ospf`, …
    pub kind: String,
    /// Administrative distance. Among the usable routes to a network, the route with the lowest distance is selected.
    #[serde(default)]
    pub distance: u8,
    /// Metric. Among routes of equal distance, the route with the lowest metric is selected.
    #[serde(default)]
    pub metric: u32,
    /// Weight relative to other next hops of the route.
    #[serde(default)]
    pub weight: u8,
    /// Seconds since the last change of the route.
    #[serde(default)]
    pub age: u64,
    /// Whether the route is stale: its daemon has disconnected, or has not sent the route again since.
    #[serde(default)]
    pub stale: bool,
    /// Whether packets use the next hop.
    #[serde(default)]
    pub used: bool,
    /// Why the next hop is not used: `not-preferred` (another route to the network is preferred), `link-down`,
    /// `gateway-unreachable` or `uplink-down`.
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

/// A neighbour with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Neighbour {
    /// Virtual router of the neighbour's interface.
    #[serde(default)]
    pub router: String,
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Interface of the neighbour's link.
    pub interface: String,
    /// State of the neighbour: `static`, `incomplete`, `reachable`, `stale`, `delay`, `probe` or `failed` (RFC 4861,
    /// section 7.3.2).
    pub state: String,
    /// Number of packets that are parked for the neighbour.
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

/// A worker with its core and counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Core {
    /// Number of the worker, counted from 0.
    pub worker: u16,
    /// Core to which the worker is pinned.
    pub core: u16,
    /// State of the worker: `running`, `asleep` or `stuck`.
    pub state: String,
    /// Stages that the worker performs. For run-to-completion: `receive+parse+session+transmit`.
    pub parts: String,
    /// Number of shards that the worker owns.
    pub shards: u16,
    /// Number of sessions in the worker's shards.
    pub sessions: u64,
    /// Number of packets processed.
    pub packets: u64,
    /// Packets per second in the last second.
    pub rate: u64,
    /// Fraction of the last second spent on packets, 0 to 1.
    pub busy: f64,
    /// Number of leaked buffers, which no node released. A number other than 0 indicates a bug.
    pub leaked: u64,
    /// Other counters of the worker.
    pub counters: Vec<WorkerCounter>,
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

/// Dropped packets for one reason, summed over all interfaces and workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Drop {
    /// Name of the reason.
    pub name: String,
    /// Explanation of the reason.
    pub help: String,
    /// Number of packets.
    pub packets: u64,
}

impl Row for Drop {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::number("PACKETS", |row| grouped(row.packets)),
        Column::text("REASON", |row| row.name.clone()),
        Column::text("MEANING", |row| row.help.clone()),
    ];
}
