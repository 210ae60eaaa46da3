//! New sessions.

use sluice_dpdk::{Devices, tsc};
use sluice_engine::packet::counters::CycleStage;
use sluice_engine::packet::time::Now;
use sluice_wire::Checksums;
use sluice_wire::tcp::flag;

use super::edits::{Edits, Inside};
use super::flows::{Hosts, Random, Written, data};
use super::rig::{self, Gateway, Job};
use super::rules::Style;
use super::{Direction, Failure, Publics, STAGES, draw, empty, full, stages_of};
use crate::rows::{Row, Run};

/// New sessions at a steady number of them: each packet opens one, and as many end.
pub fn created(
    run: &mut Run<'_>,
    eal: &'static sluice_dpdk::eal::Eal,
    number: u32,
    sessions: u32,
    (style, rules): (Style, usize),
    runs: usize,
) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let capacity = sessions + sessions / 4 + 16 * 1024;
    let style = Style {
        addresses: style.blocks.map(|_| sessions / 32 / 512 + 1),
        ..style
    };
    let mut plane = rig::plane(Job::Translate, style, capacity, true)?;
    let networks = Edits::new(&mut plane, Inside::Networks, rules - 1);
    plane.collect();
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    // Time goes so fast that as many sessions as wanted are open within their timeout of 120 s.
    let step = 120_000_000_000 / u64::from(sessions);
    let mut flow = 0u32;
    let mut clock = gateway.now().nanoseconds;
    let publics = Publics::new();
    let (mut costs, mut empties, mut loops, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut stages: [Vec<f64>; CycleStage::ALL.len()] = Default::default();
    let space = sessions * 4;
    // With blocks of 64 ports a host has half a block of sessions at a time.
    let hosts = match style.blocks {
        Some(_) => Hosts::InTurn(sessions / 32),
        None => Hosts::Sixteen,
    };
    for turn in 0..=runs {
        let mut opening = |_port: u16| {
            flow = (flow + 1) % space;
            Written {
                flags: flag::SYN,
                numbers: (1, 0),
                ..data(hosts, flow, None)
            }
        };
        let mut random = Random(1);
        let base = empty(&mut source, Direction::Up, Checksums::Vouched, |port| Written {
            flags: flag::SYN,
            ..draw::<Written>(hosts, &mut random, space, &publics, port)
        });
        let counters = gateway.plane.counters()[0].clone();
        let before = (counters.sessions_created.get(), counters.sessions_ended.get());
        let spent = stages_of(&gateway);
        let looped = full(&mut source, Direction::Up, Checksums::Vouched, &mut opening, || {
            clock += 64 * step;
            gateway.worker.round(Now::at(clock));
        });
        let made = counters.sessions_created.get() - before.0;
        let ended = counters.sessions_ended.get() - before.1;
        // The first turn fills the table and touches its memory.
        if turn == 0 {
            continue;
        }
        if looped.sent != looped.came || made != looped.sent {
            return Err(format!("{} opened, {made} made, {} came out", looped.sent, looped.came).into());
        }
        if made.abs_diff(ended) * 20 > made {
            return Err(format!("{made} sessions were made and {ended} ended").into());
        }
        for ((runs, after), before) in stages.iter_mut().zip(stages_of(&gateway)).zip(spent) {
            runs.push((after - before) as f64 / looped.sent as f64);
        }
        costs.push(looped.cycles - base);
        rates.push(tsc::frequency() as f64 / (looped.cycles - base));
        loops.push(looped.cycles);
        empties.push(base);
    }
    let mut row = Row::new("new")
        .key("sessions", sessions)
        .key("family", 4)
        .key("direction", "up")
        .key("mapping", style.mapping())
        .key("port_block", style.blocks.unwrap_or(0))
        .key("rules", rules as u32)
        .key("filter_rules", style.filter_rules)
        .figure("cycles_per_packet", &costs)
        .figure("sessions_per_s", &rates)
        .figure("loop_cycles", &loops)
        .figure("empty_loop_cycles", &empties);
    for (name, runs) in STAGES.iter().zip(&stages) {
        row = row.figure(name, runs);
    }
    (run.row)(row);
    drop((gateway, networks));
    source.close();
    drop(Devices::close(devices));
    Ok(())
}
