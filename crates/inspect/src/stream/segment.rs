//! What a segment is to its stream.

use sluice_wire::checksum::{self, Delta};
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, Tcp, flag};

use super::blocks::Comparison;
use super::handshake::{acknowledge, track_handshake};
use super::side::{Half, MAX_WINDOW, mark};
use super::window::Windows;
use super::{Exception, StreamHandle, Streams, connection};

/// What a segment is, and so what is to be done with it. All but exceptions go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// The next in order: the segment's bytes from `from` to `to` are new and to be scanned, and after them the rest of a
    /// long segment, and what had come ahead of the gap that it fills: see [`Streams::next_kept`]. Those of its data
    /// before them were compared; `rewritten` counts the bytes and flags that differed from what had come, and were put
    /// right, its checksum with them. A FIN alone is fresh too, of no bytes.
    InOrder {
        /// Offset of the first new byte from the first of the TCP header.
        from: usize,
        /// Offset of the first byte behind those to be scanned.
        to: usize,
        /// Where the first new byte is in the stream. 0: the stream begins, even if one had begun before; what was found in
        /// that one has nothing to do with it.
        offset: u64,
        /// The stream ends with it.
        ends: bool,
        /// Bytes and flags that were put right.
        rewritten: usize,
    },
    /// Ahead of a gap: its bytes are kept, to be scanned when the gap is filled.
    OutOfOrder {
        /// Bytes and flags that differed from what had come before, and were put right.
        rewritten: usize,
    },
    /// Nothing new: no data, or data sent again. It goes on, with what differed put right.
    Retransmission {
        /// Bytes and flags that were put right.
        rewritten: usize,
    },
    /// None of these: the policy of the exception decides.
    Exception(Exception),
}

/// What had come ahead of a gap, and is in order now; or the rest of a long segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedData {
    /// Bytes, the last of the direction's view.
    pub length: usize,
    /// The stream ends with them.
    pub ends: bool,
}

/// What of a header counts here.
#[derive(Clone, Copy)]
pub(super) struct Header {
    /// Of the first byte of data.
    pub sequence: u32,
    pub acknowledgment: u32,
    pub window: u16,
    pub flags: u8,
    /// Where the data begins.
    pub data: usize,
}

impl Header {
    #[inline(always)]
    fn read(segment: &[u8]) -> Option<Self> {
        let header = Tcp::new(segment)?;
        let data = header.header_length();
        // No datagram is longer (RFC 791, RFC 8200), and lengths are kept in 16 bits.
        if segment.len() > u16::MAX.into() {
            return None;
        }
        (tcp::LENGTH..=segment.len()).contains(&data).then(|| Self {
            sequence: header.sequence(),
            acknowledgment: header.acknowledgment(),
            window: header.window(),
            flags: header.flags(),
            data,
        })
    }

    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Streams<'_> {
    /// What a segment is to its stream: its TCP header and its data, without what the frame has behind them, and with
    /// a checksum that was found right. What is put right in it goes into its checksum by RFC 1624.
    ///
    /// `own`: it came from its sender's side. What came from elsewhere acknowledges nothing, resets nothing, and says
    /// nothing of windows.
    #[inline]
    pub fn segment(
        &mut self,
        handle: StreamHandle,
        direction: Direction,
        own: bool,
        segment: &mut [u8],
    ) -> SegmentKind {
        let step = self.step(handle, direction, own, segment);
        let counters = &mut self.counters;
        match step {
            SegmentKind::InOrder {
                from, to, rewritten, ..
            } => {
                counters.fresh += 1;
                counters.released += (to - from) as u64;
                counters.rewritten += u64::from(rewritten > 0);
            }
            SegmentKind::OutOfOrder { rewritten } => {
                counters.ahead += 1;
                counters.rewritten += u64::from(rewritten > 0);
            }
            SegmentKind::Retransmission { rewritten } => {
                counters.repeats += 1;
                counters.rewritten += u64::from(rewritten > 0);
            }
            SegmentKind::Exception(exception) => counters.count(exception),
        }
        step
    }

