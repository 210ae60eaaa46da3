//! Rules that the flows of a shard go by, and how they give way to others: flows that are under way keep those that they
//! began with for a while.

use std::sync::Arc;

use super::flow::{Flow, Scans};
use super::waiting::{Lists, Waiting};
use super::{Inspector, Plan};
use crate::bindings::vectorscan;
use crate::ruleset::Ruleset;
use crate::scope::Ends;

/// Rules of one generation, with what flows keep for them: states of the search, and notes.
pub struct Book {
    generation: u32,
    rules: Arc<Ruleset>,
    pub(super) scans: Scans,
    notes: Notes,
    lists: Lists,
    /// Open flows that go by it.
    flows: u32,
}

/// What rules have noted of flows, by the flow's place.
struct Notes {
    bits: Box<[u64]>,
    words: usize,
}

impl Notes {
    /// Those of a flow.
    fn of(&mut self, place: usize) -> &mut [u64] {
        let from = place * self.words;
        self.bits.get_mut(from..from + self.words).unwrap_or_default()
    }
}

impl Book {
    /// What a shard of this plan needs for rules. It allocates.
    pub fn new(plan: &Plan, rules: Arc<Ruleset>, generation: u32) -> Result<Self, vectorscan::Error> {
        let windows = u32::try_from(plan.streams.windows).unwrap_or(u32::MAX);
        let words = rules.note_words();
        Ok(Self {
            generation,
            scans: Scans::new(rules.prefilter(), windows)?,
            notes: Notes {
                bits: vec![0; plan.flow_places() as usize * words].into(),
                words,
            },
            lists: Lists::new(plan.waiting_lists(), rules.rules().len()),
            rules,
            flows: 0,
        })
    }

    /// All of it, as it is for the flow at a place.
    pub(super) fn parts(&mut self, place: usize) -> (&Ruleset, &mut Scans, &mut [u64], &mut Lists) {
        (&self.rules, &mut self.scans, self.notes.of(place), &mut self.lists)
    }

    /// Which rules a flow's ports leave, where it is known between whom it is.
    fn watch(&self, flow: &mut Flow) {
        let rules = &self.rules;
        flow.of_ports = flow.story.ends.map_or_else(Default::default, |ends| {
            let single = &rules.of_packet(ends.protocol).by_port;
            [ends, ends.turned()].map(|Ends { toward, ports, .. }| {
                let streamed = rules.of_ports(rules.of_stream(toward), ports);
                (streamed, rules.of_ports(single, ports))
            })
        });
    }

    fn enter(&mut self, flow: &mut Flow, place: usize) {
        flow.generation = self.generation;
        self.flows += 1;
        self.notes.of(place).fill(0);
    }
}

/// The rules of a shard.
pub(super) struct Books {
    current: Box<Book>,
    /// Those before, and until when flows that began with them go by them.
    before: Option<(Box<Book>, u64)>,
    /// Flows that went over to other rules than they began with.
    pub reopened: u64,
}

impl Books {
    pub fn new(book: Book) -> Self {
        Self {
            current: Box::new(book),
            before: None,
            reopened: 0,
        }
    }

    /// The rules that flows begin with now.
    pub fn current(&mut self) -> &mut Book {
        &mut self.current
    }

    pub fn generation(&self) -> u32 {
        self.current.generation
    }

    /// A flow begins.
    pub fn open(&mut self, flow: &mut Flow, place: usize) {
        self.current.enter(flow, place);
    }

    /// It is known between whom a flow is that has begun.
    pub fn introduce(&self, flow: &mut Flow) {
        self.current.watch(flow);
    }

    /// Ask for the state that a direction of a flow is searched with.
    #[inline(always)]
    pub fn prefetch(&self, flow: &Flow, direction: usize) {
        // The few flows that go by other rules wait for theirs.
        if flow.generation == self.current.generation {
            self.current.scans.prefetch(&flow.scans, direction);
        }
    }

    /// The rules that a flow goes by at a nanosecond: its own, or those of now once its own are over.
    #[inline(always)]
    pub fn of(&mut self, flow: &mut Flow, place: usize, now: u64) -> &mut Book {
        match flow.generation == self.current.generation {
            true => &mut self.current,
            false => self.older(flow, place, now),
        }
    }

    #[cold]
    fn older(&mut self, flow: &mut Flow, place: usize, now: u64) -> &mut Book {
        let before = self.before.as_ref();
        let keeps = before.is_some_and(|(book, until)| book.generation == flow.generation && now < *until);
        if !keeps {
            self.close(flow);
            // Where its streams and parsers are stays; what was found of a message, and what waited, was of other rules.
            flow.waiting.iter_mut().for_each(Waiting::forget);
            self.current.enter(flow, place);
            self.current.watch(flow);
            self.reopened += 1;
        }
        match &mut self.before {
            Some((book, _)) if keeps => book,
            _ => &mut self.current,
        }
    }

    /// A flow goes by no rules any more.
    pub fn close(&mut self, flow: &mut Flow) {
        let before = self.before.as_mut().map(|(book, _)| book);
        let mut books = before.into_iter().chain([&mut self.current]);
        match books.find(|book| book.generation == flow.generation) {
            Some(book) => {
                book.scans.close(&mut flow.scans);
                let lists = &mut book.lists;
                flow.waiting.iter_mut().for_each(|waiting| waiting.begin(lists));
                book.flows = book.flows.saturating_sub(1);
            }
            // Its states went with their pool.
            None => flow.scans = [None; 2],
        }
    }

    /// The lists of the rules of a generation; those of now where they are gone.
    pub fn lists(&self, generation: u32) -> &Lists {
        match &self.before {
            Some((book, _)) if book.generation == generation => &book.lists,
            _ => &self.current.lists,
        }
    }

    /// Flows begin with other rules from now on; those under way go by theirs until a nanosecond. The rules before those
    /// of now are over, and go back.
    pub fn renew(&mut self, book: Box<Book>, until: u64) -> Option<Box<Book>> {
        let current = std::mem::replace(&mut self.current, book);
        let before = self.before.replace((current, until));
        before.map(|(book, _)| book)
    }

    /// The rules before those of now, once no flow goes by them or their time is over.
    pub fn retire(&mut self, now: u64) -> Option<Box<Book>> {
        let over = |(book, until): &mut (Box<Book>, u64)| book.flows == 0 || now >= *until;
        self.before.take_if(over).map(|(book, _)| book)
    }
}

impl Inspector<'_> {
    /// The same, with its rules as those of a generation.
    pub fn of_generation(mut self, generation: u32) -> Self {
        self.books.current().generation = generation;
        self
    }

    /// Of the rules that flows begin with.
    pub fn generation(&self) -> u32 {
        self.books.generation()
    }

    /// Flows begin with other rules from now on; those under way go by theirs until a nanosecond. Rules that are over go
    /// back, to be freed where that may take long.
    pub fn renew(&mut self, book: Box<Book>, until: u64) -> Option<Box<Book>> {
        self.books.renew(book, until)
    }

    /// The rules before those of now, once no flow goes by them or their time is over. To be asked now and then.
    pub fn retire(&mut self, now: u64) -> Option<Box<Book>> {
        self.books.retire(now)
    }
}
