//! Inline TCP stream reassembly, which ensures that a host can assemble only inspected bytes. No segment is delayed.
//!
//! The first copy of a byte wins. The bytes of a segment that continue the stream are [in order](SegmentKind::InOrder)
//! and are scanned. A segment beyond a gap is queued and also forwarded, so that its receiver can report the gap (RFC
//! 5681, RFC 2018). The segment that fills the gap is scanned together with the bytes [queued after
//! it](Streams::next_queued): no receiver delivers the queued bytes to an application before it has received this
//! segment, so dropping the segment suffices if a rule matches. Retransmitted bytes are compared with the first copy
//! and rewritten where they differ. Two different copies of a byte therefore never both pass, so the reassembly policy
//! of the receiving host does not matter.
//!
//! Released bytes are retained until their receiver has acknowledged them: the receiver ignores later copies of
//! acknowledged bytes (RFC 9293, 3.10.7.4). An acknowledgement is valid if it arrived from the receiver's side of the
//! gateway, if its destination accepts the segment, and if it acknowledges released bytes. Retained bytes are stored in
//! the window of their direction; older unacknowledged bytes are stored in blocks of a pool. Each connection has a
//! share of the pool. If no block is free, the exception policy applies to new data; retransmissions are still
//! compared. Acknowledgements free blocks, and then the connection continues. If no packet of the receiver was
//! observed, the oldest bytes are discarded, and their retransmission is [`Exception::BeyondWindow`].
//!
//! A segment that can't be handled by these rules is an [`Exception`]. The caller applies the action of its [`Policies`]:
//!
//! | policy | action of the caller |
//! | --- | --- |
//! | [`DropPacket`](Policy::DropPacket) | frees the segment |
//! | [`DropFlow`](Policy::DropFlow), [`Bypass`](Policy::Bypass) | [closes](Streams::close) the stream; all later segments are dropped or bypassed |
//! | [`Pass`](Policy::Pass) | `Midstream`, `Handshake`: calls [`Streams::pick_up`], then processes the segment again. `GapFull`: calls [`Streams::skip_gap`], scans what is then [in order](Streams::next_queued), and processes the segment again. `NoMemory`: as `Bypass`, because later bytes can't be reassembled. Any other: forwards the segment unchanged |
//!
//! An urgent pointer passes unchanged unless it is [cleared](Streams::clear_urgent) before. Urgent data is inspected
//! like other data (RFC 6093). If a host removes an urgent byte from its stream, the host reads bytes that differ from
//! the inspected bytes.
//!
//! A reset with any sequence number does not end inspection. If the receiver accepts the reset (RFC 5961, 3), the
//! direction is marked, so that the session may time out sooner. A reset with exactly the sequence number that its
//! receiver expects frees the blocks of both directions, except 64 KiB per direction, so that retransmissions from the
//! reset's receiver still pass and are answered. A retransmission of released bytes that were discarded with these
//! blocks is [`Exception::BeyondWindow`]. Discarded queued bytes are beyond the end of the stream after the reset
//! ([`Exception::BeyondEnd`]). A SYN with a different initial sequence number is forwarded; the acknowledgement of its
//! receiver determines the valid SYN. Until this acknowledgement, no segment beyond a gap passes, because its stream is
//! unknown.
//!
//! Memory: 128 bytes per connection (one cache line per direction); a window of twice the configured bytes for each
//! direction that has sent data; 2,368 bytes for each block of 2,048 data bytes; 4 bytes in a free list for each
//! connection, window and block; and 4 to 8 bytes for each block in its hash table. All memory is passed to the
//! constructor.

mod blocks;
mod event;
mod exception;
mod free;
mod handshake;
mod segment;
mod side;
mod window;

use bytemuck::Pod;
use sluice_table::hash::Hasher;
use sluice_table::memory::{LINE, Line, lines_of};
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, flag};

pub use event::StreamEvent;
pub use exception::{EXCEPTIONS, Exception, Policies, Policy, StreamCounters};
pub use segment::{QueuedData, SegmentKind};
pub use side::State;

use crate::source_quota::Source;
use blocks::{BLOCK, Block, Blocks, buckets_for};
use free::FreeList;
use side::{Connection, Half, MAX_WINDOW, mark};
use window::{Windows, capacity_for};

