//! Tests that a receiver can assemble only the inspected bytes, for any segments in any order and with any differences
//! between copies.
//!
//! The oracle does not track streams. The oracle records every forwarded segment byte by byte. A receiver can use any
//! copy of a byte that was forwarded before the receiver acknowledged the byte, so all these copies must be equal to
//! the inspected byte. Every receiver then gets the inspected bytes, regardless of its preference among copies. As a
//! check of the oracle itself, four receivers with different preferences assemble the delivered segments.

use std::collections::BTreeMap;

use crate::rig::{BLOCK, Rig, data, plan, segment};
use proptest::prelude::*;
use sluice_inspect::stream::{SegmentKind, StreamCapacity};
use sluice_wire::key::Direction::{Forward, Reverse};
use sluice_wire::tcp::{self, flag};

/// Maximum length of the stream in bytes.
const LONGEST: usize = 400;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    /// Send a segment of the stream. Start and length are fractions of the stream; without a start, the segment starts
    /// at the end of the last segment. The other fields are the value with which bytes are changed, the interval
    /// between changed bytes, and whether the segment has a FIN.
    Segment {
        at: Where,
        length: usize,
        change: Option<(u8, usize)>,
        fin: bool,
    },
    /// Repeats the segment sent `back` segments before, optionally with a change.
    Again { back: usize, change: Option<(u8, usize)> },
    /// The most recent forwarded segment, or an earlier one, reaches its receiver.
    Arrive { which: usize },
    /// A forwarded segment is lost.
    Lose { which: usize },
    /// The receiver acknowledges the received bytes.
    Acknowledge,
    /// The receiver acknowledges more bytes than it can have received.
    AcknowledgeAhead(u32),
    /// A SYN without data, or a reset, with an arbitrary sequence number.
    Stray { sequence: u32, flags: u8 },
}

#[derive(Clone, Debug)]
enum Where {
    Onward,
    At(usize),
}

fn change() -> impl Strategy<Value = Option<(u8, usize)>> {
    prop_oneof![2 => Just(None), 1 => (1u8.., 1usize..12).prop_map(Some)]
}

fn event() -> impl Strategy<Value = Event> {
    let at = prop_oneof![3 => Just(Where::Onward), 2 => (0..LONGEST).prop_map(Where::At)];
    let length = prop_oneof![4 => 1usize..40, 1 => 40usize..150, 1 => Just(0)];
    prop_oneof![
        12 => (at, length, change(), prop::bool::weighted(0.05))
            .prop_map(|(at, length, change, fin)| Event::Segment { at, length, change, fin }),
        6 => (0usize..12, change()).prop_map(|(back, change)| Event::Again { back, change }),
        6 => (0usize..6).prop_map(|which| Event::Arrive { which }),
        1 => (0usize..6).prop_map(|which| Event::Lose { which }),
        4 => Just(Event::Acknowledge),
        1 => (0u32..1000).prop_map(Event::AcknowledgeAhead),
        1 => (any::<u32>(), prop_oneof![Just(flag::SYN), Just(flag::RST)])
            .prop_map(|(sequence, flags)| Event::Stray { sequence, flags }),
    ]
}

/// The copy of a byte that a receiver keeps while the byte is not in order.
#[derive(Clone, Copy, Debug)]
enum Prefers {
    First,
    Last,
    /// Keep the bytes of the segment with the lower start (BSD).
    Lower,
    /// Keep the bytes of the segment with the higher start. If the starts are equal, keep those of the later segment (Linux).
    Higher,
}

/// The bytes of a receiver, each with the start of the segment that contained the byte.
struct Receiver {
    prefers: Prefers,
    bytes: Vec<Option<(u8, i64)>>,
    end: Option<i64>,
    /// Number of bytes in order. Later copies of bytes in order are ignored.
    ordered: usize,
}

impl Receiver {
    fn take(&mut self, at: i64, data: &[u8], fin: bool) {
        for (place, byte) in (at..).zip(data) {
            let place = place as usize;
            if place < self.ordered || place >= self.bytes.len() {
                continue;
            }
            let replaces = match (self.prefers, self.bytes[place]) {
                (_, None) => true,
                (Prefers::First, _) => false,
                (Prefers::Last, _) => true,
                (Prefers::Lower, Some((_, began))) => at < began,
                (Prefers::Higher, Some((_, began))) => at >= began,
            };
            if replaces {
                self.bytes[place] = Some((*byte, at));
            }
        }
        let end = at + data.len() as i64;
        if fin && end >= self.ordered as i64 && self.end.is_none() {
            self.end = Some(end);
        }
        while self.end != Some(self.ordered as i64) && matches!(self.bytes.get(self.ordered), Some(Some(_))) {
            self.ordered += 1;
        }
    }

