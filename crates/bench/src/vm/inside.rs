//! Measurement inside the namespaces: starts one guest after another, each with two cards of one kind, and measures
//! every case in each round.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::VmArguments;
use super::card::Card;
use super::counted;
use super::gateway::{self, Case};
use super::guest::{Clock, Guest, Image};
use super::rounds::{Key, Rounds};
use super::search::Search;
use super::trial::{LOADS, Rig};
use crate::daemon::program;
use crate::inside::note;
use crate::kernel::machine::Cores;
use crate::kernel::topology::{GENERATOR_INTERFACE, SINK_INTERFACE, Topology};
use crate::rig::frames::Random;
use crate::rows::{Failure, Named, Row, Run};

/// Folder of QEMU's files.
const FOLDER: &str = "/run/sluice-bench/guest";

/// Rate in packets per second at which a search starts if no earlier result is known.
const FIRST: f64 = 20_000.0;

/// Measures everything that the arguments select.
pub fn run(arguments: &VmArguments, run: &mut Run<'_>) -> Result<(), Failure> {
    let (cores, began) = (arguments.cores()?, Instant::now());
    let image = Image::build(&arguments.lab, &program(arguments.sluice.as_ref()))?;
    note(&format!("the guest is built after {:?}", began.elapsed()));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bench = Bench {
        arguments,
        run,
        image,
        cores,
        order: Random(since.as_nanos() as u64 | 1),
    };
    for card in arguments.cards(bench.run.quick) {
        for &clock in &arguments.only {
            bench.guest(card, clock)?;
        }
    }
    Ok(())
}

struct Bench<'a, 'r> {
    arguments: &'a VmArguments,
    run: &'a mut Run<'r>,
    image: Image,
    cores: Cores,
    /// Random generator for the order of cases.
    order: Random,
}

impl Bench<'_, '_> {
    /// Measures all rounds in one guest, and creates their rows.
    fn guest(&mut self, card: Card, clock: Clock) -> Result<(), Failure> {
        let mut rounds = Rounds::new(card, clock);
        for &rules in &self.arguments.rules {
            let mut rig = self.rig(card, clock, rules)?;
            if clock == Clock::Instructions {
                let share = counted::share(&mut rig.guest)?;
                let row = Row::new("loop")
                    .key("card", card.name())
                    .figure("counted_share", &[share]);
                (self.run.row)(row);
            }
            for round in 0..self.arguments.rounds(self.run.quick) {
                let mut cases = self.arguments.cases();
                // Cases without translation do not depend on the number of rules, so they are measured only once per
                // round.
                cases.retain(|case| case.translates() || self.arguments.rules.first() == Some(&rules));
                self.order.shuffle(&mut cases);
                for case in cases {
                    let began = Instant::now();
                    let name = format!("{} {}, {rules} rules, round {}", card.name(), case.name(), round + 1);
                    match self.case(&mut rig, &mut rounds, card, clock, (case, rules, round)) {
                        Ok(()) => note(&format!("{name}: {:.0?}", began.elapsed())),
                        Err(error) => {
                            note(&format!("{name}: {error}"));
                            drop(rig);
                            rig = self.rig(card, clock, rules)?;
                        }
                    }
                }
            }
        }
        rounds.rows().for_each(|row| (self.run.row)(row));
        Ok(())
    }

    fn rig(&self, card: Card, clock: Clock, rules: u32) -> Result<Rig, Failure> {
        let taps = [GENERATOR_INTERFACE, SINK_INTERFACE];
        let guest = Guest::start(&self.image, card, clock, taps, Path::new(FOLDER), &self.cores)?;
        let topology = Topology::at_taps(self.cores.clone())?;
        Rig::new(guest, topology, rules)
    }

    /// Measures one case in one round: starts the gateway, measures, and stops the gateway.
    fn case(
        &mut self,
        rig: &mut Rig,
        rounds: &mut Rounds,
        card: Card,
        clock: Clock,
        (case, rules, round): (Case, u32, usize),
    ) -> Result<(), Failure> {
        gateway::start(&mut rig.guest, case, rules, card, clock, &self.arguments.linux)?;
        rig.open(case)?;
        let window = self.arguments.window(self.run.quick);
        let idle = match clock {
            Clock::Time => None,
            Clock::Instructions => Some(rig.idle(window)?),
        };
        for &bytes in &self.arguments.bytes {
            rig.size(bytes)?;
            for &way in &self.arguments.directions {
                let key = |burst| Key {
                    bytes,
                    way,
                    rules: if case.translates() { rules } else { 0 },
                    burst,
                    case,
                };
                let Some(idle) = &idle else {
                    let search = match rounds.last(&key(0)) {
                        Some(rate) => Search::from(rate, 1.2),
                        None => Search::from(FIRST, 1.5),
                    };
                    rounds.take(key(0), round, rig.search(case, way, search, window)?);
                    continue;
                };
                for load in LOADS {
                    let figures = rig.instructions(case, way, load, idle, window)?;
                    rounds.take(key(load.burst), round, figures);
                }
            }
        }
        gateway::stop(&mut rig.guest, case)
    }
}

/// Estimated total duration.
pub fn estimate(arguments: &VmArguments, quick: bool) -> Duration {
    let rules = arguments.rules.len();
    let cases = arguments
        .cases()
        .iter()
        .map(|case| if case.translates() { rules } else { 1 })
        .sum::<usize>();
    let ways = arguments.bytes.len() * arguments.directions.len();
    let of = |clock: &Clock| {
        let trials = match clock {
            Clock::Time => TRIALS,
            Clock::Instructions => LOADS.len(),
        };
        let trials = (arguments.window(quick) + BETWEEN) * (trials * ways) as u32;
        BOOT * rules as u32 + (SET_UP + trials) * (cases * arguments.rounds(quick)) as u32
    };
    let guests = arguments.only.iter().map(of).sum::<Duration>();
    guests * arguments.cards(quick).len() as u32
}

/// Estimated time for starting a guest, for starting and stopping a gateway, and between two trials.
const BOOT: Duration = Duration::from_secs(10);
const SET_UP: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(350);

/// Estimated number of trials per search.
const TRIALS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn estimate_grows_with_what_is_asked_for() {
        let of = |words: &[&str]| estimate(&parsed(words), false);
        let whole = of(&[]);
        assert!(
            whole > Duration::from_secs(600) && whole < Duration::from_secs(7_200),
            "{whole:?}"
        );
        assert!(of(&["--rules", "1,1000"]) > whole);
        assert!(of(&["--cases", "sluice"]) < whole / 3);
    }
}
