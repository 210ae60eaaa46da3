//! TCP streams put in order, inline: what a host can assemble is what was inspected.
//!
//! The first copy of a byte wins. A segment goes on only once every byte before it has: what it brings in order is
//! [`Fresh`](Step::Fresh), to be scanned; where it repeats what was released, it is compared, and rewritten where it
//! differs. A segment ahead of a gap waits in its buffer, which the caller parks. So two copies of a byte that differ
//! never both pass, and it is all one in which order a host takes what it gets, or which copy it prefers. Among
//! segments that wait, the one that begins first is released first, whichever came first.
//!
//! What can't be brought under that rule is an [`Exception`]; the caller asks its [`Policies`] what is to be done:
//!
//! | policy | the caller |
//! | --- | --- |
//! | [`DropPacket`](Policy::DropPacket) | frees the segment; after a gap overdue, also what [`Streams::take_held`] gives |
//! | [`DropFlow`](Policy::DropFlow), [`Bypass`](Policy::Bypass) | [closes](Streams::close) the stream; every later segment and every buffer given back is freed, or goes on |
//! | [`Pass`](Policy::Pass) | `Midstream`, `Handshake`: [`Streams::pick_up`], then the segment again. `GapFull`, `GapOverdue`: [`Streams::skip`], what is then [in order](Streams::next_held), and the segment again. `NoMemory`: as `Bypass`, for what follows can't be put in order. Any other: it goes on as it is |
//!
//! Bytes that the receiver has acknowledged it never takes again (RFC 9293, 3.10.7.4), so that they pass uncompared
//! where they have left the window. That an acknowledgment comes from the receiver is for the filter of spoofed
//! addresses to ensure. Of segments that left the window unacknowledged a keyed digest is kept: sent again with the
//! same borders, in one segment or several in one, they still compare; with others they are
//! [`Exception::BeyondWindow`]. A larger window is the remedy.
//!
//! Urgent data is data like other (RFC 6093): the urgent pointer is taken away, unless configured otherwise, because a
//! host that takes an urgent byte out of its stream would not see what was inspected.
//!
//! A reset does not end inspection, whatever its number: it marks the direction where its receiver will take it
//! (RFC 5961, 3), so that the session may be forgotten sooner. A SYN with another initial sequence number is passed
//! on; which of the two counts is what the other side acknowledges.
//!
//! Memory: 128 bytes a connection, one line for each direction; a window of twice the configured bytes, and 16 bytes
//! for each digest, for each direction that has sent data; 40 bytes for each segment that may be held; 4 bytes for
//! each of all these. All of it is given at construction.

mod digest;
mod exception;
mod free;
mod hold;
mod segment;
mod side;
mod window;

use bytemuck::Pod;
use sluice_table::hash::Hasher;
use sluice_table::memory::{LINE, Line, lines_of};
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, flag};

pub use exception::{Counters, EXCEPTIONS, Exception, Policies, Policy};
pub use hold::Ahead;
pub use segment::Step;
pub use side::State;

use digest::Digest;
use free::Free;
use hold::{Bounds, Hold, Holds};
use side::{Connection, SPAN, Side, mark};
use window::{Windows, room_for};

/// How many streams of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections kept at a time, at most 2²⁴.
    pub connections: usize,
    /// Directions with data, of all connections.
    pub windows: usize,
    /// Bytes of a direction that are kept to compare and to evaluate, at most 2²⁴.
    pub window: usize,
    /// Released segments of a direction of which a digest is kept.
    pub digests: usize,
    /// Segments held, of all directions.
    pub holds: usize,
    /// Bytes of all held segments.
    pub held_bytes_of_all: u64,
    /// Segments held, of one direction: they are searched one after the other.
    pub held_segments: u16,
    /// Bytes of the segments held, of one direction.
    pub held_bytes: u32,
    /// How far ahead of what was released a segment may end, in bytes: the largest window of a receiver.
    pub reach: u32,
    /// How long a segment is held at most, in the unit of the times that are passed in.
    pub patience: u64,
    /// Leave urgent pointers as they are. A host may then take a byte out of what was inspected.
    pub keep_urgent: bool,
}

impl Plan {
    /// The usual bounds for so many connections: 4 KiB to compare for each direction, a second of patience where times
    /// are in nanoseconds.
    pub fn of(connections: usize) -> Self {
        Self {
            connections,
            windows: 2 * connections,
            window: 4096,
            digests: 64,
            holds: connections.clamp(64, 4096),
            held_bytes_of_all: u64::MAX,
            held_segments: 64,
            held_bytes: 256 << 10,
            reach: SPAN,
            patience: 1_000_000_000,
            keep_urgent: false,
        }
    }

    /// Lines of memory for these streams.
    pub fn lines(&self) -> usize {
        let numbers = |count: usize| lines_of(4 * count);
        let connections = lines_of(self.connections * size_of::<Connection>()) + numbers(self.connections);
        let holds = lines_of(self.holds * size_of::<Hold>()) + numbers(self.holds);
        let digests = lines_of(self.windows * self.digests * size_of::<Digest>());
        connections + holds + digests + self.windows * room_for(self.window) / LINE + numbers(self.windows)
    }
}

