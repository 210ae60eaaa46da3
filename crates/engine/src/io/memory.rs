//! Frames in memory: what tests and `replay` run on.
//!
//! Ownership is by move: a buffer is in exactly one of the queues, the hand, the parking or a ring.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use sluice_wire::{Checksums, Packet, Window};

use super::{BATCH, Carried, HAND, Handover, Lent, PacketIo, Parked, PortIndex, Refusal, Slot, WorkerIndex};

/// Bytes kept free before a received frame, as DPDK does.
pub const HEADROOM: usize = 128;

/// A buffer with its frame.
#[derive(Clone, Debug)]
struct Buffer {
    room: Box<[u8]>,
    window: Window,
}

impl Buffer {
    fn new(frame: &[u8], room: usize, checksums: Checksums) -> Self {
        let mut bytes = vec![0; room.max(HEADROOM + frame.len())].into_boxed_slice();
        bytes[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        let window = Window {
            start: HEADROOM as u16,
            length: frame.len() as u16,
            checksums,
        };
        Self { room: bytes, window }
    }
    fn frame(&self) -> &[u8] {
        &self.room[self.window.start as usize..][..self.window.length as usize]
    }
}

/// A frame that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port that it left by.
    pub port: PortIndex,
    /// The frame.
    pub frame: Vec<u8>,
}

type Ring = Mutex<VecDeque<(Buffer, Carried)>>;

/// Ports in memory of one worker. Workers made together by [`MemoryIo::workers`] hand packets to one another.
#[derive(Debug)]
pub struct MemoryIo {
    incoming: Vec<VecDeque<Buffer>>,
    hand: ArrayVec<Option<Buffer>, HAND>,
    nothing: [Window; HAND],
    parking: Vec<Option<Buffer>>,
    sent: Vec<Sent>,
    rings: Arc<[Ring]>,
    own: usize,
    room: usize,
    /// Frames that each transmit takes at most; tests lower it to make a device refuse.
    pub transmit_limit: usize,
    /// Buffers that can still be allocated; tests lower it to exhaust the pool.
    pub allocate_limit: usize,
    ring_limit: usize,
}

impl MemoryIo {
    /// One worker with `ports` ports.
    pub fn new(ports: usize) -> Self {
        Self::workers(1, ports).remove(0)
    }

    /// `workers` workers with `ports` ports each, joined by rings of 1,024 packets.
    pub fn workers(workers: usize, ports: usize) -> Vec<Self> {
        let rings: Arc<[Ring]> = (0..workers).map(|_| Mutex::default()).collect();
        (0..workers)
            .map(|own| Self {
                incoming: vec![VecDeque::new(); ports],
                hand: ArrayVec::new(),
                nothing: [Window::default(); HAND],
                parking: vec![None; 4096],
                sent: Vec::new(),
                rings: rings.clone(),
                own,
                room: 2048 + HEADROOM,
                transmit_limit: usize::MAX,
                allocate_limit: usize::MAX,
                ring_limit: 1024,
            })
            .collect()
    }

    /// Bytes of each buffer; jumbo frames need more than the 2,176 that are given by default.
    pub fn set_room(&mut self, bytes: usize) {
        self.room = bytes.min(u16::MAX as usize);
    }

    /// Queue a frame for receive on a port.
    pub fn inject(&mut self, port: PortIndex, frame: &[u8], checksums: Checksums) {
        if let Some(queue) = self.incoming.get_mut(port as usize) {
            queue.push_back(Buffer::new(frame, self.room, checksums));
        }
    }

    /// What was sent since the last call, in order.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Whether nothing waits to be received or taken over.
    pub fn is_idle(&self) -> bool {
        self.incoming.iter().all(VecDeque::is_empty)
            && self
                .ring(self.own)
                .is_none_or(|ring| ring.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    fn ring(&self, worker: usize) -> Option<&Ring> {
        self.rings.get(worker)
    }

    fn take(&mut self, slot: Slot) -> Option<Buffer> {
        self.hand.get_mut(slot as usize).and_then(Option::take)
    }
}

impl PacketIo for MemoryIo {
    fn receive(&mut self, port: PortIndex) -> usize {
        let Some(queue) = self.incoming.get_mut(port as usize) else {
            return 0;
        };
        let count = queue.len().min(BATCH).min(self.hand.remaining_capacity());
        self.hand.extend(queue.drain(..count).map(Some));
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

    fn transmit(&mut self, port: PortIndex, slots: &[Slot]) -> usize {
        let count = slots.len().min(self.transmit_limit);
        for &slot in &slots[..count] {
            if let Some(buffer) = self.take(slot) {
                self.sent.push(Sent {
                    port,
                    frame: buffer.frame().to_vec(),
                });
            }
        }
        count
    }

    fn free(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.take(slot);
        }
    }

    fn allocate(&mut self, count: usize) -> usize {
        let count = count.min(self.hand.remaining_capacity()).min(self.allocate_limit);
        for _ in 0..count {
            self.hand.push(Some(Buffer::new(&[], self.room, Checksums::Unverified)));
        }
        count
    }

    fn park(&mut self, slot: Slot) -> Option<Parked> {
        let place = self.parking.iter().position(Option::is_none)?;
        self.parking[place] = Some(self.take(slot)?);
        Some(Parked(place as u32))
    }

    fn unpark(&mut self, parked: Parked) -> Result<Slot, Parked> {
        if self.hand.is_full() {
            return Err(parked);
        }
        let buffer = self.parking.get_mut(parked.0 as usize).and_then(Option::take);
        self.hand.push(buffer);
        Ok((self.hand.len() - 1) as Slot)
    }

    fn release(&mut self, parked: Parked) {
        if let Some(place) = self.parking.get_mut(parked.0 as usize) {
            *place = None;
        }
    }

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
        self.parking.iter().flatten().count()
    }
}

impl Handover for MemoryIo {
    fn hand_over(&mut self, to: WorkerIndex, slots: &[Slot], carried: &[Carried]) -> usize {
        let rings = self.rings.clone();
        let Some(ring) = rings.get(to as usize) else { return 0 };
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        let count = slots.len().min(self.ring_limit.saturating_sub(ring.len()));
        for (&slot, &carried) in slots.iter().zip(carried).take(count) {
            if let Some(buffer) = self.take(slot) {
                ring.push_back((buffer, carried));
            }
        }
        count
    }

    fn take_over(&mut self, carried: &mut ArrayVec<Carried, BATCH>) -> usize {
        let rings = self.rings.clone();
        let Some(ring) = rings.get(self.own) else { return 0 };
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ring
            .len()
            .min(carried.remaining_capacity())
            .min(self.hand.remaining_capacity());
        for (buffer, what) in ring.drain(..count) {
            self.hand.push(Some(buffer));
            carried.push(what);
        }
        count
    }
}
