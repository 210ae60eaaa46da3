//! Hand-over of buffers between workers. Each pair of workers has one single-producer, single-consumer ring per
//! direction. A ring entry contains all data for the receiving worker except the packet's bytes.

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_engine::packet::io::NoteWords;
use sluice_table::prefetch;
use sluice_wire::Window;

use crate::buffers::{Buffer, BufferMemory, IncomingBuffers};
use crate::sys;

/// Minimum number of entries in a ring.
const MIN_RING: usize = 64;

/// A ring entry. The entry owns its buffer.
struct HandoverEntry {
    buffer: Buffer,
    data_room: u16,
    window: Window,
    carried: NoteWords,
}

// SAFETY: only this value refers to the buffer, and any thread may use a buffer.
unsafe impl Send for HandoverEntry {}

impl HandoverEntry {
    /// First byte of the buffer's memory.
    #[inline(always)]
    fn start(&self) -> *mut u8 {
        self.buffer.0.wrapping_add(sys::SLUICE_ROOM as usize)
    }
}

impl Drop for HandoverEntry {
    /// Frees a buffer that is still in a ring after both ring ends were dropped.
    fn drop(&mut self) {
        // SAFETY: the entry owns the buffer, and pools live longer than the ends of rings (`WorkerMbufs`).
        unsafe { sys::sluice_free((&raw mut self.buffer).cast(), 1) };
    }
}

/// Producer end of the ring to another worker.
struct To {
    ring: Producer<HandoverEntry>,
    /// Number of packets put into the ring so far. `mark` is the value of this number at the last call of `mark`.
    put: usize,
    mark: usize,
}

/// A worker's ends of the rings to and from all other workers.
pub(crate) struct WorkerRings {
    to: Box<[Option<To>]>,
    from: Box<[Consumer<HandoverEntry>]>,
    /// Index of the first ring to read, in round-robin order.
    next_ring: usize,
}

/// Create the rings between all workers. Each ring has `frames` entries. Returns the ring ends of each worker.
pub(crate) fn rings(workers: usize, frames: u32) -> Vec<WorkerRings> {
    let places = (frames as usize).max(MIN_RING);
    let mut ends: Vec<(Vec<_>, Vec<_>)> = (0..workers).map(|_| Default::default()).collect();
    for from in 0..workers {
        for to in 0..workers {
            let ring = (from != to).then(|| RingBuffer::new(places));
            let (producer, consumer) = ring.unzip();
            let to_it = producer.map(|ring| To { ring, put: 0, mark: 0 });
            ends[from].0.push(to_it);
            ends[to].1.extend(consumer);
        }
    }
    let made = ends.into_iter().map(|(to, from)| WorkerRings {
        to: to.into(),
        from: from.into(),
        next_ring: 0,
    });
    made.collect()
}

impl WorkerRings {
    /// Hand buffers over to a worker. Returns the number of buffers that the ring has accepted; these are the first
    /// buffers in the order given.
    ///
    /// # Safety
    /// The caller must own every buffer, and gives up ownership of the accepted buffers. Each window must lie within
    /// its buffer's memory. The buffers must be from pools in which buffer memory starts [`sys::SLUICE_ROOM`] bytes
    /// after the buffer pointer.
    pub(crate) unsafe fn put(
        &mut self,
        to: usize,
        buffers: &[Buffer],
        data_rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize {
        let Some(Some(To { ring, put, .. })) = self.to.get_mut(to) else {
            return 0;
        };
        let count = buffers
            .len()
            .min(data_rooms.len())
            .min(windows.len())
            .min(carried.len());
        let count = count.min(ring.slots());
        let Ok(chunk) = ring.write_chunk_uninit(count) else {
            return 0;
        };
        let all = buffers.iter().zip(data_rooms).zip(windows).zip(carried);
        let taken = chunk.fill_from_iter(all.map(|(((&buffer, &data_room), &window), &carried)| HandoverEntry {
            buffer,
            data_room,
            window,
            carried,
        }));
        *put = put.wrapping_add(taken);
        taken
    }

    /// Record the number of packets put into each ring so far.
    pub(crate) fn mark(&mut self) {
        self.to.iter_mut().flatten().for_each(|to| to.mark = to.put);
    }

    /// Whether other workers have received all packets that were put into the rings before the last call of
    /// [`mark`](Self::mark).
    pub(crate) fn has_arrived(&self) -> bool {
        self.to.iter().flatten().all(|to| {
            let waiting = to.ring.buffer().capacity() - to.ring.slots();
            waiting <= to.put.wrapping_sub(to.mark)
        })
    }

    /// Prefetch the packets that the next [`take`](Self::take) returns.
    #[inline]
    pub(crate) fn prefetch_next(&mut self) {
        let mut remaining = sluice_engine::packet::io::BURST_SIZE;
        for ring in &mut self.from {
            let count = ring.slots().min(remaining);
            let Ok(chunk) = ring.read_chunk(count) else { continue };
            let (first, second) = chunk.as_slices();
            for handed in first.iter().chain(second) {
                // Prefetch the mbuf's cache line for the write at transmission, and the packet's headers for earlier
                // reads.
                prefetch::prefetch_write_address(handed.buffer.0);
                prefetch::prefetch_read_address(handed.start().wrapping_add(usize::from(handed.window.start)));
            }
            remaining -= count;
        }
    }

    /// Receive packets from the rings of other workers, but not more than the arrays have space for.
    #[inline]
    pub(crate) fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize {
        let max = coming
            .buffers
            .len()
            .min(coming.data_rooms.len())
            .min(coming.windows.len())
            .min(carried.len());
        let rings = self.from.len();
        let mut taken = 0;
        for place in 0..rings {
            let ring = &mut self.from[(self.next_ring + place) % rings];
            let count = ring.slots().min(max - taken);
            let Ok(chunk) = ring.read_chunk(count) else { continue };
            for handed in chunk {
                coming.buffers[taken] = handed.buffer;
                coming.data_rooms[taken] = BufferMemory {
                    start: handed.start(),
                    length: handed.data_room,
                    fault: 0,
                };
                coming.windows[taken] = handed.window;
                carried[taken] = handed.carried;
                // The burst buffers now own the buffer.
                std::mem::forget(handed);
                taken += 1;
            }
            if taken == max {
                break;
            }
        }
        self.next_ring = (self.next_ring + 1) % rings.max(1);
        taken
    }

    /// Number of free entries in the ring to a worker.
    pub(crate) fn capacity(&self, to: usize) -> usize {
        let ring = self.to.get(to).and_then(Option::as_ref);
        ring.map_or(0, |to| to.ring.slots())
    }

    /// Number of packets in the rings to this worker.
    pub(crate) fn waiting(&self) -> usize {
        self.from.iter().map(Consumer::slots).sum()
    }
}