    #[inline]
    fn step(&mut self, handle: StreamHandle, direction: Direction, own: bool, segment: &mut [u8]) -> SegmentKind {
        let Some(mut header) = Header::read(segment) else {
            return SegmentKind::Exception(Exception::Malformed);
        };
        let Some(connection) = connection(self.connections, self.capacity, handle) else {
            return SegmentKind::Exception(Exception::Closed);
        };
        let [forward, reverse] = &mut connection.sides;
        let (side, peer) = match direction {
            Direction::Forward => (forward, reverse),
            Direction::Reverse => (reverse, forward),
        };
        // A side that is settled has begun; the flags that need a look are rare.
        let opening = if header.has(flag::SYN | flag::RST) || !side.has(mark::SETTLED) {
            track_handshake(side, peer, own, &mut self.windows, &mut header, segment, self.reach)
        } else {
            None
        };
        let step = match opening {
            Some(step) => step,
            None if header.sequence.wrapping_sub(side.next) as i32 > 0 => {
                out_of_order(side, peer, &mut self.windows, self.reach, &mut header, segment)
            }
            None => in_order(side, peer, &mut self.windows, &mut header, segment),
        };
        if header.has(flag::ACK) && own && !matches!(step, SegmentKind::Exception(_)) {
            acknowledge(side, peer, &mut self.windows, &header);
        }
        step
    }

    /// Clear the urgent pointer of a segment that has one, so that its receiver takes all data in order. Counted.
    pub fn clear_urgent(&mut self, segment: &mut [u8]) {
        if let Some(mut header) = Header::read(segment)
            && header.has(flag::URG)
        {
            self.counters.urgent += 1;
            let urgent = tcp::URGENT.read(segment);
            tcp::URGENT.write(segment, 0);
            update_checksum(segment, Delta::default().word(urgent, 0));
            clear(segment, &mut header, flag::URG);
        }
    }

    /// What had come ahead of a gap and is in order now, a piece at a time, to be scanned behind the segment that
    /// filled the gap and before that goes on.
    #[inline]
    pub fn next_queued(&mut self, handle: StreamHandle, direction: Direction) -> Option<QueuedData> {
        let connection = connection(self.connections, self.capacity, handle)?;
        if !connection.side(direction).has_ahead() {
            return None;
        }
        let [forward, reverse] = &mut connection.sides;
        let (side, peer) = match direction {
            Direction::Forward => (forward, reverse),
            Direction::Reverse => (reverse, forward),
        };
        let kept = pop_queued(side, peer, &mut self.windows)?;
        self.counters.released += kept.length as u64;
        self.counters.kept += kept.length as u64;
        Some(kept)
    }
}

#[cold]
fn pop_queued(side: &mut Half, peer: &mut Half, windows: &mut Windows<'_>) -> Option<QueuedData> {
    let length = windows.append_kept(side, peer.blocks);
    if length == 0 {
        return None;
    }
    advance(side, peer, length);
    let ends = finish(side);
    Some(QueuedData { length, ends })
}

/// So many bytes are released. Where the other side has sent since this one did, they begin a message.
#[inline(always)]
fn advance(side: &mut Half, peer: &mut Half, length: usize) {
    if !side.has(mark::SENT_LAST) {
        side.message = side.released;
        peer.flags &= !mark::SENT_LAST;
    }
    side.advance(length);
}

/// Whether the stream has come to a FIN that was ahead of a gap.
#[inline(always)]
fn finish(side: &mut Half) -> bool {
    let ends = side.has(mark::FIN_AHEAD) && !side.has_ahead();
    if ends {
        side.flags = side.flags & !mark::FIN_AHEAD | mark::FINISHED;
    }
    ends
}

