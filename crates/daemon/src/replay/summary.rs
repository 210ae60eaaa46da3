//! What a replay did.

use std::net::IpAddr;

use serde::Serialize;
use sluice_config::api::{Counter, Drop};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::reason::Reason;

use crate::start::{mac_text, sum};

/// What a replay did. Over all interfaces, `received + made + unparked = sent + dropped + to-host + parked`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Workers that took part.
    pub workers: u16,
    /// Nanoseconds from the first frame to the last.
    pub duration: u64,
    /// Interfaces in the order of the configuration.
    pub interfaces: Vec<InterfaceSummary>,
    /// Dropped packets by reason, where there are any.
    pub drops: Vec<Drop>,
    /// Sessions made, ended, and there in the end.
    pub sessions: Vec<Counter>,
    /// Neighbours that nobody stated, with the addresses that were made up for them.
    pub invented_neighbours: Vec<InventedNeighbour>,
    /// Frames that the snap length of a capture cut: zeros stand for what is missing.
    pub truncated_capture: u64,
    /// Those of them whose headers are not whole: they were left out.
    pub truncated_headers: u64,
    /// Frames that are too long to be one: they were left out.
    pub too_long: u64,
    /// Records of inspection, where any are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eve: Option<EveSummary>,
    /// Whether the counters of conservation balance.
    pub balanced: bool,
}

/// Records of inspection.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EveSummary {
    /// Lines that were written.
    pub written: u64,
    /// Records and alerts that there was no place for: more messages at a time than `messages` has.
    pub lost: u64,
}

/// What went through an interface.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceSummary {
    /// Its name.
    pub name: String,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Packets that the gateway made.
    pub made: u64,
    /// Packets dropped that came in here.
    pub dropped: u64,
    /// Packets for the gateway itself.
    pub to_host: u64,
    /// Packets that had to wait.
    pub parked: u64,
    /// Packets that went on after waiting.
    pub unparked: u64,
    /// Frames are taken whatever their destination address: the interface has none configured.
    pub any_mac: bool,
}

/// A neighbour whose address was made up.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InventedNeighbour {
    /// The interface whose link it is on.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// The Ethernet address made up.
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
            made: sum(counters, number, |i| i.made.get()),
            dropped: sum(counters, number, |i| i.all_drops()),
            to_host: sum(counters, number, |i| i.taken_in.get()),
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
