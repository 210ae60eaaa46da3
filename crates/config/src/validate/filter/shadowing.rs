//! Detects rules that never determine a verdict, because earlier rules match all of their packets.

use super::continues;
use crate::filter::FilterRule;
use crate::problem::FilterProblem;
use crate::read::place;
use crate::validate::Check;

/// Maximum number of rules that are compared in pairs. The maximum limits the run time.
const COMPARED: usize = 20_000;

impl Check<'_> {
    /// Report each rule whose packets are all matched by earlier rules.
    pub(super) fn never_decide(&mut self, rules: &[FilterRule]) {
        for (k, rule) in rules.iter().enumerate().take(COMPARED) {
            let decide = rules[..k].iter().filter(|before| !continues(before.action));
            let Some(by) = decide
                .into_iter()
                .find(|before| before.selection.covers(&rule.selection))
            else {
                continue;
            };
            let same =
                !continues(rule.action) && (by.action, by.with, by.track) == (rule.action, rule.with, rule.track);
            let (rule, by) = (rule.name.clone(), by.name.clone());
            let problem = match same {
                true => FilterProblem::Redundant { rule, by },
                false => FilterProblem::Shadowed { rule, by },
            };
            self.advise(place!["filter", "rules", k], problem.into());
        }
    }
}
