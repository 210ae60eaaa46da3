//! Evaluation of the rows: the best placement, the error of predictions, and the quality of each planner's choice.

use clap::ValueEnum;
use sluice_engine::placement::Placement;

use super::{Case, Outcome};
use crate::rows::{Figure, Named, Row, Run, pairs};

/// Relative error up to which a prediction counts as correct.
const CLOSE: f64 = 0.10;
/// Maximum relative difference between the best placement and an acceptable choice of the planner.
const BEHIND: f64 = 0.05;

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

/// The case with the highest rate among the selected placements.
fn best(outcome: &Outcome, among: impl Fn(&Placement) -> bool) -> Option<&Case> {
    let cases = outcome.cases.iter().filter(|case| among(&case.placement));
    cases.max_by(|one, other| one.median().total_cmp(&other.median()))
}

/// Relative difference between the measured and the predicted rates of a case: minimum, median and maximum.
fn off(case: &Case) -> Figure {
    let [mpps, predicted] = ["mpps", "predicted_mpps"].map(|name| case.runs.of(name));
    Figure::of(&pairs(mpps, predicted, |mpps, predicted| mpps / predicted - 1.0))
}

/// Relative difference between the rate of the best placement and that of a planner's choice.
fn behind(outcome: &Outcome, planner: Planner, workers: usize) -> Option<f64> {
    let planned = outcome.planned(planner, workers)?;
    let rate = outcome.of(&planned)?.median();
    Some(1.0 - rate / best(outcome, |_| true)?.median())
}

/// Whether the prediction for a case is close enough: either the median error is small, or the variation between runs
/// exceeds the error.
fn is_close(off: &Figure) -> bool {
    off.median.abs() <= CLOSE || off.min <= 0.0 && off.max >= 0.0
}

/// Prints the evaluation, and adds a row for each planner.
pub fn conclude(outcomes: &[Outcome], workers: usize, run: &mut Run<'_>) {
    println!("Scenarios that run-to-completion does not win:");
    for outcome in outcomes {
        let (Some(fastest), Some(complete)) = (
            best(outcome, |_| true),
            best(outcome, |placement| !placement.is_pipeline()),
        ) else {
            continue;
        };
        if fastest.placement.is_pipeline() {
            let lead = 100.0 * (fastest.median() / complete.median() - 1.0);
            println!("  {}: {} by {lead:.0} %", outcome.scenario.name, fastest.placement);
        }
    }
    let cases = || {
        outcomes
            .iter()
            .flat_map(|outcome| outcome.cases.iter().map(move |case| (outcome, case)))
    };
    let mut far: Vec<_> = cases().map(|(outcome, case)| (outcome, case, off(case))).collect();
    far.sort_by(|one, other| other.2.median.abs().total_cmp(&one.2.median.abs()));
    let wrong = far.iter().filter(|(.., off)| !is_close(off)).count();
    println!(
        "Measured over predicted: {wrong} of {} off by more than 10 % and than runs differ; the farthest:",
        far.len()
    );
    for (outcome, case, off) in far.iter().take(8) {
        let [median, min, max] = [off.median, off.min, off.max].map(|off| 100.0 * off);
        let name = outcome.scenario.name;
        println!("  {name}, {}: {median:+.0} % ({min:+.0} to {max:+.0})", case.placement);
    }
    println!("Behind the best:");
    for &planner in Planner::value_variants() {
        let by_scenario = outcomes
            .iter()
            .map(|outcome| (outcome, behind(outcome, planner, workers)));
        let known: Vec<_> = by_scenario
            .filter_map(|(outcome, behind)| Some((outcome, behind?)))
            .collect();
        let percent: Vec<_> = known.iter().map(|(_, behind)| 100.0 * behind).collect();
        let mean = percent.iter().sum::<f64>() / percent.len().max(1) as f64;
        let worst = percent.iter().copied().fold(0.0, f64::max);
        println!("  {}: {mean:.1} % in the mean, {worst:.0} % at worst", planner.name());
        for (outcome, behind) in known
            .iter()
            .filter(|&&(_, behind)| planner == Planner::Sluice && behind > BEHIND)
        {
            println!("    {}: {:.0} %", outcome.scenario.name, 100.0 * behind);
        }
        let row = Row::default()
            .key("scenario", "all")
            .key("planner", planner.name())
            .key("chosen", planner == Planner::Sluice)
            .figure("behind_best_percent", &percent)
            .figure("mean_behind_best_percent", &[mean]);
        (run.row)(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_is_close_within_a_tenth_or_within_the_runs() {
        let figure = |min, median, max| Figure { min, median, max };
        assert!(is_close(&figure(0.02, 0.08, 0.09)));
        assert!(is_close(&figure(-0.01, 0.2, 0.4)));
        assert!(!is_close(&figure(0.12, 0.15, 0.4)));
        assert!(!is_close(&figure(-0.4, -0.2, -0.1)));
    }
}
