//! Tests of single ownership with a fake buffer source, which tracks the location of every buffer.
//!
//! Each buffer is a separate allocation, and its return frees the allocation. Thus Miri detects errors that the fake
//! source can't detect: `cargo +nightly miri test -p sluice-dpdk --test ownership`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use arrayvec::ArrayVec;
use proptest::prelude::*;
use sluice_dpdk::buffers::{Buffer, BufferMemory, IncomingBuffers, RawBuffers};
use sluice_dpdk::burst_buffers::BurstBuffers;
use sluice_engine::packet::io::{
    BURST_BUFFERS, BURST_SIZE, BufferIndex, HEAD, Handover, Heads, NoteWords, PacketIo, Packets, Parked, ReceiveError,
};
use sluice_wire::{Checksums, Window};

const ROOM: usize = 256;

/// Buffers of the fake source by address, and the results that the test has chosen for the next calls of the source.
#[derive(Default)]
struct Ledger {
    /// Delivered buffers that were not returned, each with its serial number and its window at delivery. The buffer also
    /// contains the serial number.
    out: HashMap<usize, (u32, Window)>,
    serial: u32,
    limit: usize,
    sent: Vec<(u32, Window)>,
    freed: u64,
    /// Buffers in the ring to another worker.
    ring: VecDeque<(Buffer, Window, NoteWords)>,
    ring_room: usize,
    /// Number of frames that a receive call delivers.
    come: usize,
    /// Of each sequence of this many received frames, one frame is unusable. 0 means that all frames are usable.
    faulty: usize,
    /// Number of frames that a transmit call accepts.
    take: usize,
}

// SAFETY: the pointers refer to buffers that only the ledger's ring holds.
unsafe impl Send for Ledger {}

/// A source whose results the test chooses.
struct Fake(Arc<Mutex<Ledger>>);

fn layout() -> Layout {
    Layout::from_size_align(ROOM, 8).expect("a layout")
}

impl Ledger {
    fn give(&mut self, coming: &mut IncomingBuffers<'_>, at: usize, length: u16) -> bool {
        if self.out.len() == self.limit {
            return false;
        }
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout()) };
        assert!(!start.is_null(), "the test has memory");
        self.serial += 1;
        let window = Window {
            start: 64,
            length,
            checksums: Checksums::Vouched,
            changed: false,
        };
        assert_eq!(
            None,
            self.out.insert(start as usize, (self.serial, window)),
            "a buffer was given that is out"
        );
        // SAFETY: the four bytes at offset 64 lie in the 256 bytes just allocated.
        unsafe { start.add(64).cast::<u32>().write_unaligned(self.serial) };
        coming.buffers[at] = Buffer(start);
        coming.data_rooms[at] = BufferMemory {
            start,
            length: ROOM as u16,
            fault: 0,
        };
        coming.windows[at] = window;
        true
    }

    fn back(&mut self, buffer: Buffer) -> (u32, Window) {
        let delivered = self
            .out
            .remove(&(buffer.0 as usize))
            .expect("a buffer came back twice, or was never given");
        // SAFETY: the buffer was delivered, so it is allocated. The buffer has no owner now.
        unsafe { dealloc(buffer.0, layout()) };
        delivered
    }
}

impl Fake {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().expect("the ledger")
    }
}

// SAFETY: each buffer is delivered once between `give` and `back`, and its memory is a separate allocation.
unsafe impl RawBuffers for Fake {
    fn ports(&self) -> usize {
        2
    }

    fn receive(&mut self, _port: u16, mut coming: IncomingBuffers<'_>, faults: &mut u64) -> usize {
        let mut ledger = self.ledger();
        let places = coming.buffers.len().min(ledger.come);
        for at in 0..places {
            if !ledger.give(&mut coming, at, 60) {
                return at;
            }
            if ledger.faulty != 0 && at % ledger.faulty == 0 {
                coming.data_rooms[at].fault = 1 + (at % 3) as u16;
                *faults |= 1 << at;
            }
        }
        places
    }

