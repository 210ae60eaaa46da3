//! Hand-over of buffers between workers: one single-producer, single-consumer ring per ordered pair of workers. An
//! entry contains everything that the receiving worker needs besides the packet's bytes.

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_engine::packet::io::NoteWords;
use sluice_table::prefetch;
use sluice_wire::Window;

use crate::buffers::{Buffer, BufferMemory, IncomingBuffers};
use crate::sys;

/// Minimum number of entries in a ring.
const MIN_RING: usize = 64;

/// A ring entry, which owns its buffer.
struct HandoverEntry {
    buffer: Buffer,
    room: u16,
    window: Window,
    carried: NoteWords,
}

// SAFETY: only this value refers to the buffer, and buffers may be used on any thread.
unsafe impl Send for HandoverEntry {}

impl HandoverEntry {
    /// First byte of the buffer's memory.
    #[inline(always)]
    fn start(&self) -> *mut u8 {
        self.buffer.0.wrapping_add(sys::SLUICE_ROOM as usize)
    }
}

impl Drop for HandoverEntry {
    /// Free a buffer that is still in a ring when both its ends are dropped.
    fn drop(&mut self) {
        // SAFETY: the entry owns the buffer, and pools outlive the ends of rings (`WorkerMbufs`).
        unsafe { sys::sluice_free((&raw mut self.buffer).cast(), 1) };
    }
}

/// Producer end of a ring to another worker.
struct To {
    ring: Producer<HandoverEntry>,
    /// Number of packets put so far; `mark` is its value at the last mark.
    put: usize,
    mark: usize,
}

/// A worker's ends of the rings to and from all other workers.
pub(crate) struct WorkerRings {
    to: Box<[Option<To>]>,
    from: Box<[Consumer<HandoverEntry>]>,
    /// Index of the ring to read first: round-robin.
    turn: usize,
}

/// Create the ring ends for each of `workers` workers, with rings of `frames` entries.
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
        turn: 0,
    });
    made.collect()
}

impl WorkerRings {
    /// Hand buffers over to a worker; returns the number that its ring accepts, a prefix.
    ///
    /// # Safety
    /// The caller must own every buffer and gives up ownership of those accepted. Each window must lie within its
    /// buffer's memory. The buffers must come from pools whose buffer memory starts [`sys::SLUICE_ROOM`] bytes after
    /// the buffer pointer.
    pub(crate) unsafe fn put(
        &mut self,
        to: usize,
        buffers: &[Buffer],
        rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize {
        let Some(Some(To { ring, put, .. })) = self.to.get_mut(to) else {
            return 0;
        };
        let count = buffers.len().min(rooms.len()).min(windows.len()).min(carried.len());
        let count = count.min(ring.slots());
        let Ok(chunk) = ring.write_chunk_uninit(count) else {
            return 0;
        };
        let all = buffers.iter().zip(rooms).zip(windows).zip(carried);
        let taken = chunk.fill_from_iter(all.map(|(((&buffer, &room), &window), &carried)| HandoverEntry {
            buffer,
            room,
            window,
            carried,
        }));
        *put = put.wrapping_add(taken);
        taken
    }

    /// Record how many packets have been put so far.
    pub(crate) fn mark(&mut self) {
        self.to.iter_mut().flatten().for_each(|to| to.mark = to.put);
    }

    /// Whether all packets that had been put at the last mark were taken.
    pub(crate) fn has_arrived(&self) -> bool {
        self.to.iter().flatten().all(|to| {
            let waiting = to.ring.buffer().capacity() - to.ring.slots();
            waiting <= to.put.wrapping_sub(to.mark)
        })
    }

    /// Prefetch the packets that the next [`take`](Self::take) returns.
    #[inline]
    pub(crate) fn prefetch_next(&mut self) {
        let mut left = sluice_engine::packet::io::BURST_SIZE;
        for ring in &mut self.from {
            let count = ring.slots().min(left);
            let Ok(chunk) = ring.read_chunk(count) else { continue };
            let (first, second) = chunk.as_slices();
            for handed in first.iter().chain(second) {
                // The line of the mbuf itself is written at transmission; the headers are read first.
                prefetch::prefetch_write_address(handed.buffer.0);
                prefetch::prefetch_read_address(handed.start().wrapping_add(usize::from(handed.window.start)));
            }
            left -= count;
        }
    }

    /// Take packets that other workers have put, as many as the arrays hold.
    #[inline]
    pub(crate) fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize {
        let most = coming
            .buffers
            .len()
            .min(coming.rooms.len())
            .min(coming.windows.len())
            .min(carried.len());
        let rings = self.from.len();
        let mut taken = 0;
        for place in 0..rings {
            let ring = &mut self.from[(self.turn + place) % rings];
            let count = ring.slots().min(most - taken);
            let Ok(chunk) = ring.read_chunk(count) else { continue };
            for handed in chunk {
                coming.buffers[taken] = handed.buffer;
                coming.rooms[taken] = BufferMemory {
                    start: handed.start(),
                    length: handed.room,
                    fault: 0,
                };
                coming.windows[taken] = handed.window;
                carried[taken] = handed.carried;
                // The burst buffers own the buffer now.
                std::mem::forget(handed);
                taken += 1;
            }
            if taken == most {
                break;
            }
        }
        self.turn = (self.turn + 1) % rings.max(1);
        taken
    }

    /// Free capacity, in packets, of the ring to a worker.
    pub(crate) fn capacity(&self, to: usize) -> usize {
        let ring = self.to.get(to).and_then(Option::as_ref);
        ring.map_or(0, |to| to.ring.slots())
    }

    /// Number of packets that wait for this worker.
    pub(crate) fn waiting(&self) -> usize {
        self.from.iter().map(Consumer::slots).sum()
    }
}
