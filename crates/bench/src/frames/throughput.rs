//! What packets of each size cost one core, in memory: cost = loop(source, receive, path, transmit, free) - loop(source, free).

use sluice_dpdk::eal::Eal;
use sluice_dpdk::{Devices, DpdkIo};
use sluice_wire::Checksums;

use super::filled::{Filled, Filling};
use super::{FLOWS, Failure, FramesArguments, Model, STYLE, line, row};
use crate::nat_path::flows::{Hosts, Random, Written};
use crate::nat_path::opening::{complete, open, verify_filled};
use crate::nat_path::rig::{self, Gateway, Job, Source};
use crate::nat_path::{Direction, Loop, Publics, STAGES, cross, draw, empty, full, name, rates, stages_of};
use crate::rows::{Row, Run};

/// Who passes packets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Sluice,
    L2fwd,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::L2fwd => "l2fwd",
        }
    }
}

/// What the source does for each packet beside writing its headers and tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// It writes what is between them, as a card does: with large frames that pushes headers out of caches, and the source's
    /// time, which is subtracted, is most of the loop's.
    Written,
    /// The buffers hold what is between them from the case before.
    Kept,
}

impl Payload {
    fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Kept => "kept",
        }
    }
}

/// A row and the runs for it.
#[derive(Debug)]
struct Case {
    by: By,
    bytes: usize,
    direction: Direction,
    checksums: Checksums,
    payload: Payload,
    costs: Vec<f64>,
    empties: Vec<f64>,
    loops: Vec<f64>,
    /// What Sluice spends on its stages, by its own clock.
    stages: [Vec<f64>; STAGES.len()],
}

/// Every size, way and kind of checksums; `l2fwd` looks at none. Where payloads are kept they are those of the case before.
fn cases(arguments: &FramesArguments, quick: bool) -> Vec<Case> {
    let kinds = [
        (By::L2fwd, Checksums::Vouched, Payload::Written),
        (By::L2fwd, Checksums::Vouched, Payload::Kept),
        (By::Sluice, Checksums::Unverified, Payload::Written),
        (By::Sluice, Checksums::Vouched, Payload::Written),
        (By::Sluice, Checksums::Vouched, Payload::Kept),
    ];
    let mut cases = Vec::new();
    for direction in arguments.directions() {
        for bytes in arguments.sizes(quick) {
            for (by, checksums, payload) in kinds {
                cases.push(Case {
                    by,
                    bytes,
                    direction,
                    checksums,
                    payload,
                    costs: Vec::new(),
                    empties: Vec::new(),
                    loops: Vec::new(),
                    stages: Default::default(),
                });
            }
        }
    }
    cases
}

/// A gateway, and beside it two ports that lead to each other, both with a source.
struct Bench<'m> {
    source: Source,
    gateway: Gateway<'m>,
    publics: Publics,
    plain: Source,
    hand: DpdkIo,
    random: Random,
    /// Packets that the gateway translated.
    translated: u64,
}

/// Measure all, each case once in every run, so that what disturbs one disturbs its neighbours too.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, 1)?;
    let (plain, plain_devices, plain_hand) = rig::join(eal, 2)?;
    let plane = rig::plane(Job::Translate, STYLE, FLOWS + FLOWS / 16 + 16 * 1024, false)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let publics = complete(open::<Written>(&mut source, &mut gateway, Hosts::Sixteen, FLOWS))?;
    let before = gateway.session_packets()?;
    let mut bench = Bench {
        source,
        gateway,
        publics,
        plain,
        hand: plain_hand,
        random: Random(88_172_645_463_325_252),
        translated: 0,
    };
    let mut cases = cases(arguments, run.quick);
    for _ in 0..if run.quick { 3 } else { 7 } {
        for case in &mut cases {
            bench.one(case)?;
        }
    }
    let counted = bench.gateway.session_packets()? - before;
    if counted != bench.translated {
        let sent = bench.translated;
        return Err(format!("{sent} packets went through, the sessions counted {counted}").into());
    }
    rows(&cases).into_iter().for_each(|row| (run.row)(row));
    drop((bench.gateway, bench.hand));
    bench.source.close();
    bench.plain.close();
    drop(Devices::close(devices));
    drop(Devices::close(plain_devices));
    Ok(())
}

impl Bench<'_> {
    /// One run of a case.
    fn one(&mut self, case: &mut Case) -> Result<(), Failure> {
        let filling = Filling::new(case.bytes);
        let (random, publics) = (&mut self.random, &self.publics);
        let mut draw = |port| {
            let written: Written = draw(Hosts::Sixteen, random, FLOWS, publics, port);
            Filled {
                written,
                tail: written.mark.into(),
                filling: &filling,
                kept: case.payload == Payload::Kept,
            }
        };
        let (direction, checksums) = (case.direction, case.checksums);
        let (base, looped) = match case.by {
            By::Sluice => {
                let base = empty(&mut self.source, direction, checksums, &mut draw);
                let gateway = &mut self.gateway;
                let before = stages_of(gateway);
                let looped = full(&mut self.source, direction, checksums, &mut draw, || {
                    let now = gateway.now();
                    gateway.worker.round(now);
                });
                for ((runs, after), before) in case.stages.iter_mut().zip(stages_of(gateway)).zip(before) {
                    runs.push((after - before) as f64 / looped.sent as f64);
                }
                (base, looped)
            }
            By::L2fwd => {
                let base = empty(&mut self.plain, direction, checksums, &mut draw);
                let hand = &mut self.hand;
                let looped = full(&mut self.plain, direction, checksums, &mut draw, || {
                    for &(port, _) in direction.ports() {
                        cross(hand, port);
                    }
                });
                (base, looped)
            }
        };
        self.check(case, &looped, &filling)?;
        case.costs.push(looped.cycles - base);
        case.empties.push(base);
        case.loops.push(looped.cycles);
        Ok(())
    }

    fn check(&mut self, case: &Case, looped: &Loop, filling: &Filling) -> Result<(), Failure> {
        if looped.sent != looped.came {
            return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
        }
        if let Some(short) = looped.samples.iter().find(|s| s.frame().len() != filling.length()) {
            return Err(format!("{} bytes came out", short.frame().len()).into());
        }
        if case.by == By::Sluice {
            self.translated += looped.sent;
            verify_filled::<Filled<'_>>(
                Hosts::Sixteen,
                None,
                &looped.samples,
                &self.publics,
                |number, transport| filling.payload(number.into(), transport),
            )?;
        }
        Ok(())
    }
}

