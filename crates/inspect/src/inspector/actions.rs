//! Applies the actions of matched rules to a packet after all rules have been evaluated.

use super::{BurstContext, FlowAction, FlowHandle, Inspector, RuleMatch, RuleNumber, Verdict};
use crate::reason::{Limit, Reason};
use crate::signature::Action;
use crate::stream::Exception;

impl Inspector<'_> {
    /// Applies the actions of the rules that matched a packet, in the order of precedence: pass before drop, drop
    /// before reject. A matching pass rule voids all other matches.
    pub(super) fn apply_actions(
        &mut self,
        handle: FlowHandle,
        verdict: Verdict,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        if !round.context.blocked.rules.is_empty() {
            let blocked = round.context.blocked.take();
            round.context.blocked.put_back(blocked);
        }
        for _ in 0..std::mem::take(&mut round.context.discarded_partials) {
            self.limits.add(Limit::PartialMatchesEvicted as usize);
        }
        let is_full = std::mem::take(&mut round.context.list_full);
        if round.context.matched_rules.acts.rules.is_empty() && !is_full {
            return verdict;
        }
        let matched_rules = round.context.matched_rules.acts.take();
        let verdict = self.act(handle, &matched_rules, verdict, round);
        round.context.matched_rules.acts.put_back(matched_rules);
        self.exceptions.add_if(is_full, Exception::PendingRulesFull);
        verdict
    }

    fn act(
        &mut self,
        handle: FlowHandle,
        matched_rules: &[u32],
        verdict: Verdict,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        let Some((flow, place)) = self.flows.get(handle) else {
            return verdict;
        };
        let generation = flow.generation;
        let (rules, ..) = self.rulesets.of(flow, place, round.now).parts(place);
        let passes = matches!(flow.action, FlowAction::Passed(_));
        for &number in matched_rules {
            let is_reported = round.context.matched_rules.take_reported(number);
            let Some(rule) = rules.rule(number).filter(|_| !passes) else {
                continue;
            };
            let (action, rule) = (rule.signature.action, RuleNumber { generation, number });
            let flow_action = match action {
                Action::Drop => FlowAction::Dropped,
                Action::Reject => FlowAction::Rejected,
                Action::Pass | Action::Alert => FlowAction::Open,
            };
            // The first action that ends the flow takes effect.
            if flow_action != FlowAction::Open && flow.action == FlowAction::Open && !round.settings.passive {
                (flow.action, flow.summary.ended_by) = (flow_action, Some(rule));
            }
            if is_reported {
                flow.summary.alerted = true;
                (round.matches)(RuleMatch {
                    flow: flow.summary.number,
                    service: flow.service,
                    rule,
                    action,
                });
            }
        }
        match (verdict, flow.action) {
            (Verdict::Drop(_) | Verdict::Reject(_), _) | (_, FlowAction::Open | FlowAction::Passed(_)) => verdict,
            (_, FlowAction::Dropped) => Verdict::Drop(Reason::Signature),
            (_, FlowAction::Rejected) => Verdict::Reject(Reason::Signature),
        }
    }
}
