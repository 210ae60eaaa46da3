//! The rules of a filter as who edits them has them.
//!
//! A rule that decides comes and goes in the matcher that workers ask, in microseconds. For all others, and where there is no
//! room, all is built anew. Before the room is used up, the list is folded: built anew on another thread, while it goes on
//! changing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    Action, CompiledRule, Counter, Counters, ElementSet, FilterError, Filters, RulePosition, Settings, spare_rules,
};
use crate::CutTree;

/// A rule, and what its editor knows of it.
#[derive(Debug)]
struct ListedRule<T> {
    written: CompiledRule,
    what: T,
}

/// What a change has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    /// It is there for who asks from now on.
    InPlace,
    /// [`RuleList::filters`] are others now, to be published.
    Rebuilt,
}

/// Rules in order.
#[derive(Debug)]
pub struct RuleList<T> {
    filters: Arc<Filters>,
    settings: Settings,
    /// In order: the place of each rule among `rules`, and in `filters`.
    order: Vec<RulePosition>,
    /// Those that went are there until all is built anew.
    rules: Vec<Arc<ListedRule<T>>>,
    /// What has changed since a fold began, if one is under way.
    since: Option<Vec<ListChange>>,
    /// The filters before, where it is a fold that has not ended.
    before: Option<Arc<Filters>>,
    sets: Arc<Sets>,
}

/// Sets by name.
pub type Sets = BTreeMap<String, Arc<ElementSet>>;

/// A rule came to an index, or went from it.
#[derive(Clone, Copy, Debug)]
struct ListChange {
    index: usize,
    came: Option<RulePosition>,
}

/// A list to be built anew.
#[derive(Debug)]
pub struct Rebuild<T> {
    before: Arc<Filters>,
    settings: Settings,
    order: Vec<RulePosition>,
    rules: Vec<Arc<ListedRule<T>>>,
    sets: Arc<Sets>,
}

