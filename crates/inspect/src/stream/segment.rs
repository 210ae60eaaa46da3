//! Classifies the segments of a stream.

use sluice_wire::checksum::{self, Delta};
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, Tcp, flag};

use super::blocks::Comparison;
use super::handshake::{acknowledge, track_handshake};
use super::side::{Half, MAX_WINDOW, mark};
use super::window::Windows;
use super::{Exception, StreamHandle, Streams, connection};

/// Result of processing a segment. Every segment that is not an exception is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// The segment continues the stream. The bytes of the segment from `from` to `to` are new and must be scanned.
    /// Next, [`Streams::next_queued`] returns the remaining bytes of a long segment and the queued bytes beyond a gap
    /// that the segment fills. The data before `from` was compared with the first copy and rewritten where it differed,
    /// and the checksum was updated. A FIN without data is in order, too.
    InOrder {
        /// Offset of the first new byte from the start of the TCP header.
        from: usize,
        /// Offset of the end of the bytes to scan.
        to: usize,
        /// Offset of the first new byte in the stream. 0 means that a new stream starts; matches in an earlier stream
        /// of the connection are void.
        offset: u64,
        /// Whether the stream ends with this segment.
        ends: bool,
        /// Number of rewritten bytes and flags.
        rewritten: usize,
    },
    /// The segment is beyond a gap. Its bytes are queued, and will be scanned when the gap is filled.
    OutOfOrder {
        /// Number of bytes and flags that differed from the first copy and were rewritten.
        rewritten: usize,
    },
    /// The segment has no data, or only retransmitted data. Differences from the first copy are rewritten, and the segment
    /// is forwarded.
    Retransmission {
        /// Number of rewritten bytes and flags.
        rewritten: usize,
    },
    /// The policy of the exception determines whether the segment is forwarded.
    Exception(Exception),
}

/// Queued bytes that are now in order, or the remaining bytes of a long segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedData {
    /// Number of bytes, which are the last bytes of the direction's view.
    pub length: usize,
    /// Whether the stream ends with these bytes.
    pub ends: bool,
}

/// Fields of a TCP header.
#[derive(Clone, Copy)]
pub(super) struct Header {
    /// Sequence number of the first byte of data.
    pub sequence: u32,
    pub acknowledgment: u32,
    pub window: u16,
    pub flags: u8,
    /// Offset of the data.
    pub data: usize,
}

