//! Slow devices: each received or sent packet takes additional cycles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use sluice_dpdk::{DpdkIo, tsc};
use sluice_engine::packet::io::{
    BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError, WorkerIndex,
};

use crate::rig::lanes::Progress;

/// Cycles per packet in addition to those of the ring port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    pub receive: u64,
    pub transmit: u64,
}

/// Devices of a worker that are slowed down. Further packets wait in a device while the gateway contains enough
/// packets.
pub struct Slow {
    io: DpdkIo,
    pace: Pace,
    own: usize,
    progress: Arc<Progress>,
    /// Whether all flows are open; packets are not counted before.
    open: Arc<AtomicBool>,
}

impl Slow {
    /// Create the devices of a lane.
    pub fn new(io: DpdkIo, pace: Pace, own: usize, progress: Arc<Progress>, open: Arc<AtomicBool>) -> Self {
        Self {
            io,
            pace,
            own,
            progress,
            open,
        }
    }
}

#[inline(always)]
fn spend(cycles: u64) {
    let start = tsc::now();
    while tsc::now() - start < cycles {
        std::hint::spin_loop();
    }
}

impl PacketIo for Slow {
    #[inline]
    fn receive(&mut self, port: PortIndex) -> usize {
        if !self.open.load(Ordering::Relaxed) {
            return self.io.receive(port);
        }
        if !self.progress.may_receive() {
            return 0;
        }
        let count = self.io.receive(port);
        self.progress.receive(self.own, count);
        if self.pace.receive > 0 {
            spend(self.pace.receive * count as u64);
        }
        count
    }

    #[inline]
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>) {
        self.io.packets(into);
    }

    #[inline]
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize {
        if self.pace.transmit > 0 {
            spend(self.pace.transmit * slots.len() as u64);
        }
        self.io.transmit(port, slots)
    }

    #[inline]
    fn free(&mut self, slots: &[BufferIndex]) {
        self.io.free(slots);
    }

    fn allocate(&mut self, count: usize) -> usize {
        self.io.allocate(count)
    }

    fn park(&mut self, slot: BufferIndex) -> Option<Parked> {
        self.io.park(slot)
    }

    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        self.io.unpark(parked)
    }

    fn release(&mut self, parked: Parked) {
        self.io.release(parked);
    }

    #[inline]
    fn end(&mut self) -> usize {
        self.io.end()
    }

    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)] {
        self.io.refused(port)
    }

    fn outstanding(&self) -> usize {
        self.io.outstanding()
    }

    fn parked(&self) -> usize {
        self.io.parked()
    }
}

impl Handover for Slow {
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize {
        self.io.hand_over(to, slots, carried)
    }

    fn free_entries(&self, to: WorkerIndex) -> usize {
        self.io.free_entries(to)
    }

    fn mark(&mut self) {
        self.io.mark();
    }

    fn has_arrived(&self) -> bool {
        self.io.has_arrived()
    }

    #[inline]
    fn prefetch_handed_over(&mut self) {
        self.io.prefetch_handed_over();
    }

    fn waiting(&self) -> usize {
        self.io.waiting()
    }

    #[inline]
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        self.io.take_over(carried)
    }
}
