//! Single ownership of buffers. Only [`BurstBuffers`] frees or sends buffers.
//!
//! [`BurstBuffers`] owns each buffer between its delivery by a [`RawBuffers`] source and its return. Every operation
//! that gives up a buffer first clears the buffer's entry. Thus a repeated or invalid buffer index affects no buffer.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_engine::packet::io::{
    ALL_SLOTS, BURST_BUFFERS, BURST_SIZE, BufferIndex, HEAD, Handover, Head, Heads, NoteWords, PacketIo, Packets,
    Parked, PortIndex, ReceiveError, WorkerIndex,
};
use sluice_wire::{Packet, Window};

use crate::buffers::{Buffer, BufferMemory, IncomingBuffers, RawBuffers};

const REFUSALS: [ReceiveError; 3] = [
    ReceiveError::TooLongToLinearise,
    ReceiveError::Shared,
    ReceiveError::BadLength,
];

/// A storage slot (shelf) for a buffer that is parked outside of the burst. `serial` distinguishes successive uses of a
/// shelf.
#[derive(Clone, Copy)]
struct ParkedBuffer {
    buffer: Buffer,
    data_room: BufferMemory,
    window: Window,
    serial: u16,
}

/// The buffers of one worker.
pub struct BurstBuffers<B: RawBuffers> {
    source: B,
    /// Number of entries used in the current burst.
    length: usize,
    /// Maximum number of packets that are received together.
    max_burst: usize,
    /// Number of entries with a buffer.
    held: usize,
    /// Buffer pointers. Null for entries without a buffer.
    buffers: [Buffer; BURST_BUFFERS],
    data_rooms: [BufferMemory; BURST_BUFFERS],
    windows: [Window; BURST_BUFFERS],
    /// Buffers that the current operation gives up, in the order of the call.
    leaving: [Buffer; BURST_BUFFERS],
    sent_windows: [Window; BURST_BUFFERS],
    /// Per-packet data that other workers have handed over with the buffers.
    received_notes: [NoteWords; BURST_SIZE],
    parkings: Box<[ParkedBuffer]>,
    /// Indexes of free shelves for parked buffers.
    free_parking: Vec<u16>,
    refused: Vec<[(ReceiveError, u64); 3]>,
}

// SAFETY: only this value refers to the buffers and their memory (contract of `RawBuffers`), and the source is `Send`.
// Thus the value may move to another thread together with its buffers.
unsafe impl<B: RawBuffers> Send for BurstBuffers<B> {}

impl<B: RawBuffers> BurstBuffers<B> {
    /// Create burst buffers for a source. At most `parked` buffers (up to 65,536) can be parked.
    pub fn new(source: B, parked: usize) -> Self {
        let parked = parked.min(1 << 16);
        let parking = ParkedBuffer {
            buffer: Buffer::NONE,
            data_room: BufferMemory::EMPTY,
            window: Window::default(),
            serial: 0,
        };
        let refused = vec![REFUSALS.map(|reason| (reason, 0)); source.ports()];
        Self {
            source,
            length: 0,
            max_burst: BURST_SIZE,
            held: 0,
            buffers: [Buffer::NONE; BURST_BUFFERS],
            data_rooms: [BufferMemory::EMPTY; BURST_BUFFERS],
            windows: [Window::default(); BURST_BUFFERS],
            leaving: [Buffer::NONE; BURST_BUFFERS],
            sent_windows: [Window::default(); BURST_BUFFERS],
            received_notes: [NoteWords::default(); BURST_SIZE],
            parkings: vec![parking; parked].into_boxed_slice(),
            free_parking: (0..parked).rev().map(|index| index as u16).collect(),
            refused,
        }
    }

    /// Limits the number of packets that are received together, for measurements. At most [`BURST_SIZE`] are possible.
    pub fn limit_bursts(&mut self, packets: usize) {
        self.max_burst = packets.clamp(1, BURST_SIZE);
    }

    /// Source of the buffers.
    pub fn source(&self) -> &B {
        &self.source
    }

    /// The source, and the free entries from the end of the burst up to index `to`.
    #[inline(always)]
    fn reserve(&mut self, to: usize) -> (&mut B, IncomingBuffers<'_>) {
        let places = self.length..to;
        let coming = IncomingBuffers {
            buffers: &mut self.buffers[places.clone()],
            data_rooms: &mut self.data_rooms[places.clone()],
            windows: &mut self.windows[places],
        };
        (&mut self.source, coming)
    }

    /// Add `count` delivered buffers to the burst.
    #[inline(always)]
    fn admit(&mut self, count: usize) {
        self.length += count;
        self.held += count;
    }

