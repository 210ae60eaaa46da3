//! Validation of rules that are inserted into the filter of a running configuration.

use std::collections::HashMap;

use crate::config::{Config, DEFAULT_ROUTER};
use crate::diagnosis::Diagnosis;
use crate::filter::FilterRule;
use crate::memory::EntryBytes;
use crate::problem::FilterProblem;
use crate::read::{place, read};
use crate::schema::{self, Document, Filter};
use crate::validate::routers::Scope;
use crate::validate::{Check, Machine};

/// A rule that is to be inserted.
#[derive(Clone, Debug, PartialEq)]
pub struct Inserted {
    /// Text of the rule.
    pub text: schema::FilterRule,
    /// Conditions and action of the rule.
    pub rule: FilterRule,
}

/// Check rules that are to be inserted into the filter of a router (by default the default router). `text` contains
/// only `[[filter.rules]]`, and each rule must have a name.
///
/// # Errors
/// Returns all problems that can be found in one run.
pub fn check_rules(name: &str, text: &str, router: Option<&str>, running: &Config) -> Result<Vec<Inserted>, Diagnosis> {
    let (mut document, places) = read(text).map_err(|found| Diagnosis::new(name, text, found))?;
    let rules = document
        .filter
        .as_mut()
        .map_or(Vec::new(), |filter| std::mem::take(&mut filter.rules));
    let empty = Document {
        filter: Some(Filter::default()),
        ..Document::default()
    };
    let alone = document == empty && !rules.is_empty();
    let nameless: Vec<usize> = (0..rules.len()).filter(|&k| rules[k].name.is_none()).collect();
    document.interfaces = running.document.interfaces.clone();
    document.routers = running.document.routers.clone();
    document.applications = running.document.applications.clone();
    let runs = match router {
        Some(router) => running
            .document
            .routers
            .get(router)
            .and_then(|router| router.filter.as_ref()),
        None => running.document.filter.as_ref(),
    };
    if let (Some(filter), Some(runs)) = (&mut document.filter, runs) {
        (filter.addresses, filter.ports) = (runs.addresses.clone(), runs.ports.clone());
        filter.sets = runs.sets.clone();
        filter.sessions = runs.sessions;
        filter.rules = rules;
    }
    let machine = Machine {
        cores: Vec::new(),
        memory: 0,
        entry: EntryBytes::default(),
    };
    let mut check = Check {
        name: "",
        document: &document,
        places,
        machine: &machine,
        found: Vec::new(),
        scope: Scope::top(&document),
        numbering: running.numbering.clone(),
        site_pools: HashMap::new(),
    };
    if !alone {
        check.refuse(&[], FilterProblem::NotRules);
    }
    for k in nameless {
        check.refuse(place!["filter", "rules", k], FilterProblem::NoName);
    }
    // The text contains no table of a router, so the keys in problems are at the top level.
    check.scope.router = router
        .and_then(|name| check.router_number(name))
        .unwrap_or(DEFAULT_ROUTER);
    let mut rules = check.filter();
    let several = running.filter.iter().any(|rule| rule.router.is_some());
    for rule in &mut rules {
        rule.router = several.then_some(check.scope.router);
        if let Some(router) = router {
            rule.name = format!("{router}/{}", rule.name);
        }
    }
    let found = std::mem::take(&mut check.found);
    if found.iter().any(|located| !located.advice) {
        return Err(Diagnosis::new(name, text, found));
    }
    let texts = document.filter.map_or(Vec::new(), |filter| filter.rules);
    let inserted = texts.into_iter().zip(rules).map(|(text, rule)| Inserted { text, rule });
    Ok(inserted.collect())
}
