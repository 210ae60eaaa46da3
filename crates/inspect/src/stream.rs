//! TCP streams put in order, inline: what a host can assemble is what was inspected. Nothing is held back.
//!
//! The first copy of a byte wins. What a segment brings in order is [`Fresh`](Step::Fresh), to be scanned. A segment
//! ahead of a gap goes on, so that its receiver can say what is missing (RFC 5681, RFC 2018), and its bytes are kept.
//! The segment that fills the gap is scanned together with what is [kept behind it](Streams::next_kept): no receiver
//! hands those bytes to an application before that segment has come, so that it is the one to be dropped where a rule
//! matches. Whatever comes again is compared with what came first, and rewritten where it differs. So two copies of a
//! byte that differ never both pass, and it is all one in which order a host takes what it gets, or which copy it
//! prefers.
//!
//! What is released is kept until its receiver has acknowledged it: bytes that it has acknowledged it never takes again
//! (RFC 9293, 3.10.7.4). An acknowledgment counts that came from the receiver's side, in a segment that its other side
//! takes, for something that was released. What is kept has its place in the window of its direction, and beyond that in
//! blocks of a pool, of which each connection has a share. Where there is no room, new data is an exception, not the
//! comparison of old: so acknowledgments make room, and a connection goes on. Of a direction whose receiver was never
//! heard the oldest gives way; sent again it is [`Exception::BeyondWindow`].
//!
//! What can't be brought under that rule is an [`Exception`]; the caller asks its [`Policies`] what is to be done:
//!
//! | policy | the caller |
//! | --- | --- |
//! | [`DropPacket`](Policy::DropPacket) | frees the segment |
//! | [`DropFlow`](Policy::DropFlow), [`Bypass`](Policy::Bypass) | [closes](Streams::close) the stream; every later segment is freed, or goes on |
//! | [`Pass`](Policy::Pass) | `Midstream`, `Handshake`: [`Streams::pick_up`], then the segment again. `GapFull`: [`Streams::skip`], what is then [in order](Streams::next_kept), and the segment again. `NoMemory`: as `Bypass`, for what follows can't be put in order. Any other: it goes on as it is |
//!
//! An urgent pointer passes as it came, unless it is [cleared](Streams::clear_urgent) before. Urgent data is data like other (RFC 6093), but a host
//! may take an urgent byte out of its stream, and does not see what was inspected then.
//!
//! A reset does not end inspection, whatever its number: it marks the direction where its receiver will take it
//! (RFC 5961, 3), so that the session may be forgotten sooner. One with the number that its receiver wants next leaves the
//! blocks of both directions to others, but for 64 KiB of each: what its receiver sends again passes and is answered. What
//! was released and is gone is [`Exception::BeyondWindow`] when it comes again; what came ahead of a gap and is gone is
//! behind the end of the stream from then on, [`Exception::BeyondEnd`]. A SYN with another initial sequence number is passed
//! on; which of the two counts is what the other side acknowledges. Until then nothing ahead of a gap passes: which
//! stream it is of is not known.
//!
//! Memory: 128 bytes a connection, one line for each direction; a window of twice the configured bytes for each direction
//! that has sent data; 2,368 bytes for each block of 2,048; 4 bytes for each of all these, and for blocks 4 to 8 more to
//! find them by. All of it is given at construction.

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

/// How many streams of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCapacity {
    /// Connections kept at a time, at most 2²⁴.
    pub connections: usize,
    /// Directions with data, of all connections.
    pub windows: usize,
    /// Bytes of a direction that are kept in one piece, to look at and to compare, at most 2²⁴.
    pub window: usize,
    /// Bytes kept beside the windows, of all directions, in whole blocks: what came ahead of a gap, and what was released
    /// and is not acknowledged.
    pub reassembly: usize,
    /// How many of them one connection may have.
    pub share: usize,
    /// How far ahead of what was released a segment may end, in bytes, whatever its receiver says of its window.
    pub reach: u32,
}

impl StreamCapacity {
    /// The usual bounds for so many connections: 4 KiB to look at for each direction, 16 KiB beside them for each
    /// connection, half of all for one.
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

    /// Lines of memory for these streams.
    pub fn lines(&self) -> usize {
        let numbers = |count: usize| lines_of(4 * count);
        let connections = lines_of(self.connections * size_of::<Connection>()) + numbers(self.connections);
        let blocks = self.blocks() * size_of::<Block>() / LINE + numbers(self.blocks());
        let windows = self.windows * capacity_for(self.window) / LINE + numbers(self.windows);
        connections + windows + blocks + numbers(buckets_for(self.blocks()))
    }
}

