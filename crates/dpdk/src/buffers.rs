//! The interface below the burst buffers: sources of raw buffers. A source is either DPDK or, in tests, a fake.

use std::ptr;

use sluice_engine::packet::io::{NoteWords, PortIndex, WorkerIndex};
use sluice_wire::Window;

/// Pointer that identifies a buffer. Null means no buffer. A copy of the pointer does not own the buffer;
/// [`BurstBuffers`](crate::burst_buffers::BurstBuffers) tracks ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Buffer(pub *mut u8);

impl Buffer {
    /// The null buffer.
    pub const NONE: Self = Self(ptr::null_mut());

    /// Whether this is the null buffer.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }
}

/// Memory of a buffer, as its source reports it. The layout is that of the shim's struct.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferMemory {
    /// First byte of the buffer's memory.
    pub start: *mut u8,
    /// Length in bytes.
    pub length: u16,
    /// 0, or why the buffer can't be used: 1 means too long to linearise, 2 shared, 3 invalid length.
    pub fault: u16,
}

impl BufferMemory {
    /// Memory of zero length.
    pub const EMPTY: Self = Self {
        start: ptr::dangling_mut(),
        length: 0,
        fault: 0,
    };
}

/// Output arrays for buffers that a source delivers. All arrays have the same length.
#[derive(Debug)]
pub struct IncomingBuffers<'a> {
    /// Buffer pointers.
    pub buffers: &'a mut [Buffer],
    /// Memory of each buffer.
    pub rooms: &'a mut [BufferMemory],
    /// Position of the frame in each buffer.
    pub windows: &'a mut [Window],
}

/// A source and sink of raw buffers.
///
/// # Safety
///
/// [`receive`](Self::receive), [`allocate`](Self::allocate) and [`take`](Self::take) must deliver only buffers without
/// another owner. Until a buffer is given back, its reported memory must stay valid for reads and writes of its full
/// length, initialised, at the same address, disjoint from the memory of every other delivered buffer, and accessed
/// only by the owner. Windows must lie within this memory, and returned counts must be correct.
pub unsafe trait RawBuffers: Send {
    /// Number of ports that this worker has.
    fn ports(&self) -> usize;

    /// Receive at most 64 frames, and no more than the arrays hold. A bit in `faults` is set for each frame that can't
    /// be used.
    fn receive(&mut self, port: PortIndex, coming: IncomingBuffers<'_>, faults: &mut u64) -> usize;

    /// Send buffers. Returns the number of buffers that were accepted, which are the first buffers.
    ///
    /// # Safety
    /// The caller must own every buffer, and gives up ownership of the accepted buffers. Each window must lie within
    /// its buffer's memory.
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], windows: &[Window]) -> usize;

    /// Free buffers.
    ///
    /// # Safety
    /// The caller must own every buffer, and gives up ownership of all of them.
    unsafe fn free(&mut self, buffers: &mut [Buffer]);

    /// Allocate as many buffers as the arrays hold, or none at all. Each buffer has an empty frame.
    fn allocate(&mut self, coming: IncomingBuffers<'_>) -> usize;

    /// Hand buffers over to another worker. Returns the number of buffers that were accepted, which are the first
    /// buffers.
    ///
    /// # Safety
    /// As for [`transmit`](Self::transmit). In addition, `rooms` must contain the lengths of the buffers' memory.
    unsafe fn put(
        &mut self,
        to: WorkerIndex,
        buffers: &mut [Buffer],
        rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize;

    /// Update the state of a port after its device was attached or is about to be detached.
    fn renew(&mut self, _port: PortIndex) {}

    /// Whether the port has a device.
    fn has_device(&self, _port: PortIndex) -> bool {
        true
    }

    /// Prefetch the buffers that the next [`take`](Self::take) returns.
    fn prefetch_next(&mut self) {}

    /// Free capacity, in packets, of the ring to a worker.
    fn ring_capacity(&self, _to: WorkerIndex) -> usize {
        0
    }

    /// Record how many packets have been handed over to other workers up to now.
    fn mark(&mut self) {}

    /// Whether other workers have taken all packets that were handed over before the last [`mark`](Self::mark).
    fn has_arrived(&self) -> bool {
        true
    }

    /// Number of packets handed over to this worker that wait in rings.
    fn waiting(&self) -> usize {
        0
    }

    /// Take packets that other workers have handed over to this worker.
    fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize;
}