    unsafe fn transmit(&mut self, _port: u16, buffers: &mut [Buffer], windows: Option<&[Window]>) -> usize {
        assert!(windows.is_none_or(|windows| windows.len() == buffers.len()));
        let mut ledger = self.ledger();
        let taken = buffers.len().min(ledger.take);
        for (at, &buffer) in buffers.iter().enumerate().take(taken) {
            let (serial, delivered) = ledger.back(buffer);
            let window = windows.map_or(delivered, |windows| windows[at]);
            ledger.sent.push((serial, window));
        }
        taken
    }

    unsafe fn free(&mut self, buffers: &mut [Buffer]) {
        let mut ledger = self.ledger();
        for &buffer in buffers.iter() {
            ledger.back(buffer);
            ledger.freed += 1;
        }
    }

    fn allocate(&mut self, mut coming: IncomingBuffers<'_>) -> usize {
        let count = coming.buffers.len();
        let mut ledger = self.ledger();
        if ledger.out.len() + count > ledger.limit {
            return 0;
        }
        (0..count).for_each(|at| assert!(ledger.give(&mut coming, at, 0)));
        count
    }

    unsafe fn put(
        &mut self,
        _to: u16,
        buffers: &mut [Buffer],
        _rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize {
        let mut ledger = self.ledger();
        let taken = buffers.len().min(ledger.ring_room.saturating_sub(ledger.ring.len()));
        for ((&buffer, &window), &carried) in buffers.iter().zip(windows).zip(carried).take(taken) {
            ledger.ring.push_back((buffer, window, carried));
        }
        taken
    }

    fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize {
        let mut ledger = self.ledger();
        let count = coming.buffers.len().min(carried.len()).min(ledger.ring.len());
        let IncomingBuffers {
            buffers,
            data_rooms,
            windows,
        } = coming;
        let places = buffers.iter_mut().zip(data_rooms).zip(windows).zip(carried);
        for ((((buffer, data_room), window), carried), from_ring) in places.zip(ledger.ring.drain(..count)) {
            (*buffer, *window, *carried) = from_ring;
            *data_room = BufferMemory {
                start: buffer.0,
                length: ROOM as u16,
                fault: 0,
            };
        }
        count
    }
}

/// Steps of correct and incorrect use of a worker's burst buffers.
#[derive(Clone, Debug)]
enum Step {
    Receive { come: usize, faulty: usize },
    Allocate(usize),
    Transmit { slots: Vec<BufferIndex>, take: usize },
    Free(Vec<BufferIndex>),
    Write,
    WriteHeads(Vec<BufferIndex>),
    Park(BufferIndex),
    Unpark(usize),
    Release(usize),
    Forged(u32),
    HandOver { slots: Vec<BufferIndex>, ring_room: usize },
    TakeOver,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    // Generate arbitrary buffer indexes: repeated, out of order, never used and out of range.
    let slots = || prop::collection::vec(any::<BufferIndex>().prop_map(|slot| slot % 140), 0..40);
    prop_oneof![
        3 => (0..=BURST_SIZE, 0..5usize).prop_map(|(come, faulty)| Step::Receive { come, faulty }),
        1 => (0..BURST_BUFFERS + 9).prop_map(Step::Allocate),
        3 => (slots(), 0..40usize).prop_map(|(slots, take)| Step::Transmit { slots, take }),
        2 => slots().prop_map(Step::Free),
        2 => Just(Step::Write),
        1 => (0..BURST_BUFFERS as u8, 0..=BURST_SIZE as u8).prop_map(|(first, count)| Step::WriteHeads((first..first + count).collect())),
        2 => any::<BufferIndex>().prop_map(|slot| Step::Park(slot % 140)),
        1 => any::<usize>().prop_map(Step::Unpark),
        1 => any::<usize>().prop_map(Step::Release),
        1 => any::<u32>().prop_map(|handle| Step::Forged(handle % 0x2_0010)),
        2 => (slots(), 0..60usize).prop_map(|(slots, ring_room)| Step::HandOver { slots, ring_room }),
        1 => Just(Step::TakeOver),
        2 => Just(Step::End),
    ]
}

/// Burst buffers, with the ledger of their fake source.
struct Bench {
    ledger: Arc<Mutex<Ledger>>,
    hand: BurstBuffers<Fake>,
    parked: Vec<Parked>,
}

impl Bench {
    fn new(limit: usize, shelves: usize) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger {
            limit,
            ..Ledger::default()
        }));
        Self {
            ledger: ledger.clone(),
            hand: BurstBuffers::new(Fake(ledger), shelves),
            parked: Vec::new(),
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger.lock().expect("the ledger"));
    }

    fn do_step(&mut self, step: Step) {
        match step {
            Step::Receive { come, faulty } => {
                self.tell(|fake| (fake.come, fake.faulty) = (come, faulty));
                self.hand.receive(0);
            }
            Step::Allocate(count) => {
                self.hand.allocate(count);
            }
            Step::Transmit { slots, take } => {
                self.tell(|fake| fake.take = take);
                let before = self.hand.outstanding();
                let sent = self.hand.transmit(1, &slots);
                assert!(sent <= slots.len());
                assert_eq!(before, self.hand.outstanding() + sent);
            }
            Step::Free(slots) => self.hand.free(&slots),
            Step::Write => {
                let mut lent = Packets::new();
                self.hand.packets(&mut lent);
                for packet in &mut lent {
                    packet.grow_front(8);
                    packet.bytes_mut().fill(0xa5);
                    packet.set_len(packet.len() + 4);
                }
            }
            Step::WriteHeads(slots) => self.write_heads(&slots),
            Step::Park(slot) => self.parked.extend(self.hand.park(slot)),
            Step::Unpark(which) => {
                if !self.parked.is_empty() {
                    let parked = self.parked.swap_remove(which % self.parked.len());
                    if let Err(parked) = self.hand.unpark(parked) {
                        self.parked.push(parked);
                    }
                }
            }
            Step::Release(which) => {
                if !self.parked.is_empty() {
                    let parked = self.parked.swap_remove(which % self.parked.len());
                    self.hand.release(parked);
                }
            }
            Step::Forged(handle) => {
                // The call invalidates a guessed handle that is valid by chance.
                self.parked.retain(|parked| parked.0 != handle);
                self.hand.release(Parked(handle));
            }
            Step::HandOver { slots, ring_room } => {
                self.tell(|fake| fake.ring_room = ring_room);
                let carried: Vec<NoteWords> = slots.iter().map(|&slot| [u64::from(slot); 4]).collect();
                self.hand.hand_over(1, &slots, &carried);
            }
            Step::TakeOver => {
                let mut carried = ArrayVec::new();
                let count = self.hand.take_over(&mut carried);
                assert_eq!(count, carried.len());
            }
            Step::End => {
                self.hand.end();
                assert_eq!(0, self.hand.outstanding());
            }
        }
        let ledger = self.ledger.lock().expect("the ledger");
        assert_eq!(self.parked.len(), self.hand.parked());
        assert_eq!(
            ledger.out.len(),
            self.hand.outstanding() + self.hand.parked() + ledger.ring.len(),
            "each buffer that is out is in the hand, parked or in the ring"
        );
    }

    /// Write to all heads of these slots, and compare them with the packets. Only slots above all earlier ones have heads.
    fn write_heads(&mut self, slots: &[BufferIndex]) {
        let mut windows = [Window::default(); BURST_SIZE];
        let mut heads: Heads<'_> = [const { None }; BURST_SIZE];
        self.hand.heads(slots, &mut heads, &mut windows);
        let mut written = [false; BURST_SIZE];
        for ((head, written), mark) in heads.iter_mut().zip(&mut written).zip(0..) {
            if let Some(head) = head {
                head.fill(mark);
                *written = true;
            }
        }
        let mut lent = Packets::new();
        self.hand.packets(&mut lent);
        let mut next = 0;
        for (((&slot, written), window), mark) in slots.iter().zip(&mut written).zip(windows).zip(0..) {
            let packet = lent.get(usize::from(slot)).filter(|_| slot >= next);
            let head = packet.and_then(|packet| packet.head::<HEAD>());
            assert_eq!(head.is_some(), std::mem::take(written));
            if let (Some(packet), Some(head)) = (packet, head) {
                assert_eq!((packet.window(), &[mark; HEAD]), (window, head));
            }
            if packet.is_some() {
                next = slot + 1;
            }
        }
        assert_eq!([false; BURST_SIZE], written, "a head belongs to no packet");
    }

    /// Take the buffers out of the ring, drop the burst buffers, and count the returned buffers.
    fn finish(mut self) {
        loop {
            self.hand.end();
            let mut carried = ArrayVec::new();
            if self.hand.take_over(&mut carried) == 0 {
                break;
            }
        }
        drop(self.hand);
        assert_eq!(0, self.ledger.lock().expect("the ledger").out.len(), "nothing is out");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn hand_under_any_steps_neither_loses_nor_doubles_a_buffer(
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 8 } else { 80 }),
        limit in 0..400usize,
        shelves in 0..8usize,
    ) {
        let mut bench = Bench::new(limit, shelves);
        for step in steps {
            bench.do_step(step);
        }
        bench.finish();
    }
}

