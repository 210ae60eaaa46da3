//! Pending rules, which need more data of a message, and rules that have matched in the message. The flow stores a few
//! rules inline. Further rules are stored in a list of the shard with a bit for each rule, so that no rule displaces
//! another.

use crate::evaluate::PartialMatch;
use crate::source_quota::{SlotPool, Source};
use arrayvec::ArrayVec;

/// Maximum number of rules that a direction of a flow stores without a list.
pub const INLINE_RULES: usize = 16;
/// Maximum number of partial matches recorded for a direction.
pub const MAX_PARTIALS: usize = 32;
/// No list is allocated.
const NO_LIST: u32 = u32::MAX;

/// Pending rules of one direction, and rules that have matched in the current message.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PendingRules {
    /// Whether a rule may be stored. If the value is false, as in most flows, no other field is read.
    any: bool,
    /// Index of the list that stores all rules if they exceed the inline capacity.
    list: u32,
    /// Index of the entry with recorded partial matches.
    partials: u32,
    rules: ArrayVec<u32, INLINE_RULES>,
    matched: ArrayVec<u32, INLINE_RULES>,
}

impl Default for PendingRules {
    fn default() -> Self {
        Self {
            any: false,
            list: NO_LIST,
            partials: NO_LIST,
            rules: ArrayVec::new(),
            matched: ArrayVec::new(),
        }
    }
}

impl PendingRules {
    /// Clears all rules and partial matches because a new message starts.
    #[inline(always)]
    pub(super) fn start(&mut self, lists: &mut PendingLists) {
        if self.any {
            self.clear(lists);
        }
    }

    /// Begins a new message, but keeps pending rules, because they do not depend on message boundaries.
    #[inline(always)]
    pub(super) fn next_message(&mut self, lists: &mut PendingLists) {
        if self.any {
            // Recorded positions are relative to the start of the old message.
            self.forget_partials(lists);
            self.clear_matched(lists);
        }
    }

    #[cold]
    fn clear_matched(&mut self, lists: &mut PendingLists) {
        if self.is_empty(lists) {
            return self.clear(lists);
        }
        self.matched.clear();
        lists.clear_matches(self.list);
    }

    #[cold]
    fn clear(&mut self, lists: &mut PendingLists) {
        lists.release(self.list);
        self.forget_partials(lists);
        self.forget();
    }

    /// Forgets all rules without releasing the list, which was released before or freed with its ruleset.
    pub(super) fn forget(&mut self) {
        (self.any, self.list, self.partials) = (false, NO_LIST, NO_LIST);
        self.rules.clear();
        self.matched.clear();
    }

    fn forget_partials(&mut self, lists: &mut PendingLists) {
        if self.partials != NO_LIST {
            lists.partials.free.release(self.partials);
            self.partials = NO_LIST;
        }
    }

    /// Returns the recorded partial match of a rule.
    pub(super) fn partial(&self, rule: u32, lists: &PendingLists) -> Option<PartialMatch> {
        let all = lists.partials.all.get(self.partials as usize)?;
        all.iter().find(|(of, _)| *of == rule).map(|(_, partial)| *partial)
    }

    /// Records a partial match. Of two partial matches of a rule, the match with more steps is kept, or the later match
    /// if the steps are equal. Returns false if the match could not be stored, or if it replaced another rule's partial
    /// match, namely the one furthest back.
    pub(super) fn add_partial(&mut self, rule: u32, partial: PartialMatch, lists: &mut PendingLists) -> bool {
        if self.partials == NO_LIST {
            let Some(place) = lists.partials.take() else {
                return false;
            };
            self.partials = place;
        }
        let Some(all) = lists.partials.all.get_mut(self.partials as usize) else {
            return false;
        };
        if let Some((_, known)) = all.iter_mut().find(|(of, _)| *of == rule) {
            if known.steps <= partial.steps {
                *known = partial;
            }
            return true;
        }
        let Err(error) = all.try_push((rule, partial)) else {
            return true;
        };
        let furthest = all.iter_mut().min_by_key(|(_, known)| known.end);
        if let Some(furthest) = furthest.filter(|(_, known)| known.end < partial.end) {
            *furthest = error.element();
        }
        false
    }

