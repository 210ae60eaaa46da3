//! Packet I/O in memory, for tests and `replay`.
//!
//! A buffer is moved, never shared: it is in exactly one queue, the burst buffers, the parking or a ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use sluice_wire::{Checksums, Packet, Window};

use super::{
    BURST_BUFFERS, BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError,
    WorkerIndex,
};

/// Headroom of a received frame in bytes, as in DPDK.
pub const HEADROOM: usize = 128;

/// Maximum number of packets that a worker can park.
const PARKING: usize = 16_384;

/// Maximum number of free buffers that are kept for reuse.
const SPARE: usize = 64;

/// A buffer that contains a frame.
#[derive(Clone, Debug)]
struct Buffer {
    data_room: Box<[u8]>,
    window: Window,
}

impl Buffer {
    /// Creates a buffer, or reuses a spare buffer. Outside of the frame, a reused buffer keeps its old contents, like a
    /// device's buffer.
    fn new(
        frame: &[u8],
        data_room: usize,
        headroom: u16,
        checksums: Checksums,
        free_buffers: Option<Box<[u8]>>,
    ) -> Self {
        let start = usize::from(headroom);
        let data_room = data_room.max(start + frame.len());
        let free_buffers = free_buffers.filter(|free_buffers| free_buffers.len() == data_room);
        let mut bytes = free_buffers.unwrap_or_else(|| vec![0; data_room].into_boxed_slice());
        bytes[start..start + frame.len()].copy_from_slice(frame);
        let window = Window {
            start: headroom,
            length: frame.len() as u16,
            checksums,
            changed: false,
        };
        Self {
            data_room: bytes,
            window,
        }
    }
    fn frame(&self) -> &[u8] {
        &self.data_room[self.window.start as usize..][..self.window.length as usize]
    }
}

/// A frame that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port on which the frame was sent.
    pub port: PortIndex,
    /// Bytes of the frame.
    pub frame: Vec<u8>,
    /// The checksum state passed to the device. A device would complete an offloaded checksum.
    pub checksums: Checksums,
}

type Ring = Mutex<VecDeque<(Buffer, NoteWords)>>;

/// The wires of a worker's ports. Tests inject frames for the worker to receive, and take the frames that the worker
/// has sent.
#[derive(Clone, Debug)]
pub struct Wires(Arc<RemoteEnd>);

#[derive(Debug)]
struct RemoteEnd {
    incoming: Vec<Mutex<VecDeque<Buffer>>>,
    sent: Mutex<Vec<(PortIndex, Buffer)>>,
    /// Buffers that are free for reuse.
    free_buffers: Mutex<Vec<Box<[u8]>>>,
    data_room: AtomicUsize,
    headroom: AtomicU16,
    transmit_limit: AtomicUsize,
    allocate_limit: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteEnd {
    fn buffer(&self, frame: &[u8], headroom: u16, checksums: Checksums) -> Buffer {
        let data_room = self.data_room.load(Ordering::Relaxed);
        Buffer::new(frame, data_room, headroom, checksums, lock(&self.free_buffers).pop())
    }

    fn recycle(&self, buffers: impl IntoIterator<Item = Buffer>) {
        let mut free_buffers = lock(&self.free_buffers);
        let remaining = SPARE.saturating_sub(free_buffers.len());
        free_buffers.extend(buffers.into_iter().take(remaining).map(|buffer| buffer.data_room));
    }
}

impl Wires {
    /// Queues a frame, so that the worker receives it on a port.
    pub fn inject(&self, port: PortIndex, frame: &[u8], checksums: Checksums) {
        if let Some(queue) = self.0.incoming.get(port as usize) {
            let headroom = self.0.headroom.load(Ordering::Relaxed);
            lock(queue).push_back(self.0.buffer(frame, headroom, checksums));
        }
    }

    /// The frames that were sent since the last call, in order.
    pub fn take_sent(&self) -> Vec<Sent> {
        let mut sent = lock(&self.0.sent);
        let frames = sent.iter().map(|(port, buffer)| Sent {
            port: *port,
            frame: buffer.frame().to_vec(),
            checksums: buffer.window.checksums,
        });
        let frames = frames.collect();
        self.0.recycle(sent.drain(..).map(|(_, buffer)| buffer));
        frames
    }

    /// Discards the frames that were sent since the last call.
    pub fn discard_sent(&self) {
        self.0.recycle(lock(&self.0.sent).drain(..).map(|(_, buffer)| buffer));
    }

    /// Whether all receive queues are empty.
    pub fn is_idle(&self) -> bool {
        self.0.incoming.iter().all(|queue| lock(queue).is_empty())
    }

