//! Quality of each planner's choice.

use clap::ValueEnum;

use super::Outcome;
use crate::rows::{Named, Row, Run};

/// Planners that choose placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Planner {
    /// The planner under test.
    Sluice,
    /// All cores run all parts.
    #[value(name = "always run-to-completion")]
    RunToCompletion,
    /// Half of the cores receive and parse packets for the other half.
    #[value(name = "always pipeline")]
    Pipeline,
}

/// Relative difference between the rate of the best placement and that of a planner's choice.
fn behind(outcome: &Outcome, planner: Planner, workers: usize) -> Option<f64> {
    let planned = outcome.planned(planner, workers)?;
    let best = outcome.cases.iter().map(|case| case.median()).max_by(f64::total_cmp)?;
    Some(1.0 - outcome.of(&planned)?.median() / best)
}

/// Adds a row for each planner: how far its choices are behind the best placements.
pub fn conclude(outcomes: &[Outcome], workers: usize, run: &mut Run<'_>) {
    for planner in Planner::value_variants() {
        let each = outcomes.iter().filter_map(|outcome| behind(outcome, *planner, workers));
        let percent: Vec<_> = each.map(|behind| 100.0 * behind).collect();
        let mean = percent.iter().sum::<f64>() / percent.len().max(1) as f64;
        let row = Row::default()
            .key("scenario", "all")
            .key("planner", planner.name())
            .key("chosen", *planner == Planner::Sluice)
            .figure("behind_best_percent", &percent)
            .figure("mean_behind_best_percent", &[mean]);
        (run.row)(row);
    }
}