/// Capacity of the stream reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCapacity {
    /// Maximum number of connections, at most 2²⁴.
    pub connections: usize,
    /// Maximum number of directions with data, counted over all connections.
    pub windows: usize,
    /// Contiguous bytes retained for each direction, for rules and for the comparison with retransmissions; at most 2²⁴.
    pub window: usize,
    /// Number of bytes stored in blocks, for all directions. Blocks store bytes that wait
    /// behind a gap, and bytes that were already passed on, have left the windows, and are not acknowledged yet.
    pub reassembly: usize,
    /// Maximum number of bytes that one connection may store in blocks.
    pub share: usize,
    /// Maximum distance in bytes from the last released byte to the end of a segment, regardless of the advertised
    /// window of the receiver.
    pub reach: u32,
}

impl StreamCapacity {
    /// Default capacity for a number of connections: windows of 4 KiB for each direction, 16 KiB of blocks for each
    /// connection, and half of all blocks as the maximum for one connection.
    pub fn of(connections: usize) -> Self {
        let reassembly = (connections << 14).max(1 << 20);
        Self {
            connections,
            windows: 2 * connections,
            window: 4096,
            reassembly,
            share: reassembly / 2,
            reach: MAX_WINDOW,
        }
    }

    fn blocks(&self) -> usize {
        self.reassembly / BLOCK
    }

    /// Number of cache lines that these streams need.
    pub fn lines(&self) -> usize {
        let numbers = |count: usize| lines_of(4 * count);
        let connections = lines_of(self.connections * size_of::<Connection>()) + numbers(self.connections);
        let blocks = self.blocks() * size_of::<Block>() / LINE + numbers(self.blocks());
        let windows = self.windows * capacity_for(self.window) / LINE + numbers(self.windows);
        connections + windows + blocks + numbers(buckets_for(self.blocks()))
    }
}

/// Why streams can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The size of the memory differs from [`StreamCapacity::lines`].
    #[error("streams need {needed} cache lines of memory and got {provided}")]
    Memory {
        /// Required number of lines.
        needed: usize,
        /// Number of lines of the memory.
        provided: usize,
    },
    /// The number of connections is 0 or above 2²⁴.
    #[error("{0} connections exceed the maximum")]
    Connections(usize),
    /// The window size is 0 or above 2²⁴.
    #[error("{0} bytes of a stream exceed the maximum")]
    Window(usize),
}

/// Maximum number of blocks that remain reserved for bytes that fill a gap. At least two are reserved, because a segment may span two blocks. The
/// maximum allows a gap of many segments to be filled before anything is acknowledged.
const GAP_RESERVE: usize = (256 << 10) / BLOCK;

/// Maximum number of connections, and maximum bytes of a window.
const MAX_CONNECTIONS: usize = 1 << 24;

/// Index and generation of a connection. A handle is invalid after the connection ends, until the generation wraps
/// around after 2³² ÷ 2ⁿ uses of the entry. n is the number of index bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u32);

impl StreamHandle {
    /// A handle that is invalid in every pool.
    pub const NONE: StreamHandle = StreamHandle(u32::MAX);
}

/// The part of a direction that rules can inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamView<'a> {
    /// The most recently released bytes, contiguous: at least the configured window, at most twice as much, including the whole last segment.
    pub bytes: &'a [u8],
    /// Offset in the stream of the first byte of `bytes`.
    pub offset: u64,
    /// Offset in the stream at which the current message begins. A message consists of the bytes that a host sends
    /// before the other host sends data.
    pub message: u64,
}

/// The streams of one shard.
#[derive(Debug)]
pub struct Streams<'m> {
    connections: &'m mut [Connection],
    free: FreeList<'m>,
    windows: Windows<'m>,
    /// Mask of the index in a handle.
    capacity: u32,
    reach: u32,
    counters: StreamCounters,
}

/// Splits `count` values off the start of `memory`.
fn carve<'m, T: Pod>(memory: &mut &'m mut [Line], count: usize) -> &'m mut [T] {
    let lines = std::mem::take(memory);
    let (taken, rest) = lines.split_at_mut(lines_of(count * size_of::<T>()));
    *memory = rest;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(taken);
    bytemuck::cast_slice_mut(&mut bytes[..count * size_of::<T>()])
}

