//! The seam under the hand: what gives and takes raw buffers, DPDK or a fake.

use std::ptr;

use sluice_engine::packet::io::{NoteWords, PortIndex, WorkerIndex};
use sluice_wire::Window;

/// The name of one buffer; null names none. Copying the name copies no ownership: who owns the buffer is the
/// business of the [`Hand`](crate::hand::Hand).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Buffer(pub *mut u8);

impl Buffer {
    /// No buffer.
    pub const NONE: Self = Self(ptr::null_mut());

    /// Is it no buffer?
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }
}

/// A buffer's room, as the source of buffers tells it. The layout is the shim's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferMemory {
    /// First byte.
    pub start: *mut u8,
    /// Bytes.
    pub length: u16,
    /// 0, or why the buffer can't be used: 1 too long to linearise, 2 shared, 3 bad length.
    pub fault: u16,
}

impl BufferMemory {
    /// A room of no bytes.
    pub const EMPTY: Self = Self {
        start: ptr::dangling_mut(),
        length: 0,
        fault: 0,
    };
}

/// Buffers on their way into a hand: arrays of one length.
#[derive(Debug)]
pub struct IncomingBuffers<'a> {
    /// Their names.
    pub buffers: &'a mut [Buffer],
    /// Their rooms.
    pub rooms: &'a mut [BufferMemory],
    /// Where the frames lie in them.
    pub windows: &'a mut [Window],
}

/// What gives and takes raw buffers.
///
/// # Safety
///
/// An implementation gives a buffer by [`receive`](Self::receive), [`allocate`](Self::allocate) or
/// [`take`](Self::take) only while nobody else owns it, and from then until it is given back it keeps the room
/// that it told valid for reads and writes of its length, initialised, unmoved, disjoint from every other given
/// room, and touched by nobody but the owner. Windows lie in their rooms, and the counts that it returns are true.
pub unsafe trait RawBuffers: Send {
    /// Ports that this worker sees.
    fn ports(&self) -> usize;

    /// Give received frames, as many as there is place for, at most 64. `faults` gets a bit set for each that
    /// can't be used.
    fn receive(&mut self, port: PortIndex, coming: IncomingBuffers<'_>, faults: &mut u64) -> usize;

    /// Take buffers to be sent; returns how many, always a prefix.
    ///
    /// # Safety
    /// The caller owns every buffer, each window lies in its buffer's room, and it gives up those taken.
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], windows: &[Window]) -> usize;

    /// Take buffers back.
    ///
    /// # Safety
    /// The caller owns every buffer and gives all of them up.
    unsafe fn free(&mut self, buffers: &mut [Buffer]);

    /// Give as many new buffers as there is place for, each an empty frame, or none.
    fn allocate(&mut self, coming: IncomingBuffers<'_>) -> usize;

    /// Take buffers for another worker; returns how many, always a prefix.
    ///
    /// # Safety
    /// As [`transmit`](Self::transmit), and the rooms have these lengths.
    unsafe fn put(
        &mut self,
        to: WorkerIndex,
        buffers: &mut [Buffer],
        rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize;

    /// The device of a port has come, or goes.
    fn renew(&mut self, _port: PortIndex) {}

    /// Whether a port has a device.
    fn has_device(&self, _port: PortIndex) -> bool {
        true
    }

    /// Ask the processor for what [`take`](Self::take) will give next.
    fn prefetch_next(&mut self) {}

    /// Packets that the ring to a worker has room for.
    fn ring_capacity(&self, _to: WorkerIndex) -> usize {
        0
    }

    /// Remember how much has been put for other workers so far.
    fn mark(&mut self) {}

    /// Whether other workers have taken all that had been put at the last [`mark`](Self::mark).
    fn has_arrived(&self) -> bool {
        true
    }

    /// Packets that other workers have put for this one.
    fn waiting(&self) -> usize {
        0
    }

    /// Give what other workers have put for this one.
    fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize;
}
