//! Sources of raw buffers, from which the burst buffers get their buffers. DPDK is the source of production, and tests
//! have a fake source.

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

/// Memory of a buffer as reported by the buffer's source. The layout equals the layout of the shim's struct.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferMemory {
    /// First byte of the buffer's memory.
    pub start: *mut u8,
    /// Length in bytes.
    pub length: u16,
    /// 0 for a usable buffer. 1: too long to linearise. 2: shared with another owner. 3: invalid length.
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

/// Output arrays for buffers that a source delivers. All arrays have equal length.
#[derive(Debug)]
pub struct IncomingBuffers<'a> {
    /// Buffer pointers.
    pub buffers: &'a mut [Buffer],
    /// Memory of each buffer.
    pub data_rooms: &'a mut [BufferMemory],
    /// Position of the frame in each buffer.
    pub windows: &'a mut [Window],
}

/// A source and sink of raw buffers.
///
/// # Safety
///
/// [`receive`](Self::receive), [`allocate`](Self::allocate) and [`take`](Self::take) must deliver only buffers without
/// another owner. Until the owner returns a buffer, the reported memory must be valid for reads and writes of its full
/// length, initialised, and at a constant address. The memory must be disjoint from the memory of every other delivered
/// buffer, and only the owner may access it. Windows must lie within this memory, and returned counts must be correct.
pub unsafe trait RawBuffers: Send {
    /// Number of ports of this worker.
    fn ports(&self) -> usize;

    /// Receive at most 64 frames, and not more than the arrays have space for. Sets a bit in `faults` for each unusable
    /// frame.
    fn receive(&mut self, port: PortIndex, coming: IncomingBuffers<'_>, faults: &mut u64) -> usize;

    /// Send buffers. Returns the number `n` of accepted buffers, which are the first `n` buffers. `windows` is `None` if no window
    /// has changed since the source delivered the buffers.
    ///
    /// # Safety
    /// The caller must own every buffer, and gives up ownership of the accepted buffers. Each window must lie within
    /// its buffer's memory.
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], windows: Option<&[Window]>) -> usize;

    /// Free buffers.
    ///
    /// # Safety
    /// The caller must own every buffer, and gives up ownership of all buffers.
    unsafe fn free(&mut self, buffers: &mut [Buffer]);

    /// Allocate a buffer for each element of the arrays. If too few buffers are free, allocate no buffer. Each buffer
    /// has an empty frame.
    fn allocate(&mut self, coming: IncomingBuffers<'_>) -> usize;

    /// Hand buffers over to another worker. Returns the number `n` of accepted buffers, which are the first `n`
    /// buffers.
    ///
    /// # Safety
    /// The requirements of [`transmit`](Self::transmit) apply. In addition, `data_rooms` must contain the lengths of the
    /// buffers' memory.
    unsafe fn put(
        &mut self,
        to: WorkerIndex,
        buffers: &mut [Buffer],
        data_rooms: &[u16],
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

    /// Number of free entries in the ring to a worker.
    fn ring_capacity(&self, _to: WorkerIndex) -> usize {
        0
    }

    /// Record the number of packets that this worker has handed over so far.
    fn mark(&mut self) {}

    /// Whether other workers have received all packets that this worker handed over before the last
    /// [`mark`](Self::mark).
    fn has_arrived(&self) -> bool {
        true
    }

    /// Number of packets in the rings to this worker.
    fn waiting(&self) -> usize {
        0
    }

    /// Receive packets that other workers have handed over to this worker.
    fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize;
}
