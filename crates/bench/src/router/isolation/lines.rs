//! Ports in memory with hosts behind them that send at a rate, on a clock that stands still while the hosts have the processor:
//! what a worker does not receive in time is lost, as at a card.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_engine::io::{
    BATCH, Carried, HAND, Handover, Lent, PacketIo, Parked, PortIndex, Refusal, Slot, WorkerIndex,
};
use sluice_wire::{Checksums, Packet, Window};

use crate::frames::histogram::Histogram;

/// Packets that a port's queue holds, as a card's.
const DEPTH: usize = 1_024;
/// Buffers: all others are used before one is again.
const BUFFERS: usize = 8_192;
/// Bytes before a frame.
const HEADROOM: usize = 128;
/// The bench sees nothing for longer than this only where the machine took the processor away: not a worker's time.
const STOLEN: u64 = 200_000;

static STOOD_STILL: AtomicU64 = AtomicU64::new(0);
static LAST_LOOK: AtomicU64 = AtomicU64::new(0);

/// Cycles of the clock of the worker.
pub fn cycles() -> u64 {
    let now = tsc::now();
    // One thread alone looks.
    let gap = now.wrapping_sub(LAST_LOOK.load(Ordering::Relaxed));
    LAST_LOOK.store(now, Ordering::Relaxed);
    if gap > STOLEN && gap < now {
        stand_still(gap);
    }
    now - STOOD_STILL.load(Ordering::Relaxed)
}

fn stand_still(cycles: u64) {
    STOOD_STILL.store(STOOD_STILL.load(Ordering::Relaxed) + cycles, Ordering::Relaxed);
}

/// A host: sends the same frame at even intervals.
#[derive(Clone, Debug)]
pub struct Host {
    /// The port that it sends to.
    pub port: usize,
    /// Cycles between two packets; none where it is silent.
    pub each: Option<f64>,
    /// Frames that it sends in turn.
    pub frames: Vec<Vec<u8>>,
}

/// What became of a host's packets.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Sent by the host.
    pub packets: u64,
    /// Not received in time.
    pub missed: u64,
    /// Let through.
    pub passed: u64,
    /// Cycles from one end to the other.
    pub latency: Histogram,
}

struct Sending {
    host: Host,
    next: f64,
    turn: usize,
}

struct Buffer {
    room: [u8; 256],
    window: Window,
    host: usize,
    arrived: u64,
}

/// The far side: read it between runs.
pub type Tallies = Arc<Mutex<Vec<Tally>>>;

/// A worker's ports.
pub struct Lines {
    sending: Vec<Sending>,
    queues: Vec<VecDeque<(usize, u64)>>,
    hand: ArrayVec<Option<Box<Buffer>>, HAND>,
    free: VecDeque<Box<Buffer>>,
    nothing: [Window; HAND],
    tallies: Tallies,
}

impl Lines {
    /// So many ports, and the hosts behind them.
    pub fn new(ports: usize, hosts: Vec<Host>) -> (Self, Tallies) {
        let start = cycles() as f64;
        let tallies: Tallies = Arc::new(Mutex::new(vec![Tally::default(); hosts.len()]));
        let buffer = || Buffer {
            room: [0; 256],
            window: Window::default(),
            host: usize::MAX,
            arrived: 0,
        };
        let sending = |host: Host| Sending {
            next: start,
            turn: 0,
            host,
        };
        let lines = Self {
            sending: hosts.into_iter().map(sending).collect(),
            queues: vec![VecDeque::with_capacity(DEPTH); ports],
            hand: ArrayVec::new(),
            free: (0..BUFFERS).map(|_| Box::new(buffer())).collect(),
            nothing: [Window::default(); HAND],
            tallies: tallies.clone(),
        };
        (lines, tallies)
    }

    /// What hosts have sent to a port until now, in the order in which it came.
    fn arrive(&mut self, port: usize, now: f64, tallies: &mut [Tally]) {
        loop {
            let due = self
                .sending
                .iter_mut()
                .enumerate()
                .filter(|(_, one)| one.host.port == port && one.host.each.is_some() && one.next <= now);
            let Some((number, one)) = due.min_by(|one, other| one.1.next.total_cmp(&other.1.next)) else {
                return;
            };
            let at = one.next;
            one.next += one.host.each.unwrap_or(f64::INFINITY);
            tallies[number].packets += 1;
            match self.queues[port].len() < DEPTH {
                true => self.queues[port].push_back((number, at as u64)),
                false => tallies[number].missed += 1,
            }
        }
    }
}