#[test]
fn transmit_that_is_refused_in_part_leaves_the_rest_with_their_windows() {
    let mut bench = Bench::new(64, 0);
    bench.do_step(Step::Receive { come: 4, faulty: 0 });
    bench.do_step(Step::Write);
    bench.tell(|fake| fake.take = 2);
    assert_eq!(2, bench.hand.transmit(1, &[3, 1, 0, 2]));
    let sent: Vec<_> = bench
        .ledger
        .lock()
        .expect("the ledger")
        .sent
        .iter()
        .map(|(serial, window)| (*serial, window.length))
        .collect();
    assert_eq!(vec![(4, 72), (2, 72)], sent);
    let mut lent = Packets::new();
    bench.hand.packets(&mut lent);
    assert_eq!(
        vec![72, 0, 72, 0],
        lent.iter().map(|packet| packet.len()).collect::<Vec<_>>()
    );
    drop(lent);
    bench.finish();
}

#[test]
fn slot_named_twice_is_freed_once() {
    let mut bench = Bench::new(64, 0);
    bench.do_step(Step::Receive { come: 3, faulty: 0 });
    bench.hand.free(&[1, 1, 2, 200, 1, 0]);
    assert_eq!(0, bench.hand.outstanding());
    assert_eq!(3, bench.ledger.lock().expect("the ledger").freed);
    bench.finish();
}

