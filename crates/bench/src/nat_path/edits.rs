//! Established packets while single rules change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_dpdk::{Devices, tsc};
use sluice_engine::family::V4;
use sluice_engine::plane::Plane;
use sluice_nat::rule::{Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::{Pools, RuleId};
use sluice_wire::Checksums;

use super::flows::{Hosts, Random, Written};
use super::opening::{complete, open, verify};
use super::rig::{self, Gateway, Job};
use super::rules::Style;
use super::{Direction, Failure, draw, empty, full, rates};
use crate::rows::{Row, Run};

/// Rules besides the one of all sessions.
const RULES: usize = 10_000;

/// Changes a second.
const EDITS: f64 = 10_000.0;

/// Loops with changes in a run, so that it lasts longer than a session may be out of date.
const LOOPS: usize = 6;

/// Loops after which every session has seen the last change: each is drawn some times.
const SETTLING: usize = 4;

/// What rules are for that come and go, all in the network of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// One host each, as leases and requests of subscribers make them.
    Hosts,
    /// A host or a network of up to 4,096.
    Networks,
}

impl Inside {
    fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Networks => "networks",
        }
    }
}

/// Rules that come and go.
pub struct Edits {
    inside: Inside,
    rules: Rules<u32>,
    pools: Pools<u32>,
    random: Random,
    there: Vec<RuleId>,
    most: usize,
}

impl Edits {
    /// So many of them, besides what the plane has.
    pub fn new(plane: &mut Plane, inside: Inside, most: usize) -> Self {
        let (rules, pools) = plane.edit_rules::<V4, _>(|nat| (nat.rules.clone(), nat.pools.clone()));
        let mut edits = Self {
            inside,
            rules,
            pools,
            random: Random(2_463_534_242),
            there: Vec::new(),
            most,
        };
        while edits.there.len() < most {
            edits.add();
        }
        edits
    }

    /// Add a rule that says what the one of all sessions says; which of them exist already is drawn again.
    fn add(&mut self) {
        let length = match self.inside {
            Inside::Hosts => 32,
            Inside::Networks => 20 + self.random.below(13) as u8,
        };
        let host = 0x0a00_0000 | self.random.below(1 << 24);
        let inside = Prefix {
            address: (u64::from(host) & u64::MAX << (32 - length)) as u32,
            length,
        };
        let rule = SourceRule {
            outside: Some(1),
            ..SourceRule::of(inside, SourceAction::Pool(0))
        };
        if let Ok(added) = self.rules.add_source(&rule, &self.pools) {
            self.there.push(added);
        }
    }

    /// Add a rule or take one away, so that there are always about as many.
    fn edit(&mut self) {
        if self.there.len() < self.most {
            return self.add();
        }
        let place = self.random.below(self.there.len() as u64) as usize;
        self.rules.remove_source(self.there.swap_remove(place));
    }

    /// Change rules at a steady pace until told to stop. Cycles that each took.
    fn keep_on(&mut self, stop: &AtomicBool) -> Vec<f64> {
        let began = Instant::now();
        let mut took = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            // It sleeps, as a control thread does: this may be the other half of the worker's core.
            std::thread::sleep(Duration::from_millis(1));
            let due = (began.elapsed().as_secs_f64() * EDITS) as usize;
            while took.len() < due {
                let start = tsc::now();
                self.edit();
                took.push((tsc::now() - start) as f64);
            }
        }
        took
    }
}

/// The same load without changes and with them, in turns.
pub fn edits(
    run: &mut Run<'_>,
    eal: &'static sluice_dpdk::eal::Eal,
    number: u32,
    sessions: u32,
    inside: Inside,
    runs: usize,
) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let capacity = sessions + sessions / 16 + 16 * 1024;
    let plane = rig::plane(Job::Translate, Style::SESSIONS, capacity, false)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let publics = complete(open::<Written>(&mut source, &mut gateway, Hosts::Sixteen, sessions))?;
    let mut edits = Edits::new(&mut gateway.plane, inside, RULES);
    let mut random = Random(88_172_645_463_325_252);
    let direction = Direction::Both;
    let [
        mut costs,
        mut loops,
        mut empties,
        mut alone,
        mut added,
        mut pace,
        mut cost,
        mut revised,
    ] = [(); 8].map(|()| Vec::new());
    for _ in 0..runs {
        let mut draw = |port| draw::<Written>(Hosts::Sixteen, &mut random, sessions, &publics, port);
        let base = empty(&mut source, direction, Checksums::Vouched, &mut draw);
        let mut measure = |gateway: &mut Gateway<'_>, editing: bool| -> Result<(f64, u64), Failure> {
            let looped = full(&mut source, direction, Checksums::Vouched, &mut draw, || {
                let now = gateway.now();
                if editing {
                    // What the control thread does besides; other threads change the rules.
                    gateway.plane.edit_rules::<V4, _>(|_| ());
                    if gateway.plane.follow_edits(now).is_some() {
                        gateway.plane.collect();
                    }
                }
                gateway.worker.round(now);
            });
            if looped.sent != looped.came {
                return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
            }
            verify::<Written>(Hosts::Sixteen, &looped.samples, &publics)?;
            Ok((looped.cycles, looped.sent))
        };
        for _ in 0..SETTLING {
            measure(&mut gateway, false)?;
        }
        let mut quiet = 0.0;
        for _ in 0..LOOPS {
            quiet += measure(&mut gateway, false)?.0;
        }
        let before = gateway.plane.counters()[0].sessions_revised.get();
        let stop = AtomicBool::new(false);
        let (mut busy, mut packets) = (0.0, 0);
        let began = tsc::now();
        let (measured, took) = std::thread::scope(|scope| {
            let editor = scope.spawn(|| edits.keep_on(&stop));
            let measured = (0..LOOPS).try_for_each(|_| {
                let (cycles, sent) = measure(&mut gateway, true)?;
                (busy, packets) = (busy + cycles, packets + sent);
                Ok::<(), Failure>(())
            });
            stop.store(true, Ordering::Relaxed);
            (measured, editor.join())
        });
        measured?;
        let seconds = (tsc::now() - began) as f64 / tsc::frequency() as f64;
        let mut took = took.map_err(|_| "the thread that changes rules failed")?;
        took.sort_by(f64::total_cmp);
        pace.push(took.len() as f64 / seconds);
        cost.push(took[took.len() / 2] / tsc::frequency() as f64 * 1e6);
        let after = gateway.plane.counters()[0].sessions_revised.get();
        revised.push((after - before) as f64 / packets as f64);
        let (quiet, busy) = (quiet / LOOPS as f64, busy / LOOPS as f64);
        costs.push(busy - base);
        loops.push(busy);
        empties.push(base);
        alone.push(quiet - base);
        added.push((busy - quiet) / (quiet - base) * 100.0);
    }
    let row = Row::new("edits")
        .key("sessions", sessions)
        .key("rules", RULES as u32)
        .key("edits", inside.name())
        .key("family", 4)
        .key("direction", direction.name())
        .key("mapping", "address-and-port-dependent")
        .key("checksums", "vouched");
    (run.row)(
        rates(row, &costs, &loops, &empties)
            .figure("cycles_without_edits", &alone)
            .figure("added_percent", &added)
            .figure("edits_per_s", &pace)
            .figure("edit_us", &cost)
            .figure("revised_per_packet", &revised),
    );
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}
