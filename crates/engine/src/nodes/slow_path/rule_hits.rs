//! Hit counters of rules.

use sluice_nat::rule::{self, RuleMatch};
use sluice_nat::{RuleId, Rules, Target};

use crate::features::creation::DestinationMatch;
use crate::session::family::Family;

/// Counts a flow for the inside host to which a rule distributed it.
#[inline(always)]
pub(in crate::nodes) fn count_host<F: Family>(
    rules: &Rules<F::Address>,
    destination: &DestinationMatch<F>,
    target: Option<Target<F::Address>>,
) {
    if let Some(RuleMatch {
        action: rule::Destination::Among(set, _),
        ..
    }) = destination
        && let (Some(set), Some(target)) = (rules.set(*set), target)
    {
        set.count(target.address);
    }
}

/// Consecutive flows that match one rule. The flows are counted together.
#[derive(Default)]
pub(super) struct RuleHits {
    rule: Option<RuleId>,
    flows: u64,
}

impl RuleHits {
    #[inline(always)]
    pub(super) fn note(&mut self, rule: Option<RuleId>, count: impl FnOnce(RuleId, u64)) {
        if rule == self.rule {
            self.flows += 1;
        } else {
            let before = std::mem::replace(self, Self { rule, flows: 1 });
            before.flush(count);
        }
    }

    #[inline(always)]
    pub(super) fn flush(self, count: impl FnOnce(RuleId, u64)) {
        if let Some(rule) = self.rule {
            count(rule, self.flows);
        }
    }
}
