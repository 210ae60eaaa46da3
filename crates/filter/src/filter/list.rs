//! The editable list of a filter's rules.
//!
//! A rule that decides about packets is inserted into the active matcher, or removed from it, within microseconds. For
//! all other rules, and if the capacity is exhausted, the filter is rebuilt. To keep capacity free, a rebuild starts
//! early on another thread; the list can change during that rebuild.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    Action, CompiledRule, Counter, Counters, ElementSet, FilterError, Filters, RulePosition, Settings, spare_rules,
};
use crate::CutTree;

/// A rule with the editor's data.
#[derive(Debug)]
struct ListedRule<T> {
    written: CompiledRule,
    value: T,
}

/// How a modification of the list took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    /// The active filters were modified in place.
    InPlace,
    /// [`RuleList::filters`] has been replaced. The caller must publish the new filters.
    Rebuilt,
}

/// A list of rules in evaluation order.
#[derive(Debug)]
pub struct RuleList<T> {
    filters: Arc<Filters>,
    settings: Settings,
    /// Position of each rule in `rules` and in `filters`, in evaluation order.
    order: Vec<RulePosition>,
    /// All rules by position, including rules that were removed since the last rebuild.
    rules: Vec<Arc<ListedRule<T>>>,
    /// Modifications since the start of a rebuild; `None` if no rebuild is in progress.
    since: Option<Vec<ListChange>>,
    /// The filters from which a rebuild started, and which this list will replace; `None` in a list that is not the
    /// result of a rebuild.
    before: Option<Arc<Filters>>,
    sets: Arc<Sets>,
}

/// Sets by name.
pub type Sets = BTreeMap<String, Arc<ElementSet>>;

/// A modification: a rule was inserted at an index, or removed from an index.
#[derive(Clone, Copy, Debug)]
struct ListChange {
    index: usize,
    previous: Option<RulePosition>,
}

/// A copy of the list from which a rebuild is made.
#[derive(Debug)]
pub struct Rebuild<T> {
    before: Arc<Filters>,
    settings: Settings,
    order: Vec<RulePosition>,
    rules: Vec<Arc<ListedRule<T>>>,
    sets: Arc<Sets>,
}

impl<T> Rebuild<T> {
    /// Builds a new list. Can be called on any thread.
    ///
    /// # Errors
    /// The matcher would be too large.
    pub fn build(self) -> Result<RuleList<T>, FilterError> {
        let counters = Counters::following(&self.before.counters, self.order.iter().copied().map(Some));
        let mut built = RuleList::of(self.rules, self.settings, counters)?;
        built.before = Some(self.before);
        built.sets = self.sets;
        Ok(built)
    }
}

impl<T> RuleList<T> {
    /// Creates a list of sorted rules, each with the editor's data and with its counter.
    ///
    /// # Errors
    /// The matcher would be too large.
    pub fn new(
        rules: impl Iterator<Item = (CompiledRule, T)>,
        settings: Settings,
        counters: Counters,
    ) -> Result<Self, FilterError> {
        let rules = rules.map(|(written, value)| Arc::new(ListedRule { written, value }));
        Self::of(rules.collect(), settings, counters)
    }

    fn of(rules: Vec<Arc<ListedRule<T>>>, settings: Settings, counters: Counters) -> Result<Self, FilterError> {
        let written: Vec<_> = rules.iter().map(|rule| &rule.written).collect();
        Ok(Self {
            filters: Arc::new(Filters::new(&written, &settings, counters)?),
            settings,
            order: (0..rules.len() as RulePosition).collect(),
            rules,
            since: None,
            before: None,
            sets: Arc::default(),
        })
    }

    /// Defines the sets to which rules may refer.
    pub fn with_sets(self, sets: Arc<Sets>) -> Self {
        Self { sets, ..self }
    }

