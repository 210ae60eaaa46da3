//! The timer wheel reports records of a flow table that may have timed out.
//!
//! The wheel neither sorts nor scans records. Records are linked into lists, one list for each time span. For each
//! packet, the fast path only stores the time in the record. When the time span of a record starts, the wheel calls a
//! callback, which lets the record expire or rearms it. A callback may be early: records with distant timeouts are in
//! long time spans, and move to shorter time spans when they are rearmed. A callback is never late: `advance` processes
//! all due records, and continues in the next call when its budget is used up.
//!
//! Time is counted in ticks. The caller chooses the duration of a tick; 10 to 100 ms are suitable for timeouts from one
//! second to several days. The wheel has three levels of 64 time spans, with 1, 64 and 4,096 ticks. Records whose
//! timeout lies beyond the last time span are rearmed every 258,048 ticks.

use crate::flow::{FlowTable, Links, Previous, Record, RecordIndex};

/// Time in ticks since a starting point.
pub type Tick = u64;

const LEVELS: usize = 3;
/// Number of bits in the number of a time span within its level.
const BITS: u32 = 6;
const SPANS: usize = 1 << BITS;
/// Number of lists in a time span. This is also the number of records that can be fetched from memory simultaneously.
const CHAINS: usize = 8;

/// Maximum number of records unlinked in one step.
const TAKEN: usize = 64;

/// Result of the callback for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAction {
    /// The record is no longer scheduled. The caller removes it from the table after `advance`.
    Expire,
    /// Call the callback again at this tick, or at the next tick if this tick has passed.
    Rearm(Tick),
}

/// Progress of [`Wheel::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of callbacks for records.
    pub checked: u32,
    /// Whether all due records were processed.
    pub caught_up: bool,
}

/// Timer wheel for the records of one flow table.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// Index of the first record in each list, in the format of [`Links`].
    heads: [[[u32; CHAINS]; SPANS]; LEVELS],
    /// Bitmap of the time spans with records, for each level.
    occupied: [u64; LEVELS],
    /// Time spans that started before this tick have no records. Time spans that start at this tick may have records.
    current: Tick,
    scheduled: u32,
    /// Number of the list within a time span to which the next record is added.
    next_list: usize,
}

#[derive(Clone, Copy)]
struct Span {
    level: usize,
    number: usize,
}

impl Span {
    fn list(self, chain: usize) -> u32 {
        ((self.level * SPANS + self.number) * CHAINS + chain) as u32
    }

    fn of_list(list: u32) -> (Self, usize) {
        let list = list as usize;
        let span = Span {
            level: list / CHAINS / SPANS % LEVELS,
            number: list / CHAINS % SPANS,
        };
        (span, list % CHAINS)
    }
}

impl Wheel {
    /// Creates an empty wheel at tick `now`.
    pub fn new(now: Tick) -> Self {
        Wheel {
            heads: [[[0; CHAINS]; SPANS]; LEVELS],
            occupied: [0; LEVELS],
            current: now,
            scheduled: 0,
            next_list: 0,
        }
    }

    /// Number of scheduled records.
    pub fn len(&self) -> usize {
        self.scheduled as usize
    }

    /// Whether no record is scheduled.
    pub fn is_empty(&self) -> bool {
        self.scheduled == 0
    }

    /// Schedules a callback for a record at tick `due`. Replaces an earlier schedule of the record. Returns false if
    /// the record is not in use.
    pub fn schedule<R: Record>(&mut self, table: &mut FlowTable<'_, R>, index: RecordIndex, due: Tick) -> bool {
        if !table.get(index).is_some_and(|record| record.links().is_live()) {
            return false;
        }
        self.cancel(table, index);
        self.link(table, index, due.max(self.current + 1));
        true
    }

    /// Cancels the schedule of a record. Returns false if the record was not scheduled.
    pub fn cancel<R: Record>(&mut self, table: &mut FlowTable<'_, R>, index: RecordIndex) -> bool {
        let Some(record) = table.get_mut(index) else {
            return false;
        };
        let (previous, next) = (record.links().previous(), record.links().next());
        let Some(previous) = previous else { return false };
        *record.links_mut() = Links::IDLE;
        match previous {
            Previous::Record(before) => {
                if let Some(before) = table.get_mut(before) {
                    before.links_mut().set_next(next);
                }
            }
            Previous::List(list) => {
                let (span, chain) = Span::of_list(list);
                self.set_head(span, chain, next);
            }
        }
        if let Some(next) = next
            && let Some(after) = table.get_mut(next)
        {
            after.links_mut().set_previous(previous);
        }
        self.scheduled -= 1;
        true
    }

    /// Cancels the schedule of a record and removes it from the table; see [`FlowTable::remove`].
    pub fn remove<R: Record>(
        &mut self,
        table: &mut FlowTable<'_, R>,
        index: RecordIndex,
        forward_hash: u64,
        reverse_hash: u64,
    ) -> Option<R> {
        if !table.holds(index, forward_hash, reverse_hash) {
            return None;
        }
        self.cancel(table, index);
        table.remove(index, forward_hash, reverse_hash)
    }