    /// Sets the size of new buffers in bytes. Jumbo frames need more than the default of 2,176.
    pub fn set_room(&self, bytes: usize) {
        self.0.data_room.store(bytes.min(u16::MAX as usize), Ordering::Relaxed);
    }

    /// Sets the headroom of new frames in bytes.
    pub fn set_headroom(&self, bytes: u16) {
        self.0.headroom.store(bytes, Ordering::Relaxed);
    }

    /// Limits the number of frames that each transmit call accepts, to simulate a full device queue.
    pub fn limit_transmit(&self, frames: usize) {
        self.0.transmit_limit.store(frames, Ordering::Relaxed);
    }

    /// Limits the number of buffers in each allocation, to simulate an exhausted pool.
    pub fn limit_allocate(&self, buffers: usize) {
        self.0.allocate_limit.store(buffers, Ordering::Relaxed);
    }
}

/// Ports of one worker in memory. Workers that are created together by [`MemoryIo::workers`] can hand packets to each other.
#[derive(Debug)]
pub struct MemoryIo {
    remote: Arc<RemoteEnd>,
    burst_buffers: ArrayVec<Option<Buffer>, BURST_BUFFERS>,
    nothing: [Window; BURST_BUFFERS],
    parking: Vec<Option<Buffer>>,
    /// Indexes of free entries in the parking.
    free: Vec<usize>,
    /// One ring for each pair of sending and receiving worker. The order of a flow's packets is therefore undefined if
    /// two workers send them.
    rings: Arc<[Ring]>,
    workers: usize,
    worker: usize,
    ring_limit: usize,
    /// Index of the ring that is read first. The index changes with each call (round-robin).
    next_ring: usize,
    /// For each worker: number of packets handed to it so far, and the value of this number at the last mark.
    given: Vec<[usize; 2]>,
}

impl MemoryIo {
    /// Creates one worker with `ports` ports.
    pub fn new(ports: usize) -> Self {
        Self::workers(1, ports).remove(0)
    }

    /// Creates `workers` workers with `ports` ports each, connected by rings of 1,024 packets.
    pub fn workers(workers: usize, ports: usize) -> Vec<Self> {
        let rings: Arc<[Ring]> = (0..workers * workers).map(|_| Mutex::default()).collect();
        (0..workers)
            .map(|worker| Self {
                remote: Arc::new(RemoteEnd {
                    incoming: (0..ports).map(|_| Mutex::default()).collect(),
                    sent: Mutex::default(),
                    free_buffers: Mutex::default(),
                    data_room: AtomicUsize::new(2048 + HEADROOM),
                    headroom: AtomicU16::new(HEADROOM as u16),
                    transmit_limit: AtomicUsize::new(usize::MAX),
                    allocate_limit: AtomicUsize::new(usize::MAX),
                }),
                burst_buffers: ArrayVec::new(),
                nothing: [Window::default(); BURST_BUFFERS],
                parking: vec![None; PARKING],
                free: (0..PARKING).rev().collect(),
                rings: rings.clone(),
                workers,
                worker,
                ring_limit: 1024,
                next_ring: 0,
                given: vec![[0; 2]; workers],
            })
            .collect()
    }

    /// The wires of the ports.
    pub fn wires(&self) -> Wires {
        Wires(self.remote.clone())
    }

    /// Whether no packets from other workers wait in rings.
    pub fn is_idle(&self) -> bool {
        self.waiting() == 0
    }

    /// Limits the capacity of this worker's rings to other workers.
    pub fn limit_ring(&mut self, packets: usize) {
        self.ring_limit = packets;
    }

    /// The ring to a worker.
    fn ring(&self, to: usize) -> Option<&Ring> {
        self.rings
            .get(self.worker * self.workers + to)
            .filter(|_| to < self.workers)
    }

    fn unpark_buffer(&mut self, parked: &Parked) -> Option<Buffer> {
        let buffer = self.parking.get_mut(parked.0 as usize)?.take()?;
        self.free.push(parked.0 as usize);
        Some(buffer)
    }

    fn take(&mut self, slot: BufferIndex) -> Option<Buffer> {
        self.burst_buffers.get_mut(slot as usize).and_then(Option::take)
    }
}

impl PacketIo for MemoryIo {
    fn receive(&mut self, port: PortIndex) -> usize {
        let Some(queue) = self.remote.incoming.get(port as usize) else {
            return 0;
        };
        let mut queue = lock(queue);
        let count = queue.len().min(BURST_SIZE).min(self.burst_buffers.remaining_capacity());
        self.burst_buffers.extend(queue.drain(..count).map(Some));
        count
    }

