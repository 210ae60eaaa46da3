//! A connection through streams, as a gateway would drive it: what passes, what was inspected, what is parked.
#![allow(dead_code)]

pub mod cases;

use std::collections::BTreeMap;

use sluice_inspect::stream::{Exception, Handle, Plan, Step, Streams};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::checksum;
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, flag};

/// Small enough that every bound is met.
pub fn plan() -> Plan {
    Plan {
        connections: 3,
        windows: 4,
        window: 32,
        digests: 4,
        holds: 8,
        held_segments: 6,
        held_bytes: 200,
        reach: 100_000,
        patience: 100,
        ..Plan::of(3)
    }
}

pub fn streams(plan: &Plan) -> Streams<'static> {
    let memory = vec![Line([u64::MAX; 8]); plan.lines()].leak();
    Streams::new(memory, plan, Hasher::new([1, 2])).expect("the plan fits")
}

/// A TCP header of 24 bytes and data. Its checksum is right over a pseudo-header of zeros.
pub fn segment(sequence: u32, acknowledgment: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![1; tcp::LENGTH + 4];
    tcp::SEQUENCE.write(&mut segment, sequence);
    tcp::ACKNOWLEDGMENT.write(&mut segment, acknowledgment);
    tcp::DATA_OFFSET.write(&mut segment, 6 << 4);
    tcp::FLAGS.write(&mut segment, flags);
    tcp::URGENT.write(&mut segment, if flags & flag::URG != 0 { 7 } else { 0 });
    segment.extend_from_slice(data);
    tcp::CHECKSUM.write(&mut segment, 0);
    let sum = checksum::checksum(&segment);
    tcp::CHECKSUM.write(&mut segment, sum);
    segment
}

/// The data of a segment of [`segment`].
pub fn data(segment: &[u8]) -> &[u8] {
    &segment[tcp::LENGTH + 4..]
}

/// One connection, and the gateway's part.
pub struct Rig {
    pub streams: Streams<'static>,
    pub handle: Handle,
    pub now: u64,
    /// What was inspected of each direction, since it began last.
    pub inspected: [Vec<u8>; 2],
    /// Segments that went on, in order.
    pub passed: Vec<(Direction, Vec<u8>)>,
    /// Parked segments by ticket.
    pub parked: BTreeMap<u32, Vec<u8>>,
    /// Tickets given so far.
    pub tickets: u32,
    /// Tickets that came back.
    pub returned: u32,
}

impl Rig {
    pub fn new(plan: &Plan) -> Self {
        let mut streams = streams(plan);
        let handle = streams.open().expect("there is room");
        Self {
            streams,
            handle,
            now: 0,
            inspected: [vec![], vec![]],
            passed: vec![],
            parked: BTreeMap::new(),
            tickets: 0,
            returned: 0,
        }
    }

    /// What a segment is, after which it has passed, was parked, or is dropped; and what follows in order has passed.
    pub fn send(&mut self, direction: Direction, mut segment: Vec<u8>) -> Step {
        let step = self.streams.segment(self.handle, direction, &mut segment);
        assert_eq!(0xffff, checksum::sum(&segment), "the checksum is right after {step:?}");
        match step {
            Step::Fresh { from, offset, .. } => {
                let inspected = &mut self.inspected[direction as usize];
                if offset == 0 {
                    inspected.clear();
                }
                inspected.extend_from_slice(&segment[from..]);
                self.check_view(direction);
                self.passed.push((direction, segment));
                self.drain(direction);
            }
            Step::Repeat { .. } => self.passed.push((direction, segment)),
            Step::Hold(ahead) => {
                self.tickets += 1;
                let ticket = self.tickets;
                assert!(self.streams.held(self.handle, direction, ahead, ticket, self.now));
                self.parked.insert(ticket, segment);
            }
            Step::Covered | Step::Exception(_) => {}
        }
        step
    }

    pub fn drain(&mut self, direction: Direction) {
        while let Some(ticket) = self.streams.next_held(self.handle, direction) {
            let segment = self.give_back(ticket);
            let step = self.send(direction, segment);
            assert!(!matches!(step, Step::Hold(_) | Step::Covered), "{step:?}");
        }
    }

    pub fn give_back(&mut self, ticket: u32) -> Vec<u8> {
        self.returned += 1;
        self.parked.remove(&ticket).expect("each ticket comes back once")
    }

    /// The view is the end of what was inspected.
    fn check_view(&self, direction: Direction) {
        let view = self.streams.view(self.handle, direction);
        let inspected = &self.inspected[direction as usize];
        assert!(inspected.ends_with(view.bytes), "the view ends what was inspected");
        if self.streams.counters().skipped == 0 {
            assert_eq!(inspected.len(), view.offset as usize + view.bytes.len());
            assert!(view.message as usize <= inspected.len());
        }
    }

    /// Close the connection: every ticket is back, every place is free.
    pub fn close(&mut self) {
        let mut tickets = vec![];
        self.streams.close(self.handle, |ticket| tickets.push(ticket));
        for ticket in tickets {
            self.give_back(ticket);
        }
        assert_eq!((self.tickets, 0), (self.returned, self.parked.len()));
        assert_eq!((0, 0, 0, 0), self.streams.used());
        let mut late = segment(1, 1, flag::ACK, b"late");
        let step = self.streams.segment(self.handle, Direction::Forward, &mut late);
        assert_eq!(Step::Exception(Exception::Closed), step);
    }
}
