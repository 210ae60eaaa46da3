//! Validation of pipeline stages, and of cores by role. Cores by role form a pipeline of two stages.

use super::Check;
use crate::problem::{BURST, Problem, StageProblem};
use crate::read::{Step, place};
use crate::schema::{Model, Transmit};
use crate::value::{Period, Workers};

/// Parts of packet processing. A pipeline can be divided between these parts.
pub(crate) const PARTS: [&str; 4] = ["receive", "parse", "session", "transmit"];

/// Nodes of the part `session`. The second value is the state that two workers would write if the pipeline were divided
/// at the node.
const INSIDE: [(&str, &str); 10] = [
    ("virtual-reassembly", "the table of fragmented datagrams"),
    ("session-lookup", "the session's record"),
    ("slow-path", "the session's record"),
    ("revalidate", "the session's record"),
    ("forward", "the counters of the egress interface"),
    ("local-delivery", "the table of neighbours"),
    ("neighbour", "the table of neighbours"),
    ("icmp-error", "the table of neighbours"),
    ("fragmentation", "the IP identification counter of fragments"),
    ("output", "the counters of the egress interface"),
];

impl Check<'_> {
    /// Cores in the order of their stages, and the workers of each part of packet processing. `None` for
    /// run-to-completion.
    pub(super) fn stages(&mut self) -> Option<(Vec<u16>, [Vec<u16>; 4])> {
        let system = &self.document.system;
        let at = place!["system", "stages"];
        let splits = system.model == Model::RoleSplit;
        if !splits && (!system.roles.io.is_empty() || !system.roles.inspect.is_empty()) {
            self.report(place!["system", "roles"], StageProblem::NoRoleSplit.into());
        }
        self.assist();
        match (system.model, system.stages.is_empty()) {
            (Model::Pipeline, true) => {
                self.report(place!["system", "model"], StageProblem::Missing.into());
                return None;
            }
            (Model::RunToCompletion | Model::Auto | Model::RoleSplit, false) => {
                self.report(at, StageProblem::NoPipeline.into());
                return None;
            }
            (Model::RoleSplit, true) => return Some(self.roles()),
            (_, true) => return None,
            (Model::Pipeline, false) => {}
        }
        self.no_workers("stages");
        let mut cores = Vec::new();
        let mut stages: [Vec<u16>; 4] = Default::default();
        let mut next = 0;
        for (number, stage) in system.stages.iter().enumerate() {
            let workers = self.stage_cores(number, &stage.cores, &mut cores);
            if stage.parts.is_empty() {
                self.report(
                    place!["system", "stages", number, "parts"],
                    StageProblem::Nothing.into(),
                );
            }
            for (place, part) in stage.parts.iter().enumerate() {
                let at = place!["system", "stages", number, "parts", place];
                match PARTS.iter().position(|known| known == part) {
                    Some(found) if found == next => {
                        stages[found].clone_from(&workers);
                        next += 1;
                    }
                    Some(_) => self.report(at, StageProblem::Order(part.clone(), PARTS.get(next).copied()).into()),
                    None => self.report(at, inside(part).into()),
                }
            }
        }
        if let Some(missing) = PARTS.get(next)
            && !self
                .found
                .iter()
                .any(|located| matches!(located.problem, Problem::Stage(_)))
        {
            self.report(at, StageProblem::Part(missing).into());
        }
        if cores.len() < system.stages.len() {
            let (stages, cores) = (system.stages.len(), cores.len());
            self.advise(at, StageProblem::MoreThanCores { stages, cores }.into());
        }
        Some((cores, stages))
    }

    /// Check that `workers` is omitted, since the stages or roles determine the cores.
    fn no_workers(&mut self, which: &'static str) {
        if self.document.system.workers != Workers::Count(1) {
            self.report(place!["system", "workers"], StageProblem::WorkersToo(which).into());
        }
    }

    /// Cores, and the workers of each part, for cores by role.
    fn roles(&mut self) -> (Vec<u16>, [Vec<u16>; 4]) {
        self.no_workers("roles");
        let roles = &self.document.system.roles;
        let mut cores = Vec::new();
        let [io, inspect] = [("io", &roles.io), ("inspect", &roles.inspect)].map(|(role, wanted)| {
            if wanted.is_empty() {
                self.report(place!["system", "roles"], StageProblem::NoRole(role).into());
            }
            self.known_cores(place!["system", "roles", role], wanted, &mut cores)
        });
        for (place, core) in roles.inspect.iter().enumerate() {
            if roles.io.contains(core) {
                let at = place!["system", "roles", "inspect", place];
                self.report(at, StageProblem::BothRoles(*core).into());
            }
        }
        let last = match roles.transmit {
            Transmit::Io => io.clone(),
            Transmit::Inspect => inspect.clone(),
        };
        (cores, [io.clone(), io, inspect, last])
    }

    /// Check the assist settings. The settings apply also if `sluice plan` chooses the placement.
    fn assist(&mut self) {
        let system = &self.document.system;
        let (ring, slice) = (system.ring, system.roles.time_slice);
        if let Some(threshold) = system.roles.assist_threshold {
            let at = place!["system", "roles", "assist-threshold"];
            match threshold > ring.saturating_sub(BURST) {
                true => self.report(at, StageProblem::ThresholdAboveRing { threshold, ring }.into()),
                false => self.in_range(at, "a number of packets", threshold, 1..=65_536),
            }
        }
        let range = Period::microseconds(1)..=Period::milliseconds(10);
        self.in_range(place!["system", "roles", "time-slice"], "a time", slice, range);
    }

    /// Workers of a stage. A core that has no worker yet gets a worker.
    fn stage_cores(&mut self, stage: usize, wanted: &[u16], cores: &mut Vec<u16>) -> Vec<u16> {
        if wanted.is_empty() {
            self.report(place!["system", "stages", stage, "cores"], StageProblem::NoCores.into());
        }
        self.known_cores(place!["system", "stages", stage, "cores"], wanted, cores)
    }

    /// Workers of the listed cores. Invalid cores are reported.
    fn known_cores(&mut self, list: &[Step<'_>], wanted: &[u16], cores: &mut Vec<u16>) -> Vec<u16> {
        let mut workers = Vec::new();
        for (place, &core) in wanted.iter().enumerate() {
            let at = [list, place![place]].concat();
            if !self.machine.cores.contains(&core) {
                let cores = self.machine.cores.clone();
                self.report(&at, Problem::UnknownCore { core, cores });
            }
            if wanted.iter().take(place).any(|&other| other == core) {
                self.report(&at, Problem::DuplicateCore(core));
            }
            let worker = cores.iter().position(|&other| other == core).unwrap_or_else(|| {
                cores.push(core);
                cores.len() - 1
            });
            workers.push(u16::try_from(worker).unwrap_or(u16::MAX));
        }
        workers
    }
}

/// Problem to report for a name that is not a part of packet processing.
fn inside(name: &str) -> StageProblem {
    match INSIDE.iter().find(|(node, _)| *node == name) {
        Some(&(node, written)) => StageProblem::Cut { node, written },
        None => StageProblem::Unknown(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::EntryBytes;
    use crate::{Machine, check};

    #[test]
    fn cores_of_roles_are_workers_in_their_order_and_who_sends_is_chosen() {
        let machine = Machine {
            cores: (0..4).collect(),
            memory: 4 << 30,
            entry: EntryBytes::default(),
        };
        for (transmit, last) in [("io", vec![0]), ("inspect", vec![1, 2])] {
            let text = format!(
                "[system]\nmodel = \"role-split\"\nring = 2048\n[system.roles]\nio = [3]\ninspect = [1, 2]\n\
                 transmit = \"{transmit}\"\n[interfaces.inside]\ndevice = \"eth1\"\n"
            );
            let config = check("text", &text, &machine).unwrap().config;
            assert_eq!(vec![3, 1, 2], config.cores);
            assert_eq!([vec![0], vec![0], vec![1, 2], last], config.stages);
            let system = &config.document.system;
            assert_eq!((true, 512), (system.assists(), system.assist_threshold()));
        }
    }
}
