//! Translation traffic shapes of CSIT, by name: `hH-p63-sN` has H inside hosts with 63 flows each, N flows in total.

use sluice_dpdk::tsc;
use sluice_wire::Checksums;

use super::{Bench, Probe, drawn, probe};
use crate::rig::frames::{Hosts, Random, SEED, Written};
use crate::rig::gateway::{Gateway, drops};
use crate::rig::measure::{Direction, PACKETS, run_gateway};
use crate::rig::policy::{Job, Style, memory, plane};
use crate::rig::reference::{Flows, complete, open, refused};
use crate::rows::{Failure, Named, Row, Runs};

const FLOWS_PER_HOST: u32 = 63;
pub const HOSTS: [u32; 5] = [1024, 4096, 16_384, 65_536, 262_144];

fn name(hosts: u32) -> String {
    format!("h{hosts}-p{FLOWS_PER_HOST}-s{}", hosts * FLOWS_PER_HOST)
}

fn row(shape: String, hosts: u32, style: &Style) -> Row {
    let row = Row::new("established")
        .key("shape", shape)
        .key("sessions", hosts * FLOWS_PER_HOST);
    let row = row.key("family", 4).key("mapping", style.mapping());
    row.key("port_block", style.blocks.unwrap_or(0))
}

/// Session capacity with a reserve, because a hash of the inside host distributes sessions unevenly over shards.
fn capacity(sessions: u32) -> u32 {
    sessions + sessions / 4 + 16 * 1024
}

/// Measures a shape: establishes all of its sessions, checks that none was refused or ended, and then measures the cost
/// per packet.
pub fn shape(bench: &mut Bench<'_, '_>, hosts: u32, style: Style) -> Result<(), Failure> {
    let sessions = hosts * FLOWS_PER_HOST;
    let per_address = if style.overlap { 1024 } else { 512 };
    let style = Style {
        addresses: Some(hosts.div_ceil(per_address)),
        ..style
    };
    let plane = plane(Job::Translate, style, capacity(sessions))?;
    let lines = plane.lines();
    let bytes = Gateway::bytes_per_session(&plane, lines.sessions4 + lines.bindings4, capacity(sessions));
    let mut memory = memory(&plane)?;
    let mut gateway = bench.gateway(Job::Translate, plane, &mut memory)?;
    let (turn, start) = (Hosts::InTurn(hosts), tsc::now());
    let publics = open(&mut gateway, turn, sessions, |packet, _| packet).and_then(complete);
    let publics = publics.map_err(|error| format!("{}: {error}; {:?}", name(hosts), drops(&gateway.plane)))?;
    let flows = Flows::of(turn, &publics);
    let opening = (tsc::now() - start) as f64 / tsc::frequency() as f64;
    let counters = gateway.plane.counters()[0].clone();
    let (created, ended) = (counters.sessions_created.get(), counters.sessions_ended.get());
    if (created, ended) != (u64::from(sessions), 0) {
        return Err(format!("{created} sessions were created and {ended} ended").into());
    }
    let mut limit_memory = probe::memory(sessions as usize)?;
    let mut limit = Probe::new(&mut limit_memory, sessions as usize);
    let (mut random, mut runs) = (Random(SEED), Runs::default());
    for _ in 0..bench.runs {
        runs.add("probe_cycles", limit.cost(PACKETS / 32)[1]);
        let draw = |port| drawn::<Written>(&mut random, sessions, flows, port);
        let looped = run_gateway(&mut gateway, Direction::Both, Checksums::Vouched, draw, &mut runs)?;
        flows.verify_short::<Written>(&looped.samples)?;
    }
    let row = row(name(hosts), hosts, &style)
        .key("direction", Direction::Both.name())
        .runs(&runs);
    let ended = counters.sessions_ended.get() as f64;
    let row = row.figure("refused", &[0.0]).figure("evicted", &[ended]);
    bench.row(
        row.figure("opening_seconds", &[opening])
            .figure("bytes_per_session", &[bytes]),
    );
    gateway.close();
    Ok(())
}

/// 1,024 hosts share an outside address, which has 1,008 blocks of 64 ports. Checks that flows of a host without a
/// block are dropped with the specific reason, and that hosts with a block keep it.
pub fn crowded(bench: &mut Bench<'_, '_>, hosts: u32) -> Result<(), Failure> {
    let style = Style {
        addresses: Some(hosts.div_ceil(1024)),
        ..Style::MAPPINGS
    };
    let sessions = hosts * FLOWS_PER_HOST;
    let plane = plane(Job::Translate, style, capacity(sessions))?;
    let mut memory = memory(&plane)?;
    let mut gateway = bench.gateway(Job::Translate, plane, &mut memory)?;
    let publics = open(&mut gateway, Hosts::InTurn(hosts), sessions, |packet, _| packet)?;
    let (refused, counters) = (refused(&publics), gateway.plane.counters()[0].clone());
    let named: u64 = drops(&gateway.plane).iter().map(|&(_, count)| count).sum();
    let created = counters.sessions_created.get();
    if created + refused as u64 != u64::from(sessions) || named != refused as u64 {
        return Err(format!("{created} created, {refused} refused, {:?}", drops(&gateway.plane)).into());
    }
    let row = row(format!("{}-crowded", name(hosts)), hosts, &style).figure("refused", &[refused as f64]);
    bench.row(row.figure("evicted", &[counters.sessions_ended.get() as f64]));
    gateway.close();
    Ok(())
}
