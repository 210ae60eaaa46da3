//! Copies of frames for a capture file. The requester provides memory of a fixed size.

use std::ops::Range;

use crate::packet::batch::Batch;
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::Reason;
use crate::packet::time::Now;
use crate::snapshot::Snapshot;

/// Frames to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFilter {
    /// Frames that an interface receives and sends.
    Interface(u16),
    /// Frames that all interfaces receive.
    Received,
    /// Dropped frames of all interfaces.
    Drops,
}

/// Point at which a frame was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// Captured when received.
    Received,
    /// Captured when sent.
    Sent,
    /// Captured when dropped, with the reason.
    Dropped(Reason),
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Time of the capture, in nanoseconds.
    pub nanoseconds: u64,
    /// Interface on which the frame was captured.
    pub interface: u16,
    /// Point at which the frame was captured.
    pub seen: CapturePoint,
    /// Length of the frame.
    pub length: u16,
    /// Offset and number of the frame's bytes in the capture memory.
    start: usize,
    kept: u16,
}

/// A capture in progress.
#[derive(Debug)]
pub struct Tap {
    which: CaptureFilter,
    bytes: Vec<u8>,
    frames: Vec<CapturedFrame>,
    /// Maximum number of bytes that are kept of each frame.
    snap: u16,
    /// Number of frames that were not captured because the memory was full.
    pub missed: u64,
}

impl Tap {
    /// Creates a capture of at most `frames` frames with `snap` bytes each.
    pub fn new(which: CaptureFilter, frames: usize, snap: u16) -> Self {
        let memory = frames * snap as usize;
        Self {
            which,
            bytes: Vec::with_capacity(memory),
            frames: Vec::with_capacity(frames),
            snap,
            missed: 0,
        }
    }

    /// The captured frames, each with its first bytes.
    pub fn frames(&self) -> impl Iterator<Item = (&CapturedFrame, &[u8])> {
        self.frames
            .iter()
            .map(|frame| (frame, &self.bytes[frame.start..][..frame.kept as usize]))
    }

    /// Whether the capture memory is full.
    pub fn is_full(&self) -> bool {
        self.frames.len() == self.frames.capacity()
    }

    fn copy(&mut self, frame: &[u8], interface: u16, seen: CapturePoint, now: Now) {
        let kept = frame.len().min(self.snap as usize);
        if self.is_full() || self.bytes.capacity() - self.bytes.len() < kept {
            self.missed += 1;
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&frame[..kept]);
        let (length, kept) = (frame.len() as u16, kept as u16);
        self.frames.push(CapturedFrame {
            nanoseconds: now.nanoseconds,
            interface,
            seen,
            length,
            start,
            kept,
        });
    }

    /// Captures received frames. The frames have been parsed but not changed.
    pub(crate) fn received(&mut self, batch: &Batch<'_, '_>, slots: Range<usize>, now: Now) {
        let wanted = match self.which {
            CaptureFilter::Interface(wanted) => Some(wanted),
            CaptureFilter::Received => None,
            CaptureFilter::Drops => return,
        };
        let all = batch.packets.iter().zip(batch.meta.iter());
        for (packet, meta) in all.take(slots.end).skip(slots.start) {
            if wanted.is_none_or(|wanted| meta.interface == wanted) {
                self.copy(packet.bytes(), meta.interface, CapturePoint::Received, now);
            }
        }
    }

    /// Captures frames that cross inter-router links, once as sent on the first interface and once as received on the
    /// peer interface.
    pub(crate) fn crossing(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], snapshot: &Snapshot, now: Now) {
        for &slot in slots {
            let egress = batch.meta(slot).egress;
            let peer = snapshot.interface(egress).and_then(|interface| interface.peer);
            let frame = batch.packets[slot as usize].bytes();
            match self.which {
                CaptureFilter::Interface(wanted) if wanted == egress => {
                    self.copy(frame, wanted, CapturePoint::Sent, now)
                }
                CaptureFilter::Interface(wanted) if Some(wanted) == peer => {
                    self.copy(frame, wanted, CapturePoint::Received, now)
                }
                CaptureFilter::Interface(_) | CaptureFilter::Received | CaptureFilter::Drops => {}
            }
        }
    }

    /// Captures decapsulated frames.
    pub(crate) fn arrived(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], now: Now) {
        for &slot in slots {
            let interface = batch.meta(slot).interface;
            if self.which == CaptureFilter::Interface(interface) {
                self.copy(
                    batch.packets[slot as usize].bytes(),
                    interface,
                    CapturePoint::Received,
                    now,
                );
            }
        }
    }

    /// Captures frames in their final form, when they leave.
    pub(crate) fn leaving(&mut self, batch: &Batch<'_, '_>, lists: &Lists, first: usize, now: Now) {
        let fresh = |slot: BufferIndex| slot as usize >= first;
        match self.which {
            CaptureFilter::Interface(wanted) => {
                for &slot in lists.to_send.iter().flatten().filter(|&&slot| fresh(slot)) {
                    if batch.meta(slot).egress == wanted {
                        self.copy(batch.packets[slot as usize].bytes(), wanted, CapturePoint::Sent, now);
                    }
                }
            }
            CaptureFilter::Received => {}
            CaptureFilter::Drops => {
                for &(slot, reason) in lists.drop.iter().filter(|(slot, _)| fresh(*slot)) {
                    let interface = batch.meta(slot).interface;
                    self.copy(
                        batch.packets[slot as usize].bytes(),
                        interface,
                        CapturePoint::Dropped(reason),
                        now,
                    );
                }
            }
        }
    }
}
