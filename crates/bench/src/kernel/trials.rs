//! Trials selected by the arguments, and their duration.

use std::time::Duration;

use clap::ValueEnum;

use super::KernelArguments;
use super::gateway::Case;
use super::traffic::{Direction, Flows, Hits, OPENED, Receiver, Site};
use super::trial::Trial;
use crate::rows::Named;

/// Description of a trial for messages.
pub fn describe(trial: &Trial) -> String {
    format!(
        "{} with {} rules, hits {}, {} flows {}, site {}, {} bytes, received on the {}'s core",
        trial.case.name(),
        trial.rules,
        trial.hits.name(),
        trial.flows.name(),
        trial.direction.name(),
        trial.site.name(),
        trial.bytes,
        trial.receiver.name()
    )
}

/// All trials; trials that serve as a reference come before those that are compared with them.
pub fn trials(arguments: &KernelArguments, quick: bool) -> Vec<Trial> {
    let wanted = |case: &Case| arguments.cases.is_empty() || arguments.cases.contains(case);
    let mut trials = Vec::new();
    let places = arguments.together.iter();
    let sizes = places.flat_map(|&together| arguments.bytes.iter().map(move |&bytes| (together, bytes)));
    for (together, bytes) in sizes {
        // A Sluice worker polls, so it needs a core of its own.
        let able = |case: &Case| together == 0 || !case.is_sluice();
        for case in Case::value_variants().iter().copied().filter(wanted).filter(able) {
            let rules: &[u32] = if case.translates() { &arguments.rules } else { &[0] };
            for &rules in rules {
                let hits: &[Hits] = if rules > 1 { &arguments.hits } else { &[Hits::Last] };
                let established = hits
                    .contains(&Hits::Last)
                    .then_some((Flows::Established(OPENED), Hits::Last));
                let new = hits.iter().map(|&hits| (Flows::New, hits));
                let both: Vec<_> = established.into_iter().chain(new).collect();
                let all = arguments.directions.iter().flat_map(|&direction| {
                    let flows = both.iter().map(move |&(flows, hits)| (flows, hits, direction));
                    // Packets from outside cannot open flows, and all come from a single generator.
                    flows.filter(move |&(flows, _, direction)| {
                        direction == Direction::Up || flows != Flows::New && together == 0
                    })
                });
                // If each core runs generator, gateway and receiver, packets are not steered.
                let receivers = if together == 0 {
                    &arguments.receivers[..]
                } else {
                    &[Receiver::Traffic]
                };
                let all = all.flat_map(|what| receivers.iter().map(move |&receiver| (what, receiver)));
                for ((flows, hits, direction), receiver) in
                    all.filter(|((flows, ..), _)| arguments.flows.iter().any(|name| name == flows.name()))
                {
                    // Only Sluice supports sites, and all terminals belong to one network.
                    let knows = case == Case::Sluice && flows != Flows::New && hits == Hits::Last;
                    let sites = arguments.sites.iter().filter(|&&site| site == Site::None || knows);
                    trials.extend(sites.map(|&site| Trial {
                        case,
                        rules,
                        hits,
                        flows,
                        direction,
                        receiver,
                        site,
                        bytes,
                        together,
                        rate: arguments.rate,
                        windows: arguments.runs(quick),
                        window: arguments.window(quick),
                        xdp: arguments.xdp_generator,
                        napi_thread: arguments.napi_thread,
                    }));
                }
            }
        }
    }
    trials
}

/// Estimated duration of all trials.
pub fn estimate(arguments: &KernelArguments, quick: bool) -> Duration {
    let trial = |trial: Trial| {
        let topologies = if trial.flows == Flows::New { trial.windows } else { 1 };
        SET_UP * topologies as u32 + trial.window * trial.windows as u32
    };
    trials(arguments, quick).into_iter().map(trial).sum()
}

/// Estimated time to set up and remove a topology.
const SET_UP: Duration = Duration::from_millis(2_500);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KernelArguments,
    }

    #[test]
    fn trials_cover_cases_rules_and_flows() {
        let line = Line::parse_from(["kernel"]);
        let trials = trials(&line.arguments, true);
        assert_eq!(
            2 * ((4 + 4 * 3) * 3 + 4 * 2 + 3 * 2),
            trials.len(),
            "established flows go two ways, at Sluice those of sites too, new ones match rules in two ways where there are several; \
             each with both receivers"
        );
        assert_eq!(Duration::from_millis(700), trials[0].window);
        assert!(estimate(&line.arguments, true) > trials[0].window * 90);
        let first = |case| trials.iter().position(|trial| trial.case == case);
        assert!(
            first(Case::LinuxForward) < first(Case::Iptables),
            "what others are compared with comes first"
        );
    }
}
