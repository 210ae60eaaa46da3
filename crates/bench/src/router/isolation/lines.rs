//! In-memory ports with hosts that send at a given rate, by a clock that stops while the hosts run. Packets that the
//! worker does not receive in time are lost, as with a network card.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use sluice_engine::packet::io::{
    BURST_BUFFERS, BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError,
    WorkerIndex,
};
use sluice_wire::{Checksums, Packet, Window};

use super::clock::{cycles, leave_out};
use crate::frames::histogram::Histogram;

/// Capacity of a port's receive queue in packets, as with a network card.
const DEPTH: usize = 1_024;
/// Number of buffers, which are reused in order.
const BUFFERS: usize = 8_192;
/// Headroom before a frame in bytes.
const HEADROOM: usize = 128;
/// Sending pattern of a host.
#[derive(Clone, Copy, Debug)]
pub enum Sends {
    /// The host sends nothing.
    Nothing,
    /// The host sends one packet per interval of this many cycles.
    Every(f64),
    /// The host sends as many packets as the queue holds.
    Always,
}

/// A host behind a port.
#[derive(Clone, Debug)]
pub struct Host {
    pub port: usize,
    pub sends: Sends,
    pub frames: Vec<Vec<u8>>,
}

/// Statistics of a host's packets.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub packets: u64,
    /// Number of packets that the worker did not receive in time.
    pub missed: u64,
    pub passed: u64,
    /// Cycles from the arrival of a packet at its port until the packet is output.
    pub latency: Histogram,
}

struct Sending {
    port: usize,
    frames: Vec<Vec<u8>>,
    next: f64,
    turn: usize,
}

struct Buffer {
    room: [u8; 256],
    window: Window,
    host: usize,
    arrived: u64,
}

/// State of the hosts at the opposite side of the ports.
#[derive(Debug)]
pub struct Far {
    /// Sending pattern of each host.
    pub sends: Vec<Sends>,
    /// Statistics of each host.
    pub tallies: Vec<Tally>,
    /// Number of cycles for which the clock was stopped while ports and hosts ran.
    pub paused: u64,
}

/// Access to the hosts, which may be read and changed between rounds.
#[derive(Clone, Debug)]
pub struct FarSide(Arc<Mutex<Far>>);

impl FarSide {
    /// Locks the state of the hosts.
    pub fn get(&self) -> MutexGuard<'_, Far> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Lines {
    sending: Vec<Sending>,
    queues: Vec<VecDeque<(usize, u64)>>,
    hand: ArrayVec<Option<Box<Buffer>>, BURST_BUFFERS>,
    free: VecDeque<Box<Buffer>>,
    nothing: [Window; BURST_BUFFERS],
    far: FarSide,
}

impl Lines {
    /// Creates `ports` ports with hosts behind them.
    pub fn new(ports: usize, hosts: Vec<Host>) -> (Self, FarSide) {
        let start = cycles() as f64;
        let far = Far {
            sends: hosts.iter().map(|host| host.sends).collect(),
            tallies: vec![Tally::default(); hosts.len()],
            paused: 0,
        };
        let far = FarSide(Arc::new(Mutex::new(far)));
        let buffer = || Buffer {
            room: [0; 256],
            window: Window::default(),
            host: usize::MAX,
            arrived: 0,
        };
        let sending = |host: Host| Sending {
            port: host.port,
            frames: host.frames,
            next: start,
            turn: 0,
        };
        let lines = Self {
            sending: hosts.into_iter().map(sending).collect(),
            queues: vec![VecDeque::with_capacity(DEPTH); ports],
            hand: ArrayVec::new(),
            free: (0..BUFFERS).map(|_| Box::new(buffer())).collect(),
            nothing: [Window::default(); BURST_BUFFERS],
            far: far.clone(),
        };
        (lines, far)
    }

