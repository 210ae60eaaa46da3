//! Processes the streams of a connection as a gateway does, and records the forwarded segments and the inspected bytes.
#![allow(dead_code)]

pub mod cases;

use sluice_inspect::stream::{Exception, SegmentKind, StreamCapacity, StreamHandle, Streams};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::checksum;
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, flag};

/// Size in bytes of a block of stream memory.
pub const BLOCK: usize = 2048;

/// Capacities so small that every limit is reached.
pub fn plan() -> StreamCapacity {
    StreamCapacity {
        connections: 3,
        windows: 4,
        window: 32,
        reassembly: 7 * BLOCK,
        share: 5 * BLOCK,
        reach: 100_000,
    }
}

pub fn streams(plan: &StreamCapacity) -> Streams<'static> {
    let memory = vec![Line([u64::MAX; 8]); plan.lines()].leak();
    Streams::new(memory, plan, Hasher::new([1, 2])).expect("the plan fits")
}

/// A segment with a TCP header of 24 bytes and data. The window of the segment is 65,535, and a SYN offers no window
/// scale. The checksum is valid over a pseudo-header of zeros.
pub fn segment(sequence: u32, acknowledgment: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![1; tcp::LENGTH + 4];
    tcp::SEQUENCE.write(&mut segment, sequence);
    tcp::ACKNOWLEDGMENT.write(&mut segment, acknowledgment);
    tcp::DATA_OFFSET.write(&mut segment, 6 << 4);
    tcp::FLAGS.write(&mut segment, flags);
    tcp::URGENT.write(&mut segment, if flags & flag::URG != 0 { 7 } else { 0 });
    tcp::WINDOW.write(&mut segment, u16::MAX);
    if flags & flag::SYN != 0 {
        segment[tcp::LENGTH..].copy_from_slice(&[tcp::option::WINDOW_SCALE, 3, 0, 1]);
    }
    segment.extend_from_slice(data);
    summed(segment)
}

/// Recomputes the checksum.
pub fn summed(mut segment: Vec<u8>) -> Vec<u8> {
    tcp::CHECKSUM.write(&mut segment, 0);
    let sum = checksum::checksum(&segment);
    tcp::CHECKSUM.write(&mut segment, sum);
    segment
}

/// The data of a segment built by [`segment`].
pub fn data(segment: &[u8]) -> &[u8] {
    &segment[tcp::LENGTH + 4..]
}

/// A connection, with a record of the forwarded segments.
pub struct Rig {
    pub streams: Streams<'static>,
    pub handle: StreamHandle,
    /// Inspected bytes of each direction since the last start of its stream.
    pub inspected: [Vec<u8>; 2],
    /// Forwarded segments, in order.
    pub passed: Vec<(Direction, Vec<u8>)>,
    /// Number of inspected bytes that were queued beyond a gap.
    pub kept: usize,
}

impl Rig {
    pub fn new(plan: &StreamCapacity) -> Self {
        let mut streams = streams(plan);
        let handle = streams.open().expect("there is room");
        Self {
            streams,
            handle,
            inspected: [vec![], vec![]],
            passed: vec![],
            kept: 0,
        }
    }

    /// Processes a segment that arrives from its sender's side, and forwards or drops it.
    pub fn send(&mut self, direction: Direction, segment: Vec<u8>) -> SegmentKind {
        self.send_from(direction, true, segment)
    }

    /// Processes a segment. `own` means that the segment arrived from its sender's side.
    pub fn send_from(&mut self, direction: Direction, own: bool, mut segment: Vec<u8>) -> SegmentKind {
        let step = self.streams.segment(self.handle, direction, own, &mut segment);
        assert_eq!(0xffff, checksum::sum(&segment), "the checksum is right after {step:?}");
        match step {
            SegmentKind::InOrder { from, to, offset, .. } => {
                let inspected = &mut self.inspected[direction as usize];
                if offset == 0 {
                    inspected.clear();
                }
                inspected.extend_from_slice(&segment[from..to]);
                self.check_view(direction);
                self.take_kept(direction);
                self.passed.push((direction, segment));
            }
            SegmentKind::Retransmission { .. } | SegmentKind::OutOfOrder { .. } => {
                self.passed.push((direction, segment))
            }
            SegmentKind::Exception(_) => {}
        }
        step
    }

    /// Inspects queued bytes that are in order after a gap was filled.
    pub fn take_kept(&mut self, direction: Direction) {
        while let Some(kept) = self.streams.next_queued(self.handle, direction) {
            assert!(kept.length > 0);
            self.kept += kept.length;
            let view = self.streams.view(self.handle, direction).bytes;
            self.inspected[direction as usize].extend_from_slice(&view[view.len() - kept.length..]);
            self.check_view(direction);
        }
    }

    /// Checks that the view consists of the last inspected bytes.
    fn check_view(&self, direction: Direction) {
        let view = self.streams.view(self.handle, direction);
        let inspected = &self.inspected[direction as usize];
        assert!(inspected.ends_with(view.bytes), "the view ends what was inspected");
        if self.streams.counters().skipped == 0 {
            assert_eq!(inspected.len(), view.offset as usize + view.bytes.len());
            assert!(view.message as usize <= inspected.len());
        }
    }

    /// Closes the connection, and checks that all memory is free.
    pub fn close(&mut self) {
        self.streams.close(self.handle);
        assert_eq!((0, 0, 0), self.streams.used());
        let mut late = segment(1, 1, flag::ACK, b"late");
        let step = self.streams.segment(self.handle, Direction::Forward, true, &mut late);
        assert_eq!(SegmentKind::Exception(Exception::Closed), step);
    }
}