fn rows(cases: &[Case]) -> Vec<Row> {
    let smallest = cases.iter().map(|case| case.bytes).min().unwrap_or(0);
    let find = |case: &Case, by, bytes| {
        cases.iter().find(|other| {
            let checksums = by == By::L2fwd || other.checksums == case.checksums;
            let same = other.direction == case.direction && other.payload == case.payload;
            other.by == by && other.bytes == bytes && same && checksums
        })
    };
    // Cycles more than for the smallest frames, in each run.
    let growth = |case: &Case, by| {
        let (small, large) = (find(case, by, smallest)?, find(case, by, case.bytes)?);
        let runs = large.costs.iter().zip(&small.costs);
        Some(runs.map(|(large, small)| large - small).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for case in cases {
        let mut row = case.row();
        if let Some(own) = growth(case, case.by) {
            row = row.figure("growth_cycles", &own);
            if let Some(device) = growth(case, By::L2fwd).filter(|_| case.by == By::Sluice) {
                let beyond: Vec<f64> = own.iter().zip(&device).map(|(own, device)| own - device).collect();
                row = row.figure("growth_beyond_l2fwd", &beyond);
            }
        }
        rows.push(row);
    }
    rows
}

impl Case {
    fn row(&self) -> Row {
        let row = row(self.by.name(), self.bytes, self.direction)
            .key("model", Model::RunToCompletion.name())
            .key("cores", 1)
            .key("source", "subtracted")
            .key("checksums", name(self.checksums))
            .key("payload", self.payload.name());
        let row = figures(
            row,
            (self.bytes, self.direction),
            (&self.costs, &self.loops, &self.empties),
        );
        stages(row, &self.stages)
    }
}

/// What packets of a size cost, and what that is on wires; of loops with and without who passes them on.
pub fn figures(
    row: Row,
    (bytes, direction): (usize, Direction),
    (costs, loops, empties): (&[f64], &[f64], &[f64]),
) -> Row {
    let ways = if direction == Direction::Both { 2 } else { 1 };
    let row = rates(row, costs, loops, empties);
    let median = row.median("mpps").unwrap_or(0.0);
    let hertz = sluice_dpdk::tsc::frequency() as f64;
    let mpps = costs.iter().map(|cost| hertz / cost.max(1.0) / 1e6);
    let gbps: Vec<f64> = mpps.map(|mpps| line::gbps(mpps, bytes)).collect();
    let share = |speed| [median / (line::rate(speed, bytes) * f64::from(ways))];
    row.key("fills_line_gbps", line::filled(median, bytes, ways))
        .figure("gbps", &gbps)
        .figure("share_of_10g", &share(10))
        .figure("share_of_25g", &share(25))
        .figure("share_of_100g", &share(100))
}

/// And what Sluice spends on its stages.
pub fn stages(row: Row, stages: &[Vec<f64>; STAGES.len()]) -> Row {
    let spent = STAGES.into_iter().zip(stages);
    let spent = spent.filter(|(_, runs)| runs.iter().any(|&cycles| cycles > 0.0));
    spent.fold(row, |row, (name, runs)| row.figure(name, runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: FramesArguments,
    }

    /// Cases of two sizes, of which each larger one costs as much more as is told by who passes packets on.
    fn measured() -> Vec<Case> {
        let arguments = Line::parse_from(["frames", "--bytes", "64,1518", "--direction", "both"]).arguments;
        let mut cases = cases(&arguments, true);
        for case in &mut cases {
            let more = match (case.by, case.checksums) {
                (By::L2fwd, _) => 10.0,
                (By::Sluice, Checksums::Vouched) => 12.0,
                (By::Sluice, _) => 300.0,
            };
            let more = if case.bytes > 64 { more } else { 0.0 };
            case.costs = vec![90.0 + more, 100.0 + more, 130.0 + more];
            case.empties = vec![50.0; 3];
            case.loops = case.costs.iter().map(|cost| cost + 50.0).collect();
        }
        cases
    }

    #[test]
    fn growth_is_told_and_what_of_it_is_not_the_devices() {
        let rows = rows(&measured());
        let of = |case: &str, bytes: &str, checksums: &str| {
            let keys = [("case", case), ("bytes", bytes), ("checksums", checksums)];
            let row = rows
                .iter()
                .find(|row| keys.iter().all(|(name, value)| row.text_of(name) == *value))
                .expect("a row");
            [row.median("growth_cycles"), row.median("growth_beyond_l2fwd")]
        };
        assert_eq!([Some(0.0), Some(0.0)], of("sluice", "64", "vouched"));
        assert_eq!([Some(12.0), Some(2.0)], of("sluice", "1518", "vouched"));
        assert_eq!([Some(300.0), Some(290.0)], of("sluice", "1518", "computed"));
        assert_eq!([Some(10.0), None], of("l2fwd", "1518", "vouched"));
    }
}