    fn packets<'a>(&'a mut self, into: &mut Packets<'a>) {
        for (buffer, window) in self.burst_buffers.iter_mut().zip(&mut self.nothing) {
            into.push(match buffer {
                Some(buffer) => Packet::new(&mut buffer.data_room, &mut buffer.window),
                None => Packet::empty(window),
            });
        }
    }

    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize {
        let count = slots.len().min(self.remote.transmit_limit.load(Ordering::Relaxed));
        let burst_buffers = &mut self.burst_buffers;
        let taken = slots[..count]
            .iter()
            .filter_map(|&slot| burst_buffers.get_mut(slot as usize)?.take());
        lock(&self.remote.sent).extend(taken.map(|buffer| (port, buffer)));
        count
    }

    fn free(&mut self, slots: &[BufferIndex]) {
        let burst_buffers = &mut self.burst_buffers;
        let freed = slots
            .iter()
            .filter_map(|&slot| burst_buffers.get_mut(slot as usize)?.take());
        // The iterator must be consumed completely, because it frees all buffers that are not kept for reuse.
        self.remote.recycle(freed.collect::<ArrayVec<_, BURST_BUFFERS>>());
    }

    fn allocate(&mut self, count: usize) -> usize {
        let count = count
            .min(self.burst_buffers.remaining_capacity())
            .min(self.remote.allocate_limit.load(Ordering::Relaxed));
        for _ in 0..count {
            let buffer = self.remote.buffer(&[], HEADROOM as u16, Checksums::Unverified);
            self.burst_buffers.push(Some(buffer));
        }
        count
    }

    fn park(&mut self, slot: BufferIndex) -> Option<Parked> {
        let buffer = self
            .burst_buffers
            .get_mut(slot as usize)
            .filter(|_| !self.free.is_empty())?
            .take()?;
        let place = self.free.pop()?;
        self.parking[place] = Some(buffer);
        Some(Parked(place as u32))
    }

    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        if self.burst_buffers.is_full() {
            return Err(parked);
        }
        let buffer = self.unpark_buffer(&parked);
        self.burst_buffers.push(buffer);
        Ok((self.burst_buffers.len() - 1) as BufferIndex)
    }

    fn release(&mut self, parked: Parked) {
        self.unpark_buffer(&parked);
    }

    fn end(&mut self) -> usize {
        let remaining = self.outstanding();
        self.burst_buffers.clear();
        remaining
    }

    fn refused(&self, _port: PortIndex) -> &[(ReceiveError, u64)] {
        &[]
    }

    fn outstanding(&self) -> usize {
        self.burst_buffers.iter().flatten().count()
    }

    fn parked(&self) -> usize {
        self.parking.len() - self.free.len()
    }
}

impl Handover for MemoryIo {
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize {
        let rings = self.rings.clone();
        let place = self.worker * self.workers + usize::from(to);
        let Some(ring) = rings.get(place).filter(|_| usize::from(to) < self.workers) else {
            return 0;
        };
        let mut ring = lock(ring);
        let count = slots.len().min(self.ring_limit.saturating_sub(ring.len()));
        for (&slot, &carried) in slots.iter().zip(carried).take(count) {
            if let Some(buffer) = self.take(slot) {
                ring.push_back((buffer, carried));
                self.given[usize::from(to)][0] += 1;
            }
        }
        count
    }

    fn mark(&mut self) {
        self.given.iter_mut().for_each(|[given, mark]| *mark = *given);
    }

    fn has_arrived(&self) -> bool {
        let waiting = |to| self.ring(to).map_or(0, |ring| lock(ring).len());
        let mut all = self.given.iter().enumerate();
        all.all(|(to, &[given, mark])| given - waiting(to) >= mark)
    }

    fn free_entries(&self, to: WorkerIndex) -> usize {
        let waiting = self.ring(to.into()).map_or(usize::MAX, |ring| lock(ring).len());
        self.ring_limit.saturating_sub(waiting)
    }

    fn waiting(&self) -> usize {
        let to_own = self.rings.iter().skip(self.worker).step_by(self.workers);
        to_own.map(|ring| lock(ring).len()).sum()
    }

    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        let rings = self.rings.clone();
        let before = carried.len();
        let others = self.workers - 1;
        for place in 0..others {
            let other = (self.next_ring + place) % others;
            let from = other + usize::from(other >= self.worker);
            let mut ring = lock(&rings[from * self.workers + self.worker]);
            let data_room = carried
                .remaining_capacity()
                .min(self.burst_buffers.remaining_capacity());
            let count = ring.len().min(data_room);
            for (buffer, note) in ring.drain(..count) {
                self.burst_buffers.push(Some(buffer));
                carried.push(note);
            }
        }
        self.next_ring = (self.next_ring + 1) % others.max(1);
        carried.len() - before
    }
}
