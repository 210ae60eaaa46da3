//! Packet I/O: the interface between the engine and the drivers.
//!
//! A [`PacketIo`] belongs to one worker and owns every buffer that the worker uses. Packets that have been received, made,
//! unparked or taken over and are not yet disposed of are in the *burst buffers*: an ordered list of at most [`BURST_BUFFERS`]
//! buffers, addressed by their [`BufferIndex`]. Nodes see the burst buffers as borrowed [`Packet`]s; they choose the next node
//! of each packet and never own it. The executor then disposes of every buffer exactly once: it transmits, frees, parks or
//! hands it over. [`PacketIo::end`] closes the burst and empties the burst buffers.
//!
//! Every method is called once per burst, never per packet, except `park` and `unpark`, which are rare.

pub mod memory;

use arrayvec::ArrayVec;
use sluice_wire::Packet;

/// Maximum number of frames per receive call.
pub const BURST_SIZE: usize = 64;

/// Maximum number of burst buffers: a batch, and as many again for packets made during the burst (ICMP errors, fragments, ARP
/// requests).
pub const BURST_BUFFERS: usize = 2 * BURST_SIZE;

/// Index of a buffer among the burst buffers, in the order of arrival. Valid until [`PacketIo::end`].
pub type BufferIndex = u8;

/// A port of this worker, in the order of the configured interfaces.
pub type PortIndex = u16;

/// Marks an interface without a port: an end of an inter-router link, or a removed interface.
pub const NO_PORT: PortIndex = PortIndex::MAX;

/// Number of a worker, from 0.
pub type WorkerIndex = u16;

/// The burst buffers as nodes borrow them.
pub type Packets<'a> = ArrayVec<Packet<'a>, BURST_BUFFERS>;

/// Handle of a parked buffer. It must be returned by [`PacketIo::unpark`] or [`PacketIo::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a parked buffer that is forgotten is lost until the device closes"]
pub struct Parked(pub u32);

/// The encoded note that accompanies a packet from one worker to another.
pub type NoteWords = [u64; 4];

/// Receives and sends frames on the devices of one worker.
pub trait PacketIo: Send {
    /// Receive up to [`BURST_SIZE`] frames from this worker's queue of a port into the burst buffers, as far as there is room.
    /// Returns the number of frames. Unusable frames (several segments and too long to linearise, …) are freed and counted in
    /// [`PacketIo::refused`].
    fn receive(&mut self, port: PortIndex) -> usize;

    /// Borrow all burst buffers: `into[slot]` is the packet in that slot. Slots already disposed of yield empty packets without
    /// capacity.
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>);

    /// Send the slots in order. Returns how many the device accepted, which is always a prefix of `slots`; the others stay in
    /// the burst buffers.
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize;

    /// Free the slots.
    fn free(&mut self, slots: &[BufferIndex]);

    /// Append up to `count` buffers to the burst buffers, each an empty frame with at least 128 bytes of headroom. Returns the
    /// number of buffers; 0 if the burst buffers are full or the pool is exhausted.
    fn allocate(&mut self, count: usize) -> usize;

    /// Remove a slot from the burst buffers and keep its buffer. Returns `None` and leaves the slot in place if no more buffers
    /// can be parked.
    fn park(&mut self, slot: BufferIndex) -> Option<Parked>;

    /// Append a parked buffer to the burst buffers and return its slot. If the burst buffers are full, the handle is returned.
    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked>;

    /// Free a parked buffer.
    fn release(&mut self, parked: Parked);

    /// End the burst and empty the burst buffers. Frees buffers not disposed of and returns their number. A number other than 0
    /// is a bug of the caller; tests assert 0.
    fn end(&mut self) -> usize;

    /// Frames that receive has refused on a port since the start, by reason: `(reason, count)`.
    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)];

    /// Attach or detach the device of a port: later calls use the new device, or none. A port without a device receives nothing
    /// and accepts nothing.
    fn replace_device(&mut self, _port: PortIndex) {}

    /// Whether a port has a device.
    fn has_device(&self, _port: PortIndex) -> bool {
        true
    }

    /// Number of burst buffers not yet disposed of.
    fn outstanding(&self) -> usize;

    /// Number of parked buffers.
    fn parked(&self) -> usize;
}

/// Why a received frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveError {
    /// The frame has several segments and doesn't fit one buffer.
    TooLongToLinearise,
    /// The buffer is referenced elsewhere.
    Shared,
    /// The frame is longer than 65,535 bytes, or empty.
    BadLength,
}

/// Passes packets from worker to worker, in bursts, through bounded rings.
pub trait Handover: PacketIo {
    /// Move slots to another worker, each with its note (`carried[k]` goes with `slots[k]`). Returns how many the ring
    /// accepted, which is a prefix of `slots`; the others stay in the burst buffers.
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize;

    /// Free entries of the ring to a worker.
    fn free_entries(&self, to: WorkerIndex) -> usize;

    /// Record how many packets have been handed to other workers so far: see [`has_arrived`](Self::has_arrived).
    fn mark(&mut self);

    /// Whether other workers have taken all packets handed to them before the last [`mark`](Self::mark).
    fn has_arrived(&self) -> bool;

    /// Prefetch the packets that a later [`take_over`](Self::take_over) will return.
    fn prefetch_handed_over(&mut self) {}

    /// Number of packets from other workers that wait in rings.
    fn waiting(&self) -> usize;

    /// Take up to [`BURST_SIZE`] packets from other workers into the burst buffers, and push the note of each to `carried`.
    /// Returns the number of packets.
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize;
}