    fn assembled(&self) -> Vec<u8> {
        self.bytes[..self.ordered]
            .iter()
            .map(|byte| byte.expect("in order").0)
            .collect()
    }
}

struct World {
    rig: Rig,
    initial: u32,
    content: Vec<u8>,
    onward: usize,
    sent: Vec<(usize, Vec<u8>, bool)>,
    /// Segments that were forwarded and have not arrived yet.
    under_way: Vec<(i64, Vec<u8>, bool)>,
    /// Number of forwarded segments that the oracle has checked.
    seen: usize,
    receivers: Vec<Receiver>,
    acknowledged: i64,
    /// First forwarded copy of each byte.
    copies: BTreeMap<i64, u8>,
    end: Option<i64>,
}

impl World {
    fn new(plan: &StreamCapacity, initial: u32, content: Vec<u8>) -> Self {
        let mut rig = Rig::new(plan);
        rig.send(Forward, segment(initial, 0, flag::SYN, b""));
        rig.send(
            Reverse,
            segment(77, initial.wrapping_add(1), flag::SYN | flag::ACK, b""),
        );
        let receivers = [Prefers::First, Prefers::Last, Prefers::Lower, Prefers::Higher].map(|prefers| Receiver {
            prefers,
            bytes: vec![None; 2 * LONGEST],
            end: None,
            ordered: 0,
        });
        Self {
            seen: rig.passed.len(),
            rig,
            initial,
            content,
            onward: 0,
            sent: vec![],
            under_way: vec![],
            receivers: receivers.into(),
            acknowledged: 0,
            copies: BTreeMap::new(),
            end: None,
        }
    }

    fn sequence(&self, offset: usize) -> u32 {
        self.initial.wrapping_add(1).wrapping_add(offset as u32)
    }

    fn send(&mut self, at: usize, mut bytes: Vec<u8>, change: Option<(u8, usize)>, fin: bool) {
        if let Some((change, every)) = change {
            bytes.iter_mut().step_by(every).for_each(|byte| *byte ^= change);
        }
        self.sent.push((at, bytes.clone(), fin));
        let flags = flag::ACK | if fin { flag::FIN } else { 0 };
        let step = self.rig.send(Forward, segment(self.sequence(at), 78, flags, &bytes));
        if !matches!(step, SegmentKind::Exception(_)) {
            self.look();
        }
    }

    /// Checks every forwarded byte that its receiver does not ignore. The byte must be equal to its earlier copies and
    /// to the inspected byte.
    fn look(&mut self) {
        let inspected = &self.rig.inspected[Forward as usize];
        for (direction, segment) in &self.rig.passed[self.seen..] {
            if *direction != Forward || tcp::FLAGS.read(segment) & (flag::SYN | flag::RST) != 0 {
                continue;
            }
            let at = i64::from(tcp::SEQUENCE.read(segment).wrapping_sub(self.initial.wrapping_add(1)) as i32);
            let fin = tcp::FLAGS.read(segment) & flag::FIN != 0;
            for (place, byte) in (at..).zip(data(segment)) {
                if place >= self.acknowledged {
                    let first = *self.copies.entry(place).or_insert(*byte);
                    assert_eq!(first, *byte, "byte {place} of a segment from {at}");
                }
            }
            let end = at + data(segment).len() as i64;
            if fin && end >= self.acknowledged {
                assert_eq!(end, *self.end.get_or_insert(end), "where the stream ends");
            }
            self.under_way.push((at, data(segment).to_vec(), fin));
        }
        for (place, byte) in self
            .copies
            .range(..inspected.len() as i64)
            .filter(|(place, _)| **place >= 0)
        {
            assert_eq!(inspected[*place as usize], *byte, "byte {place} as it was inspected");
        }
        let last = self.copies.last_key_value().map_or(0, |(place, _)| place + 1);
        assert!(self.end.is_none_or(|end| end >= last && end >= inspected.len() as i64));
        self.seen = self.rig.passed.len();
    }

