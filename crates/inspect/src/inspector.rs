//! Inspection of the flows of one shard: streams put in order, searched, parsed, and rules asked about them.
//!
//! What the engine gives is a packet of a session, as it came; what it gets is a [`Verdict`]. A packet is searched and
//! its rules are asked before it goes on, so that the packet that completes a match of a rule that drops is the first
//! that does not. Rules see the addresses that the inside sees.

mod actions;
mod asking;
mod book;
mod events;
mod exceptions;
mod fired;
mod flow;
mod known;
mod parser;
mod standing;
mod story;
mod tombstones;
mod waiting;

use std::sync::Arc;

use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::Direction;

pub use asking::{Fate, Match, Report, RuleNumber, Tools};
pub use book::Book;
pub use flow::FlowHandle;
pub use story::Story;

use crate::bindings::vectorscan;
use crate::evaluate::{Facts, View};
use crate::prefilter::Class;
use crate::protocols::ftp::Hosts;
use crate::protocols::{self, Anomaly, Capacity, Hashes, Store};
use crate::rates::Rates;
use crate::reason::{Limit, Reason, Skipped, Tally};
use crate::ruleset::Ruleset;
use crate::scope::Ends;
use crate::signature::{Buffer, Toward};
use crate::stream::{self, Exception, Policies, Policy, Step, StreamEvent, Streams};
use crate::transactions::{Noting, Tell, Transactions, Wanted};
use crate::work::Work;
use asking::Asking;
use book::Books;
use exceptions::Met;
use flow::{Flow, Flows, Standing};
use known::{Known, by_packet, message, piece_of_message};
use parser::Said;
use tombstones::Tombstones;

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It goes on, and was not inspected.
    Skip(Skipped),
    /// It goes on, and nothing of its flow is to be inspected any more. Where it was not inspected itself, why.
    Leave(Option<Skipped>),
    /// It is dropped.
    Drop(Reason),
    /// It is dropped, and both ends are told: its sender of what belongs to a flow that was rejected before.
    Reject(Reason),
}

/// A packet of a flow, as the engine knows it.
pub struct Seen<'a> {
    /// Its ends, as the inside sees them.
    pub ends: Ends,
    /// Its headers.
    pub facts: Facts,
    /// Its direction in the session: forward is from who called.
    pub direction: Direction,
    /// Header of the fourth layer and what follows, to the end of the datagram.
    pub segment: &'a mut [u8],
    /// Where the payload begins in `segment`.
    pub payload: usize,
    /// It came in by an interface of its sender's side. What comes from elsewhere acknowledges and resets nothing.
    pub own_side: bool,
}

/// What is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is done about what can't be inspected.
    pub policies: Policies,
    /// A flow that was found clean for so many bytes is no longer inspected. 0: it always is.
    pub depth: u64,
    /// A flow is no longer inspected once both sides send nothing but encrypted data.
    pub leave_encrypted: bool,
    /// Nothing is dropped by rules: they report.
    pub passive: bool,
    /// Urgent pointers are cleared, so that a receiver takes all data in order.
    pub clear_urgent: bool,
    /// Of which protocols transactions are told.
    pub wanted: Wanted,
}

impl Settings {
    /// What is done about what can't be inspected. Where rules drop nothing, this doesn't either: it passes.
    pub fn policy(&self, exception: Exception) -> Policy {
        match self.policies.of(exception) {
            Policy::DropPacket | Policy::DropFlow if self.passive => Policy::Pass,
            said => said,
        }
    }
}

/// How much is inspected at once, in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Flows, TCP or not.
    pub flows: u32,
    /// Streams.
    pub streams: stream::Plan,
    /// Parsers.
    pub protocols: Capacity,
}

impl Plan {
    /// Flows that there is a place for.
    fn flow_places(&self) -> u32 {
        self.flows.clamp(1, 1 << 24)
    }

