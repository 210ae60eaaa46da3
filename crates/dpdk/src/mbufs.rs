//! DPDK's mbufs as a source of raw buffers. Each burst needs a single call of the shim.

use std::sync::Arc;

use sluice_engine::packet::io::{BURST_SIZE, NoteWords, PortIndex, WorkerIndex};
use sluice_wire::{Checksums, Window};

use crate::buffers::{Buffer, BufferMemory, IncomingBuffers, RawBuffers};
use crate::coalescing::Coalescing;
use crate::handover::WorkerRings;
use crate::set::Shared;
use crate::sys;
use crate::tsc;

// Checks that structs for C have identical layouts in Rust and in C.
const _: () = {
    assert!(size_of::<BufferMemory>() == size_of::<sys::sluice_room>());
    assert!(std::mem::offset_of!(BufferMemory, length) == std::mem::offset_of!(sys::sluice_room, length));
    assert!(std::mem::offset_of!(BufferMemory, fault) == std::mem::offset_of!(sys::sluice_room, fault));
    assert!(size_of::<Window>() == size_of::<sys::sluice_window>());
    assert!(std::mem::offset_of!(Window, start) == std::mem::offset_of!(sys::sluice_window, start));
    assert!(std::mem::offset_of!(Window, length) == std::mem::offset_of!(sys::sluice_window, length));
    assert!(std::mem::offset_of!(Window, checksums) == std::mem::offset_of!(sys::sluice_window, checksums));
    assert!(std::mem::offset_of!(Window, changed) == std::mem::offset_of!(sys::sluice_window, changed));
    assert!(Checksums::Unverified as u32 == sys::SLUICE_CHECKSUMS_UNVERIFIED);
    assert!(Checksums::Vouched as u32 == sys::SLUICE_CHECKSUMS_VOUCHED);
    assert!(Checksums::BadL3 as u32 == sys::SLUICE_CHECKSUMS_BAD_L3);
    assert!(Checksums::BadL4 as u32 == sys::SLUICE_CHECKSUMS_BAD_L4);
    assert!(Checksums::PartialChecksum as u32 == sys::SLUICE_CHECKSUMS_LEFT);
    assert!(BURST_SIZE == sys::SLUICE_BURST as usize);
};

impl IncomingBuffers<'_> {
    /// Pointers to the arrays for C, and the common number of elements.
    #[inline(always)]
    fn places(
        self,
    ) -> (
        *mut *mut sys::rte_mbuf,
        *mut sys::sluice_room,
        *mut sys::sluice_window,
        u16,
    ) {
        let count = self.buffers.len().min(self.data_rooms.len()).min(self.windows.len()) as u16;
        (
            self.buffers.as_mut_ptr().cast(),
            self.data_rooms.as_mut_ptr().cast(),
            self.windows.as_mut_ptr().cast(),
            count,
        )
    }
}

/// A worker's queues of one port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortQueues {
    pub(crate) port: u16,
    /// Receive queue of this worker; `None` if this worker does not receive from the port.
    pub(crate) receive: Option<u16>,
    pub(crate) transmit: Option<u16>,
    /// Whether the device supports checksum offload for L4 checksums.
    pub(crate) offload: bool,
    /// Whether the worker must call transmit regularly even without frames, as LACP requires.
    pub(crate) calls_for_transmit: bool,
    /// Receive coalescing, for interfaces without interrupts.
    pub(crate) coalescing: Option<Coalescing>,
}

impl PortQueues {
    /// Value at a port index that has no port.
    pub(crate) const NONE: PortQueues = PortQueues {
        port: u16::MAX,
        receive: None,
        transmit: None,
        offload: false,
        calls_for_transmit: false,
        coalescing: None,
    };
}

/// Ports, pools and rings of one worker.
pub struct WorkerMbufs {
    pub(crate) assignments: Box<[PortQueues]>,
    pub(crate) worker: u16,
    /// Rings to and from other workers.
    pub(crate) handover: WorkerRings,
    /// Shared state, which keeps rings, pools and ports alive longer than their buffers.
    pub(crate) shared: Arc<Shared>,
}

