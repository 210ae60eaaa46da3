//! What becomes of a packet when all rules have been asked about it.

use super::{Fate, FlowHandle, Inspector, Match, Round, RuleNumber, Verdict};
use crate::reason::{Limit, Reason};
use crate::signature::Action;
use crate::stream::Exception;

impl Inspector<'_> {
    /// The actions of the rules that matched with a packet, in their order: pass before drop, drop before reject. A rule that
    /// passes makes what else matched void.
    pub(super) fn apply_actions(&mut self, handle: FlowHandle, verdict: Verdict, round: &mut Round<'_>) -> Verdict {
        if !round.tools.blocked.rules.is_empty() {
            let blocked = round.tools.blocked.take();
            round.tools.blocked.put_back(blocked);
        }
        for _ in 0..std::mem::take(&mut round.tools.forgotten) {
            self.limits.add(Limit::PartialMatchesGaveWay as usize);
        }
        let is_full = std::mem::take(&mut round.tools.no_place);
        if round.tools.fired.acts.rules.is_empty() && !is_full {
            return verdict;
        }
        let fired = round.tools.fired.acts.take();
        let verdict = self.act(handle, &fired, verdict, round);
        round.tools.fired.acts.put_back(fired);
        self.met.add_where(is_full, Exception::WaitingFull);
        verdict
    }

    fn act(&mut self, handle: FlowHandle, fired: &[u32], verdict: Verdict, round: &mut Round<'_>) -> Verdict {
        let Some((flow, place)) = self.flows.get(handle) else {
            return verdict;
        };
        let generation = flow.generation;
        let (rules, ..) = self.books.of(flow, place, round.now).parts(place);
        let passes = matches!(flow.fate, Fate::Passed(_));
        for &number in fired {
            let is_reported = round.tools.fired.take_reported(number);
            let Some(rule) = rules.rule(number).filter(|_| !passes) else {
                continue;
            };
            let (action, rule) = (rule.signature.action, RuleNumber { generation, number });
            let fate = match action {
                Action::Drop => Fate::Dropped,
                Action::Reject => Fate::Rejected,
                Action::Pass | Action::Alert => Fate::Open,
            };
            // The first decides.
            if fate != Fate::Open && flow.fate == Fate::Open && !round.settings.passive {
                (flow.fate, flow.story.ended_by) = (fate, Some(rule));
            }
            if is_reported {
                flow.story.alerted = true;
                (round.report)(Match {
                    flow: flow.story.number,
                    service: flow.service,
                    rule,
                    action,
                });
            }
        }
        match (verdict, flow.fate) {
            (Verdict::Drop(_) | Verdict::Reject(_), _) | (_, Fate::Open | Fate::Passed(_)) => verdict,
            (_, Fate::Dropped) => Verdict::Drop(Reason::Signature),
            (_, Fate::Rejected) => Verdict::Reject(Reason::Signature),
        }
    }
}