    /// Free the unusable buffers among `count` new buffers, and close the gaps. Returns the number of remaining
    /// buffers.
    #[cold]
    fn refuse(&mut self, port: PortIndex, count: usize, faults: u64) -> usize {
        let base = self.length;
        let mut unusable: ArrayVec<Buffer, BURST_SIZE> = ArrayVec::new();
        let mut kept = 0;
        for index in 0..count {
            let (from, to) = (base + index, base + kept);
            if faults >> index & 1 == 0 {
                self.buffers[to] = self.buffers[from];
                self.data_rooms[to] = self.data_rooms[from];
                self.windows[to] = self.windows[from];
                kept += 1;
                continue;
            }
            unusable.push(self.buffers[from]);
            let reason = (self.data_rooms[from].fault.saturating_sub(1) as usize).min(REFUSALS.len() - 1);
            if let Some(counters) = self.refused.get_mut(port as usize) {
                counters[reason].1 += 1;
            }
        }
        self.buffers[base + kept..base + count].fill(Buffer::NONE);
        // SAFETY: the receive call has delivered these buffers, and no entry refers to them.
        unsafe { self.source.free(&mut unusable) };
        kept
    }

    /// Move buffers out of their entries, up to the first index without a buffer. Returns the number of moved buffers, and whether
    /// one of their windows has changed. `sent_windows` is valid only if a window has changed.
    #[inline(always)]
    fn gather(&mut self, slots: &[BufferIndex]) -> (usize, bool) {
        let first = slots.first().map_or(0, |slot| *slot as usize);
        // Fast path for buffers that leave in their order of arrival.
        let in_order = ALL_SLOTS.get(first..first + slots.len()) == Some(slots);
        if in_order && let Some(gathered) = self.gather_run(first, slots.len()) {
            return gathered;
        }
        let (mut count, mut is_changed) = (0, false);
        for ((&slot, out), out_window) in slots.iter().zip(&mut self.leaving).zip(&mut self.sent_windows) {
            let slot = slot as usize;
            let (Some(buffer), Some(window)) = (self.buffers.get_mut(slot), self.windows.get(slot)) else {
                break;
            };
            if buffer.is_none() {
                break;
            }
            *out = std::mem::replace(buffer, Buffer::NONE);
            *out_window = *window;
            is_changed |= window.changed;
            count += 1;
        }
        (count, is_changed)
    }

    /// Move `count` consecutive buffers out of their entries, and their windows if one of these has changed. `None`, without
    /// effect, if an entry has no buffer.
    #[inline(always)]
    fn gather_run(&mut self, first: usize, count: usize) -> Option<(usize, bool)> {
        let buffers = self.buffers.get_mut(first..first + count)?;
        let windows = self.windows.get(first..first + count)?;
        // Folds look at all elements, and are vectorised.
        if buffers.iter().fold(false, |any, buffer| any | buffer.is_none()) {
            return None;
        }
        self.leaving.get_mut(..count)?.copy_from_slice(buffers);
        let is_changed = windows.iter().fold(false, |changed, window| changed | window.changed);
        if is_changed {
            self.sent_windows.get_mut(..count)?.copy_from_slice(windows);
        }
        buffers.fill(Buffer::NONE);
        Some((count, is_changed))
    }

    /// Borrow the heads of consecutive entries.
    #[inline(always)]
    fn run_of_heads<'a>(&'a mut self, slots: Range<usize>, heads: &mut Heads<'a>, windows: &mut [Window; BURST_SIZE]) {
        let own = &self.windows[slots.clone()];
        let (buffers, data_rooms) = (&self.buffers[slots.clone()], &self.data_rooms[slots]);
        windows[..own.len()].copy_from_slice(own);
        // Iterators over several arrays are not always inlined.
        for k in 0..own.len().min(BURST_SIZE) {
            // SAFETY: each entry is borrowed once.
            heads[k] = unsafe { head_of(buffers[k], data_rooms[k], own[k]) };
        }
    }

    /// Put rejected buffers back into their entries. Of the `count` buffers, the first `taken` buffers were accepted.
    #[inline(always)]
    fn restore_unsent(&mut self, slots: &[BufferIndex], count: usize, taken: usize) -> usize {
        let taken = taken.min(count);
        if taken < count {
            for (&slot, &buffer) in slots.iter().zip(&self.leaving[..count]).skip(taken) {
                self.buffers[slot as usize] = buffer;
            }
        }
        self.held -= taken;
        taken
    }

    /// Index of a handle's shelf, if the shelf still holds the buffer of the handle.
    fn parked_index(&self, parked: &Parked) -> Option<usize> {
        let index = (parked.0 & 0xffff) as usize;
        let parking = self.parkings.get(index)?;
        (parking.serial == (parked.0 >> 16) as u16 && !parking.buffer.is_none()).then_some(index)
    }

    /// Remove a buffer from its shelf. The buffer's handle becomes invalid.
    fn take_parked(&mut self, index: usize) -> ParkedBuffer {
        let parking = &mut self.parkings[index];
        let was = *parking;
        parking.buffer = Buffer::NONE;
        parking.serial = parking.serial.wrapping_add(1);
        self.free_parking.push(index as u16);
        was
    }
}