    /// Removes the partial match of a rule.
    pub(super) fn forget_partial(&mut self, rule: u32, lists: &mut PendingLists) {
        if let Some(all) = lists.partials.all.get_mut(self.partials as usize) {
            all.retain(|(of, _)| *of != rule);
        }
    }

    /// Whether no rule is pending.
    #[inline(always)]
    pub(super) fn is_empty(&self, lists: &PendingLists) -> bool {
        !self.any || self.rules.is_empty() && lists.of(self.list).is_none_or(|list| list.waiting == 0)
    }

    /// Whether a rule is pending.
    pub(super) fn is_pending(&self, rule: u32, lists: &PendingLists) -> bool {
        self.any && (self.rules.contains(&rule) || lists.holds(self.list, Kind::Pending, rule))
    }

    /// Whether a rule has matched in this message.
    pub(super) fn has_matched(&self, rule: u32, lists: &PendingLists) -> bool {
        self.any && (self.matched.contains(&rule) || lists.holds(self.list, Kind::Matched, rule))
    }

    /// Marks a rule as pending. Returns false if no space is left to store it.
    pub(super) fn add_pending(&mut self, rule: u32, lists: &mut PendingLists) -> bool {
        self.any = true;
        if lists.of(self.list).is_none() && self.rules.try_push(rule).is_ok() {
            return true;
        }
        self.listed(lists) && lists.add(self.list, Kind::Pending, rule)
    }

    /// Marks a rule as matched. Returns false if no space is left to store it.
    pub(super) fn add_matched(&mut self, rule: u32, lists: &mut PendingLists) -> bool {
        self.any = true;
        if lists.of(self.list).is_none() && self.matched.try_push(rule).is_ok() {
            return true;
        }
        self.listed(lists) && lists.add(self.list, Kind::Matched, rule)
    }

    /// Moves the inline rules to a list, if no list exists yet. Returns whether a list exists.
    fn listed(&mut self, lists: &mut PendingLists) -> bool {
        if lists.of(self.list).is_some() {
            return true;
        }
        let Some(list) = lists.take() else { return false };
        self.list = list;
        let rules = self.rules.drain(..).map(|rule| (Kind::Pending, rule));
        for (kind, rule) in rules.chain(self.matched.drain(..).map(|rule| (Kind::Matched, rule))) {
            lists.add(list, kind, rule);
        }
        true
    }

    /// Removes and returns the pending rules that are stored inline.
    pub(super) fn take_inline(&mut self) -> ArrayVec<u32, INLINE_RULES> {
        std::mem::take(&mut self.rules)
    }