    /// Lists for flows in which more rules wait than most have: they take a quarter of a byte for each rule.
    fn waiting_lists(&self) -> u32 {
        (self.flow_places() / 16).clamp(8, 4_096)
    }
}

/// What happened, beside what streams and parsers count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that were searched.
    pub searched: u64,
    /// Units of work that packets have caused.
    pub worked: u64,
    /// Connections that could not be searched, for all stream states were in use.
    pub unsearched: u64,
    /// Transactions that were not told, for all places for those that are not over were in use.
    pub untold: u64,
    /// Flows that went over to other rules than they began with.
    pub reopened: u64,
}

/// Inspection of one shard.
pub struct Inspector<'m> {
    books: Books,
    flows: Flows,
    streams: Streams<'m>,
    store: Store,
    /// The same as the parsers'.
    work: Work,
    /// What the packet's content has met so far.
    met: Met,
    transactions: Transactions,
    tombstones: Tombstones,
    hasher: Hasher,
    /// The next flow's.
    next_number: u64,
    /// What happened.
    pub counters: Counters,
    /// Limits that were reached.
    pub limits: Tally<{ Limit::ALL.len() }>,
}

/// What is the same for all packets of a burst.
pub struct Round<'a> {
    /// What is configured.
    pub settings: &'a Settings,
    /// How often rules matched.
    pub rates: &'a Rates,
    /// What the worker asks with.
    pub tools: &'a mut Tools,
    /// Nanoseconds since the start.
    pub now: u64,
    /// Rules that match go here.
    pub report: Report<'a>,
    /// Transactions that are over go here.
    pub tell: Tell<'a>,
}