    /// Adds the packets that hosts have sent to a port until now, in order of arrival.
    fn arrive(&mut self, port: usize, now: u64, far: &mut Far) {
        let Far { sends, tallies, .. } = far;
        let queue = &mut self.queues[port];
        let here = |one: &Sending| one.port == port;
        loop {
            let due = self.sending.iter_mut().zip(&*sends).enumerate();
            let due = due.filter_map(|(number, (one, sends))| match sends {
                Sends::Every(each) if here(one) && one.next <= now as f64 => Some((number, one, each)),
                _ => None,
            });
            let Some((number, one, each)) = due.min_by(|one, other| one.1.next.total_cmp(&other.1.next)) else {
                break;
            };
            let at = one.next as u64;
            one.next += each;
            tallies[number].packets += 1;
            match queue.len() < DEPTH {
                true => queue.push_back((number, at)),
                false => tallies[number].missed += 1,
            }
        }
        let always = |number: &usize| here(&self.sending[*number]) && matches!(sends[*number], Sends::Always);
        let always: ArrayVec<usize, BURST_SIZE> = (0..self.sending.len()).filter(always).take(BURST_SIZE).collect();
        for number in always.iter().cycle().take(DEPTH - queue.len()) {
            tallies[*number].packets += 1;
            queue.push_back((*number, now));
        }
    }
}

impl PacketIo for Lines {
    fn receive(&mut self, port: PortIndex) -> usize {
        let now = cycles();
        let far = self.far.clone();
        let mut far = far.get();
        let paused = far.paused;
        self.arrive(usize::from(port), now - paused, &mut far);
        let Some(queue) = self.queues.get_mut(usize::from(port)) else {
            return 0;
        };
        let count = queue.len().min(BURST_SIZE).min(self.hand.remaining_capacity());
        for (number, arrived) in queue.drain(..count) {
            let (Some(mut buffer), Some(one)) = (self.free.pop_front(), self.sending.get_mut(number)) else {
                break;
            };
            let frame = &one.frames[one.turn];
            one.turn = (one.turn + 1) % one.frames.len();
            buffer.room[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
            buffer.window = Window {
                start: HEADROOM as u16,
                length: frame.len() as u16,
                checksums: Checksums::Vouched,
                changed: false,
            };
            (buffer.host, buffer.arrived) = (number, arrived);
            self.hand.push(Some(buffer));
        }
        // The time that the hosts use does not count as the worker's time.
        leave_out(now);
        count
    }

    fn packets<'a>(&'a mut self, into: &mut Packets<'a>) {
        for (buffer, window) in self.hand.iter_mut().zip(&mut self.nothing) {
            into.push(match buffer {
                Some(buffer) => Packet::new(&mut buffer.room, &mut buffer.window),
                None => Packet::empty(window),
            });
        }
    }

    fn transmit(&mut self, _port: PortIndex, slots: &[BufferIndex]) -> usize {
        let now = cycles();
        let mut far = self.far.get();
        let at = now - far.paused;
        for &slot in slots {
            let Some(buffer) = self.hand.get_mut(usize::from(slot)).and_then(Option::take) else {
                continue;
            };
            if let Some(tally) = far.tallies.get_mut(buffer.host) {
                tally.passed += 1;
                tally.latency.record(at.saturating_sub(buffer.arrived));
            }
            self.free.push_back(buffer);
        }
        leave_out(now);
        slots.len()
    }

    fn free(&mut self, slots: &[BufferIndex]) {
        let now = cycles();
        for &slot in slots {
            let buffer = self.hand.get_mut(usize::from(slot)).and_then(Option::take);
            self.free.extend(buffer);
        }
        leave_out(now);
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
                changed: true,
            };
            self.hand.push(Some(buffer));
        }
        count
    }

    fn park(&mut self, _slot: BufferIndex) -> Option<Parked> {
        None
    }

    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        Err(parked)
    }

    fn release(&mut self, _parked: Parked) {}

    fn end(&mut self) -> usize {
        let left = self.outstanding();
        self.hand.clear();
        left
    }

    fn refused(&self, _port: PortIndex) -> &[(ReceiveError, u64)] {
        &[]
    }

    fn outstanding(&self) -> usize {
        self.hand.iter().flatten().count()
    }

    fn parked(&self) -> usize {
        0
    }
}

impl Handover for Lines {
    fn hand_over(&mut self, _to: WorkerIndex, _slots: &[BufferIndex], _carried: &[NoteWords]) -> usize {
        0
    }
    fn free_entries(&self, _to: WorkerIndex) -> usize {
        BURST_SIZE
    }
    fn mark(&mut self) {}
    fn has_arrived(&self) -> bool {
        true
    }
    fn waiting(&self) -> usize {
        0
    }
    fn take_over(&mut self, _carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        0
    }
}