#[test]
fn frames_that_can_not_be_used_are_freed_and_counted_by_reason() {
    let mut bench = Bench::new(64, 0);
    bench.tell(|fake| (fake.come, fake.faulty) = (9, 2));
    assert_eq!(4, bench.hand.receive(1));
    let expected = [
        (ReceiveError::TooLongToLinearise, 2),
        (ReceiveError::Shared, 1),
        (ReceiveError::BadLength, 2),
    ];
    assert_eq!(expected, *bench.hand.refused(1));
    assert_eq!(0, bench.hand.refused(0)[0].1);
    bench.finish();
}

#[test]
fn buffers_forgotten_in_the_hand_are_freed_and_told_at_the_end() {
    let mut bench = Bench::new(64, 0);
    bench.do_step(Step::Receive { come: 5, faulty: 0 });
    bench.hand.free(&[2]);
    assert_eq!(4, bench.hand.end());
    bench.finish();
}

#[test]
fn parked_buffers_go_with_the_hand() {
    let mut bench = Bench::new(64, 4);
    bench.do_step(Step::Receive { come: 6, faulty: 0 });
    let parked: Vec<_> = (0..6).filter_map(|slot| bench.hand.park(slot)).collect();
    assert_eq!((4, 4, 2), (parked.len(), bench.hand.parked(), bench.hand.outstanding()));
    bench.finish();
}

#[test]
fn carried_words_come_with_their_packet() {
    let mut bench = Bench::new(64, 0);
    bench.do_step(Step::Receive { come: 3, faulty: 0 });
    bench.do_step(Step::HandOver {
        slots: vec![2, 0],
        ring_room: 64,
    });
    bench.hand.end();
    let mut carried = ArrayVec::new();
    assert_eq!(2, bench.hand.take_over(&mut carried));
    assert_eq!([[2; 4], [0; 4]], carried.as_slice());
    let mut lent = Packets::new();
    bench.hand.packets(&mut lent);
    assert_eq!(&3u32.to_ne_bytes(), &lent[0].bytes()[..4]);
    drop(lent);
    bench.finish();
}