/// A segment that begins ahead of what was released: its receiver keeps it, and so do we.
#[cold]
fn out_of_order(
    side: &mut Half,
    peer: &Half,
    windows: &mut Windows<'_>,
    reach: u32,
    header: &mut Header,
    segment: &mut [u8],
) -> SegmentKind {
    let length = segment.len() - header.data;
    let begin = header.sequence.wrapping_sub(side.next);
    if begin as usize + length > reach as usize {
        return SegmentKind::Exception(Exception::OutOfWindow);
    }
    if length == 0 && !header.has(flag::FIN) {
        return SegmentKind::Retransmission { rewritten: 0 };
    }
    // A receiver may take all of a segment that begins in its window.
    if begin > side.reach(side.next) {
        return SegmentKind::Exception(Exception::OutOfWindow);
    }
    if side.has(mark::FINISHED) {
        return SegmentKind::Exception(Exception::BeyondEnd);
    }
    // Which stream it belongs to its receiver has not said yet.
    if side.has(mark::SYN_CONFLICT) {
        return SegmentKind::Exception(Exception::Handshake);
    }
    let end = header.sequence.wrapping_add(length as u32);
    let beyond = end.wrapping_sub(side.end) as i32;
    if side.has(mark::FIN_AHEAD) && beyond > 0 {
        return SegmentKind::Exception(Exception::BeyondEnd);
    }
    let mut rewritten = 0;
    if length > 0 {
        if !windows.has_capacity(side, peer.blocks, (header.sequence, length), true) {
            return SegmentKind::Exception(windows.capacity_exception(side, peer.blocks, Exception::GapFull));
        }
        if !windows.allocate(side) {
            return SegmentKind::Exception(Exception::NoMemory);
        }
        rewritten += keep(side, windows, header, segment, 0);
    }
    if header.has(flag::FIN) && beyond < 0 {
        clear(segment, header, flag::FIN);
        rewritten += 1;
    }
    if beyond > 0 {
        side.end = end;
    }
    if header.has(flag::FIN) {
        side.flags |= mark::FIN_AHEAD;
    }
    SegmentKind::OutOfOrder { rewritten }
}

/// Keep the data of a segment from a place on. Where other bytes came before, they stay, and the segment's are put
/// right: how many.
fn keep(side: &mut Half, windows: &mut Windows<'_>, header: &Header, segment: &mut [u8], known: usize) -> usize {
    let from = header.data + known;
    let sequence = header.sequence.wrapping_add(known as u32);
    let mut rewritten = 0;
    if windows.blocks.differs(side, sequence, &segment[from..]) {
        rewritten = patch(segment, from, |bytes| windows.blocks.rewrite(side, sequence, bytes));
    }
    windows.blocks.write(side, sequence, &segment[from..]);
    rewritten
}

/// Change the bytes of a segment from a place on, and its checksum with them: what `change` returns.
fn patch(segment: &mut [u8], from: usize, change: impl FnOnce(&mut [u8]) -> usize) -> usize {
    // From an even offset, so that the words are those of the checksum.
    let words = from & !1;
    let before = checksum::sum(&segment[words..]);
    let changed = change(&mut segment[from..]);
    let after = checksum::sum(&segment[words..]);
    update_checksum(segment, Delta::default().word(before, after));
    changed
}

/// A segment that begins where the stream goes on, or before.
#[inline(always)]
fn in_order(
    side: &mut Half,
    peer: &mut Half,
    windows: &mut Windows<'_>,
    header: &mut Header,
    segment: &mut [u8],
) -> SegmentKind {
    let length = segment.len() - header.data;
    let old = side.next.wrapping_sub(header.sequence);
    if old > MAX_WINDOW {
        return SegmentKind::Exception(Exception::OutOfWindow);
    }
    let known = (old as usize).min(length);
    let fresh = length - known;
    if fresh > 0 {
        if side.has(mark::FINISHED) {
            return behind_end(side, header, length);
        }
        if !windows.allocate(side) {
            return SegmentKind::Exception(Exception::NoMemory);
        }
    }
    let mut rewritten = 0;
    if old > 0 {
        match retransmission(side, windows, header, segment, known) {
            Some(differing) => rewritten = differing,
            None => return SegmentKind::Exception(Exception::BeyondWindow),
        }
    }
    let now = fresh.min(windows.max_append());
    if side.has_ahead() || now < fresh {
        match fill(side, peer, windows, header, segment, known) {
            Ok(differing) => rewritten += differing,
            Err(exception) => return SegmentKind::Exception(exception),
        }
    }
    let from = header.data + known;
    let offset = side.released;
    if fresh > 0 {
        if !windows.reserve(side, peer.blocks, now) {
            return SegmentKind::Exception(windows.capacity_exception(side, peer.blocks, Exception::NoMemory));
        }
        windows.append(side, &segment[from..from + now]);
        advance(side, peer, now);
    }
    let ends = if side.has(mark::FIN_AHEAD) {
        finish(side)
    } else {
        let ends = header.has(flag::FIN) && !side.has(mark::FINISHED);
        if ends {
            side.flags |= mark::SETTLED | mark::FINISHED;
        }
        ends
    };
    if fresh > 0 || ends {
        SegmentKind::InOrder {
            from,
            to: from + now,
            offset,
            ends,
            rewritten,
        }
    } else {
        SegmentKind::Retransmission { rewritten }
    }
}

