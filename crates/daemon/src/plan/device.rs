//! Assumed costs. Measuring them would require open devices or a second core.

use sluice_config::Config;
use sluice_dpdk::Driver;
use sluice_engine::placement::HandOver;
use sluice_wire::Checksums;

use crate::ports::outlook;

/// Assumed cost of hand-overs at distances that do not exist on this machine, in the order of `Distance::ALL`. The
/// cycles for ring and headers were measured on other machines.
pub const HAND_OVERS: [HandOver; 4] = [
    HandOver { out: 20.0, take: 40.0 },
    HandOver { out: 30.0, take: 65.0 },
    HandOver { out: 60.0, take: 200.0 },
    HandOver {
        out: 100.0,
        take: 350.0,
    },
];

/// Assumed time in nanoseconds that a driver takes to receive a packet, and to send a packet. The cost of frames in
/// memory is not included. The values are typical for the drivers and are not measured here.
fn nanoseconds(driver: Driver) -> [f64; 2] {
    match driver {
        Driver::Null | Driver::Ring => [0.0, 0.0],
        Driver::Native | Driver::Bond => [8.0, 8.0],
        Driver::Memif | Driver::Vhost | Driver::Virtio | Driver::Pcap => [30.0, 30.0],
        Driver::AfXdp => [100.0, 200.0],
        Driver::AfPacket => [300.0, 600.0],
        Driver::Tap => [500.0, 800.0],
    }
}

/// For each part of packet processing, the assumed cycles that the device driver takes per packet, averaged over all
/// ports.
pub fn cycles(config: &Config, frequency: u64) -> [f64; 4] {
    let ports = outlook(config).unwrap_or_default();
    let count = ports.len().max(1) as f64 * 1e9 / frequency as f64;
    let (receive, transmit) = ports.iter().fold((0.0, 0.0), |(receive, transmit), port| {
        let [own, sent] = nanoseconds(port.choice.driver);
        (receive + own, transmit + sent)
    });
    [receive / count, 0.0, 0.0, transmit / count]
}

/// Whether cards verify checksums. Verification is assumed only if DPDK's own drivers are used for all cards.
pub fn checksums(config: &Config) -> Checksums {
    let ports = outlook(config).unwrap_or_default();
    let is_reliable = |driver| matches!(driver, Driver::Native | Driver::Bond);
    match !ports.is_empty() && ports.iter().all(|port| is_reliable(port.choice.driver)) {
        true => Checksums::Vouched,
        false => Checksums::Unverified,
    }
}