    /// Removes and returns the next pending rule of the list, starting at rule number `from`.
    pub(super) fn take_listed(&mut self, from: u32, lists: &mut PendingLists) -> Option<u32> {
        lists.take_next(self.list, from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pending,
    Matched,
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    /// Number of pending rules.
    waiting: u32,
    is_used: bool,
}

/// Recorded partial matches of flow directions.
#[derive(Debug)]
struct PartialMatches {
    all: Box<[ArrayVec<(u32, PartialMatch), MAX_PARTIALS>]>,
    free: SlotPool,
}

impl PartialMatches {
    fn take(&mut self) -> Option<u32> {
        let place = self.free.allocate()?;
        self.all.get_mut(place as usize)?.clear();
        Some(place)
    }
}

/// Lists of pending and matched rules of a shard. Each list has two bits per rule.
#[derive(Debug)]
pub struct PendingLists {
    lists: Box<[List]>,
    free: SlotPool,
    /// For each list, a bit set of the pending rules, followed by a bit set of the matched rules.
    bits: Box<[u64]>,
    /// Number of 64-bit words in one bit set.
    words: usize,
    partials: PartialMatches,
}

impl PendingLists {
    /// Creates `count` lists for `rules` rules.
    pub fn new(count: u32, rules: usize) -> Self {
        let words = rules.div_ceil(64);
        Self {
            lists: vec![List::default(); count as usize].into(),
            free: SlotPool::new(count),
            bits: vec![0; count as usize * words * 2].into(),
            words,
            partials: PartialMatches {
                all: (0..count).map(|_| ArrayVec::new()).collect(),
                free: SlotPool::new(count),
            },
        }
    }

    /// Sets the source to which lists allocated from now on are accounted.
    #[inline(always)]
    pub(super) fn set_source(&mut self, source: Source) {
        self.free.owners.source = source;
        self.partials.free.owners.source = source;
    }

    fn of(&self, list: u32) -> Option<&List> {
        self.lists.get(list as usize).filter(|list| list.is_used)
    }

    fn half(&self, list: u32, kind: Kind) -> std::ops::Range<usize> {
        let from = (list as usize * 2 + kind as usize) * self.words;
        from..from + self.words
    }

    fn take(&mut self) -> Option<u32> {
        let place = self.free.allocate()?;
        let list = self.lists.get_mut(place as usize)?;
        *list = List {
            waiting: 0,
            is_used: true,
        };
        Some(place)
    }

    fn release(&mut self, list: u32) {
        if self.of(list).is_none() {
            return;
        }
        let bits = self.half(list, Kind::Pending).start..self.half(list, Kind::Matched).end;
        self.bits[bits].fill(0);
        self.lists[list as usize] = List::default();
        self.free.release(list);
    }

    /// Clears the matched rules of a list.
    fn clear_matches(&mut self, list: u32) {
        if self.of(list).is_some() {
            let matched = self.half(list, Kind::Matched);
            self.bits[matched].fill(0);
        }
    }

    fn holds(&self, list: u32, kind: Kind, rule: u32) -> bool {
        self.of(list).is_some()
            && self.bits[self.half(list, kind)]
                .get(rule as usize / 64)
                .is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// Adds a rule to a list. Returns false if the list's ruleset has no rule with this number.
    fn add(&mut self, list: u32, kind: Kind, rule: u32) -> bool {
        let half = self.half(list, kind);
        let Some(word) = self.bits[half].get_mut(rule as usize / 64) else {
            return false;
        };
        let bit = 1 << (rule % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.lists[list as usize].waiting += u32::from(kind == Kind::Pending);
        }
        true
    }

    fn take_next(&mut self, list: u32, from: u32) -> Option<u32> {
        if self.of(list)?.waiting == 0 {
            return None;
        }
        let half = self.half(list, Kind::Pending);
        let first = from as usize / 64;
        for (place, word) in self.bits[half].iter_mut().enumerate().skip(first) {
            let below = if place == first { (1 << (from % 64)) - 1 } else { 0 };
            let remaining = *word & !below;
            if remaining != 0 {
                let bit = remaining.trailing_zeros();
                *word &= !(1 << bit);
                self.lists[list as usize].waiting -= 1;
                return Some(place as u32 * 64 + bit);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_beyond_the_inline_places_wait_in_a_list_in_their_order() {
        let (mut lists, mut waiting) = (PendingLists::new(1, 300), PendingRules::default());
        for rule in (0..300).rev() {
            assert!(waiting.add_pending(rule, &mut lists) && waiting.add_matched(rule, &mut lists));
        }
        assert!(waiting.is_pending(299, &lists) && waiting.has_matched(0, &lists) && !waiting.is_empty(&lists));
        assert!(waiting.take_inline().is_empty());
        let (mut taken, mut from) = (Vec::new(), 0);
        while let Some(rule) = waiting.take_listed(from, &mut lists) {
            taken.push(rule);
            from = rule + 1;
        }
        assert_eq!((0..300).collect::<Vec<_>>(), taken);
        assert!(waiting.is_empty(&lists) && waiting.has_matched(299, &lists));
        waiting.start(&mut lists);
        assert!(!waiting.has_matched(299, &lists) && lists.free.available() == 1);
    }

    #[test]
    fn list_of_another_flow_is_not_taken() {
        let (mut lists, [mut one, mut other]) = (
            PendingLists::new(1, 300),
            [PendingRules::default(), PendingRules::default()],
        );
        assert!((0..20).all(|rule| one.add_pending(rule, &mut lists)));
        assert_eq!(
            [true, false],
            [INLINE_RULES as u32 - 1, INLINE_RULES as u32].map(|last| {
                other.start(&mut lists);
                (0..=last).all(|rule| other.add_pending(rule, &mut lists))
            })
        );
        assert!(one.is_pending(19, &lists));
        one.start(&mut lists);
        assert!(other.add_pending(200, &mut lists) && other.is_pending(0, &lists));
    }
}
