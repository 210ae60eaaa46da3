//! Rules that wait for more of a message, and those that have matched in it: a few in the flow itself, more in a list of
//! the shard that has a bit for each rule, so that none gives way to another.

use crate::evaluate::PartialMatch;
use crate::source_quota::{SlotPool, Source};
use arrayvec::ArrayVec;

/// Rules that a direction of a flow keeps without a list.
pub const INLINE_RULES: usize = 16;
/// Rules of a direction that are remembered to have been found in part.
pub const MAX_PARTIALS: usize = 32;
/// No list.
const NO_LIST: u32 = u32::MAX;

/// Rules of one direction that wait for more, and those that have matched in this message.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PendingRules {
    /// There may be any: of most flows, all that is read.
    any: bool,
    /// Place of the list that holds all of them, once they are more than fit here.
    list: u32,
    /// Place where those are remembered that were found in part.
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
    /// Another message begins.
    #[inline(always)]
    pub(super) fn begin(&mut self, lists: &mut PendingLists) {
        if self.any {
            self.clear(lists);
        }
    }

    /// Another message begins, whose begin makes no difference to the rules that wait.
    #[inline(always)]
    pub(super) fn next_message(&mut self, lists: &mut PendingLists) {
        if self.any {
            // Places are counted from where a message begins.
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
        lists.unspeak(self.list);
    }

    #[cold]
    fn clear(&mut self, lists: &mut PendingLists) {
        lists.release(self.list);
        self.forget_partials(lists);
        self.forget();
    }

    /// Nothing is kept; a list that it had is released, or gone with its rules.
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

    /// Where a rule goes on that was found in part.
    pub(super) fn partial(&self, rule: u32, lists: &PendingLists) -> Option<PartialMatch> {
        let all = lists.partials.all.get(self.partials as usize)?;
        all.iter().find(|(of, _)| *of == rule).map(|(_, partial)| *partial)
    }

    /// A rule was found in part. Of two parts the longer one is remembered, else the later one. False where one had to be
    /// forgotten for it, that which is furthest back, or it finds no place itself.
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

    /// A rule can't go on from where it was found in part.
    pub(super) fn forget_partial(&mut self, rule: u32, lists: &mut PendingLists) {
        if let Some(all) = lists.partials.all.get_mut(self.partials as usize) {
            all.retain(|(of, _)| *of != rule);
        }
    }

    /// Whether no rule waits.
    #[inline(always)]
    pub(super) fn is_empty(&self, lists: &PendingLists) -> bool {
        !self.any || self.rules.is_empty() && lists.of(self.list).is_none_or(|list| list.waiting == 0)
    }

    /// Whether a rule waits.
    pub(super) fn is_pending(&self, rule: u32, lists: &PendingLists) -> bool {
        self.any && (self.rules.contains(&rule) || lists.holds(self.list, Kind::Pending, rule))
    }

    /// Whether a rule has matched in this message.
    pub(super) fn has_matched(&self, rule: u32, lists: &PendingLists) -> bool {
        self.any && (self.matched.contains(&rule) || lists.holds(self.list, Kind::Matched, rule))
    }

    /// A rule waits. False where there is no place to note it.
    pub(super) fn add_pending(&mut self, rule: u32, lists: &mut PendingLists) -> bool {
        self.any = true;
        if lists.of(self.list).is_none() && self.rules.try_push(rule).is_ok() {
            return true;
        }
        self.listed(lists) && lists.add(self.list, Kind::Pending, rule)
    }

    /// A rule has matched. False where there is no place to note it.
    pub(super) fn add_matched(&mut self, rule: u32, lists: &mut PendingLists) -> bool {
        self.any = true;
        if lists.of(self.list).is_none() && self.matched.try_push(rule).is_ok() {
            return true;
        }
        self.listed(lists) && lists.add(self.list, Kind::Matched, rule)
    }

    /// Whether there is a list, with all that was kept here.
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

    /// Those that wait here, which wait no more.
    pub(super) fn take_inline(&mut self) -> ArrayVec<u32, INLINE_RULES> {
        std::mem::take(&mut self.rules)
    }

    /// The next that waits in a list from a number on, which waits no more.
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
    /// Rules that wait.
    waiting: u32,
    is_used: bool,
}

/// Where rules are remembered that were found in part.
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

/// Lists of a shard, each with two bits for each of its rules.
#[derive(Debug)]
pub struct PendingLists {
    lists: Box<[List]>,
    free: SlotPool,
    /// Of each list those that wait, then those that have matched.
    bits: Box<[u64]>,
    /// Words of a half.
    words: usize,
    partials: PartialMatches,
}

impl PendingLists {
    /// So many, for so many rules.
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

    /// A list that is taken from now on is for a source.
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

    /// None of a list's rules has matched.
    fn unspeak(&mut self, list: u32) {
        if self.of(list).is_some() {
            let spoken = self.half(list, Kind::Matched);
            self.bits[spoken].fill(0);
        }
    }

    fn holds(&self, list: u32, kind: Kind, rule: u32) -> bool {
        self.of(list).is_some()
            && self.bits[self.half(list, kind)]
                .get(rule as usize / 64)
                .is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// False where the list has no place for the rule, which is none of its rules.
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
            let left = *word & !below;
            if left != 0 {
                let bit = left.trailing_zeros();
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
        waiting.begin(&mut lists);
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
                other.begin(&mut lists);
                (0..=last).all(|rule| other.add_pending(rule, &mut lists))
            })
        );
        assert!(one.is_pending(19, &lists));
        one.begin(&mut lists);
        assert!(other.add_pending(200, &mut lists) && other.is_pending(0, &lists));
    }
}