/// The head of a frame; `None` without a buffer, or if the buffer ends before.
///
/// # Safety
/// The arguments belong to one entry of the burst buffers, which are borrowed mutably for `'a`, and no other reference to the
/// memory of this buffer exists meanwhile.
#[inline(always)]
unsafe fn head_of<'a>(buffer: Buffer, data_room: BufferMemory, window: Window) -> Option<&'a mut Head> {
    let start = usize::from(window.start);
    let has_head = !buffer.is_none() && start + HEAD <= usize::from(data_room.length);
    match has_head {
        // SAFETY: an entry owns its buffer, so the memory is initialised and exclusive to this value (contract of `RawBuffers`), and
        // the head lies within the memory. The memory of different buffers is disjoint. The borrow of the burst buffers prevents
        // that a buffer is given up while the head exists.
        true => Some(unsafe { &mut *data_room.start.add(start).cast() }),
        false => None,
    }
}

impl<B: RawBuffers> PacketIo for BurstBuffers<B> {
    #[inline]
    fn receive(&mut self, port: PortIndex) -> usize {
        let to = (self.length + self.max_burst).min(BURST_BUFFERS);
        if self.length == to || port as usize >= self.refused.len() {
            return 0;
        }
        let mut faults = 0;
        let (source, coming) = self.reserve(to);
        let mut count = source.receive(port, coming, &mut faults);
        if faults != 0 {
            count = self.refuse(port, count, faults);
        }
        self.admit(count);
        count
    }

    #[inline]
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>) {
        into.clear();
        let length = self.length.min(BURST_BUFFERS);
        let slots = self.buffers[..length]
            .iter()
            .zip(&self.data_rooms[..length])
            .zip(&mut self.windows[..length]);
        for ((buffer, data_room), window) in slots {
            let packet = if buffer.is_none() {
                Packet::empty(window)
            } else {
                // SAFETY: an entry owns its buffer, so the memory is initialised and exclusive to this value (contract
                // of `RawBuffers`). The memory of different buffers is disjoint. The borrow of the burst buffers
                // prevents that a buffer is given up while the packets exist.
                let data_room = unsafe { std::slice::from_raw_parts_mut(data_room.start, data_room.length as usize) };
                Packet::within(data_room, window)
            };
            // SAFETY: at most BURST_BUFFERS packets are added to `into`, which was empty and has this capacity.
            unsafe { into.push_unchecked(packet) };
        }
    }

    #[inline]
    fn heads<'a>(&'a mut self, slots: &[BufferIndex], heads: &mut Heads<'a>, windows: &mut [Window; BURST_SIZE]) {
        let first = slots.first().map_or(0, |slot| usize::from(*slot));
        let end = (first + slots.len().min(BURST_SIZE)).min(self.length);
        if ALL_SLOTS.get(first..first + slots.len()) == Some(slots) && first < end {
            return self.run_of_heads(first..end, heads, windows);
        }
        // The first slot that is not borrowed yet.
        let mut next = 0;
        for (k, slot) in slots.iter().enumerate().take(BURST_SIZE) {
            let slot = usize::from(*slot);
            heads[k] = None;
            if (next..self.length).contains(&slot) {
                next = slot + 1;
                windows[k] = self.windows[slot];
                // SAFETY: slots ascend, so no buffer is borrowed twice.
                heads[k] = unsafe { head_of(self.buffers[slot], self.data_rooms[slot], windows[k]) };
            }
        }
    }

    #[inline]
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize {
        if port as usize >= self.refused.len() {
            return 0;
        }
        let (count, is_changed) = self.gather(slots);
        let windows = is_changed.then(|| &self.sent_windows[..count]);
        // SAFETY: `gather` moved the buffers out of their entries, so they are owned and not referenced elsewhere.
        // `Packet` keeps windows within the memory of their buffers, and marks those that it changes. `restore_unsent` puts
        // rejected buffers back into their entries.
        let taken = unsafe { self.source.transmit(port, &mut self.leaving[..count], windows) };
        self.restore_unsent(slots, count, taken)
    }

    #[inline]
    fn free(&mut self, slots: &[BufferIndex]) {
        let mut rest = slots;
        while !rest.is_empty() {
            let (count, _) = self.gather(rest);
            // SAFETY: `gather` moved the buffers out of their entries, so they are owned and not referenced elsewhere.
            unsafe { self.source.free(&mut self.leaving[..count]) };
            self.held -= count;
            // `gather` has ended at an index without a buffer. Skip this index.
            rest = rest.get(count.max(1)..).unwrap_or_default();
        }
    }

    fn allocate(&mut self, count: usize) -> usize {
        let to = self.length.saturating_add(count).min(BURST_BUFFERS);
        if self.length == to {
            return 0;
        }
        let (source, coming) = self.reserve(to);
        let made = source.allocate(coming);
        self.admit(made);
        made
    }

    fn park(&mut self, slot: BufferIndex) -> Option<Parked> {
        let at = slot as usize;
        if self.buffers.get(at)?.is_none() {
            return None;
        }
        let index = self.free_parking.pop()?;
        let parking = &mut self.parkings[index as usize];
        parking.buffer = std::mem::replace(&mut self.buffers[at], Buffer::NONE);
        parking.data_room = self.data_rooms[at];
        parking.window = self.windows[at];
        self.held -= 1;
        Some(Parked(index as u32 | (parking.serial as u32) << 16))
    }

    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        let (Some(index), at @ 0..BURST_BUFFERS) = (self.parked_index(&parked), self.length) else {
            return Err(parked);
        };
        let parking = self.take_parked(index);
        self.buffers[at] = parking.buffer;
        self.data_rooms[at] = parking.data_room;
        self.windows[at] = parking.window;
        self.admit(1);
        Ok(at as BufferIndex)
    }

    fn release(&mut self, parked: Parked) {
        if let Some(index) = self.parked_index(&parked) {
            let parking = self.take_parked(index);
            // SAFETY: the shelf owned the buffer, and no longer refers to the buffer.
            unsafe { self.source.free(&mut [parking.buffer]) };
        }
    }

    #[inline]
    fn end(&mut self) -> usize {
        let leaked = self.held;
        if leaked != 0 {
            for at in 0..self.length {
                self.free(&[at as BufferIndex]);
            }
        }
        self.length = 0;
        leaked
    }

    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)] {
        self.refused
            .get(port as usize)
            .map(|counters| counters.as_slice())
            .unwrap_or_default()
    }

    fn replace_device(&mut self, port: PortIndex) {
        self.source.renew(port);
    }

    fn has_device(&self, port: PortIndex) -> bool {
        self.source.has_device(port)
    }

    fn outstanding(&self) -> usize {
        self.held
    }

    fn parked(&self) -> usize {
        self.parkings.len() - self.free_parking.len()
    }
}

