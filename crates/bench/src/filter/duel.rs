//! Measures the default matcher and rte_acl in turn, so that disturbance by other processes affects both.

use sluice_dpdk::acl::AclKey;
use sluice_filter::{CutTree, Matcher};

use super::acl::{RteAcl, keys};
use super::attack::{self, Attack};
use super::timing::{self, Costs, check_sample};
use super::traces::{Trace, Traffic};
use super::{Failure, row, sets::Set};
use crate::rows::{Row, Run};

/// The two matchers. If one matcher is missing, only the other one is measured.
#[derive(Default)]
pub struct Duel {
    /// The default matcher, and its build time in milliseconds.
    pub best: Option<(CutTree<u32>, f64)>,
    pub acl: Option<RteAcl>,
}

/// One trace, and the cost of its headers for each participant.
struct Round<'t> {
    traffic: &'t Traffic,
    keys: Vec<AclKey>,
    best: Costs,
    acl: Costs,
}

impl Duel {
    /// Measures all traces. If requested, first searches for the headers with the highest lookup cost.
    pub fn run(
        &self,
        run: &mut Run<'_>,
        set: &Set,
        traffic: &[Traffic],
        attack: Option<Attack>,
        runs: usize,
    ) -> Result<(), Failure> {
        let worst = attack.zip(self.best.as_ref());
        let worst = worst.map(|(attack, (best, _))| attack::worst(best, &set.rules, attack));
        let mut rounds = Vec::new();
        for traffic in traffic.iter().chain(&worst) {
            rounds.push(self.round(set, traffic)?);
        }
        for _ in 0..runs {
            for round in &mut rounds {
                self.turn(round);
            }
        }
        let uniform = rounds.iter().find(|round| round.traffic.name == Trace::Uniform.name());
        for round in &rounds {
            self.rows(run, set, round, uniform, attack);
        }
        Ok(())
    }

    /// Creates a round for a trace after checking that both matchers find the correct rules.
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
            best.first_of_batch(&mut (), &traffic.headers, &mut found);
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

    fn rows(
        &self,
        run: &mut Run<'_>,
        set: &Set,
        round: &Round<'_>,
        uniform: Option<&Round<'_>>,
        attack: Option<Attack>,
    ) {
        let rules = set.rules.len();
        if let Some((best, build)) = &self.best {
            let visits = round.traffic.headers.iter().map(|header| best.visits(header));
            let visits: Vec<_> = visits.map(|visits| f64::from(attack::cost(visits))).collect();
            let mut row = row(set, "best", round.traffic).figure("build_ms", &[*build]);
            row = timing::sized(round.best.onto(row), best.bytes(), rules).figure("visits_cost", &visits);
            if self.acl.is_some() {
                row = row.figure("over_rte_acl", &round.best.over(&round.acl));
            }
            row = round.beside(row, uniform, |round| &round.best);
            if let Some(attack) = attack.filter(|_| round.traffic.name == attack::NAME) {
                row = row.key("seed", attack.seed).key("attack_s", attack.time.as_secs());
            }
            (run.row)(row);
        }
        if let Some(acl) = &self.acl {
            let row = round.acl.onto(row(set, "rte_acl", round.traffic));
            (run.row)(round.beside(acl.onto(row, rules), uniform, |round| &round.acl));
        }
    }
}

impl Round<'_> {
    /// If a row's trace is `random` or `attack`, adds to the row the throughput relative to the trace `uniform`.
    fn beside(&self, row: Row, uniform: Option<&Round<'_>>, costs: impl for<'a> Fn(&'a Round<'_>) -> &'a Costs) -> Row {
        let hard = [Trace::Random.name(), attack::NAME].contains(&self.traffic.name);
        match uniform.filter(|_| hard) {
            Some(uniform) => row.figure("share_of_uniform", &costs(self).over(costs(uniform))),
            None => row,
        }
    }
}
