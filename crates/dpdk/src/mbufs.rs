//! DPDK's mbufs as a source of raw buffers: one shim call per burst.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_engine::io::{BATCH, Carried, PortIndex, WorkerIndex};

use crate::buffers::{Buffer, Place, RawBuffers, View};
use crate::ring::Ring;
use crate::set::Shared;
use crate::sys;

const _: () = {
    assert!(size_of::<View>() == size_of::<sys::sluice_view>());
    assert!(align_of::<View>() == align_of::<sys::sluice_view>());
    assert!(std::mem::offset_of!(View, fault) == std::mem::offset_of!(sys::sluice_view, fault));
    assert!(size_of::<Place>() == size_of::<sys::sluice_window>());
    assert!(std::mem::offset_of!(Place, checksums) == std::mem::offset_of!(sys::sluice_window, checksums));
    assert!(size_of::<Carried>() == sys::SLUICE_PRIVATE as usize);
    assert!(BATCH == sys::SLUICE_BURST as usize);
};

/// One worker's way to one port.
pub(crate) struct Way {
    pub(crate) port: u16,
    /// This worker's queue, where the port has one for it.
    pub(crate) queue: Option<u16>,
    /// The device computes L4 checksums that were left to it.
    pub(crate) offload: bool,
    /// LACP wants a transmit call now and then, even of nothing.
    pub(crate) calls_for_transmit: bool,
    /// Where the port has fewer queues than workers: frames of the others, for this port's first worker.
    pub(crate) relay: Option<Arc<Ring>>,
    /// Relayed frames that the device did not take yet.
    pub(crate) backlog: ArrayVec<Buffer, BATCH>,
}

/// The ports, pools and rings of one worker.
pub struct Mbufs {
    pub(crate) worker: usize,
    pub(crate) ways: Box<[Way]>,
    /// Rings, pools and ports outlive every buffer that they may be asked to take.
    pub(crate) shared: Arc<Shared>,
}

// SAFETY: queues belong to this worker alone: `Shared` gives each out once. Raw names inside are owned buffers.
unsafe impl Send for Mbufs {}

impl Way {
    /// Send what other workers relayed.
    #[cold]
    fn relayed(&mut self, queue: u16) {
        let Some(relay) = &self.relay else { return };
        if self.backlog.is_empty() {
            let mut came = [Buffer::NONE; BATCH];
            // SAFETY: only the port's first worker has a queue beside a relay, so it is the one consumer.
            let count = unsafe { sys::sluice_take_raw(relay.raw(), came.as_mut_ptr().cast(), BATCH as u16) };
            self.backlog.extend(came[..count as usize].iter().copied());
        }
        // SAFETY: the backlog owns its buffers, settled when they were relayed; those taken leave it at once.
        let taken = unsafe {
            let count = self.backlog.len() as u16;
            sys::sluice_transmit_again(self.port, queue, self.backlog.as_mut_ptr().cast(), count)
        };
        self.backlog.drain(..taken as usize);
    }
}

// SAFETY: DPDK gives a buffer to one caller only; what could be shared (reference counts, several segments,
// external memory) the shim repairs or marks as a fault, and the hand frees it unseen. Rooms lie in pools, whose
// memory is mapped, zeroed at first, and outlives the hand by `shared`.
unsafe impl RawBuffers for Mbufs {
    fn ports(&self) -> usize {
        self.ways.len()
    }

    #[inline]
    fn receive(&mut self, port: PortIndex, buffers: &mut [Buffer], views: &mut [View], faults: &mut u64) -> usize {
        let Some(way) = self.ways.get_mut(port as usize) else {
            return 0;
        };
        let Some(queue) = way.queue else { return 0 };
        if way.relay.is_some() {
            way.relayed(queue);
        }
        if way.calls_for_transmit {
            // SAFETY: nothing is sent.
            unsafe { sys::sluice_transmit_again(way.port, queue, std::ptr::null_mut(), 0) };
        }
        let count = buffers.len().min(views.len()).min(BATCH) as u16;
        // SAFETY: both arrays have `count` places; the queue is this worker's alone and its port is started.
        unsafe {
            sys::sluice_receive(
                way.port,
                queue,
                buffers.as_mut_ptr().cast(),
                views.as_mut_ptr().cast(),
                count,
                faults,
            )
        }
        .into()
    }

    #[inline]
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], places: &[Place]) -> usize {
        let Some(way) = self.ways.get_mut(port as usize) else {
            return 0;
        };
        let count = buffers.len().min(places.len()) as u16;
        let (names, places) = (buffers.as_mut_ptr().cast(), places.as_ptr().cast());
        match (way.queue, &way.relay) {
            // SAFETY: the caller owns `count` buffers and gives up those taken; the queue is this worker's alone.
            (Some(queue), _) => unsafe {
                sys::sluice_transmit(way.port, queue, i32::from(way.offload), names, places, count)
            },
            // SAFETY: as above; the ring allows several producers.
            (None, Some(relay)) => unsafe { sys::sluice_put(relay.raw(), names, places, std::ptr::null(), count) },
            (None, None) => 0,
        }
        .into()
    }

    #[inline]
    unsafe fn free(&mut self, buffers: &mut [Buffer]) {
        // SAFETY: the caller gives up as many buffers, and their pools are alive (`shared`, or `Pair::keep`).
        unsafe { sys::sluice_free(buffers.as_mut_ptr().cast(), buffers.len() as u32) };
    }

    fn allocate(&mut self, buffers: &mut [Buffer], views: &mut [View]) -> usize {
        let count = buffers.len().min(views.len()) as u16;
        let pool = self.shared.pool().raw();
        // SAFETY: the pool is alive, both arrays have `count` places.
        unsafe { sys::sluice_allocate(pool, buffers.as_mut_ptr().cast(), views.as_mut_ptr().cast(), count) }.into()
    }

    unsafe fn put(&mut self, to: WorkerIndex, buffers: &mut [Buffer], places: &[Place], carried: &[Carried]) -> usize {
        let Some(ring) = self.shared.handover(to as usize) else {
            return 0;
        };
        let count = buffers.len().min(places.len()).min(carried.len()) as u16;
        // SAFETY: the caller owns `count` buffers and gives up those taken; the ring allows several producers;
        // every buffer of our pools has a private area of the length of `Carried`.
        unsafe {
            let names = buffers.as_mut_ptr().cast();
            sys::sluice_put(ring.raw(), names, places.as_ptr().cast(), carried.as_ptr(), count)
        }
        .into()
    }

    fn take(&mut self, buffers: &mut [Buffer], views: &mut [View], carried: &mut [Carried]) -> usize {
        let Some(ring) = self.shared.handover(self.worker) else {
            return 0;
        };
        let count = buffers.len().min(views.len()).min(carried.len()) as u16;
        // SAFETY: this worker is the ring's one consumer; all arrays have `count` places.
        unsafe {
            let (names, views) = (buffers.as_mut_ptr().cast(), views.as_mut_ptr().cast());
            sys::sluice_take(ring.raw(), names, views, carried.as_mut_ptr(), count)
        }
        .into()
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        for way in &mut self.ways {
            // SAFETY: the backlog owns its buffers and is emptied.
            unsafe { sys::sluice_free(way.backlog.as_mut_ptr().cast(), way.backlog.len() as u32) };
            way.backlog.clear();
        }
    }
}
