//! Validation of the packet filters of all routers.

mod action;
mod groups;
mod insertion;
mod selection;
mod sets;
mod shadowing;
mod weight;

use std::collections::{HashMap, HashSet};

pub(super) use self::groups::Groups;
pub use self::insertion::{Inserted, check_rules};
pub use self::weight::Weight;
use super::Check;
use super::routers::Scope;
use crate::config::DEFAULT_ROUTER;
use crate::filter::{FilterRule, Selection};
use crate::limits::MAX_MACS;
use crate::problem::{FilterProblem, RouterProblem};
use crate::read::{Step, place};
use crate::schema::{Action, RejectWith};

/// Maximum number of combinations of one rule.
const MAX_RULE_COMBINATIONS: u64 = 1 << 16;
/// Maximum number of combinations of all rules.
const MAX_FILTER_COMBINATIONS: u64 = 1 << 20;
/// Maximum number of entries in a cache list.
const MAX_ENTRIES: u16 = 255;

impl Check<'_> {
    /// Rules of all routers' filters.
    pub(super) fn filters(&mut self) -> Vec<FilterRule> {
        let scopes = self.scopes();
        let mut filters = scopes.iter().filter(|scope| scope.filter.is_some());
        // If only the default router has a filter, the rules need no condition on the router.
        let alone = filters.next().is_none_or(|first| first.router == DEFAULT_ROUTER) && filters.next().is_none();
        let mut all = Vec::new();
        for scope in scopes {
            self.scope = scope;
            self.shares_settings();
            let mut rules = self.filter();
            for rule in rules.iter_mut().filter(|_| !alone) {
                rule.router = Some(scope.router);
            }
            all.extend(rules);
        }
        self.scope = Scope::top(self.document);
        let weight = all.iter().map(Weight::of).fold(Weight::default(), Weight::with);
        if let Err(problem) = weight.check() {
            self.refuse(place!["filter", "rules"], problem);
        }
        let macs: HashSet<_> = all
            .iter()
            .flat_map(|rule| &rule.selection.macs)
            .flat_map(|macs| &macs.of)
            .collect();
        if macs.len() > MAX_MACS {
            self.refuse(place!["filter", "rules"], FilterProblem::TooManyMacs(macs.len()));
        }
        all
    }

    /// Check the settings that all filters must share, because a single matcher contains the rules of all routers.
    fn shares_settings(&mut self) {
        let scopes = self.scopes();
        let first = scopes.iter().find_map(|scope| scope.filter);
        let (Some(first), Some(own)) = (first, self.scope.filter) else {
            return;
        };
        for (key, differs) in [
            ("sessions", own.sessions != first.sessions),
            ("matcher", own.matcher != first.matcher),
            ("list-size", own.list_size != first.list_size),
            ("list-search", own.list_search != first.list_search),
            ("trie-memory", own.trie_memory != first.trie_memory),
        ] {
            if differs {
                self.report(place!["filter", key], RouterProblem::FiltersDiffer(key).into());
            }
        }
    }

    fn filter(&mut self) -> Vec<FilterRule> {
        let Some(filter) = self.scope.filter else {
            return Vec::new();
        };
        let groups = self.groups_of(filter);
        self.in_range(
            place!["filter", "trie-memory"],
            "a number of MiB",
            filter.trie_memory,
            1..=65_536,
        );
        if filter.list_size > MAX_ENTRIES {
            self.refuse(place!["filter", "list-size"], FilterProblem::ListSize(filter.list_size));
        }
        let mut rules: Vec<FilterRule> = Vec::new();
        let mut names = HashMap::new();
        for (k, written) in filter.rules.iter().enumerate() {
            let at = place!["filter", "rules", k];
            if let Some(name) = &written.name {
                self.name(&[at, place!["name"]].concat(), name);
                if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.refuse(&[at, place!["name"]].concat(), FilterProblem::Number(name.clone()));
                }
                if let Some(other) = names.insert(name, k + 1) {
                    self.refuse(&[at, place!["name"]].concat(), FilterProblem::DuplicateName(other));
                }
            }
            let selection = self.selected(at, written, &groups);
            let rate = self.action(at, written);
            let adds_to = self.added_to(at, written, filter);
            rules.push(FilterRule {
                name: self.in_router(written.name.clone().unwrap_or_else(|| (k + 1).to_string())),
                router: None,
                is_default: false,
                action: written.action,
                with: written.with,
                rate,
                new_mark: written.new_mark,
                new_dscp: written.new_dscp.map(|dscp| dscp.0),
                new_ecn: written.new_ecn.map(|ecn| ecn.0),
                track: written.track,
                adds_to,
                selection,
            });
        }
        self.never_decide(&rules);
        if self.scope.table.is_some() {
            rules.push(FilterRule {
                name: self.in_router("default".into()),
                router: None,
                is_default: true,
                action: filter.default.into(),
                with: RejectWith::default(),
                rate: (0, 0),
                new_mark: None,
                new_dscp: None,
                new_ecn: None,
                track: true,
                adds_to: None,
                selection: Selection::default(),
            });
        }
        rules
    }

    /// A name, with its router's name as a prefix.
    fn in_router(&self, name: String) -> String {
        match self.scope.table {
            Some(router) => format!("{router}/{name}"),
            None => name,
        }
    }

    fn refuse(&mut self, at: &[Step<'_>], problem: FilterProblem) {
        self.report(at, problem.into());
    }
}

/// Whether evaluation continues with later rules after this action.
fn continues(action: Action) -> bool {
    matches!(
        action,
        Action::Count
            | Action::Log
            | Action::RateLimit
            | Action::SetMark
            | Action::SetDscp
            | Action::SetEcn
            | Action::AddToSet
    )
}
