//! Injection of frames for tests. Injected frames have properties that only drivers of cards produce, and not on
//! demand.

use std::sync::Arc;

use sluice_engine::packet::io::PortIndex;

use crate::buffers::Buffer;
use crate::burst_buffers::BurstBuffers;
use crate::mbufs::WorkerMbufs;
use crate::set::Shared;
use crate::sys;

/// Special property of an injected frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Injected {
    /// No special property.
    Plain = sys::SLUICE_INJECT_PLAIN,
    /// Another holder has a second reference to the frame's buffer.
    Shared = sys::SLUICE_INJECT_SHARED,
    /// The packet consists of two segments, each with the bytes of the injected frame.
    Segments = sys::SLUICE_INJECT_SEGMENTS,
    /// A VLAN tag (0x8100, 0x2007) was stripped.
    Tag = sys::SLUICE_INJECT_TAG,
    /// Two VLAN tags (0x88a8, 9 and 0x8100, 7) were stripped.
    Tags = sys::SLUICE_INJECT_TAGS,
    /// The driver reports a VLAN tag without stripping it from the frame.
    KeptTag = sys::SLUICE_INJECT_KEPT_TAG,
    /// Both checksums are valid.
    Good = sys::SLUICE_INJECT_GOOD,
    /// The L3 checksum is invalid.
    BadL3 = sys::SLUICE_INJECT_BAD_L3,
    /// The L4 checksum is invalid.
    BadL4 = sys::SLUICE_INJECT_BAD_L4,
    /// The packet requires checksum offload for the L4 checksum.
    LeftL4 = sys::SLUICE_INJECT_LEFT,
}

/// Another holder of an [`Injected::Shared`] buffer. The holder releases its reference when it is dropped.
pub struct OtherHolder {
    buffer: Buffer,
    /// Keeps the buffer's pool alive.
    _shared: Arc<Shared>,
}

impl Drop for OtherHolder {
    fn drop(&mut self) {
        // SAFETY: this holder has its own reference to the buffer.
        unsafe { sys::sluice_free((&raw mut self.buffer).cast(), 1) };
    }
}

impl BurstBuffers<WorkerMbufs> {
    /// Put a frame into a loop ring port (`ring:NAME`). The next receive on the port returns this frame. Returns the
    /// other holder of the frame's buffer. `None` if the port is not a loop, if its ring is full, or if the buffer has
    /// no other holder.
    pub fn inject(&mut self, port: PortIndex, what: Injected, bytes: &[u8]) -> Option<OtherHolder> {
        let shared = self.source().shared.clone();
        let looped = shared.loop_port(port)?;
        let ring = looped.first_loop()?;
        let mut buffer = Buffer::NONE;
        // SAFETY: this worker is the only producer of the loop's first queue, and the pool is alive.
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