    /// Calls the callback `check` for at most `budget` records that are due at tick `now`. The next call continues with
    /// further due records. A record is not scheduled during its callback.
    pub fn advance<R: Record>(
        &mut self,
        table: &mut FlowTable<'_, R>,
        now: Tick,
        budget: u32,
        mut check: impl FnMut(RecordIndex, &mut R) -> TimerAction,
    ) -> Progress {
        let now = now.max(self.current);
        let mut taken = [RecordIndex(0); TAKEN];
        let mut checked = 0;
        loop {
            let Some(span) = self.current_span() else {
                match self.next_begin().filter(|&first| first <= now) {
                    Some(first) => self.current = first,
                    None => {
                        self.current = now;
                        return Progress {
                            checked,
                            caught_up: true,
                        };
                    }
                }
                continue;
            };
            if checked == budget {
                return Progress {
                    checked,
                    caught_up: false,
                };
            }
            let count = self.take(table, span, (budget - checked) as usize, &mut taken);
            checked += count as u32;
            for &index in &taken[..count] {
                let Some(record) = table.get_mut(index) else { continue };
                if let TimerAction::Rearm(due) = check(index, record) {
                    self.link(table, index, due.max(now + 1));
                }
            }
        }
    }

    /// The time span that starts at the current tick and contains records, if any.
    fn current_span(&self) -> Option<Span> {
        for level in 0..LEVELS {
            let number = (self.current >> (BITS * level as u32)) as usize % SPANS;
            if self.occupied[level] >> number & 1 != 0 {
                return Some(Span { level, number });
            }
        }
        None
    }

    /// Start tick of the next time span with records. Time spans that start at the current tick must be empty.
    fn next_begin(&self) -> Option<Tick> {
        let starts = (0..LEVELS).filter(|&level| self.occupied[level] != 0).map(|level| {
            let shift = BITS * level as u32;
            let next = (self.current >> shift) + 1;
            let ahead = self.occupied[level]
                .rotate_right((next % SPANS as u64) as u32)
                .trailing_zeros();
            (next + u64::from(ahead)) << shift
        });
        starts.min()
    }

    /// Time span for a tick after the current tick. The time span is in the finest level that covers this tick; if no
    /// level covers it, the result is the last time span.
    fn span(&self, due: Tick) -> Span {
        for level in 0..LEVELS {
            let shift = BITS * level as u32;
            if (due >> shift) - (self.current >> shift) < SPANS as u64 {
                return Span {
                    level,
                    number: (due >> shift) as usize % SPANS,
                };
            }
        }
        let last_span = (self.current >> (BITS * (LEVELS as u32 - 1))) + (SPANS as u64 - 1);
        Span {
            level: LEVELS - 1,
            number: last_span as usize % SPANS,
        }
    }

    fn link<R: Record>(&mut self, table: &mut FlowTable<'_, R>, index: RecordIndex, due: Tick) {
        let span = self.span(due);
        self.next_list = (self.next_list + 1) % CHAINS;
        let chain = self.next_list;
        let first = Links::unpack(self.heads[span.level][span.number][chain]);
        if let Some(first) = first
            && let Some(after) = table.get_mut(first)
        {
            after.links_mut().set_previous(Previous::Record(index));
        }
        if let Some(record) = table.get_mut(index) {
            *record.links_mut() = Links::scheduled(Previous::List(span.list(chain)), first);
        }
        self.set_head(span, chain, Some(index));
        self.scheduled += 1;
    }

    fn set_head(&mut self, span: Span, chain: usize, first: Option<RecordIndex>) {
        let heads = &mut self.heads[span.level][span.number];
        heads[chain] = Links::pack(first);
        let bit = 1 << span.number;
        // Load the list heads one by one, because a wide load would wait until the preceding store has reached the
        // cache.
        if first.is_some() {
            self.occupied[span.level] |= bit;
        } else if (1..CHAINS).all(|k| heads[(chain + k) % CHAINS] == 0) {
            self.occupied[span.level] &= !bit;
        }
    }

    /// Unlinks up to `max` records from the lists of a time span, as far as `taken` has space. Returns the number of
    /// unlinked records. The first records of all lists are fetched together, because the second record of a list is
    /// unknown until its first record is loaded.
    fn take<R: Record>(
        &mut self,
        table: &mut FlowTable<'_, R>,
        span: Span,
        max: usize,
        taken: &mut [RecordIndex; TAKEN],
    ) -> usize {
        let mut heads = self.heads[span.level][span.number];
        let before = heads;
        let max = max.min(TAKEN);
        let (mut count, mut remaining) = (0, true);
        while remaining && count < max {
            remaining = false;
            for k in 1..=CHAINS {
                let head = &mut heads[(self.next_list + k) % CHAINS];
                let Some(first) = Links::unpack(*head) else { continue };
                if count == max {
                    break;
                }
                *head = 0;
                if let Some(record) = table.get_mut(first) {
                    let next = record.links().next();
                    *record.links_mut() = Links::IDLE;
                    *head = Links::pack(next);
                    taken[count] = first;
                    count += 1;
                    if let Some(next) = next {
                        table.prefetch_record(next);
                        remaining = true;
                    }
                }
            }
        }
        for (chain, (&head, &before)) in heads.iter().zip(&before).enumerate() {
            if head != before
                && let Some(first) = Links::unpack(head)
                && let Some(record) = table.get_mut(first)
            {
                record.links_mut().set_previous(Previous::List(span.list(chain)));
            }
        }
        self.heads[span.level][span.number] = heads;
        if heads == [0; CHAINS] {
            self.occupied[span.level] &= !(1 << span.number);
        }
        self.scheduled -= count as u32;
        count
    }
}

#[cfg(test)]
mod tests;
