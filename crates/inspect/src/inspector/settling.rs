//! What becomes of a packet when all rules have been asked about it.

use super::{Fate, FlowHandle, Inspector, Match, Round, RuleNumber, Verdict};
use crate::reason::Reason;
use crate::signature::Action;
use crate::stream::{Exception, Policy};

impl Inspector<'_> {
    /// The actions of the rules that matched with a packet, in their order: pass before drop, drop before reject. A rule that
    /// passes makes what else matched void.
    pub(super) fn settle(&mut self, handle: FlowHandle, verdict: Verdict, round: &mut Round<'_>) -> Verdict {
        if !round.tools.blocked.rules.is_empty() {
            let blocked = round.tools.blocked.take();
            round.tools.blocked.put_back(blocked);
        }
        let is_full = std::mem::take(&mut round.tools.no_place);
        if round.tools.fired.acts.rules.is_empty() && !is_full {
            return verdict;
        }
        let fired = round.tools.fired.acts.take();
        let verdict = self.act(handle, &fired, verdict, round);
        round.tools.fired.acts.put_back(fired);
        match is_full {
            true => self.without_place(handle, verdict, round),
            false => verdict,
        }
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

    /// A rule had no place to wait in: what its policy says. The stream has gone on, so that the packet can't be dropped alone.
    fn without_place(&mut self, handle: FlowHandle, verdict: Verdict, round: &mut Round<'_>) -> Verdict {
        self.counters.waiting_full += 1;
        let is_open = self.flows.get(handle).is_some_and(|(flow, _)| flow.fate == Fate::Open);
        if !is_open || matches!(verdict, Verdict::Drop(_) | Verdict::Reject(_)) {
            return verdict;
        }
        let exception = Exception::WaitingFull;
        let mut settings = *round.settings;
        if settings.policies.of(exception) == Policy::DropPacket {
            settings.policies = settings.policies.with(exception, Policy::DropFlow);
        }
        self.exception(handle, exception, &settings)
    }
}
