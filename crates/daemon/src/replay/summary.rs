//! Summary of a replay.

use std::net::IpAddr;

use serde::Serialize;
use sluice_config::api::{Counter, Drop};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::reason::Reason;

use crate::start::{mac_text, sum};

/// Summary of a replay. Summed over all interfaces, `received + originated + unparked = sent + dropped + to-host + parked`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Number of workers.
    pub workers: u16,
    /// Nanoseconds from the first frame to the last.
    pub duration: u64,
    /// Interfaces in the order of the configuration.
    pub interfaces: Vec<InterfaceSummary>,
    /// Dropped packets for each reason. Reasons with a zero count are omitted.
    pub drops: Vec<Drop>,
    /// Number of created sessions, of ended sessions, and of sessions that are present at the end of the replay.
    pub sessions: Vec<Counter>,
    /// Neighbours that are not configured, with the MAC addresses generated for them.
    pub invented_neighbours: Vec<InventedNeighbour>,
    /// Frames that the snap length of the capture has truncated. Zeros replace the missing bytes.
    pub truncated_capture: u64,
    /// Truncated frames skipped because a header is incomplete.
    pub truncated_headers: u64,
    /// Frames skipped because they exceed the maximum length.
    pub too_long: u64,
    /// Number of inspection records. `None` if no records are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eve: Option<EveSummary>,
    /// Whether the packet counters balance.
    pub balanced: bool,
}

/// Numbers of inspection records.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EveSummary {
    /// Lines written.
    pub written: u64,
    /// Number of alerts and records that were lost because the queue, which has the size `messages`, was full.
    pub lost: u64,
}

/// Counters of an interface.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceSummary {
    /// Name of the interface.
    pub name: String,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Packets that the gateway originated.
    pub originated: u64,
    /// Dropped packets that were received on this interface.
    pub dropped: u64,
    /// Packets for local delivery.
    pub to_host: u64,
    /// Packets that were parked because their neighbour was unresolved.
    pub parked: u64,
    /// Parked packets that were sent later.
    pub unparked: u64,
    /// Whether frames to any destination MAC are accepted, because the interface has no configured MAC.
    pub any_mac: bool,
}

/// A neighbour with a generated MAC address.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InventedNeighbour {
    /// Interface of the neighbour.
    pub interface: String,
    /// IP address.
    pub address: IpAddr,
    /// Generated MAC address.
    pub mac: String,
}

impl InventedNeighbour {
    pub(super) fn new(interface: &str, address: IpAddr, mac: [u8; 6]) -> Self {
        Self {
            interface: interface.into(),
            address,
            mac: mac_text(mac),
        }
    }
}

pub(super) fn interfaces(plane: &ControlPlane, any_mac: &[bool]) -> Vec<InterfaceSummary> {
    let counters = plane.counters();
    let described = plane.snapshot().interfaces.iter().enumerate();
    described
        .map(|(number, interface)| InterfaceSummary {
            name: interface.name.clone(),
            received: sum(counters, number, |i| i.received.get()),
            sent: sum(counters, number, |i| i.sent.get()),
            originated: sum(counters, number, |i| i.originated.get()),
            dropped: sum(counters, number, |i| i.all_drops()),
            to_host: sum(counters, number, |i| i.to_host.get()),
            parked: sum(counters, number, |i| i.parked.get()),
            unparked: sum(counters, number, |i| i.unparked.get()),
            any_mac: any_mac.get(usize::from(interface.port)).copied().unwrap_or(false),
        })
        .collect()
}

pub(super) fn drops(plane: &ControlPlane) -> Vec<Drop> {
    let dropped = |reason| {
        let interfaces = plane.counters().iter().flat_map(|worker| worker.interfaces.iter());
        interfaces.map(|interface| interface.drops(reason)).sum::<u64>()
    };
    Reason::all()
        .map(|reason| Drop {
            name: reason.name().into(),
            help: reason.help().into(),
            packets: dropped(reason),
        })
        .filter(|drop| drop.packets > 0)
        .collect()
}

pub(super) fn sessions(plane: &ControlPlane) -> Vec<Counter> {
    let total = |value: fn(&sluice_engine::packet::counters::WorkerCounters) -> u64| {
        plane.counters().iter().map(|worker| value(worker)).sum::<u64>()
    };
    let (made, ended) = (
        total(|worker| worker.sessions_created.get()),
        total(|worker| worker.sessions_ended.get()),
    );
    [("made", made), ("ended", ended), ("left", made.saturating_sub(ended))]
        .map(|(name, count)| Counter {
            name: name.into(),
            count,
        })
        .into()
}
