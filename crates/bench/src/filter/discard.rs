//! The setup of P1: packets are received, matched and discarded, and the packet rate is measured.
//!
//! Frames pass through a DPDK ring; each frame is written 4,096 frames before it is received. The measured time covers
//! the reception of a burst, parsing, the lookup and the release of the burst's buffers. Writing and sending are
//! excluded, because P1's senders are separate machines.

use std::hint::black_box;

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_engine::packet::io::{BURST_BUFFERS, PacketIo, Packets};
use sluice_filter::{CachedTrie, CutTree, Field, Header, Linear, Matcher, Trie};
use sluice_wire::Checksums;

use super::lists::{self, MOST, PROBES};
use super::timing::{BATCH, Costs, SECONDS, check, sized};
use super::trace_file::of_frame;
use super::traces::Traffic;
use super::{Failure, Name, Plan, sets::Set};
use crate::rig::frames::{HOST_MAC, INSIDE_MAC, Written};
use crate::rig::{self, LAG, Source, slots};
use crate::rows::{Row, Run};

/// Length of each list of recently used intervals.
const LIST: u16 = 11;

/// Measures all matchers of P1 and the default matcher on a rule set.
pub fn run(run: &mut Run<'_>, plan: &Plan, set: &Set, traffic: &Traffic) -> Result<(), Failure> {
    let mut receiver = Receiver {
        source: rig::looped(rig::start(1)?, 0)?,
        traffic,
        next: 0,
    };
    receiver.fill(LAG);
    let outcome = receiver.see().and_then(|()| matchers(run, plan, set, &mut receiver));
    receiver.source.close();
    outcome
}

/// Runs the matchers in turn, so that disturbance by other processes affects all of them.
fn matchers(run: &mut Run<'_>, plan: &Plan, set: &Set, receiver: &mut Receiver<'_>) -> Result<(), Failure> {
    let asks = plan.asks(Name::Trie) || plan.asks(Name::CachedTrie);
    let trie = asks.then(|| Trie::new(&set.rules, MOST)).transpose()?;
    let with_lists = |probe| trie.clone().map(|trie| CachedTrie::new(trie, LIST, probe));
    let traffic = receiver.traffic;
    let mut linear = Asked::new(plan.asks(Name::Linear).then(|| Linear::new(&set.rules)), set, traffic)?;
    let mut best = Asked::new(plan.asks(Name::Best).then(|| CutTree::new(&set.rules)), set, traffic)?;
    let mut cached = Vec::new();
    for (probe, _) in PROBES.into_iter().filter(|_| plan.asks(Name::CachedTrie)) {
        cached.push(Asked::new(with_lists(probe), set, traffic)?);
    }
    let mut trie = Asked::new(trie, set, traffic)?;
    for _ in 0..plan.runs {
        linear.turn(receiver);
        best.turn(receiver);
        trie.turn(receiver);
        cached.iter_mut().for_each(|cached| cached.turn(receiver));
    }
    for row in [linear.row("linear", set), best.row("best", set)] {
        row.into_iter().for_each(|row| (run.row)(row));
    }
    if plan.asks(Name::Trie) {
        trie.row("trie", set).into_iter().for_each(|row| (run.row)(row));
    }
    for (cached, (_, search)) in cached.iter().zip(PROBES) {
        if let (Some(row), Some((matcher, _))) = (cached.row("cached-trie", set), &cached.matcher) {
            let gain = lists::gain(matcher, &cached.costs, &trie.costs);
            let row = row.key("list_size", LIST).key("list_search", search);
            (run.row)(row.figure("gain_per_kb", &gain));
        }
    }
    Ok(())
}

/// A matcher, if selected, and its cost per packet.
struct Asked<'t, M: Matcher<u32>> {
    matcher: Option<(M, M::Cache)>,
    traffic: &'t Traffic,
    costs: Costs,
}

