//! DPDK's mbufs as a source of raw buffers: one shim call per burst.

use std::sync::Arc;

use sluice_engine::packet::io::{BURST_SIZE, NoteWords, PortIndex, WorkerIndex};
use sluice_wire::{Checksums, Window};

use crate::buffers::{Buffer, BufferMemory, IncomingBuffers, RawBuffers};
use crate::coalescing::Coalescing;
use crate::handover::WorkerRings;
use crate::set::Shared;
use crate::sys;
use crate::tsc;

// What crosses the seam to C has one layout on both sides.
const _: () = {
    assert!(size_of::<BufferMemory>() == size_of::<sys::sluice_room>());
    assert!(std::mem::offset_of!(BufferMemory, length) == std::mem::offset_of!(sys::sluice_room, length));
    assert!(std::mem::offset_of!(BufferMemory, fault) == std::mem::offset_of!(sys::sluice_room, fault));
    assert!(size_of::<Window>() == size_of::<sys::sluice_window>());
    assert!(std::mem::offset_of!(Window, start) == std::mem::offset_of!(sys::sluice_window, start));
    assert!(std::mem::offset_of!(Window, length) == std::mem::offset_of!(sys::sluice_window, length));
    assert!(std::mem::offset_of!(Window, checksums) == std::mem::offset_of!(sys::sluice_window, checksums));
    assert!(Checksums::Unverified as u32 == sys::SLUICE_CHECKSUMS_UNVERIFIED);
    assert!(Checksums::Vouched as u32 == sys::SLUICE_CHECKSUMS_VOUCHED);
    assert!(Checksums::BadL3 as u32 == sys::SLUICE_CHECKSUMS_BAD_L3);
    assert!(Checksums::BadL4 as u32 == sys::SLUICE_CHECKSUMS_BAD_L4);
    assert!(Checksums::LeftToOffload as u32 == sys::SLUICE_CHECKSUMS_LEFT);
    assert!(BURST_SIZE == sys::SLUICE_BURST as usize);
};

impl IncomingBuffers<'_> {
    /// Pointers for C, and how many places there are behind each.
    #[inline(always)]
    fn places(
        self,
    ) -> (
        *mut *mut sys::rte_mbuf,
        *mut sys::sluice_room,
        *mut sys::sluice_window,
        u16,
    ) {
        let count = self.buffers.len().min(self.rooms.len()).min(self.windows.len()) as u16;
        (
            self.buffers.as_mut_ptr().cast(),
            self.rooms.as_mut_ptr().cast(),
            self.windows.as_mut_ptr().cast(),
            count,
        )
    }
}

/// One worker's way to one port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortQueues {
    pub(crate) port: u16,
    /// This worker's queues to receive from and to send by, where the port has one for it.
    pub(crate) receive: Option<u16>,
    pub(crate) transmit: Option<u16>,
    /// The device computes L4 checksums that were left to it.
    pub(crate) offload: bool,
    /// LACP wants a transmit call now and then, even of nothing.
    pub(crate) calls_for_transmit: bool,
    /// The worker gathers frames, where the interface has no interrupts.
    pub(crate) coalescing: Option<Coalescing>,
}

impl PortQueues {
    /// To a place that has no port.
    pub(crate) const NONE: PortQueues = PortQueues {
        port: u16::MAX,
        receive: None,
        transmit: None,
        offload: false,
        calls_for_transmit: false,
        coalescing: None,
    };
}

/// The ports, pools and rings of one worker.
pub struct WorkerMbufs {
    pub(crate) ways: Box<[PortQueues]>,
    pub(crate) worker: u16,
    /// Rings to and from the other workers.
    pub(crate) handover: WorkerRings,
    /// Rings, pools and ports outlive every buffer that they may be asked to take.
    pub(crate) shared: Arc<Shared>,
}

// SAFETY: queues belong to this worker alone: `Devices::attach` gives each out once. Raw names inside are owned buffers.
unsafe impl Send for WorkerMbufs {}

