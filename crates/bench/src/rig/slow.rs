//! Slow devices: each received or sent packet takes additional cycles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use sluice_dpdk::{DpdkIo, tsc};
use sluice_engine::packet::io::{
    BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError, WorkerIndex,
};

use super::progress::Progress;

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

/// Methods that pass a call on to the devices.
macro_rules! pass_on {
    ($([$($by:tt)+] $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        fn $name($($by)+ self, $($argument: $type),*) $(-> $result)? {
            self.io.$name($($argument),*)
        })*
    };
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

    pass_on! {
        [&mut] free(slots: &[BufferIndex]);
        [&mut] allocate(count: usize) -> usize;
        [&mut] park(slot: BufferIndex) -> Option<Parked>;
        [&mut] unpark(parked: Parked) -> Result<BufferIndex, Parked>;
        [&mut] release(parked: Parked);
        [&mut] end() -> usize;
        [&] refused(port: PortIndex) -> &[(ReceiveError, u64)];
        [&] outstanding() -> usize;
        [&] parked() -> usize;
    }
}

impl Handover for Slow {
    pass_on! {
        [&mut] hand_over(to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize;
        [&] free_entries(to: WorkerIndex) -> usize;
        [&mut] mark();
        [&] has_arrived() -> bool;
        [&mut] prefetch_handed_over();
        [&] waiting() -> usize;
        [&mut] take_over(carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize;
    }
}