impl<'m> Streams<'m> {
    /// Creates the table in memory of [`StreamCapacity::lines`] lines and initialises all of it. `hasher` is the hash
    /// function of the block table.
    pub fn new(memory: &'m mut [Line], plan: &StreamCapacity, hasher: Hasher) -> Result<Self, CapacityError> {
        if plan.connections == 0 || plan.connections > MAX_CONNECTIONS {
            return Err(CapacityError::Connections(plan.connections));
        }
        if plan.window == 0 || plan.window > MAX_CONNECTIONS {
            return Err(CapacityError::Window(plan.window));
        }
        let (needed, provided) = (plan.lines(), memory.len());
        let Some(mut memory) = memory.get_mut(..needed) else {
            return Err(CapacityError::Memory { needed, provided });
        };
        memory.fill(Line::ZERO);
        let connections: &mut [Connection] = carve(&mut memory, plan.connections);
        connections.fill(Connection {
            sides: [Half::unseen(0); 2],
        });
        let bytes = carve(&mut memory, plan.windows * capacity_for(plan.window));
        let windows = FreeList::new(carve(&mut memory, plan.windows));
        let blocks = Blocks::new(
            carve(&mut memory, plan.blocks()),
            carve(&mut memory, buckets_for(plan.blocks())),
            FreeList::new(carve(&mut memory, plan.blocks())),
            hasher,
            (plan.share / BLOCK, (plan.share / BLOCK / 4).clamp(2, GAP_RESERVE)),
        );
        Ok(Self {
            windows: Windows::new(bytes, windows, blocks, plan.window),
            free: FreeList::new(carve(&mut memory, plan.connections)),
            connections,
            capacity: (1 << (usize::BITS - plan.connections.leading_zeros())) - 1,
            reach: plan.reach.min(MAX_WINDOW),
            counters: StreamCounters::default(),
        })
    }

    /// Creates a connection without any observed segment. If the table is full, returns `None` and counts
    /// [`Exception::NoMemory`].
    pub fn open(&mut self) -> Option<StreamHandle> {
        let Some(place) = self.free.allocate() else {
            self.count(Exception::NoMemory);
            return None;
        };
        let connection = self.connections.get_mut(place as usize)?;
        Some(StreamHandle(connection.sides[0].serial | place))
    }

    /// Sets the sequence numbers at which the data of client and server start, for a connection whose handshake was
    /// observed earlier.
    pub fn set_initial(&mut self, handle: StreamHandle, starts: [u32; 2]) {
        if let Some(connection) = connection(self.connections, self.capacity, handle) {
            for (side, start) in connection.sides.iter_mut().zip(starts) {
                side.start(start.wrapping_sub(1));
            }
        }
    }

    /// Whether a segment of the client acknowledges data of the server, which proves that the client's address is not
    /// spoofed.
    pub fn acknowledges_server(&self, handle: StreamHandle, segment: &[u8]) -> bool {
        let Some(server) = self.side(handle, Direction::Reverse) else {
            return false;
        };
        segment.len() >= tcp::LENGTH
            && tcp::FLAGS.read(segment) & (flag::ACK | flag::RST) == flag::ACK
            && server.has(mark::OPEN)
            && tcp::ACKNOWLEDGMENT.read(segment).wrapping_sub(server.acked) <= server.top().wrapping_sub(server.acked)
    }

    /// Accounts the memory of a connection to a source from now on.
    pub fn set_source(&mut self, handle: StreamHandle, source: Source) {
        if let Some(connection) = connection(self.connections, self.capacity, handle) {
            for side in &mut connection.sides {
                self.windows.blocks.set_source(side, source);
            }
        }
    }