/// Why there are no streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The memory is not as large as [`Plan::lines`] says.
    #[error("streams need {needed} lines of memory and got {given}")]
    Memory {
        /// Lines they take.
        needed: usize,
        /// Lines they got.
        given: usize,
    },
    /// No connections, or more than 2²⁴.
    #[error("{0} connections can't be kept")]
    Connections(usize),
    /// No bytes to compare, or more than 2²⁴.
    #[error("{0} bytes of a stream can't be kept")]
    Window(usize),
}

/// Blocks that bytes ahead of a gap leave to those that fill it: two at least, as a segment may lie in two; at most so
/// many, for a gap of many segments to be filled while nothing is acknowledged yet.
const GAP_RESERVE: usize = (256 << 10) / BLOCK;

/// Most connections, and most bytes of a window.
const MAX_CONNECTIONS: usize = 1 << 24;

/// A connection's place and which use of it: after its end nothing answers to it, until the serial comes round. That
/// takes 2³² ÷ 2ⁿ uses of the place, where n bits count the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u32);

impl StreamHandle {
    /// Of no connection, whatever the pool.
    pub const NONE: StreamHandle = StreamHandle(u32::MAX);
}

/// What of a direction is there to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamView<'a> {
    /// The bytes released last, in one piece: at least those of the plan's window, with all of the last segment up to twice them.
    pub bytes: &'a [u8],
    /// Where the first of them is in the stream.
    pub offset: u64,
    /// Where the current message begins in the stream: what a side sends until the other side sends.
    pub message: u64,
}

/// The streams of one shard.
#[derive(Debug)]
pub struct Streams<'m> {
    connections: &'m mut [Connection],
    free: FreeList<'m>,
    windows: Windows<'m>,
    /// Bits of a handle that are the place.
    capacity: u32,
    reach: u32,
    counters: StreamCounters,
}

/// The first lines of `memory` as so many values.
fn carve<'m, T: Pod>(memory: &mut &'m mut [Line], count: usize) -> &'m mut [T] {
    let lines = std::mem::take(memory);
    let (taken, rest) = lines.split_at_mut(lines_of(count * size_of::<T>()));
    *memory = rest;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(taken);
    bytemuck::cast_slice_mut(&mut bytes[..count * size_of::<T>()])
}

