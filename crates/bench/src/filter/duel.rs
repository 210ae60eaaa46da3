//! The default matcher and rte_acl by turns: a neighbour that takes the machine's time takes it from both.

use sluice_dpdk::acl::AclKey;
use sluice_filter::{Best, Matcher};

use super::acl::{RteAcl, keys};
use super::timing::{self, Costs, check_sample};
use super::traces::Traffic;
use super::{Failure, row, sets::Set};
use crate::rows::Run;

/// Who takes part. Each is timed by itself where the other is missing.
#[derive(Default)]
pub struct Duel {
    /// The default matcher, and how many milliseconds it took to build.
    pub best: Option<(Best<u32>, f64)>,
    /// DPDK's.
    pub acl: Option<RteAcl>,
}

/// One trace, and what its headers cost each.
struct Round<'t> {
    traffic: &'t Traffic,
    keys: Vec<AclKey>,
    best: Costs,
    acl: Costs,
}

impl Duel {
    /// All traces.
    pub fn run(&self, run: &mut Run<'_>, set: &Set, traffic: &[Traffic], runs: usize) -> Result<(), Failure> {
        let mut rounds = Vec::new();
        for traffic in traffic {
            rounds.push(self.round(set, traffic)?);
        }
        for _ in 0..runs {
            for round in &mut rounds {
                self.turn(round);
            }
        }
        self.rows(run, set, &rounds);
        Ok(())
    }

    /// A trace, of which both find the right rules.
    fn round<'t>(&self, set: &Set, traffic: &'t Traffic) -> Result<Round<'t>, Failure> {
        let mut round = Round {
            traffic,
            keys: Vec::new(),
            best: Costs::default(),
            acl: Costs::default(),
        };
        if let Some((best, _)) = &self.best {
            timing::check(best, set, traffic)?;
        }
        if let Some(acl) = &self.acl {
            round.keys = keys(&traffic.headers)?;
            let sample = timing::sample(traffic);
            check_sample(&set.rules, &sample, &acl.found(&keys(&sample)?))?;
        }
        if let (Some((best, _)), Some(acl)) = (&self.best, &self.acl) {
            let mut found = vec![None; traffic.headers.len()];
            best.first_of_each(&mut (), &traffic.headers, &mut found);
            let others = acl.found(&round.keys);
            if let Some(place) = (0..found.len()).find(|&place| found[place] != others[place]) {
                let (header, own, other) = (&traffic.headers[place], found[place], others[place]);
                return Err(format!("{header:?} is for rule {own:?}, and rte_acl finds {other:?}").into());
            }
        }
        Ok(round)
    }

    fn turn(&self, round: &mut Round<'_>) {
        if let Some((best, _)) = &self.best {
            timing::one_more(&mut round.best, best, &mut (), round.traffic);
        }
        if let Some(acl) = &self.acl {
            acl.one_more(&mut round.acl, &round.keys);
        }
    }

    fn rows(&self, run: &mut Run<'_>, set: &Set, rounds: &[Round<'_>]) {
        for round in rounds {
            let rules = set.rules.len();
            if let Some((best, build)) = &self.best {
                let row = row(set, "best", round.traffic).figure("build_ms", &[*build]);
                let row = timing::sized(round.best.onto(row), best.bytes(), rules);
                (run.row)(match &self.acl {
                    Some(_) => row.figure("over_rte_acl", &round.best.over(&round.acl)),
                    None => row,
                });
            }
            if let Some(acl) = &self.acl {
                let row = round.acl.onto(row(set, "rte_acl", round.traffic));
                (run.row)(acl.onto(row, rules));
            }
        }
    }
}
