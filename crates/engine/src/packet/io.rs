//! Packet I/O: the interface between the engine and the drivers.
//!
//! A [`PacketIo`] belongs to one worker and owns every buffer that the worker uses. The *burst buffers* contain packets
//! until they are disposed of: packets that were received, made, unparked or taken over. The burst buffers are an
//! ordered list of at most [`BURST_BUFFERS`] buffers, addressed by [`BufferIndex`]. Nodes borrow the burst buffers as
//! [`Packet`]s; a node chooses the next node of each packet and never owns a buffer. At the end of the burst the worker
//! disposes of every buffer exactly once: it transmits, frees, parks or hands over the buffer. [`PacketIo::end`] ends
//! the burst and empties the burst buffers.
//!
//! Every method is called once per burst, never per packet. The exceptions are the rare methods `park` and `unpark`.

pub mod memory;

use arrayvec::ArrayVec;
use sluice_wire::{Packet, Window};

/// Maximum number of frames in one receive call.
pub const BURST_SIZE: usize = 64;

/// Maximum number of burst buffers: twice the maximum batch, because packets are also made during the burst (ICMP
/// errors, fragments, ARP requests).
pub const BURST_BUFFERS: usize = 2 * BURST_SIZE;

/// Index of a buffer among the burst buffers, in the order of arrival. The index is valid until [`PacketIo::end`].
pub type BufferIndex = u8;

/// All buffer indexes, in order.
pub const ALL_SLOTS: [BufferIndex; BURST_BUFFERS] = {
    let mut slots = [0; BURST_BUFFERS];
    let mut slot = 0;
    while slot < BURST_BUFFERS {
        slots[slot] = slot as BufferIndex;
        slot += 1;
    }
    slots
};

/// Number of a port of this worker. Ports are in the order of the configured interfaces.
pub type PortIndex = u16;

/// Port number of an interface without a port: an inter-router link, a tunnel, or a removed interface.
pub const NO_PORT: PortIndex = PortIndex::MAX;

/// Number of a worker, counted from 0.
pub type WorkerIndex = u16;

/// The burst buffers, borrowed by nodes.
pub type Packets<'a> = ArrayVec<Packet<'a>, BURST_BUFFERS>;

/// Number of bytes in a [`Head`]: an untagged frame up to the end of a TCP header without options, for both address families.
pub const HEAD: usize = 96;

/// The first bytes of a frame. If the frame is shorter, the bytes after its end have no meaning.
pub type Head = [u8; HEAD];

/// The first bytes of the packets of a burst; `None` for a slot that has been disposed of, or whose buffer ends before.
pub type Heads<'a> = [Option<&'a mut Head>; BURST_SIZE];

/// Handle of a parked buffer. The owner must pass it to [`PacketIo::unpark`] or [`PacketIo::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a parked buffer is lost until the device closes unless it is unparked or released"]
pub struct Parked(pub u32);

/// Encoded form of the note that accompanies a packet from one worker to another.
pub type NoteWords = [u64; 4];

/// Receives and sends frames on the devices of one worker.
pub trait PacketIo: Send {
    /// Receives up to [`BURST_SIZE`] frames from this worker's queue of a port into the burst buffers, up to their free
    /// space. Returns the number of frames. Unusable frames, for example multi-segment frames that are too long to
    /// linearise, are freed and counted in [`PacketIo::refused`].
    fn receive(&mut self, port: PortIndex) -> usize;

    /// Borrows all burst buffers: `into[slot]` is the packet in that slot. A slot that has been disposed of contains an
    /// empty packet without capacity.
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>);

    /// Borrows the first bytes of the packets in up to [`BURST_SIZE`] slots, which must be in ascending order: `heads[k]` and
    /// `windows[k]` belong to `slots[k]`. A slot that is not above all earlier ones gets no head. This takes less time than
    /// [`packets`](Self::packets).
    fn heads<'a>(&'a mut self, slots: &[BufferIndex], heads: &mut Heads<'a>, windows: &mut [Window; BURST_SIZE]) {
        let mut packets = Packets::new();
        self.packets(&mut packets);
        let (count, mut next) = (packets.len(), 0);
        let mut packets = packets.into_iter();
        for (slot, (head, window)) in slots.iter().zip(heads.iter_mut().zip(windows)) {
            *head = None;
            let slot = usize::from(*slot);
            if (next..count).contains(&slot)
                && let Some(packet) = packets.nth(slot - next)
            {
                *window = packet.window();
                *head = packet.into_head();
                next = slot + 1;
            }
        }
    }

    /// Sends the packets of these slots in order. Returns the number of accepted packets. The device accepts packets
    /// from the start of `slots`; the remaining slots stay in the burst buffers.
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize;

    /// Frees the buffers of these slots.
    fn free(&mut self, slots: &[BufferIndex]);

    /// Appends up to `count` buffers to the burst buffers. Each appended buffer is an empty frame with at least 128 bytes of
    /// headroom. Returns the number of buffers, which is 0 if the burst buffers are full or the pool is exhausted.
    fn allocate(&mut self, count: usize) -> usize;

    /// Removes a slot from the burst buffers and keeps its buffer. If no more buffers can be parked, returns `None`
    /// without an effect.
    fn park(&mut self, slot: BufferIndex) -> Option<Parked>;

    /// Appends a parked buffer to the burst buffers and returns its slot. If the burst buffers are full, the handle is returned.
    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked>;

    /// Frees a parked buffer.
    fn release(&mut self, parked: Parked);

    /// Ends the burst and empties the burst buffers. Frees buffers that have not been disposed of, and returns their number. A
    /// number other than 0 indicates a bug of the caller; tests assert 0.
    fn end(&mut self) -> usize;

    /// For each reason: number of frames that `receive` has refused on a port since the start, as `(reason, count)`.
    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)];

    /// Attaches or detaches the device of a port. Later calls use the new device, if there is one. A port without a
    /// device neither receives nor transmits frames.
    fn replace_device(&mut self, _port: PortIndex) {}

    /// Whether a port has a device.
    fn has_device(&self, _port: PortIndex) -> bool {
        true
    }

    /// Number of burst buffers that have not been disposed of.
    fn outstanding(&self) -> usize;

    /// Number of parked buffers.
    fn parked(&self) -> usize;
}

/// Reason for which a received frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveError {
    /// The frame has several segments and doesn't fit in one buffer.
    TooLongToLinearise,
    /// The buffer has other references.
    Shared,
    /// The frame is longer than 65,535 bytes, or empty.
    BadLength,
}

/// Passes packets between workers, in bursts, through bounded rings.
pub trait Handover: PacketIo {
    /// Moves slots to another worker, each with its note (`carried[k]` belongs to `slots[k]`). Returns the number of
    /// accepted slots. The ring accepts slots from the start of `slots`; the remaining slots stay in the burst buffers.
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize;

    /// Number of free entries in the ring to a worker.
    fn free_entries(&self, to: WorkerIndex) -> usize;

    /// Records how many packets have been handed to other workers so far; see [`has_arrived`](Self::has_arrived).
    fn mark(&mut self);

    /// Whether other workers have taken all packets that were handed to them before the last [`mark`](Self::mark).
    fn has_arrived(&self) -> bool;

    /// Prefetches the packets that a later [`take_over`](Self::take_over) will return.
    fn prefetch_handed_over(&mut self) {}

    /// Number of packets that other workers have sent and that still wait in rings.
    fn waiting(&self) -> usize;

    /// Takes up to [`BURST_SIZE`] packets from other workers into the burst buffers, and appends the note of each to `carried`.
    /// Returns the number of packets.
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize;
}
