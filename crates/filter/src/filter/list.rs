//! The rules of a filter as who edits them has them.
//!
//! A rule that decides comes and goes in the matcher that workers ask, in microseconds. For all others, and where there is no
//! room, all is built anew. Before the room is used up, the list is folded: built anew on another thread, while it goes on
//! changing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Action, Counter, Counters, ElementSet, FilterError, Filters, Place, Settings, Written, later};
use crate::Best;

/// A rule, and what its editor knows of it.
#[derive(Debug)]
struct Listed<T> {
    written: Written,
    what: T,
}

/// What a change has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there for who asks from now on.
    InPlace,
    /// [`RuleList::filters`] are others now, to be published.
    Anew,
}

/// Rules in order.
#[derive(Debug)]
pub struct RuleList<T> {
    filters: Arc<Filters>,
    settings: Settings,
    /// In order: the place of each rule among `rules`, and in `filters`.
    order: Vec<Place>,
    /// Those that went are there until all is built anew.
    rules: Vec<Arc<Listed<T>>>,
    /// What has changed since a fold began, if one is under way.
    since: Option<Vec<Step>>,
    /// The filters before, where it is a fold that has not ended.
    before: Option<Arc<Filters>>,
    sets: Arc<Sets>,
}

/// Sets by name.
pub type Sets = BTreeMap<String, Arc<ElementSet>>;

/// A rule came to an index, or went from it.
#[derive(Clone, Copy, Debug)]
struct Step {
    index: usize,
    came: Option<Place>,
}

/// A list to be built anew.
#[derive(Debug)]
pub struct Fold<T> {
    before: Arc<Filters>,
    settings: Settings,
    order: Vec<Place>,
    rules: Vec<Arc<Listed<T>>>,
    sets: Arc<Sets>,
}