// SAFETY: DPDK gives a buffer to one caller only; what could be shared (reference counts, several segments,
// external memory) the shim repairs or marks as a fault, and the hand frees it unseen. Rooms lie in pools, whose
// memory is mapped, zeroed at first, and outlives the hand by `shared`.
unsafe impl RawBuffers for WorkerMbufs {
    fn ports(&self) -> usize {
        self.ways.len()
    }

    #[inline]
    fn receive(&mut self, port: PortIndex, coming: IncomingBuffers<'_>, faults: &mut u64) -> usize {
        let Some(way) = self.ways.get_mut(port as usize) else {
            return 0;
        };
        let Some(queue) = way.receive else { return 0 };
        if let Some(transmit) = way.transmit.filter(|_| way.calls_for_transmit) {
            // SAFETY: nothing is sent.
            unsafe { sys::sluice_transmit_nothing(way.port, transmit) };
        }
        let now = way.coalescing.map(|_| tsc::now()).unwrap_or_default();
        if way.coalescing.is_some_and(|coalescing| !coalescing.is_due(now)) {
            return 0;
        }
        let (buffers, rooms, windows, count) = coming.places();
        // SAFETY: each array has `count` places; the queue is this worker's alone and its port is started.
        let count = unsafe { sys::sluice_receive(way.port, queue, buffers, rooms, windows, count, faults) }.into();
        if let Some(coalescing) = &mut way.coalescing {
            coalescing.received(count, now);
        }
        count
    }

    #[inline]
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], windows: &[Window]) -> usize {
        let Some(way) = self.ways.get_mut(port as usize) else {
            return 0;
        };
        let count = buffers.len().min(windows.len()) as u16;
        let (buffers, windows) = (buffers.as_mut_ptr().cast(), windows.as_ptr().cast());
        let Some(queue) = way.transmit else { return 0 };
        // SAFETY: the caller owns `count` buffers and gives up those taken; the queue is this worker's alone.
        unsafe { sys::sluice_transmit(way.port, queue, i32::from(way.offload), buffers, windows, count) }.into()
    }

    #[inline]
    unsafe fn free(&mut self, buffers: &mut [Buffer]) {
        // SAFETY: the caller gives up as many buffers, and their pools are alive (`shared`, or `Pair::keep`).
        unsafe { sys::sluice_free(buffers.as_mut_ptr().cast(), buffers.len() as u32) };
    }

    fn allocate(&mut self, coming: IncomingBuffers<'_>) -> usize {
        let (buffers, rooms, windows, count) = coming.places();
        // SAFETY: the pool is alive, each array has `count` places.
        unsafe { sys::sluice_allocate(self.shared.pool().raw(), buffers, rooms, windows, count) }.into()
    }

    #[inline]
    unsafe fn put(
        &mut self,
        to: WorkerIndex,
        buffers: &mut [Buffer],
        rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize {
        // SAFETY: the caller owns the buffers and gives up those taken; all are of our own pools, whose buffers have no
        // private area.
        unsafe { self.handover.put(to.into(), buffers, rooms, windows, carried) }
    }

    fn renew(&mut self, port: PortIndex) {
        if let Some(way) = self.ways.get_mut(usize::from(port)) {
            *way = self.shared.port_queues(self.worker, port);
        }
    }

    fn has_device(&self, port: PortIndex) -> bool {
        self.ways
            .get(usize::from(port))
            .is_some_and(|way| way.port != PortQueues::NONE.port)
    }

    #[inline]
    fn prefetch_next(&mut self) {
        self.handover.prefetch_next();
    }

    #[inline]
    fn take(&mut self, coming: IncomingBuffers<'_>, carried: &mut [NoteWords]) -> usize {
        self.handover.take(coming, carried)
    }

    fn ring_capacity(&self, to: WorkerIndex) -> usize {
        self.handover.capacity(to.into())
    }

    fn mark(&mut self) {
        self.handover.mark();
    }

    fn has_arrived(&self) -> bool {
        self.handover.has_arrived()
    }

    fn waiting(&self) -> usize {
        self.handover.waiting()
    }
}
