//! Established packets while single rules change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_dpdk::{Devices, tsc};
use sluice_engine::family::V4;
use sluice_engine::plane::Plane;
use sluice_engine::time::Now;
use sluice_filter::{Change, Filters, RuleList, Written as FilterRule};
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

/// Rules of the packet filter.
const FILTER_RULES: u32 = 20_000;

/// Loops with changes in a run, so that it lasts longer than a session may be out of date.
const LOOPS: usize = 6;

/// Loops after which every session has seen the last change: each is drawn some times.
const SETTLING: usize = 4;

/// What rules are for that come and go, all in the network of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Of translation: one host each, as leases and requests of subscribers make them.
    Hosts,
    /// Of translation: a host or a network of up to 4,096.
    Networks,
    /// Of the packet filter: one host each, as lists of those that are shut out make them.
    Filter,
}

impl Inside {
    fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Networks => "networks",
            Self::Filter => "filter",
        }
    }

    /// Rules that are there, and how many change in a second.
    fn rules(self) -> (u32, f64) {
        match self {
            Self::Hosts | Self::Networks => (RULES as u32, 10_000.0),
            Self::Filter => (FILTER_RULES, 1_000.0),
        }
    }
}

/// What the control thread is told by who changes rules.
#[derive(Default)]
struct Told {
    changed: Vec<FilterRule>,
    filters: Option<Arc<Filters>>,
    translation: bool,
}

impl Told {
    /// What the control thread does besides.
    fn follow(&mut self, plane: &mut Plane, now: Now) {
        self.changed.drain(..).for_each(|rule| plane.filter_changed(&rule));
        if let Some(filters) = self.filters.take() {
            plane.replace_filter(filters);
        }
        if std::mem::take(&mut self.translation) {
            plane.edit_rules::<V4, _>(|_| ());
        }
        if plane.follow_changes(now).is_some() {
            plane.collect();
        }
    }
}

/// Who changes rules.
trait Edit: Send {
    /// Change one.
    fn edit(&mut self, told: &Mutex<Told>);
    /// What is done besides, now and then.
    fn rest(&mut self, _: &Mutex<Told>) {}
}

/// Change rules at a steady pace until told to stop. Cycles that each took.
fn keep_on(editor: &mut dyn Edit, told: &Mutex<Told>, per_second: f64, stop: &AtomicBool) -> Vec<f64> {
    let began = Instant::now();
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // It sleeps, as a control thread does: this may be the other half of the worker's core.
        std::thread::sleep(Duration::from_millis(1));
        let due = (began.elapsed().as_secs_f64() * per_second) as usize;
        while took.len() < due {
            let start = tsc::now();
            editor.edit(told);
            took.push((tsc::now() - start) as f64);
        }
        editor.rest(told);
    }
    took
}

/// Rules of the filter that come and go before all others.
struct FilterEdits {
    list: RuleList<()>,
    random: Random,
    there: usize,
}

impl FilterEdits {
    /// With the rules that the plane's filter has, in its place.
    fn new(plane: &mut Plane) -> Result<Self, Failure> {
        let list = super::rules::filter_rules(FILTER_RULES)?;
        plane.replace_filter(list.filters().clone());
        Ok(Self {
            list,
            random: Random(2_463_534_242),
            there: 0,
        })
    }
}

impl Edit for FilterEdits {
    fn edit(&mut self, told: &Mutex<Told>) {
        let (rule, change) = match self.there < 64 {
            true => {
                let rule = super::rules::denied(0x0a00_0000 | self.random.below(1 << 24));
                self.there += 1;
                (Some(rule.clone()), self.list.insert(0, rule, ()))
            }
            false => {
                let index = self.random.below(self.there as u64) as usize;
                self.there -= 1;
                (self.list.written(index).cloned(), self.list.remove(index))
            }
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.changed.extend(rule);
        if change == Ok(Change::Anew) {
            told.filters = Some(self.list.filters().clone());
        }
    }

    fn rest(&mut self, told: &Mutex<Told>) {
        let Some(fold) = self.list.begin_fold() else { return };
        let built = fold.build().and_then(|built| self.list.end_fold(built));
        if built == Ok(true) {
            told.lock().unwrap_or_else(PoisonError::into_inner).filters = Some(self.list.filters().clone());
        }
    }
}

/// Rules of translation that come and go.
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
            Inside::Networks => 20 + self.random.below(13) as u8,
            Inside::Hosts | Inside::Filter => 32,
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
}

impl Edit for Edits {
    /// Add a rule or take one away, so that there are always about as many.
    fn edit(&mut self, told: &Mutex<Told>) {
        if self.there.len() < self.most {
            self.add();
        } else {
            let place = self.random.below(self.there.len() as u64) as usize;
            self.rules.remove_source(self.there.swap_remove(place));
        }
        told.lock().unwrap_or_else(PoisonError::into_inner).translation = true;
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
    let (rules, per_second) = inside.rules();
    let style = Style {
        filter_rules: if inside == Inside::Filter { rules } else { 0 },
        ..Style::SESSIONS
    };
    let plane = rig::plane(Job::Translate, style, capacity, false)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let publics = complete(open::<Written>(&mut source, &mut gateway, Hosts::Sixteen, sessions))?;
    let told = Mutex::new(Told::default());
    let mut editor: Box<dyn Edit> = match inside {
        Inside::Hosts | Inside::Networks => Box::new(Edits::new(&mut gateway.plane, inside, RULES)),
        Inside::Filter => Box::new(FilterEdits::new(&mut gateway.plane)?),
    };
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
                if editing && let Ok(mut told) = told.try_lock() {
                    told.follow(&mut gateway.plane, now);
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
            let editor = scope.spawn(|| keep_on(&mut *editor, &told, per_second, &stop));
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
        .key("rules", rules)
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