    fn happen(&mut self, event: &Event) {
        match event.clone() {
            Event::Segment {
                at,
                length,
                change,
                fin,
            } => {
                let at = match at {
                    Where::Onward => self.onward,
                    Where::At(at) => at.min(self.content.len()),
                };
                let end = (at + length).min(self.content.len());
                self.onward = end;
                let fin = fin || end == self.content.len();
                self.send(at, self.content[at..end].to_vec(), change, fin);
            }
            Event::Again { back, change } => {
                if let Some((at, bytes, fin)) = self.sent.iter().rev().nth(back).cloned() {
                    self.send(at, bytes, change, fin);
                }
            }
            Event::Arrive { which } => {
                if let Some(last) = self.under_way.len().checked_sub(1) {
                    self.arrive(last - which.min(last));
                }
            }
            Event::Lose { which } => {
                if let Some(last) = self.under_way.len().checked_sub(1) {
                    self.under_way.remove(last - which.min(last));
                }
            }
            Event::Acknowledge => {
                let receiver = &self.receivers[0];
                let end = usize::from(receiver.end == Some(receiver.ordered as i64));
                let acknowledgment = self.sequence(receiver.ordered + end);
                self.acknowledged = (receiver.ordered + end) as i64;
                self.rig.send(Reverse, segment(78, acknowledgment, flag::ACK, b""));
            }
            Event::AcknowledgeAhead(more) => {
                let inspected = self.rig.inspected[Forward as usize].len();
                let acknowledgment = self.sequence(inspected + 2 + more as usize);
                self.rig.send(Reverse, segment(78, acknowledgment, flag::ACK, b""));
            }
            Event::Stray { sequence, flags } => {
                self.rig.send(Forward, segment(sequence, 78, flags, b""));
            }
        }
        let (_, _, blocks) = self.rig.streams.used();
        assert!(blocks <= plan().share / BLOCK);
    }

    fn arrive(&mut self, which: usize) {
        let (at, bytes, fin) = self.under_way.remove(which);
        for receiver in &mut self.receivers {
            receiver.take(at, &bytes, fin);
        }
    }

    /// Delivers all segments, and checks that the data of every receiver is a prefix of the inspected bytes.
    fn end(mut self) {
        while !self.under_way.is_empty() {
            self.arrive(self.under_way.len() / 2);
        }
        let inspected = self.rig.inspected[Forward as usize].clone();
        for receiver in &self.receivers {
            let assembled = receiver.assembled();
            assert!(inspected.starts_with(&assembled), "{:?}", receiver.prefers);
            assert_eq!(self.receivers[0].ordered, receiver.ordered);
        }
        self.rig.close();
    }
}

/// Initial sequence numbers near the wrap-around and far from it.
fn initial() -> impl Strategy<Value = u32> {
    prop_oneof![(0u32..600).prop_map(|back| 0u32.wrapping_sub(back)), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stream_of_any_segments_is_assembled_as_it_was_inspected(
        initial in initial(),
        content in prop::collection::vec(any::<u8>(), 1..LONGEST),
        window in prop_oneof![Just(1usize), Just(32), Just(100), Just(1000)],
        events in prop::collection::vec(event(), 1..120),
    ) {
        let plan = StreamCapacity { window, ..plan() };
        let mut world = World::new(&plan, initial, content);
        events.iter().for_each(|event| world.happen(event));
        world.end();
    }

    /// The stream is retransmitted, with other events in between, until it has arrived completely. Inspection must not
    /// block an honest sender.
    #[test]
    fn stream_sent_again_in_order_arrives_whole(
        initial in initial(),
        content in prop::collection::vec(any::<u8>(), 1..LONGEST),
        cuts in prop::collection::vec(1usize..60, 1..40),
        order in any::<u64>(),
    ) {
        let mut world = World::new(&plan(), initial, content.clone());
        let mut segments = vec![];
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            if at >= content.len() {
                break;
            }
            let end = (at + cut).min(content.len());
            segments.push((at, end));
            at = end;
        }
        let count = segments.len();
        // The segments are sent first in a pseudo-random order, then in sequence until all of them have passed.
        let mut shuffled = segments.clone();
        shuffled.sort_by_key(|(at, _)| (*at as u64 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for (at, end) in shuffled.into_iter().chain(segments) {
            world.send(at, content[at..end].to_vec(), None, end == content.len());
        }
        prop_assert_eq!(&content, &world.rig.inspected[Forward as usize]);
        let (passed, kept) = (world.rig.passed.len(), world.rig.streams.counters().ahead);
        prop_assert!(passed >= 2 * count && (kept == 0 || world.rig.kept > 0));
        world.end();
    }
}