/// A segment in order that is followed by something kept ahead, or is itself longer than what is appended at once. Where
/// it overlaps what came ahead, it is put right; and what is not acknowledged is kept in blocks, as what follows takes
/// its place in the window. How much differed.
#[cold]
fn fill(
    side: &mut Half,
    peer: &Half,
    windows: &mut Windows<'_>,
    header: &mut Header,
    segment: &mut [u8],
    known: usize,
) -> Result<usize, Exception> {
    let length = segment.len() - header.data;
    let end = header.sequence.wrapping_add(length as u32);
    let beyond = end.wrapping_sub(side.end) as i32;
    if length > known {
        if side.has(mark::FIN_AHEAD) && beyond > 0 {
            return Err(Exception::BeyondEnd);
        }
        if !windows.spill(side, peer.blocks, length - known) {
            return Err(windows.capacity_exception(side, peer.blocks, Exception::NoMemory));
        }
    }
    let mut rewritten = keep(side, windows, header, segment, known);
    // Data stand where it ends, or the FIN does further on.
    if header.has(flag::FIN) && beyond < 0 {
        clear(segment, header, flag::FIN);
        rewritten += 1;
    }
    if beyond >= 0 {
        side.end = end;
        if header.has(flag::FIN) {
            side.flags |= mark::FIN_AHEAD;
        }
    }
    Ok(rewritten)
}

/// Data where the FIN stands or behind: a probe that is acknowledged is harmless.
#[cold]
fn behind_end(side: &Half, header: &Header, length: usize) -> SegmentKind {
    let end = header
        .sequence
        .wrapping_add(length as u32 + u32::from(header.has(flag::FIN)));
    if end.wrapping_sub(side.acked) as i32 <= 0 {
        return SegmentKind::Retransmission { rewritten: 0 };
    }
    SegmentKind::Exception(Exception::BeyondEnd)
}

/// Put right what a segment repeats otherwise than it was released: `known` bytes of its data, and a FIN where data
/// stood. How much differed; none where it can't be told.
#[cold]
fn retransmission(
    side: &Half,
    windows: &Windows<'_>,
    header: &mut Header,
    segment: &mut [u8],
    known: usize,
) -> Option<usize> {
    let data = header.data..header.data + known;
    let mut rewritten = match windows.compare(side, header.sequence, &segment[data]) {
        Comparison::Gone => return None,
        Comparison::Same => 0,
        Comparison::Differ => patch(segment, header.data, |bytes| {
            windows.rewrite(side, header.sequence, &mut bytes[..known])
        }),
    };
    let length = segment.len() - header.data;
    let end = header.sequence.wrapping_add(length as u32);
    if header.has(flag::FIN) && end.wrapping_sub(side.next) as i32 > 0 {
        return Some(rewritten);
    }
    if header.has(flag::FIN) && end != side.next {
        clear(segment, header, flag::FIN);
        rewritten += 1;
    }
    Some(rewritten)
}

/// Take a flag away.
fn clear(segment: &mut [u8], header: &mut Header, flag: u8) {
    let flags = header.flags & !flag;
    update_checksum(segment, Delta::default().word(header.flags.into(), flags.into()));
    tcp::FLAGS.write(segment, flags);
    header.flags = flags;
}

fn update_checksum(segment: &mut [u8], delta: Delta) {
    let checksum = delta.apply(tcp::CHECKSUM.read(segment));
    tcp::CHECKSUM.write(segment, checksum);
}
