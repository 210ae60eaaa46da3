//! Rules of the packet filter at run time: the rules of the configuration, with all later insertions and removals.

use std::collections::{HashMap, HashSet};

use sluice_config::api::InsertPlace;
use sluice_config::config::{DEFAULT_ROUTER, RouterIndex};
use sluice_config::{Config, FilterProblem, Inserted, Weight};
use sluice_engine::control::plane::ControlPlane;
use sluice_filter::{ChangeResult, CompiledRule, RulePosition};

use crate::lowering::{Listed, LoweringError, Rules, written};

/// Why rules can't be inserted or removed. The filter is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// No rule has this name.
    #[error("there is no rule `{0}`: `sluice show filter` lists the rules")]
    Unknown(String),
    /// A rule already has this name.
    #[error("there is already a rule `{0}`: remove that rule first, or choose another name")]
    Known(String),
    /// The filter would have too many rules.
    #[error("{0}")]
    TooMany(FilterProblem),
    /// The filter can't be compiled with the rules.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
}

/// Result of an insertion or removal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edited {
    /// Number of rules inserted or removed.
    pub count: u64,
    /// Whether the complete filter was compiled again.
    pub is_rebuilt: bool,
}

/// The rules, with an index by name.
#[derive(Debug)]
pub struct RunningRules {
    list: Rules,
    names: HashMap<String, RulePosition>,
    weight: Weight,
    /// Whether rules have been inserted or removed since the configuration was applied.
    edited: bool,
}

impl RunningRules {
    /// Creates the running rules from the rules of a configuration.
    pub fn new(list: Rules) -> Self {
        let weights = list.iter().map(|(_, listed)| Weight::of(&listed.rule));
        let mut rules = Self {
            weight: weights.fold(Weight::default(), Weight::with),
            list,
            names: HashMap::new(),
            edited: false,
        };
        rules.name_all();
        rules
    }

    /// All rules in their order.
    pub fn list(&self) -> &Rules {
        &self.list
    }

    /// Mutable access to the rules, to compile changes into them. [`RunningRules::name_all`] must be called afterwards.
    pub fn list_mut(&mut self) -> &mut Rules {
        &mut self.list
    }

    /// Rebuild the index by name after positions of rules have changed.
    pub fn name_all(&mut self) {
        let names = self
            .list
            .iter()
            .filter(|(_, listed)| !listed.rule.is_default)
            .map(|(place, listed)| (listed.rule.name.clone(), place));
        self.names = names.collect();
    }

    /// Insert consecutive rules and publish them to the workers.
    ///
    /// # Errors
    /// See [`EditError`].
    pub fn insert(
        &mut self,
        rules: Vec<Inserted>,
        at: &InsertPlace,
        plane: &mut ControlPlane,
    ) -> Result<Edited, EditError> {
        let index = match at {
            InsertPlace::First => 0,
            InsertPlace::Last => self.end_of(rules.first().and_then(|new| new.rule.router)),
            InsertPlace::Before(name) => self.index(name)?,
        };
        if let Some(known) = rules.iter().find(|new| self.names.contains_key(&new.rule.name)) {
            return Err(EditError::Known(known.rule.name.clone()));
        }
        let weights = rules.iter().map(|new| Weight::of(&new.rule));
        let weight = weights.fold(self.weight, Weight::with);
        weight.check().map_err(EditError::TooMany)?;
        let taken = rules.iter().map(|new| written(&new.rule, self.list.sets()));
        let taken = taken.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = rules.iter().map(|new| new.rule.name.clone()).collect();
        let listed = rules.into_iter().map(|Inserted { text, rule }| Listed {
            text,
            rule,
            inserted: true,
        });
        let change = self.list.insert_all(index, taken.iter().cloned().zip(listed).collect());
        let change = change.map_err(LoweringError::from)?;
        self.weight = weight;
        for (index, name) in (index..).zip(names) {
            self.names.extend(self.list.place(index).map(|place| (name, place)));
        }
        Ok(self.note(change, &taken, plane))
    }

    /// Remove rules and publish the change to the workers.
    ///
    /// # Errors
    /// See [`EditError`].
    pub fn remove(&mut self, names: &[String], plane: &mut ControlPlane) -> Result<Edited, EditError> {
        let mut places = HashSet::new();
        for name in names {
            let place = self.names.get(name).ok_or_else(|| EditError::Unknown(name.clone()))?;
            places.insert(*place);
        }
        let removed = places.iter().filter_map(|&place| self.list.at(place));
        let weight = removed.fold(self.weight, |sum, listed| sum.without(Weight::of(&listed.rule)));
        let written: Vec<_> = places
            .iter()
            .filter_map(|&place| self.list.compiled_at(place).cloned())
            .collect();
        let index = places.iter().next().and_then(|&place| self.list.index_of(place));
        let change = match (places.len(), index) {
            (1, Some(index)) => self.list.remove(index),
            _ => self.list.remove_all(&places),
        };
        let change = change.map_err(LoweringError::from)?;
        self.weight = weight;
        names.iter().for_each(|name| {
            self.names.remove(name);
        });
        Ok(self.note(change, &written, plane))
    }

    fn note(&mut self, change: ChangeResult, written: &[CompiledRule], plane: &mut ControlPlane) -> Edited {
        self.edited = true;
        written.iter().for_each(|rule| plane.filter_changed(rule));
        if change == ChangeResult::Rebuilt {
            self.name_all();
            plane.replace_filter(self.list.filters().clone());
        }
        Edited {
            count: written.len() as u64,
            is_rebuilt: change == ChangeResult::Rebuilt,
        }
    }

    /// Position after the last rule that a router evaluates before its default action.
    fn end_of(&self, router: Option<RouterIndex>) -> usize {
        let mut listed = self.list.iter().map(|(_, listed)| &listed.rule);
        let default = listed.position(|rule| rule.is_default && rule.router == router);
        default.unwrap_or(self.list.len())
    }

    fn index(&self, name: &str) -> Result<usize, EditError> {
        let place = self.names.get(name);
        let index = place.and_then(|&place| self.list.index_of(place));
        index.ok_or_else(|| EditError::Unknown(name.to_owned()))
    }

    /// The configuration with the current rules. `None` if the rules have not changed.
    pub fn edited(&self, config: &Config) -> Option<Config> {
        let mut config = self.edited.then(|| config.clone())?;
        let names: Vec<_> = config.routers.iter().map(|router| router.name.clone()).collect();
        let texts = |router: RouterIndex| {
            let of_router = |listed: &&Listed| listed.rule.router.unwrap_or(DEFAULT_ROUTER) == router;
            let listed = self.list.iter().map(|(_, listed)| listed).filter(of_router);
            let listed = listed.filter(|listed| !listed.rule.is_default);
            listed.map(|listed| listed.text.clone()).collect()
        };
        if let Some(filter) = &mut config.document.filter {
            filter.rules = texts(DEFAULT_ROUTER);
        }
        for (router, name) in (1..).zip(names.iter().skip(1)) {
            let written = config.document.routers.get_mut(name);
            if let Some(filter) = written.and_then(|written| written.filter.as_mut()) {
                filter.rules = texts(router);
            }
        }
        config.filter = self.list.iter().map(|(_, listed)| listed.rule.clone()).collect();
        Some(config)
    }
}