    /// The sets to which rules may refer.
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// The filters that workers use.
    pub fn filters(&self) -> &Arc<Filters> {
        &self.filters
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the list has no rules.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Rules in order, each with its position.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (RulePosition, &T)> {
        self.order
            .iter()
            .map(|&place| (place, &self.rules[place as usize].value))
    }

    /// The rule at a position. Rules that were removed since the last rebuild are included.
    pub fn at(&self, place: RulePosition) -> Option<&T> {
        self.rules.get(place as usize).map(|rule| &rule.value)
    }

    /// The position of the rule at an index.
    pub fn place(&self, index: usize) -> Option<RulePosition> {
        self.order.get(index).copied()
    }

    /// The index of the rule at a position.
    pub fn index_of(&self, place: RulePosition) -> Option<usize> {
        self.order.iter().position(|other| *other == place)
    }

    /// The compiled rule at an index.
    pub fn compiled(&self, index: usize) -> Option<&CompiledRule> {
        self.compiled_at(self.place(index)?)
    }

    /// The compiled rule at a position. Rules that were removed since the last rebuild are included.
    pub fn compiled_at(&self, place: RulePosition) -> Option<&CompiledRule> {
        self.rules.get(place as usize).map(|rule| &rule.written)
    }

    /// Inserts a rule before the rule at `index`, or at the end of the list.
    ///
    /// # Errors
    /// The filter had to be rebuilt, but the matcher would be too large. The list is unchanged.
    pub fn insert(&mut self, index: usize, written: CompiledRule, value: T) -> Result<ChangeResult, FilterError> {
        self.insert_all(index, vec![(written, value)])
    }

    /// Inserts consecutive rules before the rule at `index`, or at the end of the list. The filter is rebuilt at most
    /// once.
    ///
    /// # Errors
    /// The errors of [`RuleList::insert`].
    pub fn insert_all(&mut self, index: usize, rules: Vec<(CompiledRule, T)>) -> Result<ChangeResult, FilterError> {
        let listed = |(written, value)| (Arc::new(ListedRule { written, value }), Arc::default());
        self.insert_listed(index, rules.into_iter().map(listed).collect())
    }

    fn insert_listed(
        &mut self,
        index: usize,
        rules: Vec<(Arc<ListedRule<T>>, Arc<Counter>)>,
    ) -> Result<ChangeResult, FilterError> {
        let index = index.min(self.order.len());
        let (first, count) = (self.rules.len(), rules.len());
        let mut in_place = 0;
        for (rule, counter) in rules {
            let place = self.rules.len() as RulePosition;
            let at = index + in_place;
            if first + in_place == self.rules.len() && self.add_to_filters(at, place, &rule.written, counter) {
                self.order.insert(at, place);
                self.record_change(at, Some(place));
                in_place += 1;
            }
            self.rules.push(rule);
        }
        if in_place == count {
            return Ok(ChangeResult::InPlace);
        }
        let rest = (first + in_place) as RulePosition..self.rules.len() as RulePosition;
        let at = index + in_place;
        self.order.splice(at..at, rest);
        self.rebuild().inspect_err(|_| {
            self.order.drain(index..index + count);
            self.rules.truncate(first);
        })
    }

    /// Removes the rule at an index, if it exists.
    ///
    /// # Errors
    /// The errors of [`RuleList::insert`].
    pub fn remove(&mut self, index: usize) -> Result<ChangeResult, FilterError> {
        let Some(place) = self.place(index) else {
            return Ok(ChangeResult::InPlace);
        };
        let is_removed = self.remove_from_filters(place);
        self.order.remove(index);
        if is_removed {
            self.record_change(index, None);
            return Ok(ChangeResult::InPlace);
        }
        self.rebuild().inspect_err(|_| self.order.insert(index, place))
    }

    /// Removes the rules at these positions. The filter is rebuilt at most once.
    ///
    /// # Errors
    /// The errors of [`RuleList::insert`].
    pub fn remove_all(&mut self, places: &HashSet<RulePosition>) -> Result<ChangeResult, FilterError> {
        let indexes = (0..self.order.len()).filter(|&index| places.contains(&self.order[index]));
        let indexes: Vec<usize> = indexes.collect();
        let is_removed = indexes.iter().all(|&index| self.remove_from_filters(self.order[index]));
        let remaining = self
            .order
            .iter()
            .copied()
            .filter(|place| !places.contains(place))
            .collect();
        let before = std::mem::replace(&mut self.order, remaining);
        if !is_removed {
            return self.rebuild().inspect_err(|_| self.order = before);
        }
        for (removed, index) in indexes.into_iter().enumerate() {
            self.record_change(index - removed, None);
        }
        Ok(ChangeResult::InPlace)
    }

    fn record_change(&mut self, index: usize, previous: Option<RulePosition>) {
        if let Some(since) = &mut self.since {
            since.push(ListChange { index, previous });
        }
    }

    /// Inserts a rule into the active filters. If the function returns false, some hyperrectangles of the rule may have
    /// been inserted, and the caller must rebuild the filter.
    fn add_to_filters(&self, index: usize, place: RulePosition, written: &CompiledRule, counter: Arc<Counter>) -> bool {
        let filters = &self.filters;
        // The counter is added even if the insertion fails, so that the rule keeps its counter when the filter is rebuilt.
        let counts = filters.counters.add(counter);
        let (Action::Decide(verdict), false) = (written.action, written.needs_slow_match()) else {
            return false;
        };
        if written.conditions.names_macs() || written.concerns_gateway() {
            return false;
        }
        let (Some(v4), Some(v6)) = (filters.v4.matcher.cut_tree(), filters.v6.matcher.cut_tree()) else {
            return false;
        };
        let neighbours = (
            index.checked_sub(1).map(|index| self.order[index]),
            self.order.get(index).copied(),
        );
        let Some(number) = filters.decisions.between(neighbours.0, neighbours.1) else {
            return false;
        };
        let is_added = counts
            && filters.decisions.add(number, verdict) == Some(place)
            && v4.insert(number, &written.v4).is_ok()
            && v6.insert(number, &written.v6).is_ok();
        filters
            .v4
            .hyperrectangles
            .fetch_add(written.v4.len(), Ordering::Relaxed);
        filters
            .v6
            .hyperrectangles
            .fetch_add(written.v6.len(), Ordering::Relaxed);
        is_added
    }

    /// Removes a rule from the active filters. If the function returns false, some hyperrectangles of the rule may have
    /// been removed, and the caller must rebuild the filter.
    fn remove_from_filters(&self, place: RulePosition) -> bool {
        let (rule, filters) = (&self.rules[place as usize].written, &self.filters);
        let (false, Some(number)) = (rule.needs_slow_match(), filters.decisions.number(place)) else {
            return false;
        };
        if rule.concerns_gateway() {
            return false;
        }
        // The removed rule may have covered rules with MAC conditions. The hyperrectangles of such rules can be
        // computed only by a rebuild.
        if !filters.stations.is_empty() {
            return false;
        }
        let (Some(v4), Some(v6)) = (filters.v4.matcher.cut_tree(), filters.v6.matcher.cut_tree()) else {
            return false;
        };
        let other = |number| {
            let place = filters.decisions.place(number)?;
            self.rules.get(place as usize).map(|rule| &rule.written)
        };
        filters.v4.hyperrectangles.fetch_sub(rule.v4.len(), Ordering::Relaxed);
        filters.v6.hyperrectangles.fetch_sub(rule.v6.len(), Ordering::Relaxed);
        let boxes4 = |number| other(number).map_or(&[][..], |rule| &rule.v4);
        let boxes6 = |number| other(number).map_or(&[][..], |rule| &rule.v6);
        v4.remove(number, &rule.v4, boxes4).is_ok() && v6.remove(number, &rule.v6, boxes6).is_ok()
    }

    /// Whether so many rules were inserted in place that the filter should be rebuilt.
    fn needs_rebuild(&self) -> bool {
        let Filters { v4, v6, .. } = &*self.filters;
        v4.matcher.cut_tree().is_some_and(CutTree::is_crowded)
            || v6.matcher.cut_tree().is_some_and(CutTree::is_crowded)
            || self.filters.decisions.capacity_left() < spare_rules(self.order.len()) / 2
            || self.rules.len() - self.order.len() > spare_rules(self.order.len())
    }

    fn as_rebuild(&self) -> Rebuild<T> {
        Rebuild {
            before: self.filters.clone(),
            settings: self.settings,
            order: self.order.clone(),
            sets: self.sets.clone(),
            rules: self
                .order
                .iter()
                .map(|&place| self.rules[place as usize].clone())
                .collect(),
        }
    }

    fn rebuild(&mut self) -> Result<ChangeResult, FilterError> {
        *self = self.as_rebuild().build()?;
        self.before = None;
        Ok(ChangeResult::Rebuilt)
    }

    /// Starts a rebuild: returns a copy of the list, to be built on another thread and passed to
    /// [`RuleList::end_rebuild`]. `None` if a rebuild is unnecessary or already in progress.
    pub fn begin_rebuild(&mut self) -> Option<Rebuild<T>> {
        match self.needs_rebuild() {
            true => self.force_rebuild(),
            false => None,
        }
    }

    /// Starts a rebuild even if it is unnecessary; `None` if a rebuild is in progress.
    pub fn force_rebuild(&mut self) -> Option<Rebuild<T>> {
        if self.since.is_some() {
            return None;
        }
        self.since = Some(Vec::new());
        Some(self.as_rebuild())
    }

    /// Aborts the rebuild in progress.
    pub fn abort_rebuild(&mut self) {
        self.since = None;
    }

    /// Completes a rebuild: replaces the list by the rebuilt one, and repeats the modifications that were made since
    /// the start of the rebuild. Returns true if [`RuleList::filters`] was replaced. Returns false if the list was
    /// meanwhile rebuilt because of a modification.
    ///
    /// # Errors
    /// The filter had to be rebuilt again, but the matcher would be too large. The list is unchanged.
    pub fn end_rebuild(&mut self, mut built: Self) -> Result<bool, FilterError> {
        let before = built.before.take();
        if !before.is_some_and(|before| Arc::ptr_eq(&before, &self.filters)) {
            return Ok(false);
        }
        let since = self.since.take().unwrap_or_default();
        for ListChange { index, previous } in since {
            match previous.and_then(|place| Some((place, self.rules.get(place as usize)?))) {
                Some((place, rule)) => {
                    let counter = self.filters.counters.shared(place).unwrap_or_default();
                    built.insert_listed(index, vec![(rule.clone(), counter)])?;
                }
                None => {
                    built.remove(index)?;
                }
            }
        }
        *self = built;
        Ok(true)
    }
}
