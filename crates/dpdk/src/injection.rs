//! Frames as drivers may deliver them, which no driver at hand does on demand: for tests.

use std::sync::Arc;

use sluice_engine::packet::io::PortIndex;

use crate::buffers::Buffer;
use crate::burst_buffers::BurstBuffers;
use crate::mbufs::WorkerMbufs;
use crate::set::Shared;
use crate::sys;

/// What is special about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Injected {
    /// Nothing.
    Plain = sys::SLUICE_INJECT_PLAIN,
    /// Somebody else holds its buffer too.
    Shared = sys::SLUICE_INJECT_SHARED,
    /// It comes in two segments, each with the given bytes.
    Segments = sys::SLUICE_INJECT_SEGMENTS,
    /// A tag 0x8100, 0x2007 was stripped.
    Tag = sys::SLUICE_INJECT_TAG,
    /// A tag 0x88a8, 9 and a tag 0x8100, 7 were stripped.
    Tags = sys::SLUICE_INJECT_TAGS,
    /// A tag is told, and still in the frame.
    KeptTag = sys::SLUICE_INJECT_KEPT_TAG,
    /// Both checksums are good.
    Good = sys::SLUICE_INJECT_GOOD,
    /// The L3 checksum is bad.
    BadL3 = sys::SLUICE_INJECT_BAD_L3,
    /// The L4 checksum is bad.
    BadL4 = sys::SLUICE_INJECT_BAD_L4,
    /// The L4 checksum was left to the device.
    LeftL4 = sys::SLUICE_INJECT_LEFT,
}

/// The other holder of a [`Injected::Shared`] buffer; it lets go when dropped.
pub struct OtherHolder {
    buffer: Buffer,
    /// Keeps the buffer's pool.
    _shared: Arc<Shared>,
}

impl Drop for OtherHolder {
    fn drop(&mut self) {
        // SAFETY: this holder has a reference of its own.
        unsafe { sys::sluice_free((&raw mut self.buffer).cast(), 1) };
    }
}

impl BurstBuffers<WorkerMbufs> {
    /// Put a frame into a ring port's loop (`ring:NAME`), from which this hand then receives it. `None` where the
    /// port is no loop or has no place, and for what nobody else holds.
    pub fn inject(&mut self, port: PortIndex, what: Injected, bytes: &[u8]) -> Option<OtherHolder> {
        let shared = self.source().shared.clone();
        let looped = shared.loop_port(port)?;
        let ring = looped.first_loop()?;
        let mut buffer = Buffer::NONE;
        // SAFETY: of a loop's first queue this hand's worker is the one producer; the pool is alive.
        let error = unsafe {
            let (pool, length) = (shared.pool().raw(), bytes.len() as u16);
            sys::sluice_inject(
                pool,
                ring.raw(),
                what as i32,
                bytes.as_ptr(),
                length,
                (&raw mut buffer).cast(),
            )
        };
        (error == 0 && what == Injected::Shared).then(|| OtherHolder {
            buffer,
            _shared: shared,
        })
    }
}
