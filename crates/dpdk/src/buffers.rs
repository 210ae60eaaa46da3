//! The seam under the hand: what gives and takes raw buffers, DPDK or a fake.

use std::ptr;

use sluice_engine::io::{Carried, PortIndex, WorkerIndex};
use sluice_wire::{Checksums, Window};

/// The name of one buffer; null names none. Copying the name copies no ownership: who owns the buffer is the
/// business of the [`Hand`](crate::hand::Hand).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Buffer(pub *mut u8);

impl Buffer {
    /// No buffer.
    pub const NONE: Self = Self(ptr::null_mut());

    /// Is it no buffer?
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }
}

/// A buffer's room and where the frame lies in it, as the source of buffers tells it. The layout is the shim's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct View {
    /// First byte of the room.
    pub room: *mut u8,
    /// Bytes of the room.
    pub room_length: u16,
    /// Offset of the frame in the room.
    pub start: u16,
    /// Bytes of the frame.
    pub length: u16,
    /// As [`checksums_of`] reads it.
    pub checksums: u8,
    /// 0, or why the buffer can't be used: 1 too long to linearise, 2 shared, 3 bad length.
    pub fault: u8,
}

impl View {
    /// A room of no bytes.
    pub const EMPTY: Self = Self {
        room: ptr::dangling_mut(),
        room_length: 0,
        start: 0,
        length: 0,
        checksums: 0,
        fault: 0,
    };
}

/// Where a frame lies in its room when it leaves the hand. The layout is the shim's.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Place {
    /// Offset of the frame in the room.
    pub start: u16,
    /// Bytes of the frame.
    pub length: u16,
    /// What is known of its checksums, numbered as [`checksums_of`] reads it: never above 4.
    pub checksums: u8,
    /// Zero.
    pub reserved: u8,
}

/// Number to knowledge.
#[inline(always)]
pub fn checksums_of(number: u8) -> Checksums {
    match number {
        1 => Checksums::Vouched,
        2 => Checksums::BadL3,
        3 => Checksums::BadL4,
        4 => Checksums::LeftToOffload,
        _ => Checksums::Unverified,
    }
}

/// Knowledge to number.
#[inline(always)]
pub fn number_of(checksums: Checksums) -> u8 {
    match checksums {
        Checksums::Unverified => 0,
        Checksums::Vouched => 1,
        Checksums::BadL3 => 2,
        Checksums::BadL4 => 3,
        Checksums::LeftToOffload => 4,
    }
}

impl Place {
    /// Where a window lies.
    #[inline(always)]
    pub fn of(window: &Window) -> Self {
        Self {
            start: window.start,
            length: window.length,
            checksums: number_of(window.checksums),
            reserved: 0,
        }
    }
}

/// What gives and takes raw buffers.
///
/// # Safety
///
/// An implementation gives a buffer by [`receive`](Self::receive), [`allocate`](Self::allocate) or
/// [`take`](Self::take) only while nobody else owns it, and from then until it is given back it keeps the room
/// that its [`View`] names valid for reads and writes of `room_length` bytes, initialised, unmoved, disjoint
/// from every other given room, and touched by nobody but the owner. The counts that it returns are true.
pub unsafe trait RawBuffers: Send {
    /// Ports that this worker sees.
    fn ports(&self) -> usize;

    /// Give up to `buffers.len()`, at most 64, received frames. `faults` has a bit set for each that can't be used.
    fn receive(&mut self, port: PortIndex, buffers: &mut [Buffer], views: &mut [View], faults: &mut u64) -> usize;

    /// Take buffers to be sent; returns how many, always a prefix.
    ///
    /// # Safety
    /// The caller owns every buffer, each place lies in its buffer's room, and it gives up those taken.
    unsafe fn transmit(&mut self, port: PortIndex, buffers: &mut [Buffer], places: &[Place]) -> usize;

    /// Take buffers back.
    ///
    /// # Safety
    /// The caller owns every buffer and gives all of them up.
    unsafe fn free(&mut self, buffers: &mut [Buffer]);

    /// Give `buffers.len()` new buffers, each an empty frame, or none.
    fn allocate(&mut self, buffers: &mut [Buffer], views: &mut [View]) -> usize;

    /// Take buffers for another worker; returns how many, always a prefix.
    ///
    /// # Safety
    /// As [`transmit`](Self::transmit).
    unsafe fn put(&mut self, to: WorkerIndex, buffers: &mut [Buffer], places: &[Place], carried: &[Carried]) -> usize;

    /// Give what other workers have put for this one.
    fn take(&mut self, buffers: &mut [Buffer], views: &mut [View], carried: &mut [Carried]) -> usize;
}
