//! How packets come and go: the seam between the engine and what moves frames.
//!
//! A [`PacketIo`] belongs to one worker and owns every buffer that the worker touches. What has been received,
//! made, unparked or taken over and not yet disposed of is *in the hand*: an ordered list of at most [`BURST_BUFFERS`]
//! buffers, named by their [`BufferIndex`]. Nodes see the hand as borrowed [`Packet`]s; they write where each goes next
//! and never own one. The executor then disposes of every slot exactly once: transmit, free, park or hand over.
//! [`PacketIo::end`] closes the burst and empties the hand.
//!
//! Every method is called once per burst, never per packet, except `park` and `unpark`, which are rare.

pub mod memory;

use arrayvec::ArrayVec;
use sluice_wire::Packet;

/// Most frames that one receive brings.
pub const BURST_SIZE: usize = 64;

/// Most buffers in the hand: a batch, and as many made on the way (ICMP errors, fragments, ARP requests).
pub const BURST_BUFFERS: usize = 2 * BURST_SIZE;

/// Place of a buffer in the hand, counted from 0 in the order of arrival; valid until [`PacketIo::end`].
pub type BufferIndex = u8;

/// A port of this worker: an interface, in the order of the configuration.
pub type PortIndex = u16;

/// In the place of a port: the interface is an end of a virtual link, or gone.
pub const NO_PORT: PortIndex = PortIndex::MAX;

/// A worker, counted from 0.
pub type WorkerIndex = u16;

/// The hand, lent to nodes.
pub type Packets<'a> = ArrayVec<Packet<'a>, BURST_BUFFERS>;

/// A parked buffer. It must come back by [`PacketIo::unpark`] or [`PacketIo::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a parked buffer that is forgotten is lost until the device closes"]
pub struct Parked(pub u32);

/// At most 64 bytes that travel with a packet from one worker to another.
pub type NoteWords = [u64; 4];

/// Frames in and out of the devices of one worker.
pub trait PacketIo: Send {
    /// Receive up to [`BURST_SIZE`] frames of a port's queue (this worker's) into the hand, as far as it has place.
    /// Returns how many came. Frames that can't be used (multi-segment and too long to linearise, …) are
    /// freed and counted in [`PacketIo::refused`].
    fn receive(&mut self, port: PortIndex) -> usize;

    /// Lend the whole hand: `into[slot]` is the packet in that slot. Slots already disposed of are lent as
    /// empty packets of no room.
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>);

    /// Send the slots in order. Returns how many the device took, always a prefix of `slots`; the others stay
    /// in the hand.
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize;

    /// Free the slots.
    fn free(&mut self, slots: &[BufferIndex]);

    /// Add up to `count` buffers to the end of the hand, each an empty frame with at least 128 bytes of
    /// headroom. Returns how many there were; none where hand or pool is exhausted.
    fn allocate(&mut self, count: usize) -> usize;

    /// Take a slot out of the hand and keep its buffer. `None`, and the slot stays in the hand, where no more
    /// can be parked.
    fn park(&mut self, slot: BufferIndex) -> Option<Parked>;

    /// Put a parked buffer at the end of the hand and return its slot; where the hand is full the handle
    /// comes back.
    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked>;

    /// Free a parked buffer.
    fn release(&mut self, parked: Parked);

    /// End the burst: the hand is empty afterwards. Buffers not disposed of are freed; returns how many, which
    /// is a bug of the caller and asserted to be 0 in tests.
    fn end(&mut self) -> usize;

    /// Frames that receive refused on a port since the start, by reason: `(reason, count)`.
    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)];

    /// The device of a port has come, or goes: what is called from now on concerns the new one, or none. A port without a
    /// device brings nothing and takes nothing.
    fn replace_device(&mut self, _port: PortIndex) {}

    /// Whether a port has a device.
    fn has_device(&self, _port: PortIndex) -> bool {
        true
    }

    /// How many buffers are in the hand and not yet disposed of.
    fn outstanding(&self) -> usize;

    /// How many buffers are parked.
    fn parked(&self) -> usize;
}

/// Why a frame was not taken from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveError {
    /// More than one segment and more bytes than one buffer has room for.
    TooLongToLinearise,
    /// Another holder has a reference to its buffer.
    Shared,
    /// Longer than 65,535 bytes, or empty.
    BadLength,
}

/// Packets from worker to worker, in bursts, through bounded rings.
pub trait Handover: PacketIo {
    /// Move slots of the hand to another worker, each with what travels with it (`carried[k]` goes with
    /// `slots[k]`). Returns how many the ring took, a prefix; the others stay in the hand.
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize;

    /// Packets that the ring to a worker has room for.
    fn free_entries(&self, to: WorkerIndex) -> usize;

    /// Remember how much other workers have been given so far: see [`has_arrived`](Self::has_arrived).
    fn mark(&mut self);

    /// Whether other workers have taken all that they had been given at the last [`mark`](Self::mark).
    fn has_arrived(&self) -> bool;

    /// Ask the processor for the packets that [`take_over`](Self::take_over) will bring: some time before it.
    fn prefetch_handed_over(&mut self) {}

    /// Packets that other workers have handed over and that wait.
    fn waiting(&self) -> usize;

    /// Take up to [`BURST_SIZE`] packets that other workers handed over into the hand; what travelled with the
    /// `k`-th is pushed to `carried`. Returns how many came.
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize;
}