/// Why there is no inspection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Streams do not fit.
    #[error(transparent)]
    Streams(#[from] stream::Misfit),
    /// Vectorscan has no memory.
    #[error("no memory for the states of the search: {0}")]
    Search(#[from] vectorscan::Error),
}

impl<'m> Inspector<'m> {
    /// A shard's, in `memory` for its streams of [`stream::Plan::lines`].
    pub fn new(plan: &Plan, rules: Arc<Ruleset>, memory: &'m mut [Line], hasher: Hasher) -> Result<Self, Error> {
        let store = Store::new(&plan.protocols);
        Ok(Self {
            flows: Flows::new(plan.flow_places()),
            streams: Streams::new(memory, &plan.streams, hasher)?,
            tombstones: Tombstones::new(plan.flow_places() as usize, hasher),
            hasher,
            work: store.work.clone(),
            met: Met::default(),
            store,
            transactions: Transactions::new(plan.protocols.transactions),
            next_number: 1,
            books: Books::new(Book::new(plan, rules, 0)?),
            counters: Counters::default(),
            limits: Tally::default(),
        })
    }

    /// A flow begins. Where no place is free, the oldest gives way whose client has answered nothing, as in a flood of
    /// forged sources. None where there is no such flow.
    pub fn open(&mut self, tcp: bool) -> Option<FlowHandle> {
        if let Some(oldest) = self.flows.giving_way() {
            self.limits.add(Limit::FlowsGaveWay as usize);
            self.end(oldest, true);
        }
        let stream = match tcp {
            true => self.streams.open()?,
            false => stream::Handle::NONE,
        };
        let opened = self.flows.open(stream);
        if let Some((flow, place)) = opened.and_then(|opened| self.flows.get(opened)) {
            self.books.open(flow, place);
        }
        if opened.is_none() && tcp {
            self.streams.close(stream);
        }
        opened
    }

    /// Whether a flow is there: one that gave way to others is not.
    #[inline(always)]
    pub fn has(&self, handle: FlowHandle) -> bool {
        self.flows.has(handle)
    }

    /// A flow ends.
    pub fn close(&mut self, handle: FlowHandle) {
        self.end(handle, false);
    }

    /// A flow ends; `early`: before its session does.
    fn end(&mut self, handle: FlowHandle, early: bool) {
        let Some((flow, _)) = self.flows.get(handle) else {
            return;
        };
        let is_dropped = matches!(flow.fate, Fate::Dropped | Fate::Rejected);
        let is_over = is_dropped && (early || flow.stream != stream::Handle::NONE) || self.streams.ended(flow.stream);
        if is_over && let Some(ends) = &flow.story.ends {
            self.tombstones.add(ends, flow.story.seen[1]);
        }
        self.streams.close(flow.stream);
        self.books.close(flow);
        flow.parser.release(&mut self.store);
        flow.pending.release(&mut self.transactions);
        self.flows.close(handle);
    }

    /// The streams, for their counters.
    pub fn streams(&mut self) -> &mut Streams<'m> {
        &mut self.streams
    }

    /// Write down from now on what is searched: [`Tools::take_calls`] has it. Streams are numbered from `first` on, so that
    /// those of several shards are told apart.
    pub fn record(&mut self, tools: &mut Tools, first: u32) {
        self.books.current().scans.record(first);
        tools.scratch.record();
    }

    /// Report the anomalies and the limits that were counted since the last call: the number of each in its enumeration, and
    /// how many.
    #[inline(always)]
    pub fn tell_met(&mut self, anomaly: impl FnMut(usize, u64), limit: impl FnMut(usize, u64)) {
        self.store.anomalies.tell(anomaly);
        self.limits.tell(limit);
    }

    /// The parsers' anomalies.
    pub fn anomalies(&self) -> &protocols::Counts {
        &self.store.anomalies
    }

    /// A packet of this flow will come after the next: ask for its first line.
    #[inline(always)]
    pub fn prefetch(&self, handle: FlowHandle) {
        self.flows.prefetch(handle);
    }

    /// A packet of this flow comes next but one: ask for what its first line leads to.
    #[inline(always)]
    pub fn prefetch_more(&self, handle: FlowHandle, direction: Direction) {
        if let Some(flow) = self.flows.prefetch_more(handle)
            && flow.stream != stream::Handle::NONE
        {
            self.streams.prefetch(flow.stream);
            self.books.prefetch(flow, direction as usize);
        }
    }

    /// A packet of this flow comes next: ask for where its bytes go.
    #[inline(always)]
    pub fn prefetch_window(&mut self, handle: FlowHandle, direction: Direction) {
        if let Some((flow, _)) = self.flows.get(handle) {
            self.streams.prefetch_window(flow.stream, direction);
        }
    }

    /// A packet of a flow has come at a nanosecond. What becomes of it where that is decided already; none where it is to be
    /// looked at, or the flow has given way to others.
    pub fn decided(&mut self, handle: FlowHandle, now: u64) -> Option<Verdict> {
        let (flow, _) = self.flows.get(handle)?;
        flow.story.seen[1] = now;
        match flow.fate {
            Fate::Open => None,
            Fate::Passed(why) => Some(Verdict::Skip(why)),
            // Whoever goes on sending is told.
            Fate::Rejected if flow.stream != stream::Handle::NONE => Some(Verdict::Reject(Reason::FlowDropped)),
            Fate::Dropped | Fate::Rejected => Some(Verdict::Drop(Reason::FlowDropped)),
        }
    }

    /// Bytes of a flow that were searched, where no rule waits for more of it.
    pub fn settled(&mut self, handle: FlowHandle) -> Option<u64> {
        let (flow, _) = self.flows.get(handle)?;
        let lists = self.books.lists(flow.generation);
        let waits = flow.waiting.iter().any(|waiting| !waiting.is_over(lists));
        (!waits).then_some(flow.searched)
    }

    /// A packet of a flow.
    pub fn packet(&mut self, handle: FlowHandle, seen: Seen<'_>, round: &mut Round<'_>) -> Verdict {
        if let Some(verdict) = self.decided(handle, round.now) {
            return verdict;
        }
        round.tools.evaluator.charge_to(&self.work);
        let stream = self.flows.get(handle).map(|(flow, _)| flow.stream);
        let verdict = match stream.unwrap_or(stream::Handle::NONE) {
            stream::Handle::NONE => self.datagram(handle, seen, round),
            _ => self.segment(handle, seen, round),
        };
        let verdict = self.apply_actions(handle, verdict, round);
        if self.met == Met::default() {
            return verdict;
        }
        self.content_exceptions(handle, verdict, round.settings)
    }

    fn segment(&mut self, handle: FlowHandle, mut seen: Seen<'_>, round: &mut Round<'_>) -> Verdict {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let (stream, direction, standing) = (flow.stream, seen.direction, flow.standing);
        if round.settings.clear_urgent {
            self.streams.clear_urgent(seen.segment);
        }
        if standing != Standing::Assured
            && let Err(exception) = self.stand(handle, &seen)
        {
            self.streams.count(exception);
            return self.exception(handle, exception, round.settings);
        }
        let mut step = self.streams.segment(stream, direction, seen.own_side, seen.segment);
        if step == Step::Exception(Exception::Midstream) && self.is_over(handle) {
            step = Step::Exception(Exception::Closed);
            self.streams.count(Exception::Closed);
        }
        if let Step::Exception(exception) = step
            && round.settings.policy(exception) == Policy::Pass
        {
            if exception == Exception::GapFull {
                self.stream_event(handle, &seen, StreamEvent::Gap, round);
            }
            if matches!(
                exception,
                Exception::Midstream | Exception::Handshake | Exception::GapFull
            ) {
                self.missed(handle, exception, direction);
            }
            match exception {
                Exception::GapFull if self.streams.skip(stream, direction) => {
                    let verdict = self.kept(handle, &mut seen, Verdict::Pass, round);
                    if verdict != Verdict::Pass {
                        return verdict;
                    }
                }
                Exception::Midstream | Exception::Handshake | Exception::GapFull => {
                    self.streams.pick_up(stream, direction, seen.segment);
                }
                _ => return self.exception(handle, exception, round.settings),
            }
            step = self.streams.segment(stream, direction, seen.own_side, seen.segment);
        }
        self.step_events(handle, &seen, step, round);
        match step {
            Step::Fresh {
                from, to, offset, ends, ..
            } => {
                if offset == 0
                    && let Some((flow, place)) = self.flows.get(handle)
                {
                    let book = self.books.of(flow, place, round.now);
                    book.scans.begin(&mut flow.scans, direction as usize);
                }
                let verdict = self.fresh(handle, &mut seen, Piece::Own { from, to, ends }, round);
                self.kept(handle, &mut seen, verdict, round)
            }
            Step::Ahead { .. } | Step::Repeat { .. } => self.fresh(handle, &mut seen, Piece::NOTHING, round),
            Step::Exception(exception) => self.exception(handle, exception, round.settings),
        }
    }

    /// Bytes of a direction are not seen: where its begin was not, nobody knows what the other said either.
    #[cold]
    fn missed(&mut self, handle: FlowHandle, exception: Exception, direction: Direction) {
        if let Some((flow, _)) = self.flows.get(handle) {
            match exception {
                Exception::GapFull => flow.has_missed[direction as usize] = true,
                _ => flow.has_missed = [true; 2],
            }
        }
    }

    /// What had come ahead of the gap that a packet has filled is searched, before the packet goes on.
    #[inline(always)]
    fn kept(
        &mut self,
        handle: FlowHandle,
        seen: &mut Seen<'_>,
        mut verdict: Verdict,
        round: &mut Round<'_>,
    ) -> Verdict {
        while matches!(verdict, Verdict::Pass | Verdict::Leave(_))
            && let Some((flow, _)) = self.flows.get(handle)
            && let Some(stream::Kept { length, ends }) = self.streams.next_kept(flow.stream, seen.direction)
        {
            verdict = self.fresh(handle, seen, Piece::Kept { length, ends }, round);
        }
        verdict
    }

    /// The next bytes of a stream, and the packet by itself where they are its own.
    fn fresh(&mut self, handle: FlowHandle, seen: &mut Seen<'_>, piece: Piece, round: &mut Round<'_>) -> Verdict {
        let Some((flow, place)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let book = self.books.of(flow, place, round.now);
        let (rules, scans, notes, lists) = book.parts(place);
        let Flow {
            stream,
            scans: states,
            parser,
            waiting,
            fate,
            service,
            searched,
            turn,
            of_ports,
            story,
            pending,
            credit,
            source,
            has_missed,
            ..
        } = flow;
        let (stream, direction) = (*stream, seen.direction);
        let place = direction as usize;
        let toward = toward(direction);
        seen.facts.sent = [Direction::Forward, Direction::Reverse].map(|of| {
            let view = self.streams.view(stream, of);
            view.offset + view.bytes.len() as u64
        });
        seen.ends.service = *service;
        let (bytes, ends_stream) = match piece {
            Piece::Own { from, to, ends } => (seen.segment.get(from..to).unwrap_or_default(), ends),
            Piece::Kept { length, ends } => {
                let view = self.streams.view(stream, direction).bytes;
                (
                    view.get(view.len() - length.min(view.len())..).unwrap_or_default(),
                    ends,
                )
            }
        };
        let begun = self.work.begin(*credit, bytes.len());
        self.store.take_for(*source);
        self.store.hash_files(match has_missed[place] {
            true => Hashes::NONE,
            false => rules.file_hashes(),
        });
        lists.take_for(*source);
        let exceeded = self.store.anomalies.of(Anomaly::WorkExceeded);
        let [mine, others] = match direction {
            Direction::Forward => {
                let [mine, others] = waiting;
                [mine, others]
            }
            Direction::Reverse => {
                let [others, mine] = waiting;
                [mine, others]
            }
        };
        let prefilter = rules.prefilter();
        let ends = &mut seen.ends;
        macro_rules! asking {
            ($waiting:expr, $ends:expr, $stream:expr, $unknown:expr) => {
                Asking {
                    rules,
                    rates: round.rates,
                    second: (round.now / 1_000_000_000) as u32,
                    ends: $ends,
                    facts: &seen.facts,
                    tools: round.tools,
                    notes,
                    waiting: $waiting,
                    lists: &mut *lists,
                    fate,
                    stream: $stream,
                    unknown: $unknown,
                    by_packet: false,
                }
            };
        }
        macro_rules! noting {
            () => {
                Noting {
                    wanted: round.settings.wanted,
                    pool: &mut self.transactions,
                    pending: &mut *pending,
                    flow: story.number,
                    tell: &mut *round.tell,
                }
            };
        }
        // The other side's message has ended: what waited for its end is asked a last time.
        if !bytes.is_empty() && *turn != Some(direction) {
            *turn = Some(direction);
            if !others.is_over(lists) {
                let view = message(&self.streams, stream, direction.opposite(), true);
                let turned = ends.turned();
                let sent = known::stream(&self.streams, stream, direction.opposite());
                let mut asking = asking!(others, &turned, Some(sent), false);
                let ended = Known {
                    payload: view,
                    slot: parser.slot(turned.toward, &self.store),
                    unknown: false,
                    ended: true,
                };
                asking.ask_waiting(None, &ended);
                others.turn(lists);
            }
            mine.turn(lists);
        }
        let payload = message(&self.streams, stream, direction, ends_stream);
        // Where it is more than the message.
        let sent = known::stream(&self.streams, stream, direction);
        let before = (sent.bytes.len() > payload.bytes.len()).then_some(sent);
        if !bytes.is_empty() && *fate == Fate::Open {
            let (hosts, port) = hosts(ends, story.number, round.now);
            let of = (toward, &hosts, port);
            parser.bytes(of, bytes, &mut self.store, service, &mut |said: Said<'_>, known| {
                let (slot, piece) = match said {
                    Said::Bytes(toward, bytes) => return noting!().bytes(toward, bytes, known),
                    Said::Piece(slot, piece) => (slot, piece),
                };
                noting!().piece(slot, &piece, known);
                if *fate == Fate::Open {
                    ends.service = known;
                    piece_of_message(&mut asking!(mine, ends, before, false), payload, slot, &piece);
                }
            });
            ends.service = *service;
        }
        let unknown = parser.is_unknown();
        if ends_stream && *fate == Fate::Open {
            parser.close(toward, &mut self.store, &mut |said: Said<'_>, known| {
                let Said::Piece(slot, piece) = said else { return };
                noting!().piece(slot, &piece, known);
                if *fate == Fate::Open {
                    piece_of_message(&mut asking!(mine, ends, before, false), payload, slot, &piece);
                }
            });
        }
        if (!bytes.is_empty() || ends_stream) && *fate == Fate::Open {
            let known = Known {
                payload,
                slot: parser.slot(toward, &self.store),
                unknown: unknown && !ends_stream,
                ended: false,
            };
            if let Some(group) = prefilter.group(Class::Stream(toward))
                && !bytes.is_empty()
            {
                let (scratch, sink) = Asking::found(round.tools, group);
                if !scans.scan(states, place, (bytes, payload.bytes), scratch, sink) {
                    self.counters.unsearched += 1;
                    self.met.add_where(true, Exception::NoMemory);
                }
            }
            let mut asking = asking!(mine, ends, before, unknown);
            // At the end of a stream nothing is left to come in any buffer.
            asking.ask_waiting((!ends_stream).then_some(Buffer::Payload), &known);
            asking.ask_found(&known);
            asking.ask_of_ports(rules.of_stream(toward), &of_ports[place].0, &known);
            asking.ask_blocked(&known);
            self.counters.searched += bytes.len() as u64;
            *searched += bytes.len() as u64;
        }
        if *fate == Fate::Open && matches!(piece, Piece::Own { .. }) {
            let packet = View {
                bytes: seen.segment.get(seen.payload..).unwrap_or_default(),
                base: 0,
                complete: true,
                ends_here: true,
            };
            let known = Known {
                payload: packet,
                slot: None,
                unknown: false,
                ended: false,
            };
            let mut asking = asking!(mine, ends, None, false);
            by_packet(&mut asking, &known, Class::Packet, &of_ports[place].1);
        }
        let deep = round.settings.depth > 0 && *searched >= round.settings.depth;
        let clean = deep && mine.is_over(lists) && others.is_over(lists);
        self.counters.untold = self.transactions.lost;
        self.counters.reopened = self.books.reopened;
        *credit = self.work.end(begun);
        self.counters.worked += u64::from(begun.units() - credit.units());
        // Decoders say so themselves.
        if self.work.is_spent() && self.store.anomalies.of(Anomaly::WorkExceeded) == exceeded {
            self.store.anomalies.add(Anomaly::WorkExceeded);
        }
        self.met.add_where(self.work.is_spent(), Exception::Work);
        if let Some(anomalies) = self.store.anomalies.take_met() {
            self.met.add_all(anomalies.filter_map(Anomaly::exception));
        }
        match *fate {
            Fate::Open if clean => Verdict::Leave(None),
            Fate::Open if round.settings.leave_encrypted && parser.is_encrypted() => {
                Verdict::Leave(Some(Skipped::Encrypted))
            }
            _ => Verdict::Pass,
        }
    }

    fn datagram(&mut self, handle: FlowHandle, mut seen: Seen<'_>, round: &mut Round<'_>) -> Verdict {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        if flow.standing != Standing::Assured
            && let Err(exception) = self.stand(handle, &seen)
        {
            self.streams.count(exception);
            return self.exception(handle, exception, round.settings);
        }
        let Some((flow, place)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let book = self.books.of(flow, place, round.now);
        let (rules, _, notes, lists) = book.parts(place);
        let Flow {
            parser,
            waiting,
            fate,
            service,
            searched,
            of_ports,
            story,
            pending,
            credit,
            source,
            ..
        } = flow;
        let bytes = seen.segment.get(seen.payload..).unwrap_or_default();
        let begun = self.work.begin(*credit, bytes.len());
        self.store.take_for(*source);
        lists.take_for(*source);
        let waiting = &mut waiting[seen.direction as usize];
        // Each datagram is a message of its own.
        waiting.begin(lists);
        seen.ends.service = *service;
        let payload = View {
            bytes,
            base: 0,
            complete: true,
            ends_here: true,
        };
        let ends = &mut seen.ends;
        macro_rules! asking {
            () => {
                Asking {
                    rules,
                    rates: round.rates,
                    second: (round.now / 1_000_000_000) as u32,
                    ends,
                    facts: &seen.facts,
                    tools: round.tools,
                    notes,
                    waiting,
                    lists: &mut *lists,
                    fate,
                    stream: None,
                    unknown: false,
                    by_packet: false,
                }
            };
        }
        macro_rules! noting {
            () => {
                Noting {
                    wanted: round.settings.wanted,
                    pool: &mut self.transactions,
                    pending: &mut *pending,
                    flow: story.number,
                    tell: &mut *round.tell,
                }
            };
        }
        parser.datagram(
            (ends.toward, ends.ports),
            bytes,
            &mut self.store,
            service,
            &mut |said: Said<'_>, known| {
                let Said::Piece(slot, piece) = said else { return };
                ends.service = known;
                let mut asking = asking!();
                piece_of_message(&mut asking, payload, slot, &piece);
            },
        );
        ends.service = *service;
        noting!().datagram(ends.toward, bytes, *service);
        if *fate == Fate::Open {
            let known = Known {
                payload,
                slot: None,
                unknown: false,
                ended: false,
            };
            let mut asking = asking!();
            by_packet(
                &mut asking,
                &known,
                Class::Datagram,
                &of_ports[seen.direction as usize].1,
            );
        }
        self.counters.searched += bytes.len() as u64;
        *searched += bytes.len() as u64;
        self.counters.untold = self.transactions.lost;
        self.counters.reopened = self.books.reopened;
        *credit = self.work.end(begun);
        self.counters.worked += u64::from(begun.units() - credit.units());
        if self.work.is_spent() {
            self.store.anomalies.add(Anomaly::WorkExceeded);
            self.met.add_where(true, Exception::Work);
        }
        if let Some(anomalies) = self.store.anomalies.take_met() {
            self.met.add_all(anomalies.filter_map(Anomaly::exception));
        }
        match *fate {
            Fate::Open if round.settings.depth > 0 && *searched >= round.settings.depth => Verdict::Leave(None),
            _ => Verdict::Pass,
        }
    }
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// Of the packet, by places in its segment.
    Own { from: usize, to: usize, ends: bool },
    /// The last ones of the direction's view: they had come before the packet, ahead of a gap, or are the rest of it.
    Kept { length: usize, ends: bool },
}

impl Piece {
    /// A packet that brings nothing in order.
    const NOTHING: Self = Self::Own {
        from: 0,
        to: 0,
        ends: false,
    };
}

/// The hosts of a flow, and the server's port.
fn hosts(ends: &Ends, flow: u64, now: u64) -> (Hosts, u16) {
    let [from, to] = ends.ports;
    let (client, server, port) = match ends.toward {
        Toward::Server => (ends.source, ends.destination, to),
        Toward::Client => (ends.destination, ends.source, from),
    };
    let second = (now / 1_000_000_000) as u32;
    let hosts = Hosts {
        client,
        server,
        flow,
        second,
    };
    (hosts, port)
}

/// Whom a direction leads to: forward is from who called.
fn toward(direction: Direction) -> Toward {
    match direction {
        Direction::Forward => Toward::Server,
        Direction::Reverse => Toward::Client,
    }
}
