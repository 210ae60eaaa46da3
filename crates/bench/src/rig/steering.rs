//! Steering: the worker queue to which a network card, or the source in its place, delivers each packet.

use sluice_engine::session::family::V4;
use sluice_engine::snapshot::steering::{Affinity, HashFields, SteeringSettings, spreads};
use sluice_engine::snapshot::{Snapshot, StartParameters};
use sluice_nat::shard::BLOCK;

use super::frames::{Ends, Written};

/// Steering of packets to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Steering {
    /// The source delivers each packet to the worker that owns its session.
    Ideal,
    /// Hash of the source address for packets from inside, and of the destination address and port for packets from
    /// outside.
    Subset,
    /// All packets go to the first worker.
    OneQueue,
    /// Hash of addresses and ports.
    FiveTuple,
    /// Each packet goes to the next worker after the one that owns its session. The steering measures the full cost of
    /// a hand-over, including cache misses.
    Wrong,
}

impl Steering {
    /// Settings for the engine. Flows of one host are distributed over shards if network cards hash ports and the
    /// mapping behaviour permits it.
    pub fn wanted(self, policy: &Snapshot, blocks: Option<u16>) -> SteeringSettings {
        let spreads = policy.nat4.pools.iter().all(|(_, pool)| spreads(pool));
        let hashed = match self {
            Self::FiveTuple => HashFields::FiveTuple,
            _ => HashFields::Subset,
        };
        let together = match self {
            Self::FiveTuple if spreads => Affinity::Flows,
            _ => Affinity::Hosts,
        };
        SteeringSettings {
            hashed,
            together,
            ports: blocks.map_or(BLOCK, u32::from),
            ..SteeringSettings::default()
        }
    }

    /// The worker whose queue receives a frame of a flow.
    pub fn worker(self, setup: &StartParameters, workers: usize, flow: &Ends, frame: &Written, outside: bool) -> usize {
        let steering = &setup.steering;
        let (source, destination) = (frame.source, frame.destination);
        let entry = match self {
            Self::OneQueue => return 0,
            Self::Wrong => return (Self::Ideal.worker(setup, workers, flow, frame, outside) + 1) % workers,
            Self::Ideal => match steering.affinity() {
                Affinity::Hosts => steering.of_host::<V4>(flow.inside.0).into(),
                Affinity::Flows => steering.of_flow::<V4>(flow.inside, flow.remote).into(),
            },
            Self::Subset if outside => {
                let input = [&destination.0.to_be_bytes()[..], &destination.1.to_be_bytes()].concat();
                steering.key(true).hash(&input)
            }
            Self::Subset => steering.key(false).hash(&source.0.to_be_bytes()),
            Self::FiveTuple => {
                let addresses = [source.0.to_be_bytes(), destination.0.to_be_bytes()].concat();
                let ports = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
                steering.key(outside).hash(&[addresses, ports].concat())
            }
        };
        let entry = entry & (steering.shards().count() - 1);
        setup.owners.of(entry as u16).unwrap_or_default().into()
    }
}
