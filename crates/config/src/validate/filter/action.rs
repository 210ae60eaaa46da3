//! Validation of actions, and of the keys that belong to one action.

use crate::problem::FilterProblem;
use crate::read::{Step, place};
use crate::schema::{self, Action, Filter, RejectWith, SetType};
use crate::validate::Check;

impl Check<'_> {
    /// Check that the keys are valid for the action. Returns rate and burst.
    pub(super) fn action(&mut self, at: &[Step<'_>], written: &schema::FilterRule) -> (u32, u32) {
        let of = |key: &'static str| [at, place![key]].concat();
        if written.action != Action::Reject && written.with != RejectWith::default() {
            let (key, action) = ("with", "reject");
            self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
        }
        let limits = written.action == Action::RateLimit;
        for (key, number) in [("rate", written.rate), ("burst", written.burst)] {
            if number.is_some() && !limits {
                let action = "rate-limit";
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            if let Some(number) = number {
                self.in_range(&of(key), "a number of packets", number, 1..=1_000_000_000);
            }
        }
        if limits && written.rate.is_none() {
            self.refuse(&of("action"), FilterProblem::NoRate);
        }
        match (written.action == Action::SetMark, written.new_mark) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoMark),
            (false, Some(_)) => {
                let (key, action) = ("new-mark", "set-mark");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        match (written.action == Action::SetDscp, written.new_dscp) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoDscp),
            (false, Some(_)) => {
                let (key, action) = ("new-dscp", "set-dscp");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        match (written.action == Action::SetEcn, written.new_ecn) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoEcn),
            (false, Some(_)) => {
                let (key, action) = ("new-ecn", "set-ecn");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        if !written.track {
            self.untracked(&of("track"), written);
        }
        let rate = written.rate.unwrap_or(0);
        (rate, written.burst.unwrap_or(rate))
    }

    /// Check a rule that accepts without a session. A rule without a session can't have conditions that require a
    /// session.
    fn untracked(&mut self, at: &[Step<'_>], written: &schema::FilterRule) {
        if written.action != Action::Accept {
            let (key, action) = ("track", "accept");
            self.refuse(at, FilterProblem::NotOfAction { key, action });
        }
        if !written.application.is_empty() {
            self.refuse(at, FilterProblem::UntrackedApplication);
        }
        if self.scope.filter.is_some_and(|filter| !filter.sessions) {
            self.refuse(at, FilterProblem::NothingTracked);
        }
    }

    /// Set to which a rule adds addresses.
    pub(super) fn added_to(
        &mut self,
        at: &[Step<'_>],
        written: &schema::FilterRule,
        filter: &Filter,
    ) -> Option<String> {
        let of = |key: &'static str| [at, place![key]].concat();
        match (written.action == Action::AddToSet, &written.set) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoSet),
            (false, Some(_)) => {
                let (key, action) = ("set", "add-to-set");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            (true, Some(name)) if filter.sets.get(name).is_some_and(|set| set.kind == SetType::Ports) => {
                self.refuse(&of("set"), FilterProblem::AddsToPorts(name.clone()));
            }
            (true, Some(name)) if !filter.sets.contains_key(name) => {
                let known = filter.sets.keys().cloned().collect();
                let name = name.clone();
                self.refuse(&of("set"), FilterProblem::UnknownSet { name, known });
            }
            _ => {}
        }
        written.set.clone().map(|name| self.in_router(name))
    }
}