    /// Removes a connection.
    pub fn close(&mut self, handle: StreamHandle) {
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return;
        };
        for side in &mut connection.sides {
            self.windows.release(side);
            *side = Half::unseen(side.serial.wrapping_add(self.capacity + 1));
        }
        self.free.release(handle.0 & self.capacity);
    }

    /// Skips a gap: continues the stream at the first queued byte. Returns false, without effect, if no bytes are
    /// queued.
    pub fn skip_gap(&mut self, handle: StreamHandle, direction: Direction) -> bool {
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return false;
        };
        let others = connection.side(direction.opposite()).blocks;
        let side = connection.side(direction);
        if !side.has_queued() {
            return false;
        }
        let gap = self.windows.blocks.first_queued(side);
        let gap = gap.unwrap_or(side.end.wrapping_sub(side.next));
        self.windows.skip_gap(side, others);
        side.next = side.next.wrapping_add(gap);
        side.released += u64::from(gap);
        side.flags |= mark::SETTLED;
        if side.has(mark::FIN_QUEUED) && !side.has_queued() {
            side.flags = side.flags & !mark::FIN_QUEUED | mark::FINISHED;
        }
        let before = side.acked;
        side.bound_acknowledged();
        self.windows.blocks.acknowledged(side, before);
        self.counters.skipped += u64::from(gap);
        true
    }

    /// Begins or continues the stream of a direction at `segment`, which is a TCP header with its data.
    pub fn pick_up(&mut self, handle: StreamHandle, direction: Direction, segment: &[u8]) {
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return;
        };
        let syn = tcp::FLAGS.read(segment) & flag::SYN != 0;
        let initial = tcp::SEQUENCE.read(segment).wrapping_sub(u32::from(!syn));
        let side = connection.side(direction);
        let (released, message) = (side.released, side.message);
        let gap = initial.wrapping_add(1).wrapping_sub(side.next);
        let is_established = side.has(mark::OPEN) && !syn;
        side.start(initial);
        self.windows.forget(side);
        if is_established {
            let gap = u64::from(gap).saturating_mul(u64::from(gap <= MAX_WINDOW));
            (side.released, side.message) = (released + gap, message);
            self.counters.skipped += gap;
        }
        side.flags |= mark::SETTLED;
    }

    /// The part of a direction that rules can inspect; empty if the connection does not exist.
    #[inline]
    pub fn view(&self, handle: StreamHandle, direction: Direction) -> StreamView<'_> {
        let Some(side) = self.side(handle, direction) else {
            return StreamView {
                bytes: &[],
                offset: 0,
                message: 0,
            };
        };
        StreamView {
            bytes: self.windows.view(side),
            offset: side.released - u64::from(side.filled),
            message: side.message,
        }
    }

    /// State of a direction; [`State::Unknown`] if the connection does not exist.
    pub fn state(&self, handle: StreamHandle, direction: Direction) -> State {
        self.side(handle, direction).map_or(State::Unknown, Half::state)
    }

    /// Whether a reset, or a FIN in each direction, has passed.
    pub fn ended(&self, handle: StreamHandle) -> bool {
        let states = [Direction::Forward, Direction::Reverse].map(|direction| self.state(handle, direction));
        states.contains(&State::Reset) || states == [State::Finished; 2]
    }

    /// Prefetches the record of a connection before its segment is processed.
    #[inline(always)]
    pub fn prefetch(&self, handle: StreamHandle) {
        sluice_table::prefetch::prefetch_all_at(self.connections, (handle.0 & self.capacity) as usize);
    }

    /// Prefetches the cache line to which the direction's next byte is written. The record must be in the cache
    /// already.
    #[inline(always)]
    pub fn prefetch_window(&self, handle: StreamHandle, direction: Direction) {
        if let Some(side) = self.side(handle, direction) {
            self.windows.prefetch(side);
        }
    }

    /// Counts an exception that the caller found.
    pub fn count(&mut self, exception: Exception) {
        self.counters.count(exception);
    }

    /// Counters of the shard's streams.
    pub fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Number of connections, of windows and of blocks in use.
    pub fn used(&self) -> (usize, usize, usize) {
        (self.free.used(), self.windows.used(), self.windows.blocks.taken())
    }

    #[inline(always)]
    fn side(&self, handle: StreamHandle, direction: Direction) -> Option<&Half> {
        let side = &self.connections.get((handle.0 & self.capacity) as usize)?.sides[direction as usize];
        (side.serial == handle.0 & !self.capacity).then_some(side)
    }
}

/// The connection of a handle, if it still exists.
#[inline(always)]
fn connection(connections: &mut [Connection], places: u32, handle: StreamHandle) -> Option<&mut Connection> {
    let connection = connections.get_mut((handle.0 & places) as usize)?;
    (connection.sides[0].serial == handle.0 & !places).then_some(connection)
}