impl<T> Fold<T> {
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
        rules: impl Iterator<Item = (Written, T)>,
        settings: Settings,
        counters: Counters,
    ) -> Result<Self, FilterError> {
        let rules = rules.map(|(written, what)| Arc::new(Listed { written, what }));
        Self::of(rules.collect(), settings, counters)
    }

    fn of(rules: Vec<Arc<Listed<T>>>, settings: Settings, counters: Counters) -> Result<Self, FilterError> {
        let written: Vec<_> = rules.iter().map(|rule| &rule.written).collect();
        Ok(Self {
            filters: Arc::new(Filters::new(&written, &settings, counters)?),
            settings,
            order: (0..rules.len() as Place).collect(),
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
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Place, &T)> {
        self.order
            .iter()
            .map(|&place| (place, &self.rules[place as usize].what))
    }

    /// The rule that counts at a place, also one that went lately.
    pub fn at(&self, place: Place) -> Option<&T> {
        self.rules.get(place as usize).map(|rule| &rule.what)
    }

    /// The place that the rule at an index counts at.
    pub fn place(&self, index: usize) -> Option<Place> {
        self.order.get(index).copied()
    }

    /// The index of the rule that counts at a place.
    pub fn index_of(&self, place: Place) -> Option<usize> {
        self.order.iter().position(|other| *other == place)
    }

    /// What the rule at an index asks and does.
    pub fn written(&self, index: usize) -> Option<&Written> {
        self.written_at(self.place(index)?)
    }

    /// What the rule that counts at a place asks and does, also one that went lately.
    pub fn written_at(&self, place: Place) -> Option<&Written> {
        self.rules.get(place as usize).map(|rule| &rule.written)
    }

    /// Put a rule before the one at an index, or behind all.
    ///
    /// # Errors
    /// All had to be built anew, and the matcher would be too large: nothing has changed.
    pub fn insert(&mut self, index: usize, written: Written, what: T) -> Result<Change, FilterError> {
        self.insert_all(index, vec![(written, what)])
    }

    /// Put rules side by side before the one at an index, or behind all. All is built anew at most once.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
    pub fn insert_all(&mut self, index: usize, rules: Vec<(Written, T)>) -> Result<Change, FilterError> {
        let listed = |(written, what)| (Arc::new(Listed { written, what }), Arc::default());
        self.insert_listed(index, rules.into_iter().map(listed).collect())
    }

    fn insert_listed(
        &mut self,
        index: usize,
        rules: Vec<(Arc<Listed<T>>, Arc<Counter>)>,
    ) -> Result<Change, FilterError> {
        let index = index.min(self.order.len());
        let (first, count) = (self.rules.len(), rules.len());
        let mut in_place = 0;
        for (rule, counter) in rules {
            let place = self.rules.len() as Place;
            let at = index + in_place;
            if first + in_place == self.rules.len() && self.add_to_filters(at, place, &rule.written, counter) {
                self.order.insert(at, place);
                self.note(at, Some(place));
                in_place += 1;
            }
            self.rules.push(rule);
        }
        if in_place == count {
            return Ok(Change::InPlace);
        }
        let rest = (first + in_place) as Place..self.rules.len() as Place;
        let at = index + in_place;
        self.order.splice(at..at, rest);
        self.build_anew().inspect_err(|_| {
            self.order.drain(index..index + count);
            self.rules.truncate(first);
        })
    }

    /// Take away the rule at an index, if there is one.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
    pub fn remove(&mut self, index: usize) -> Result<Change, FilterError> {
        let Some(place) = self.place(index) else {
            return Ok(Change::InPlace);
        };
        let is_removed = self.remove_from_filters(place);
        self.order.remove(index);
        if is_removed {
            self.note(index, None);
            return Ok(Change::InPlace);
        }
        self.build_anew().inspect_err(|_| self.order.insert(index, place))
    }

    /// Take away the rules that count at these places. All is built anew at most once.
    ///
    /// # Errors
    /// As those of [`RuleList::insert`].
    pub fn remove_all(&mut self, places: &HashSet<Place>) -> Result<Change, FilterError> {
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
            return self.build_anew().inspect_err(|_| self.order = before);
        }
        for (gone, index) in indexes.into_iter().enumerate() {
            self.note(index - gone, None);
        }
        Ok(Change::InPlace)
    }

    fn note(&mut self, index: usize, came: Option<Place>) {
        if let Some(since) = &mut self.since {
            since.push(Step { index, came });
        }
    }

    /// Whether a rule is in force now. Where it is in part, all is to be built anew.
    fn add_to_filters(&self, index: usize, place: Place, written: &Written, counter: Arc<Counter>) -> bool {
        let filters = &self.filters;
        // Whatever follows: where all is built anew it goes on counting.
        let counts = filters.counters.add(counter);
        let (Action::Decide(verdict), false) = (written.action, written.stands_aside()) else {
            return false;
        };
        if written.conditions.names_macs() || written.concerns_gateway() {
            return false;
        }
        let (Some(four), Some(six)) = (filters.four.matcher.best(), filters.six.matcher.best()) else {
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
            && four.insert(number, &written.four).is_ok()
            && six.insert(number, &written.six).is_ok();
        filters.four.boxes.fetch_add(written.four.len(), Ordering::Relaxed);
        filters.six.boxes.fetch_add(written.six.len(), Ordering::Relaxed);
        is_added
    }

    /// Whether a rule is no more in force. Where it is in part, all is to be built anew.
    fn remove_from_filters(&self, place: Place) -> bool {
        let (rule, filters) = (&self.rules[place as usize].written, &self.filters);
        let (false, Some(number)) = (rule.stands_aside(), filters.decisions.number(place)) else {
            return false;
        };
        if rule.concerns_gateway() {
            return false;
        }
        // What the rule hid may name MAC addresses, whose boxes are known where all is built.
        if !filters.stations.is_empty() {
            return false;
        }
        let (Some(four), Some(six)) = (filters.four.matcher.best(), filters.six.matcher.best()) else {
            return false;
        };
        let other = |number| {
            let place = filters.decisions.place(number)?;
            self.rules.get(place as usize).map(|rule| &rule.written)
        };
        filters.four.boxes.fetch_sub(rule.four.len(), Ordering::Relaxed);
        filters.six.boxes.fetch_sub(rule.six.len(), Ordering::Relaxed);
        let boxes4 = |number| other(number).map_or(&[][..], |rule| &rule.four);
        let boxes6 = |number| other(number).map_or(&[][..], |rule| &rule.six);
        four.remove(number, &rule.four, boxes4).is_ok() && six.remove(number, &rule.six, boxes6).is_ok()
    }

    /// Whether so much has come in place that it is time to fold.
    fn is_crowded(&self) -> bool {
        let Filters { four, six, .. } = &*self.filters;
        four.matcher.best().is_some_and(Best::is_crowded)
            || six.matcher.best().is_some_and(Best::is_crowded)
            || self.filters.decisions.room() < later(self.order.len()) / 2
            || self.rules.len() - self.order.len() > later(self.order.len())
    }

    fn as_fold(&self) -> Fold<T> {
        Fold {
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

    fn build_anew(&mut self) -> Result<Change, FilterError> {
        *self = self.as_fold().build()?;
        self.before = None;
        Ok(Change::Anew)
    }

    /// What to build anew now, on another thread, for [`RuleList::end_fold`]: none where there is room enough, or it is being
    /// done.
    pub fn begin_fold(&mut self) -> Option<Fold<T>> {
        match self.is_crowded() {
            true => self.begin_fold_now(),
            false => None,
        }
    }

    /// The same, however much room there is.
    pub fn begin_fold_now(&mut self) -> Option<Fold<T>> {
        if self.since.is_some() {
            return None;
        }
        self.since = Some(Vec::new());
        Some(self.as_fold())
    }

    /// What was being built anew does not come.
    pub fn forget_fold(&mut self) {
        self.since = None;
    }

    /// Take what was built anew, with what has changed since. Whether [`RuleList::filters`] are others now; they are not where
    /// all was built anew meanwhile.
    ///
    /// # Errors
    /// All had to be built anew once more, and the matcher would be too large: the list is as it was.
    pub fn end_fold(&mut self, mut built: Self) -> Result<bool, FilterError> {
        let before = built.before.take();
        if !before.is_some_and(|before| Arc::ptr_eq(&before, &self.filters)) {
            return Ok(false);
        }
        let since = self.since.take().unwrap_or_default();
        for Step { index, came } in since {
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