impl<B: RawBuffers> Handover for BurstBuffers<B> {
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize {
        let slots = &slots[..slots.len().min(carried.len())];
        let (count, is_changed) = self.gather(slots);
        if !is_changed {
            for (window, &slot) in self.sent_windows.iter_mut().zip(&slots[..count]) {
                *window = self.windows[slot as usize];
            }
        }
        let mut data_rooms = [0; BURST_BUFFERS];
        for (length, &slot) in data_rooms.iter_mut().zip(&slots[..count]) {
            *length = self.data_rooms[slot as usize].length;
        }
        // SAFETY: the reasons in `transmit` apply. In addition, the lengths in `data_rooms` do not change during the call.
        let taken = unsafe {
            self.source.put(
                to,
                &mut self.leaving[..count],
                &data_rooms[..count],
                &self.sent_windows[..count],
                &carried[..count],
            )
        };
        self.restore_unsent(slots, count, taken)
    }

    #[inline]
    fn prefetch_handed_over(&mut self) {
        self.source.prefetch_next();
    }

    fn free_entries(&self, to: WorkerIndex) -> usize {
        self.source.ring_capacity(to)
    }

    fn mark(&mut self) {
        self.source.mark();
    }

    fn has_arrived(&self) -> bool {
        self.source.has_arrived()
    }

    fn waiting(&self) -> usize {
        self.source.waiting()
    }

    #[inline]
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        let to = (self.length + carried.remaining_capacity()).min(BURST_BUFFERS);
        let places = self.length..to;
        let data_room = places.len().min(BURST_SIZE);
        let coming = IncomingBuffers {
            buffers: &mut self.buffers[places.clone()],
            data_rooms: &mut self.data_rooms[places.clone()],
            windows: &mut self.windows[places],
        };
        let count = self.source.take(coming, &mut self.received_notes[..data_room]);
        self.admit(count);
        carried.extend(self.received_notes[..count].iter().copied());
        count
    }
}

impl<B: RawBuffers> Drop for BurstBuffers<B> {
    fn drop(&mut self) {
        self.end();
        for index in 0..self.parkings.len() {
            if !self.parkings[index].buffer.is_none() {
                let parking = self.take_parked(index);
                // SAFETY: the shelf owned the buffer, and no longer refers to the buffer.
                unsafe { self.source.free(&mut [parking.buffer]) };
            }
        }
    }
}