impl PacketIo for Lines {
    fn receive(&mut self, port: PortIndex) -> usize {
        let now = cycles();
        let tallies = self.tallies.clone();
        let mut tallies = tallies.lock().unwrap_or_else(PoisonError::into_inner);
        self.arrive(usize::from(port), now as f64, &mut tallies);
        let Some(queue) = self.queues.get_mut(usize::from(port)) else {
            return 0;
        };
        let count = queue.len().min(BATCH).min(self.hand.remaining_capacity());
        for (number, arrived) in queue.drain(..count) {
            let (Some(mut buffer), Some(one)) = (self.free.pop_front(), self.sending.get_mut(number)) else {
                break;
            };
            let frame = &one.host.frames[one.turn];
            one.turn = (one.turn + 1) % one.host.frames.len();
            buffer.room[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
            buffer.window = Window {
                start: HEADROOM as u16,
                length: frame.len() as u16,
                checksums: Checksums::Vouched,
            };
            (buffer.host, buffer.arrived) = (number, arrived);
            self.hand.push(Some(buffer));
        }
        // The hosts' work is no time of the worker.
        stand_still(cycles() - now);
        count
    }

    fn lend<'a>(&'a mut self, into: &mut Lent<'a>) {
        for (buffer, window) in self.hand.iter_mut().zip(&mut self.nothing) {
            into.push(match buffer {
                Some(buffer) => Packet::new(&mut buffer.room, &mut buffer.window),
                None => Packet::nothing(window),
            });
        }
    }

    fn transmit(&mut self, _port: PortIndex, slots: &[Slot]) -> usize {
        let now = cycles();
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        for &slot in slots {
            let Some(buffer) = self.hand.get_mut(usize::from(slot)).and_then(Option::take) else {
                continue;
            };
            if let Some(tally) = tallies.get_mut(buffer.host) {
                tally.passed += 1;
                tally.latency.record(now.saturating_sub(buffer.arrived));
            }
            self.free.push_back(buffer);
        }
        stand_still(cycles() - now);
        slots.len()
    }

    fn free(&mut self, slots: &[Slot]) {
        for &slot in slots {
            let buffer = self.hand.get_mut(usize::from(slot)).and_then(Option::take);
            self.free.extend(buffer);
        }
    }

    fn allocate(&mut self, count: usize) -> usize {
        let count = count.min(self.hand.remaining_capacity()).min(self.free.len());
        for _ in 0..count {
            let Some(mut buffer) = self.free.pop_front() else { break };
            buffer.host = usize::MAX;
            buffer.window = Window {
                start: HEADROOM as u16,
                length: 0,
                checksums: Checksums::Vouched,
            };
            self.hand.push(Some(buffer));
        }
        count
    }

    fn park(&mut self, _slot: Slot) -> Option<Parked> {
        None
    }

    fn unpark(&mut self, parked: Parked) -> Result<Slot, Parked> {
        Err(parked)
    }

    fn release(&mut self, _parked: Parked) {}

    fn end(&mut self) -> usize {
        let left = self.held();
        self.hand.clear();
        left
    }

    fn refused(&self, _port: PortIndex) -> &[(Refusal, u64)] {
        &[]
    }

    fn held(&self) -> usize {
        self.hand.iter().flatten().count()
    }

    fn parked(&self) -> usize {
        0
    }
}

impl Handover for Lines {
    fn hand_over(&mut self, _to: WorkerIndex, _slots: &[Slot], _carried: &[Carried]) -> usize {
        0
    }
    fn room(&self, _to: WorkerIndex) -> usize {
        BATCH
    }
    fn mark(&mut self) {}
    fn has_arrived(&self) -> bool {
        true
    }
    fn waiting(&self) -> usize {
        0
    }
    fn take_over(&mut self, _carried: &mut ArrayVec<Carried, BATCH>) -> usize {
        0
    }
}