/// Why there are no streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
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

/// Most connections, and most bytes of a window.
const LIMIT: usize = 1 << 24;

/// A connection's place and which use of it: after its end nothing answers to it, until the serial comes round. That
/// takes 2³² ÷ 2ⁿ uses of the place, where n bits count the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// Of no connection, whatever the pool.
    pub const NONE: Handle = Handle(u32::MAX);
}

/// What of a direction is there to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The bytes released last, in one piece: at least those to compare, with all of the last segment up to twice them.
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
    free: Free<'m>,
    windows: Windows<'m>,
    holds: Holds<'m>,
    /// Bits of a handle that are the place.
    places: u32,
    reach: u32,
    keep_urgent: bool,
    patience: u64,
    counters: Counters,
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
    /// No streams yet, in memory of [`Plan::lines`], of which all is written. The digests are keyed by `hasher`.
    pub fn new(memory: &'m mut [Line], plan: &Plan, hasher: Hasher) -> Result<Self, Misfit> {
        if plan.connections == 0 || plan.connections > LIMIT {
            return Err(Misfit::Connections(plan.connections));
        }
        if plan.window == 0 || plan.window > LIMIT {
            return Err(Misfit::Window(plan.window));
        }
        let (needed, given) = (plan.lines(), memory.len());
        let Some(mut memory) = memory.get_mut(..needed) else {
            return Err(Misfit::Memory { needed, given });
        };
        memory.fill(Line::ZERO);
        let connections: &mut [Connection] = carve(&mut memory, plan.connections);
        connections.fill(Connection {
            sides: [Side::unseen(0); 2],
        });
        let bytes = carve(&mut memory, plan.windows * room_for(plan.window));
        let digests = carve(&mut memory, plan.windows * plan.digests);
        let windows = Free::new(carve(&mut memory, plan.windows));
        let entries = carve(&mut memory, plan.holds);
        let bounds = Bounds {
            segments: plan.held_segments,
            bytes: plan.held_bytes,
            bytes_of_all: plan.held_bytes_of_all,
        };
        Ok(Self {
            holds: Holds::new(entries, Free::new(carve(&mut memory, plan.holds)), bounds),
            windows: Windows::new((bytes, digests), windows, (plan.window, plan.digests), hasher),
            free: Free::new(carve(&mut memory, plan.connections)),
            connections,
            places: (1 << (usize::BITS - plan.connections.leading_zeros())) - 1,
            reach: plan.reach.min(SPAN),
            keep_urgent: plan.keep_urgent,
            patience: plan.patience,
            counters: Counters::default(),
        })
    }

    /// A connection of which nothing was seen yet. None, and counted as [`Exception::NoMemory`], where there is no
    /// place.
    pub fn open(&mut self) -> Option<Handle> {
        let Some(place) = self.free.take() else {
            self.count(Exception::NoMemory);
            return None;
        };
        let connection = self.connections.get_mut(place as usize)?;
        Some(Handle(connection.sides[0].serial | place))
    }

    /// Forget a connection. The tickets of its held segments go to `give`.
    pub fn close(&mut self, handle: Handle, mut give: impl FnMut(u32)) {
        let Some(connection) = connection(self.connections, self.places, handle) else {
            return;
        };
        for side in &mut connection.sides {
            while let Some(ticket) = self.holds.pop(side) {
                give(ticket);
            }
            self.windows.give_back(side);
            *side = Side::unseen(side.serial.wrapping_add(self.places + 1));
        }
        self.free.give_back(handle.0 & self.places);
    }

    /// Keep the buffer of a segment that was to be [held](Step::Hold), by what the caller knows it by. False, and the
    /// ticket stays with the caller, where the connection is gone or there is no room any more.
    #[must_use = "a ticket that was not taken stays with the caller"]
    pub fn held(&mut self, handle: Handle, direction: Direction, ahead: Ahead, ticket: u32, now: u64) -> bool {
        let Some(connection) = connection(self.connections, self.places, handle) else {
            return false;
        };
        let owner = (handle.0 & self.places) << 1 | direction as u32;
        let due = now.saturating_add(self.patience);
        let held = self.holds.insert(connection.side(direction), owner, ahead, ticket, due);
        self.counters.held += u64::from(held);
        held
    }

    /// The ticket of the held segment that is no longer ahead of a gap, if there is one: it is no longer held, and
    /// the next to be given to [`Streams::segment`].
    #[inline]
    pub fn next_held(&mut self, handle: Handle, direction: Direction) -> Option<u32> {
        let side = connection(self.connections, self.places, handle)?.side(direction);
        let first = self.holds.first(side)?;
        // Behind the end nothing comes in order any more: those are to meet their exception.
        let due = first.sequence.wrapping_sub(side.next) as i32 <= 0 || side.has(mark::FINISHED);
        if due { self.holds.pop(side) } else { None }
    }

    /// The ticket of the first held segment, in order or not: it is no longer held.
    pub fn take_held(&mut self, handle: Handle, direction: Direction) -> Option<u32> {
        let side = connection(self.connections, self.places, handle)?.side(direction);
        self.holds.pop(side)
    }

    /// Go on at the first held segment, without what is missing before it. False, and nothing done, where none is
    /// held ahead of a gap.
    pub fn skip(&mut self, handle: Handle, direction: Direction) -> bool {
        let Some(connection) = connection(self.connections, self.places, handle) else {
            return false;
        };
        let side = connection.side(direction);
        let Some(first) = self.holds.first(side).filter(|_| !side.has(mark::FINISHED)) else {
            return false;
        };
        let gap = first.sequence.wrapping_sub(side.next);
        if gap as i32 <= 0 {
            return false;
        }
        side.next = first.sequence;
        side.released += u64::from(gap);
        side.marks |= mark::SETTLED;
        side.bound_acknowledged();
        self.windows.forget(side);
        self.counters.skipped += u64::from(gap);
        true
    }

    /// The stream of this direction begins at `segment`, a TCP header and its data; or, where it had begun, goes on
    /// there.
    pub fn pick_up(&mut self, handle: Handle, direction: Direction, segment: &[u8]) {
        let Some(connection) = connection(self.connections, self.places, handle) else {
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
            let gap = u64::from(gap).saturating_mul(u64::from(gap <= SPAN));
            (side.released, side.message) = (released + gap, message);
            self.counters.skipped += gap;
        }
        side.marks |= mark::SETTLED;
    }

    /// A connection with a segment that waits since before `now` and longer than it may, and the direction it waits
    /// in; counted as [`Exception::GapOverdue`]. The same one comes again until its segments are no longer held.
    pub fn overdue(&mut self, now: u64) -> Option<(Handle, Direction)> {
        let oldest = self.holds.oldest().filter(|oldest| oldest.due <= now)?;
        let direction = match oldest.owner & 1 {
            0 => Direction::Forward,
            _ => Direction::Reverse,
        };
        let place = oldest.owner >> 1;
        let serial = self.connections.get(place as usize)?.sides[0].serial;
        self.counters.count(Exception::GapOverdue);
        Some((Handle(serial | place), direction))
    }

    /// What of a direction is there to evaluate; nothing where the connection is gone.
    #[inline]
    pub fn view(&self, handle: Handle, direction: Direction) -> View<'_> {
        let Some(side) = self.side(handle, direction) else {
            return View {
                bytes: &[],
                offset: 0,
                message: 0,
            };
        };
        View {
            bytes: self.windows.view(side),
            offset: side.released - u64::from(side.filled),
            message: side.message,
        }
    }

    /// How far a direction has come; [`State::Unseen`] where the connection is gone.
    pub fn state(&self, handle: Handle, direction: Direction) -> State {
        self.side(handle, direction).map_or(State::Unseen, Side::state)
    }

    /// Whether a reset or the FIN of both sides has passed.
    pub fn ended(&self, handle: Handle) -> bool {
        let states = [Direction::Forward, Direction::Reverse].map(|direction| self.state(handle, direction));
        states.contains(&State::Reset) || states == [State::Finished; 2]
    }

    /// The place of a connection among those that can be kept.
    #[inline(always)]
    pub fn place(&self, handle: Handle) -> usize {
        (handle.0 & self.places) as usize
    }

    /// Ask for the record of a connection, some time before its segment.
    #[inline(always)]
    pub fn prefetch(&self, handle: Handle) {
        sluice_table::prefetch::prefetch_all_at(self.connections, (handle.0 & self.places) as usize);
    }

    /// Ask for the line that the direction's next byte is written to, once its record is here.
    #[inline(always)]
    pub fn prefetch_window(&self, handle: Handle, direction: Direction) {
        if let Some(side) = self.side(handle, direction) {
            self.windows.prefetch(side);
        }
    }

    /// One more of an exception that the caller found.
    pub fn count(&mut self, exception: Exception) {
        self.counters.count(exception);
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections, windows, held segments and their bytes: what is in use.
    pub fn used(&self) -> (usize, usize, usize, u64) {
        let (segments, bytes) = (self.holds.len(), self.holds.bytes());
        (self.free.taken(), self.windows.taken(), segments, bytes)
    }

    #[inline(always)]
    fn side(&self, handle: Handle, direction: Direction) -> Option<&Side> {
        let side = &self.connections.get((handle.0 & self.places) as usize)?.sides[direction as usize];
        (side.serial == handle.0 & !self.places).then_some(side)
    }
}

/// The connection of a handle, unless it is gone.
#[inline(always)]
fn connection(connections: &mut [Connection], places: u32, handle: Handle) -> Option<&mut Connection> {
    let connection = connections.get_mut((handle.0 & places) as usize)?;
    (connection.sides[0].serial == handle.0 & !places).then_some(connection)
}
