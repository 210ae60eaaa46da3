//! Trials selected by the arguments, and their duration.

use std::time::Duration;

use clap::ValueEnum;

use super::KernelArguments;
use super::gateway::Case;
use super::traffic::{Direction, Flows, Frames, Hits, Receiver, Site};
use crate::rows::{Named, Row};

/// Parameters that distinguish the trials of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    pub case: Case,
    pub rules: u32,
    /// Rules that the packets match.
    pub hits: Hits,
    pub flows: Flows,
    pub direction: Direction,
    /// Core on which forwarded packets are received.
    pub receiver: Receiver,
    pub site: Site,
    pub bytes: usize,
    /// Number of cores that each run generator, gateway and receiver; 0 if these have separate cores.
    pub together: usize,
}

impl Trial {
    /// The row of the trial, without figures.
    pub fn row(&self) -> Row {
        Row::new(self.case.name())
            .key("rules", self.rules)
            .key("hits", self.hits.name())
            .key("flows", self.flows.name())
            .key("bytes", self.bytes)
            .key("direction", self.direction.name())
            .key("site", self.site.name())
            .key("receiver", self.receiver.name())
    }

    pub fn frames(&self, xdp: bool) -> Frames {
        Frames {
            bytes: self.bytes,
            hits: self.hits,
            rules: self.rules,
            site: self.site,
            xdp,
        }
    }

    /// Whether this trial has the same packets and the same cores as `other`; the core of the receiver may differ.
    pub fn is_beside(&self, other: &Self) -> bool {
        let traffic = |trial: &Self| (trial.together, trial.bytes, trial.flows, trial.direction);
        traffic(self) == traffic(other)
    }

    /// The trial without settings that do not apply to it.
    fn plain(self) -> Self {
        let rules = if self.case.translates() { self.rules } else { 0 };
        Self {
            rules,
            hits: if rules > 1 { self.hits } else { Hits::Last },
            // If each core runs generator, gateway and receiver, packets are not steered.
            receiver: if self.together == 0 {
                self.receiver
            } else {
                Receiver::Traffic
            },
            ..self
        }
    }

    fn is_possible(&self) -> bool {
        let (established, last) = (self.flows == Flows::Established, self.hits == Hits::Last);
        // Packets of established flows always match the last rule.
        let hits = last || !established;
        // A Sluice worker polls, so it needs a core of its own.
        let cores = self.together == 0 || !self.case.is_sluice();
        // Packets from outside cannot open flows, and all come from a single generator.
        let direction = self.direction == Direction::Up || established && self.together == 0;
        // Only Sluice supports sites, and all terminals belong to one network.
        let site = self.site == Site::None || self.case == Case::Sluice && established && last;
        hits && cores && direction && site
    }
}

/// All combinations of the trials with these values.
fn each<T: Copy>(trials: Vec<Trial>, values: &[T], set: fn(&mut Trial, T)) -> Vec<Trial> {
    let with = |trial: Trial, value| {
        let mut trial = trial;
        set(&mut trial, value);
        trial
    };
    let all = trials
        .into_iter()
        .flat_map(|trial| values.iter().map(move |&value| with(trial, value)));
    all.collect()
}

/// All trials; trials that serve as a reference come before those that are compared with them.
pub fn trials(arguments: &KernelArguments) -> Vec<Trial> {
    let any = Trial {
        case: Case::Generator,
        rules: 0,
        hits: Hits::Last,
        flows: Flows::Established,
        direction: Direction::Up,
        receiver: Receiver::Traffic,
        site: Site::None,
        bytes: 64,
        together: 0,
    };
    let mut cases = Case::value_variants().to_vec();
    cases.retain(|case| arguments.cases.is_empty() || arguments.cases.contains(case));
    let all = each(vec![any], &arguments.together, |trial, value| trial.together = value);
    let all = each(all, &arguments.bytes, |trial, value| trial.bytes = value);
    let all = each(all, &cases, |trial, value| trial.case = value);
    let all = each(all, &arguments.rules, |trial, value| trial.rules = value);
    let all = each(all, &arguments.directions, |trial, value| trial.direction = value);
    let all = each(all, &arguments.flows, |trial, value| trial.flows = value);
    let all = each(all, &arguments.hits, |trial, value| trial.hits = value);
    let all = each(all, &arguments.receivers, |trial, value| trial.receiver = value);
    let all = each(all, &arguments.sites, |trial, value| trial.site = value);
    let mut trials = Vec::new();
    for trial in all.into_iter().map(Trial::plain).filter(Trial::is_possible) {
        if !trials.contains(&trial) {
            trials.push(trial);
        }
    }
    trials
}

/// Estimated duration of all trials.
pub fn estimate(arguments: &KernelArguments, quick: bool) -> Duration {
    let runs = arguments.runs(quick) as u32;
    let trial = |trial: Trial| {
        let topologies = if trial.flows == Flows::New { runs } else { 1 };
        SET_UP * topologies + arguments.window(quick) * runs
    };
    trials(arguments).into_iter().map(trial).sum()
}

/// Estimated time to set up and remove a topology.
const SET_UP: Duration = Duration::from_millis(2_500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn trials_cover_cases_rules_and_flows() {
        let arguments = parsed::<KernelArguments>(&[]);
        let trials = trials(&arguments);
        assert_eq!(
            2 * ((4 + 4 * 3) * 3 + 4 * 2 + 3 * 2),
            trials.len(),
            "established flows go two ways, at Sluice those of sites too, new ones match rules in two ways where there are several; \
             each with both receivers"
        );
        assert!(estimate(&arguments, true) > arguments.window(true) * 90);
        let first = |case| trials.iter().position(|trial| trial.case == case);
        assert!(
            first(Case::LinuxForward) < first(Case::Iptables),
            "what others are compared with comes first"
        );
    }
}