impl<T> Rebuild<T> {
    /// Build it, on whatever thread.
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
    /// Of rules in order, each with what its editor knows of it, and what they have counted.
    ///
    /// # Errors
    /// The matcher would be too large.
    pub fn new(
        rules: impl Iterator<Item = (CompiledRule, T)>,
        settings: Settings,
        counters: Counters,
    ) -> Result<Self, FilterError> {
        let rules = rules.map(|(written, what)| Arc::new(ListedRule { written, what }));
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

    /// The same with sets that rules may name.
    pub fn with_sets(self, sets: Arc<Sets>) -> Self {
        Self { sets, ..self }
    }

    /// The sets that rules may name.
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// What workers ask.
    pub fn filters(&self) -> &Arc<Filters> {
        &self.filters
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Rules in order, each with the place that it counts at.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (RulePosition, &T)> {
        self.order
            .iter()
            .map(|&place| (place, &self.rules[place as usize].what))
    }

    /// The rule that counts at a place, also one that went lately.
    pub fn at(&self, place: RulePosition) -> Option<&T> {
        self.rules.get(place as usize).map(|rule| &rule.what)
    }

    /// The place that the rule at an index counts at.
    pub fn place(&self, index: usize) -> Option<RulePosition> {
        self.order.get(index).copied()
    }

    /// The index of the rule that counts at a place.
    pub fn index_of(&self, place: RulePosition) -> Option<usize> {
        self.order.iter().position(|other| *other == place)
    }

    /// What the rule at an index asks and does.
    pub fn compiled(&self, index: usize) -> Option<&CompiledRule> {
        self.compiled_at(self.place(index)?)
    }

    /// What the rule that counts at a place asks and does, also one that went lately.
    pub fn compiled_at(&self, place: RulePosition) -> Option<&CompiledRule> {
        self.rules.get(place as usize).map(|rule| &rule.written)
    }

    /// Put a rule before the one at an index, or behind all.
    ///
    /// # Errors
    /// All had to be built anew, and the matcher would be too large: nothing has changed.
    pub fn insert(&mut self, index: usize, written: CompiledRule, what: T) -> Result<ChangeResult, FilterError> {
        self.insert_all(index, vec![(written, what)])
    }

    /// Put rules side by side before the one at an index, or behind all. All is built anew at most once.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
    pub fn insert_all(&mut self, index: usize, rules: Vec<(CompiledRule, T)>) -> Result<ChangeResult, FilterError> {
        let listed = |(written, what)| (Arc::new(ListedRule { written, what }), Arc::default());
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

    /// Take away the rule at an index, if there is one.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
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

    /// Take away the rules that count at these places. All is built anew at most once.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
    pub fn remove_all(&mut self, places: &HashSet<RulePosition>) -> Result<ChangeResult, FilterError> {
        let indexes = (0..self.order.len()).filter(|&index| places.contains(&self.order[index]));
        let indexes: Vec<usize> = indexes.collect();
        let is_removed = indexes.iter().all(|&index| self.remove_from_filters(self.order[index]));
        let left = self
            .order
            .iter()
            .copied()
            .filter(|place| !places.contains(place))
            .collect();
        let before = std::mem::replace(&mut self.order, left);
        if !is_removed {
            return self.rebuild().inspect_err(|_| self.order = before);
        }
        for (gone, index) in indexes.into_iter().enumerate() {
            self.record_change(index - gone, None);
        }
        Ok(ChangeResult::InPlace)
    }

    fn record_change(&mut self, index: usize, came: Option<RulePosition>) {
        if let Some(since) = &mut self.since {
            since.push(ListChange { index, came });
        }
    }

    /// Whether a rule is in force now. Where it is in part, all is to be built anew.
    fn add_to_filters(&self, index: usize, place: RulePosition, written: &CompiledRule, counter: Arc<Counter>) -> bool {
        let filters = &self.filters;
        // Whatever follows: where all is built anew it goes on counting.
        let counts = filters.counters.add(counter);
        let (Action::Decide(verdict), false) = (written.action, written.needs_slow_match()) else {
            return false;
        };
        if written.conditions.names_macs() || written.concerns_gateway() {
            return false;
        }
        let (Some(four), Some(six)) = (filters.v4.matcher.cut_tree(), filters.v6.matcher.cut_tree()) else {
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
            && four.insert(number, &written.v4).is_ok()
            && six.insert(number, &written.v6).is_ok();
        filters.v4.boxes.fetch_add(written.v4.len(), Ordering::Relaxed);
        filters.v6.boxes.fetch_add(written.v6.len(), Ordering::Relaxed);
        is_added
    }

    /// Whether a rule is no more in force. Where it is in part, all is to be built anew.
    fn remove_from_filters(&self, place: RulePosition) -> bool {
        let (rule, filters) = (&self.rules[place as usize].written, &self.filters);
        let (false, Some(number)) = (rule.needs_slow_match(), filters.decisions.number(place)) else {
            return false;
        };
        if rule.concerns_gateway() {
            return false;
        }
        // What the rule hid may name MAC addresses, whose boxes are known where all is built.
        if !filters.stations.is_empty() {
            return false;
        }
        let (Some(four), Some(six)) = (filters.v4.matcher.cut_tree(), filters.v6.matcher.cut_tree()) else {
            return false;
        };
        let other = |number| {
            let place = filters.decisions.place(number)?;
            self.rules.get(place as usize).map(|rule| &rule.written)
        };
        filters.v4.boxes.fetch_sub(rule.v4.len(), Ordering::Relaxed);
        filters.v6.boxes.fetch_sub(rule.v6.len(), Ordering::Relaxed);
        let boxes4 = |number| other(number).map_or(&[][..], |rule| &rule.v4);
        let boxes6 = |number| other(number).map_or(&[][..], |rule| &rule.v6);
        four.remove(number, &rule.v4, boxes4).is_ok() && six.remove(number, &rule.v6, boxes6).is_ok()
    }

    /// Whether so much has come in place that it is time to fold.
    fn needs_rebuild(&self) -> bool {
        let Filters { v4: four, v6: six, .. } = &*self.filters;
        four.matcher.cut_tree().is_some_and(CutTree::is_crowded)
            || six.matcher.cut_tree().is_some_and(CutTree::is_crowded)
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

    /// What to build anew now, on another thread, for [`RuleList::end_fold`]: none where there is room enough, or it is being
    /// done.
    pub fn begin_rebuild(&mut self) -> Option<Rebuild<T>> {
        match self.needs_rebuild() {
            true => self.force_rebuild(),
            false => None,
        }
    }

    /// The same, however much room there is.
    pub fn force_rebuild(&mut self) -> Option<Rebuild<T>> {
        if self.since.is_some() {
            return None;
        }
        self.since = Some(Vec::new());
        Some(self.as_rebuild())
    }

    /// What was being built anew does not come.
    pub fn abort_rebuild(&mut self) {
        self.since = None;
    }

    /// Take what was built anew, with what has changed since. Whether [`RuleList::filters`] are others now; they are not where
    /// all was built anew meanwhile.
    ///
    /// # Errors
    /// All had to be built anew once more, and the matcher would be too large: the list is as it was.
    pub fn end_rebuild(&mut self, mut built: Self) -> Result<bool, FilterError> {
        let before = built.before.take();
        if !before.is_some_and(|before| Arc::ptr_eq(&before, &self.filters)) {
            return Ok(false);
        }
        let since = self.since.take().unwrap_or_default();
        for ListChange { index, came } in since {
            match came.and_then(|place| Some((place, self.rules.get(place as usize)?))) {
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
