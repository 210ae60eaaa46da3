//! CSIT's shapes of translation by name: `hH-p63-sN` is H inside hosts with 63 flows each.

use sluice_dpdk::memory::Region;
use sluice_dpdk::{Devices, tsc};
use sluice_engine::packet::reason::Reason;
use sluice_wire::Checksums;

use super::flows::{Hosts, Random, Written};
use super::opening::{complete, open, refused, verify};
use super::rig::{self, BUFFERS, Gateway, Job};
use super::rules::Style;
use super::{Direction, Failure, PACKETS, draw, empty, full, probe, rates};
use crate::rows::{Row, Run};

/// Flows of each host.
pub const FLOWS_PER_HOST: u32 = 63;
/// Hosts of each shape.
pub const HOSTS: [u32; 5] = [1024, 4096, 16_384, 65_536, 262_144];

fn name(hosts: u32) -> String {
    format!("h{hosts}-p{FLOWS_PER_HOST}-s{}", hosts * FLOWS_PER_HOST)
}

/// Drops of all reasons so far.
fn drops(gateway: &Gateway<'_>) -> Vec<(&'static str, u64)> {
    let counters = &gateway.plane.counters()[0];
    Reason::all()
        .map(|reason| (reason.name(), counters.interfaces.iter().map(|i| i.drops(reason)).sum()))
        .filter(|&(_, count)| count > 0)
        .collect()
}

/// A shape: all of its sessions are established, none is refused and none ends; then what a packet costs.
pub fn shape(
    run: &mut Run<'_>,
    eal: &'static sluice_dpdk::eal::Eal,
    number: u32,
    hosts: u32,
    style: Style,
    runs: usize,
) -> Result<(), Failure> {
    let sessions = hosts * FLOWS_PER_HOST;
    let per_address = if style.overlap { 1024 } else { 512 };
    let style = Style {
        addresses: Some(hosts.div_ceil(per_address)),
        ..style
    };
    let (mut source, devices, hand) = rig::join(eal, number)?;
    // Sessions don't spread evenly over shards: their hosts do, by a hash.
    let capacity = sessions + sessions / 4 + 16 * 1024;
    let plane = rig::plane(Job::Translate, style, capacity, false)?;
    let lines = plane.lines();
    let bytes = |lines: usize| lines as f64 * 64.0 * f64::from(rig::SHARDS) / f64::from(capacity);
    let bytes = bytes(lines.sessions4 + lines.bindings4);
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let turn = Hosts::InTurn(hosts);
    let start = tsc::now();
    let publics = complete(open::<Written>(&mut source, &mut gateway, turn, sessions))
        .map_err(|error| format!("{}: {error}; {:?}", name(hosts), drops(&gateway)))?;
    let opening = (tsc::now() - start) as f64 / tsc::frequency() as f64;
    let counters = gateway.plane.counters()[0].clone();
    let (made, ended) = (counters.sessions_created.get(), counters.sessions_ended.get());
    if (made, ended) != (u64::from(sessions), 0) {
        return Err(format!("{made} sessions were made and {ended} ended").into());
    }
    let words = probe::words(sessions as usize, BUFFERS as usize / 32 * 32);
    let mut limit_memory = Region::new(words * 8)?;
    let mut limit = probe::Probe::new(
        bytemuck::cast_slice_mut(limit_memory.lines()),
        sessions as usize,
        BUFFERS as usize / 32 * 32,
    );
    let mut random = Random(88_172_645_463_325_252);
    let [mut costs, mut loops, mut empties, mut limits] = [(); 4].map(|()| Vec::new());
    let direction = Direction::Both;
    for _ in 0..runs {
        let batches = PACKETS / 32;
        let start = tsc::now();
        limit.run(batches, false);
        let alone = (tsc::now() - start) as f64;
        let start = tsc::now();
        let translated = limit.run(batches, true);
        limits.push(((tsc::now() - start) as f64 - alone) / translated as f64);
        let mut draw = |port| draw::<Written>(turn, &mut random, sessions, &publics, port);
        let base = empty(&mut source, direction, Checksums::Vouched, &mut draw);
        let looped = full(&mut source, direction, Checksums::Vouched, &mut draw, || {
            let now = gateway.now();
            gateway.worker.round(now);
        });
        if looped.sent != looped.came {
            return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
        }
        verify::<Written>(turn, &looped.samples, &publics)?;
        costs.push(looped.cycles - base);
        loops.push(looped.cycles);
        empties.push(base);
    }
    let ended = counters.sessions_ended.get() as f64;
    let row = Row::new("established")
        .key("shape", name(hosts))
        .key("sessions", sessions)
        .key("family", 4)
        .key("direction", direction.name())
        .key("mapping", style.mapping())
        .key("port_block", style.blocks.unwrap_or(0))
        .figure("probe_cycles", &limits)
        .figure("refused", &[0.0])
        .figure("evicted", &[ended])
        .figure("opening_seconds", &[opening])
        .figure("bytes_per_session", &[bytes]);
    (run.row)(rates(row, &costs, &loops, &empties));
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}

/// 1,024 hosts for each outside address, which has 1,008 blocks of 64 ports: who gets none is refused by name, and who has
/// one keeps it.
pub fn crowded(run: &mut Run<'_>, eal: &'static sluice_dpdk::eal::Eal, number: u32, hosts: u32) -> Result<(), Failure> {
    let style = Style {
        addresses: Some(hosts.div_ceil(1024)),
        ..Style::MAPPINGS
    };
    let sessions = hosts * FLOWS_PER_HOST;
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let plane = rig::plane(Job::Translate, style, sessions + sessions / 4 + 16 * 1024, false)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let publics = open::<Written>(&mut source, &mut gateway, Hosts::InTurn(hosts), sessions);
    let refused = refused(&publics);
    let counters = gateway.plane.counters()[0].clone();
    let named: u64 = drops(&gateway).iter().map(|&(_, count)| count).sum();
    let made = counters.sessions_created.get();
    if made + refused as u64 != u64::from(sessions) || named != refused as u64 {
        return Err(format!("{made} made, {refused} refused, {:?}", drops(&gateway)).into());
    }
    let row = Row::new("established")
        .key("shape", format!("{}-crowded", name(hosts)))
        .key("sessions", sessions)
        .key("family", 4)
        .key("mapping", style.mapping())
        .key("port_block", 64)
        .figure("refused", &[refused as f64])
        .figure("evicted", &[counters.sessions_ended.get() as f64]);
    (run.row)(row);
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}