impl Header {
    #[inline(always)]
    fn read(segment: &[u8]) -> Option<Self> {
        let header = Tcp::new(segment)?;
        let data = header.header_length();
        // Datagrams are not longer (RFC 791, RFC 8200), and the code stores lengths in 16 bits.
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
    /// Processes a segment. `segment` is the TCP header and the data, without trailing bytes of the frame. Its checksum
    /// was verified. If bytes are rewritten, the checksum is updated as in RFC 1624.
    ///
    /// `own`: the segment arrived on its sender's side of the gateway. If `own` is false, the segment's
    /// acknowledgement, reset flag and window are ignored.
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
        // The handshake is tracked only for SYN and reset segments, and as long as the start of the stream is not final.
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

    /// Clears and counts the urgent pointer of a segment, so that its receiver reads all data in order.
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

    /// Returns the queued bytes that are now in order, one part at a time. The caller scans each part after the segment
    /// that filled the gap, and before that segment is forwarded.
    #[inline]
    pub fn next_queued(&mut self, handle: StreamHandle, direction: Direction) -> Option<QueuedData> {
        let connection = connection(self.connections, self.capacity, handle)?;
        if !connection.side(direction).has_queued() {
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
    let length = windows.append_queued(side, peer.blocks);
    if length == 0 {
        return None;
    }
    advance(side, peer, length);
    let ends = finish(side);
    Some(QueuedData { length, ends })
}

/// Releases bytes. If the other host has sent data since the last data of this host, the bytes start a new message.
#[inline(always)]
fn advance(side: &mut Half, peer: &mut Half, length: usize) {
    if !side.has(mark::SENT_LAST) {
        side.message = side.released;
        peer.flags &= !mark::SENT_LAST;
    }
    side.advance(length);
}

/// Whether the stream has now reached a FIN that had arrived beyond a gap.
#[inline(always)]
fn finish(side: &mut Half) -> bool {
    let ends = side.has(mark::FIN_QUEUED) && !side.has_queued();
    if ends {
        side.flags = side.flags & !mark::FIN_QUEUED | mark::FINISHED;
    }
    ends
}

/// Handles a segment beyond a gap, and queues its bytes as the receiver does.
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
    let start = header.sequence.wrapping_sub(side.next);
    if start as usize + length > reach as usize {
        return SegmentKind::Exception(Exception::OutOfWindow);
    }
    if length == 0 && !header.has(flag::FIN) {
        return SegmentKind::Retransmission { rewritten: 0 };
    }
    // A receiver may accept a whole segment even if only the start of the segment is within the window.
    if start > side.reach(side.next) {
        return SegmentKind::Exception(Exception::OutOfWindow);
    }
    if side.has(mark::FINISHED) {
        return SegmentKind::Exception(Exception::BeyondEnd);
    }
    // The receiver has acknowledged neither of the two streams yet, so the stream of the segment is unknown.
    if side.has(mark::SYN_CONFLICT) {
        return SegmentKind::Exception(Exception::Handshake);
    }
    let end = header.sequence.wrapping_add(length as u32);
    let beyond = end.wrapping_sub(side.end) as i32;
    if side.has(mark::FIN_QUEUED) && beyond > 0 {
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
        side.flags |= mark::FIN_QUEUED;
    }
    SegmentKind::OutOfOrder { rewritten }
}

/// Retains the data of a segment from an offset on. Where an earlier copy of the data is present, the earlier copy is
/// kept, and the segment is rewritten. Returns the number of rewritten bytes.
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

/// Changes the bytes of a segment from an offset on and updates its checksum. Returns the result of `change`.
fn patch(segment: &mut [u8], from: usize, change: impl FnOnce(&mut [u8]) -> usize) -> usize {
    // Start at an even offset, because the checksum consists of 16-bit words.
    let words = from & !1;
    let before = checksum::sum(&segment[words..]);
    let changed = change(&mut segment[from..]);
    let after = checksum::sum(&segment[words..]);
    update_checksum(segment, Delta::default().word(before, after));
    changed
}

/// Handles a segment that begins at or before the next byte.
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
            return classify_behind_end(side, header, length);
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
    if side.has_queued() || now < fresh {
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
    let ends = if side.has(mark::FIN_QUEUED) {
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

/// Handles an in-order segment that is followed by queued bytes, or is longer than a single append. Where the segment
/// overlaps queued bytes, the segment is rewritten. Unacknowledged bytes are moved to blocks before later bytes replace
/// them in the window. Returns the number of bytes that differed.
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
        if side.has(mark::FIN_QUEUED) && beyond > 0 {
            return Err(Exception::BeyondEnd);
        }
        if !windows.spill(side, peer.blocks, length - known) {
            return Err(windows.capacity_exception(side, peer.blocks, Exception::NoMemory));
        }
    }
    let mut rewritten = keep(side, windows, header, segment, known);
    // A FIN before received data or before the position of another FIN is invalid and is removed.
    if header.has(flag::FIN) && beyond < 0 {
        clear(segment, header, flag::FIN);
        rewritten += 1;
    }
    if beyond >= 0 {
        side.end = end;
        if header.has(flag::FIN) {
            side.flags |= mark::FIN_QUEUED;
        }
    }
    Ok(rewritten)
}

/// Handles data at or after the FIN. A keep-alive probe with an acknowledged byte is harmless.
#[cold]
fn classify_behind_end(side: &Half, header: &Header, length: usize) -> SegmentKind {
    let end = header
        .sequence
        .wrapping_add(length as u32 + u32::from(header.has(flag::FIN)));
    if end.wrapping_sub(side.acked) as i32 <= 0 {
        return SegmentKind::Retransmission { rewritten: 0 };
    }
    SegmentKind::Exception(Exception::BeyondEnd)
}

/// Rewrites retransmitted data that differs from the released bytes: the first `known` bytes of the segment, and a FIN at a
/// position where data was released. Returns the number of differences; `None` if the data can't be compared.
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
        Comparison::NotRetained => return None,
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

/// Clears a flag.
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
