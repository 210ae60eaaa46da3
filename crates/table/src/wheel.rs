//! The timer wheel: which records of a flow table may have fallen silent.
//!
//! It orders nothing by itself and scans nothing: lists of records, linked through the records, one per span of time.
//! The packet path only writes down when it saw a flow last; when a record's span comes, the wheel *asks*, and the
//! record expires or is armed anew. A record may be asked early (far timeouts lie in coarse spans, and are armed more
//! finely when theirs begins), never late: `advance` asks everything due by then, as far as its budget reaches, and
//! goes on from there at the next call.
//!
//! Time is in ticks of the caller's choice; with 10 to 100 ms, timeouts of a second to days are served well. Three
//! levels of 64 spans are 1, 64 and 4,096 ticks fine; who is due beyond them is asked every 258,048 ticks.

use crate::flow::{FlowTable, Links, Previous, Record, RecordIndex};

/// Time in ticks since some start.
pub type Tick = u64;

const LEVELS: usize = 3;
/// Bits of a level's span number.
const BITS: u32 = 6;
const SPANS: usize = 1 << BITS;
/// Lists per span: as many records are on their way from memory at once.
const CHAINS: usize = 8;

/// Records that are taken off their lists together.
const TAKEN: usize = 64;

/// What becomes of a record that the wheel asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAction {
    /// It is not scheduled any more. The caller removes it from the table, after `advance`.
    Expire,
    /// Ask again at this tick, or the next after now if that is later.
    Rearm(Tick),
}

/// How far [`Wheel::advance`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Records asked about.
    pub checked: u32,
    /// Nothing that is due is left.
    pub caught_up: bool,
}

/// Timers of the records of one flow table.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// First record of each list, packed as in [`Links`].
    heads: [[[u32; CHAINS]; SPANS]; LEVELS],
    /// Bit per span: it has a record.
    occupied: [u64; LEVELS],
    /// Every span that began before is empty; those that begin here may not be yet.
    current: Tick,
    scheduled: u32,
    /// Where the next record is linked in.
    turn: usize,
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
    /// An empty wheel at the tick `now`.
    pub fn new(now: Tick) -> Self {
        Wheel {
            heads: [[[0; CHAINS]; SPANS]; LEVELS],
            occupied: [0; LEVELS],
            current: now,
            scheduled: 0,
            turn: 0,
        }
    }

    /// Records on the wheel.
    pub fn len(&self) -> usize {
        self.scheduled as usize
    }

    /// Whether no record is on the wheel.
    pub fn is_empty(&self) -> bool {
        self.scheduled == 0
    }

    /// Ask about a record at the tick `due`, instead of when it was to be asked before. False where the record is
    /// not in use.
    pub fn schedule<R: Record>(&mut self, table: &mut FlowTable<'_, R>, index: RecordIndex, due: Tick) -> bool {
        if !table.get(index).is_some_and(|record| record.links().is_live()) {
            return false;
        }
        self.cancel(table, index);
        self.link(table, index, due.max(self.current + 1));
        true
    }

    /// Take a record off the wheel. False where it was not on it.
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

    /// Take a record off the wheel and out of the table; as [`FlowTable::remove`].
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

    /// Ask about what is due at the tick `now`, at most `budget` records; what is left is asked by the next call.
    /// Within `ask` the record is off the wheel.
    pub fn advance<R: Record>(
        &mut self,
        table: &mut FlowTable<'_, R>,
        now: Tick,
        budget: u32,
        mut ask: impl FnMut(RecordIndex, &mut R) -> TimerAction,
    ) -> Progress {
        let now = now.max(self.current);
        let mut taken = [RecordIndex(0); TAKEN];
        let mut asked = 0;
        loop {
            let Some(span) = self.begun() else {
                match self.next_begin().filter(|&begin| begin <= now) {
                    Some(begin) => self.current = begin,
                    None => {
                        self.current = now;
                        return Progress {
                            checked: asked,
                            caught_up: true,
                        };
                    }
                }
                continue;
            };
            if asked == budget {
                return Progress {
                    checked: asked,
                    caught_up: false,
                };
            }
            let count = self.take(table, span, (budget - asked) as usize, &mut taken);
            asked += count as u32;
            for &index in &taken[..count] {
                let Some(record) = table.get_mut(index) else { continue };
                if let TimerAction::Rearm(due) = ask(index, record) {
                    self.link(table, index, due.max(now + 1));
                }
            }
        }
    }

    /// A span that begins at the current tick and has records.
    fn begun(&self) -> Option<Span> {
        for level in 0..LEVELS {
            let number = (self.current >> (BITS * level as u32)) as usize % SPANS;
            if self.occupied[level] >> number & 1 != 0 {
                return Some(Span { level, number });
            }
        }
        None
    }

    /// When the next span that has records begins. No span that begins at the current tick has any.
    fn next_begin(&self) -> Option<Tick> {
        let begins = (0..LEVELS).filter(|&level| self.occupied[level] != 0).map(|level| {
            let shift = BITS * level as u32;
            let next = (self.current >> shift) + 1;
            let ahead = self.occupied[level]
                .rotate_right((next % SPANS as u64) as u32)
                .trailing_zeros();
            (next + u64::from(ahead)) << shift
        });
        begins.min()
    }

    /// The span of a tick after the current one: the finest level that reaches so far, or the farthest span.
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
        let farthest = (self.current >> (BITS * (LEVELS as u32 - 1))) + (SPANS as u64 - 1);
        Span {
            level: LEVELS - 1,
            number: farthest as usize % SPANS,
        }
    }

    fn link<R: Record>(&mut self, table: &mut FlowTable<'_, R>, index: RecordIndex, due: Tick) {
        let span = self.span(due);
        self.turn = (self.turn + 1) % CHAINS;
        let chain = self.turn;
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
        // One by one: read as a whole, the heads would have to wait until the store above has reached the cache.
        if first.is_some() {
            self.occupied[span.level] |= bit;
        } else if (1..CHAINS).all(|k| heads[(chain + k) % CHAINS] == 0) {
            self.occupied[span.level] &= !bit;
        }
    }

    /// Take records off the lists of a span, at most so many and as many as there is room for; how many. A list's next
    /// record is known only once its first is here: one of each list is on its way from memory at a time.
    fn take<R: Record>(
        &mut self,
        table: &mut FlowTable<'_, R>,
        span: Span,
        most: usize,
        taken: &mut [RecordIndex; TAKEN],
    ) -> usize {
        let mut heads = self.heads[span.level][span.number];
        let before = heads;
        let most = most.min(TAKEN);
        let (mut count, mut left) = (0, true);
        while left && count < most {
            left = false;
            for k in 1..=CHAINS {
                let head = &mut heads[(self.turn + k) % CHAINS];
                let Some(first) = Links::unpack(*head) else { continue };
                if count == most {
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
                        left = true;
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