// SAFETY: the queues belong to only this worker, because `Devices::attach` assigns each queue once. The raw pointers
// refer to owned buffers.
unsafe impl Send for WorkerMbufs {}

// SAFETY: DPDK delivers a buffer to only one caller. The shim repairs a buffer that could be shared (reference counts,
// several segments, external memory), or marks it as faulty. `BurstBuffers` frees faulty buffers without reading
// them. Buffer memory lies in pools, is mapped and initially zeroed, and `shared` keeps it alive longer than the burst
// buffers.
unsafe impl RawBuffers for WorkerMbufs {
    fn ports(&self) -> usize {
        self.assignments.len()
    }

    #[inline]
    fn receive(&mut self, port: PortIndex, coming: IncomingBuffers<'_>, faults: &mut u64) -> usize {
        let Some(assigned) = self.assignments.get_mut(port as usize) else {
            return 0;
        };
        let Some(queue) = assigned.receive else { return 0 };
        if let Some(transmit) = assigned.transmit.filter(|_| assigned.calls_for_transmit) {
            // SAFETY: the call sends no frame.
            unsafe { sys::sluice_transmit_nothing(assigned.port, transmit) };
        }
        let now = assigned.coalescing.map(|_| tsc::now()).unwrap_or_default();
        if assigned.coalescing.is_some_and(|coalescing| !coalescing.is_due(now)) {
            return 0;
        }
        let (buffers, data_rooms, windows, count) = coming.places();
        // SAFETY: each array has `count` elements. The queue belongs to only this worker, and its port is started.
        let count =
            unsafe { sys::sluice_receive(assigned.port, queue, buffers, data_rooms, windows, count, faults) }.into();
        if let Some(coalescing) = &mut assigned.coalescing {
            coalescing.received(count, now);
        }
        count
    }

    #[inline]
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], windows: Option<&[Window]>) -> usize {
        let Some(assigned) = self.assignments.get_mut(port as usize) else {
            return 0;
        };
        let count = windows.map_or(buffers.len(), |windows| buffers.len().min(windows.len())) as u16;
        let windows = windows.map_or(std::ptr::null(), |windows| windows.as_ptr().cast());
        let buffers = buffers.as_mut_ptr().cast();
        let Some(queue) = assigned.transmit else { return 0 };
        // SAFETY: the caller owns `count` buffers and gives up the accepted buffers. The queue belongs to only this
        // worker.
        unsafe {
            sys::sluice_transmit(
                assigned.port,
                queue,
                i32::from(assigned.offload),
                buffers,
                windows,
                count,
            )
        }
        .into()
    }

    #[inline]
    unsafe fn free(&mut self, buffers: &mut [Buffer]) {
        // SAFETY: the caller gives up ownership of these buffers, and their pools are alive (`shared`, or
        // `Pair::keep`).
        unsafe { sys::sluice_free(buffers.as_mut_ptr().cast(), buffers.len() as u32) };
    }

    fn allocate(&mut self, coming: IncomingBuffers<'_>) -> usize {
        let (buffers, data_rooms, windows, count) = coming.places();
        // SAFETY: the pool is alive, and each array has `count` elements.
        unsafe { sys::sluice_allocate(self.shared.pool().raw(), buffers, data_rooms, windows, count) }.into()
    }

    #[inline]
    unsafe fn put(
        &mut self,
        to: WorkerIndex,
        buffers: &mut [Buffer],
        data_rooms: &[u16],
        windows: &[Window],
        carried: &[NoteWords],
    ) -> usize {
        // SAFETY: the caller owns the buffers and gives up the accepted buffers. All buffers are from pools of this
        // crate, without a private area.
        unsafe { self.handover.put(to.into(), buffers, data_rooms, windows, carried) }
    }

    fn renew(&mut self, port: PortIndex) {
        if let Some(assigned) = self.assignments.get_mut(usize::from(port)) {
            *assigned = self.shared.port_queues(self.worker, port);
        }
    }

    fn has_device(&self, port: PortIndex) -> bool {
        self.assignments
            .get(usize::from(port))
            .is_some_and(|assigned| assigned.port != PortQueues::NONE.port)
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