impl<'t, M: Matcher<u32>> Asked<'t, M> {
    /// Returns an error if the matcher finds wrong rules.
    fn new(matcher: Option<M>, set: &Set, traffic: &'t Traffic) -> Result<Self, Failure> {
        if let Some(matcher) = &matcher {
            check(matcher, set, traffic)?;
        }
        let matcher = matcher.map(|matcher| {
            let core = matcher.cache();
            (matcher, core)
        });
        Ok(Self {
            matcher,
            traffic,
            costs: Costs::default(),
        })
    }

    fn turn(&mut self, receiver: &mut Receiver<'_>) {
        if let Some((matcher, core)) = &mut self.matcher {
            receiver.one_more(&mut self.costs, matcher, core);
        }
    }

    fn row(&self, name: &str, set: &Set) -> Option<Row> {
        let (matcher, _) = self.matcher.as_ref()?;
        let row = super::row_of("receive-filter-discard", set, name, self.traffic);
        let bytes = matcher.bytes() + matcher.cache_bytes();
        Some(sized(self.costs.onto(row), bytes, set.rules.len()))
    }
}

/// A ring with frames.
struct Receiver<'t> {
    source: Source,
    traffic: &'t Traffic,
    /// Index of the header from which the next frame is written.
    next: usize,
}

impl Receiver<'_> {
    /// Writes `count` further frames, in the order of the trace.
    fn fill(&mut self, count: usize) {
        let (headers, next) = (&self.traffic.headers, &mut self.next);
        for _ in 0..count / BATCH {
            self.source.feed(&[(0, BATCH)], Checksums::Vouched, |_| {
                let header = &headers[*next];
                *next = (*next + 1) % headers.len();
                Some(written(header))
            });
        }
    }

    /// Checks that the headers in the first burst are those of the trace.
    fn see(&mut self) -> Result<(), Failure> {
        let mut came = Vec::new();
        self.source.drain(0, |frame| came.push(of_frame(frame)));
        let sent = self.traffic.headers.iter().map(|header| Some(*header));
        if came.len() != BATCH || !sent.take(BATCH).eq(came.iter().copied()) {
            return Err("frames came out of the ring with other headers than they were written of".into());
        }
        self.fill(BATCH);
        Ok(())
    }

    fn one_more<M: Matcher<u32>>(&mut self, costs: &mut Costs, matcher: &M, core: &mut M::Cache) {
        let most = (SECONDS * tsc::frequency() as f64) as u64;
        let (mut packets, mut ticks) = (0, 0);
        while ticks < most {
            let begin = tsc::now();
            packets += discard(&mut self.source, matcher, core);
            ticks += tsc::now() - begin;
            self.fill(BATCH);
        }
        costs.add(packets, ticks);
    }
}

/// Receive a burst, match it, and free its buffers.
#[inline(never)]
fn discard<M: Matcher<u32>>(source: &mut Source, matcher: &M, core: &mut M::Cache) -> u64 {
    let count = source.io.receive(0);
    let mut headers: ArrayVec<Header<u32>, BURST_BUFFERS> = ArrayVec::new();
    {
        let mut lent = Packets::new();
        source.io.packets(&mut lent);
        headers.extend(lent.iter().filter_map(|packet| of_frame(packet.bytes())));
    }
    let mut found = [None; BURST_BUFFERS];
    matcher.first_of_batch(core, &headers, &mut found);
    black_box(&found);
    source.io.free(&slots(0..count));
    source.io.end();
    headers.len() as u64
}

fn written(header: &Header<u32>) -> Written {
    let port = |field| header.get(field) as u16;
    Written {
        source: (header.source(), port(Field::SourcePort)),
        destination: (header.destination(), port(Field::DestinationPort)),
        tcp: header.get(Field::Protocol) == 6,
        flags: sluice_wire::tcp::flag::ACK,
        numbers: (2, 2),
        macs: (INSIDE_MAC, HOST_MAC),
        mark: 0,
    }
}