impl<'m> Streams<'m> {
    /// No streams yet, in memory of [`Plan::lines`], of which all is written. Blocks are found by `hasher`.
    pub fn new(memory: &'m mut [Line], plan: &StreamCapacity, hasher: Hasher) -> Result<Self, CapacityError> {
        if plan.connections == 0 || plan.connections > MAX_CONNECTIONS {
            return Err(CapacityError::Connections(plan.connections));
        }
        if plan.window == 0 || plan.window > MAX_CONNECTIONS {
            return Err(CapacityError::Window(plan.window));
        }
        let (needed, given) = (plan.lines(), memory.len());
        let Some(mut memory) = memory.get_mut(..needed) else {
            return Err(CapacityError::Memory { needed, given });
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

    /// A connection of which nothing was seen yet. None, and counted as [`Exception::NoMemory`], where there is no
    /// place.
    pub fn open(&mut self) -> Option<StreamHandle> {
        let Some(place) = self.free.allocate() else {
            self.count(Exception::NoMemory);
            return None;
        };
        let connection = self.connections.get_mut(place as usize)?;
        Some(StreamHandle(connection.sides[0].serial | place))
    }

    /// The handshake of a connection was seen, and forgotten: where the data of its sides begin, the client's first.
    pub fn set_initial(&mut self, handle: StreamHandle, begins: [u32; 2]) {
        if let Some(connection) = connection(self.connections, self.capacity, handle) {
            for (side, begin) in connection.sides.iter_mut().zip(begins) {
                side.begin(begin.wrapping_sub(1));
            }
        }
    }

    /// Whether a segment of the client acknowledges what the server has sent: who sends it has seen that.
    pub fn acknowledges_server(&self, handle: StreamHandle, segment: &[u8]) -> bool {
        let Some(server) = self.side(handle, Direction::Reverse) else {
            return false;
        };
        segment.len() >= tcp::LENGTH
            && tcp::FLAGS.read(segment) & (flag::ACK | flag::RST) == flag::ACK
            && server.has(mark::OPEN)
            && tcp::ACKNOWLEDGMENT.read(segment).wrapping_sub(server.acked) <= server.top().wrapping_sub(server.acked)
    }

    /// What is kept of a connection counts for a source from now on.
    pub fn set_source(&mut self, handle: StreamHandle, source: Source) {
        if let Some(connection) = connection(self.connections, self.capacity, handle) {
            for side in &mut connection.sides {
                self.windows.blocks.set_source(side, source);
            }
        }
    }

    /// Forget a connection.
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

    /// Go on at the first byte that came ahead of a gap, without what is missing before it. False, and nothing done,
    /// where there is none.
    pub fn skip_gap(&mut self, handle: StreamHandle, direction: Direction) -> bool {
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return false;
        };
        let others = connection.side(direction.opposite()).blocks;
        let side = connection.side(direction);
        if !side.has_ahead() {
            return false;
        }
        let gap = self.windows.blocks.first_ahead(side);
        let gap = gap.unwrap_or(side.end.wrapping_sub(side.next));
        self.windows.skip_gap(side, others);
        side.next = side.next.wrapping_add(gap);
        side.released += u64::from(gap);
        side.flags |= mark::SETTLED;
        if side.has(mark::FIN_AHEAD) && !side.has_ahead() {
            side.flags = side.flags & !mark::FIN_AHEAD | mark::FINISHED;
        }
        let before = side.acked;
        side.bound_acknowledged();
        self.windows.blocks.acknowledged(side, before);
        self.counters.skipped += u64::from(gap);
        true
    }

    /// The stream of this direction begins at `segment`, a TCP header and its data; or, where it had begun, goes on
    /// there.
    pub fn pick_up(&mut self, handle: StreamHandle, direction: Direction, segment: &[u8]) {
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return;
        };
        let syn = tcp::FLAGS.read(segment) & flag::SYN != 0;
        let initial = tcp::SEQUENCE.read(segment).wrapping_sub(u32::from(!syn));
        let side = connection.side(direction);
        let (released, message) = (side.released, side.message);
        let gap = initial.wrapping_add(1).wrapping_sub(side.next);
        let onward = side.has(mark::OPEN) && !syn;
        side.begin(initial);
        self.windows.forget(side);
        if onward {
            let gap = u64::from(gap).saturating_mul(u64::from(gap <= MAX_WINDOW));
            (side.released, side.message) = (released + gap, message);
            self.counters.skipped += gap;
        }
        side.flags |= mark::SETTLED;
    }

    /// What of a direction is there to evaluate; nothing where the connection is gone.
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

    /// How far a direction has come; [`State::Unseen`] where the connection is gone.
    pub fn state(&self, handle: StreamHandle, direction: Direction) -> State {
        self.side(handle, direction).map_or(State::Unseen, Half::state)
    }

    /// Whether a reset or the FIN of both sides has passed.
    pub fn ended(&self, handle: StreamHandle) -> bool {
        let states = [Direction::Forward, Direction::Reverse].map(|direction| self.state(handle, direction));
        states.contains(&State::Reset) || states == [State::Finished; 2]
    }

    /// Ask for the record of a connection, some time before its segment.
    #[inline(always)]
    pub fn prefetch(&self, handle: StreamHandle) {
        sluice_table::prefetch::prefetch_all_at(self.connections, (handle.0 & self.capacity) as usize);
    }

    /// Ask for the line that the direction's next byte is written to, once its record is here.
    #[inline(always)]
    pub fn prefetch_window(&self, handle: StreamHandle, direction: Direction) {
        if let Some(side) = self.side(handle, direction) {
            self.windows.prefetch(side);
        }
    }

    /// One more of an exception that the caller found.
    pub fn count(&mut self, exception: Exception) {
        self.counters.count(exception);
    }

    /// What has happened so far.
    pub fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Connections, windows and blocks in use.
    pub fn used(&self) -> (usize, usize, usize) {
        (self.free.used(), self.windows.used(), self.windows.blocks.taken())
    }

    #[inline(always)]
    fn side(&self, handle: StreamHandle, direction: Direction) -> Option<&Half> {
        let side = &self.connections.get((handle.0 & self.capacity) as usize)?.sides[direction as usize];
        (side.serial == handle.0 & !self.capacity).then_some(side)
    }
}

/// The connection of a handle, unless it is gone.
#[inline(always)]
fn connection(connections: &mut [Connection], places: u32, handle: StreamHandle) -> Option<&mut Connection> {
    let connection = connections.get_mut((handle.0 & places) as usize)?;
    (connection.sides[0].serial == handle.0 & !places).then_some(connection)
}
