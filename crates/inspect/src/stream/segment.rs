//! What a segment is to its stream.

use sluice_wire::checksum::{self, Delta};
use sluice_wire::key::Direction;
use sluice_wire::tcp::{self, Tcp, flag};

use super::hold::{Ahead, Holds};
use super::side::{NONE, SPAN, Side, mark};
use super::window::{Compared, Windows};
use super::{Exception, Handle, Streams, connection};

/// What a segment is, and so what is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next in order: the segment's bytes from `from` on are new and to be scanned. Those of its data before them
    /// were compared; `rewritten` counts the bytes and flags that differed and were put right, its checksum with them.
    /// A FIN alone is fresh too, of no bytes.
    Fresh {
        /// Offset of the first new byte from the first of the TCP header.
        from: usize,
        /// Where that byte is in the stream. 0: the stream begins, even if one had begun before; what was found in
        /// that one has nothing to do with it.
        offset: u64,
        /// Bytes and flags that were put right.
        rewritten: usize,
    },
    /// Nothing new: no data, or data sent again. It goes on, with what differed put right.
    Repeat {
        /// Bytes and flags that were put right.
        rewritten: usize,
    },
    /// Ahead of a gap: its buffer is to be parked and told to [`Streams::held`]. Where it can't be parked, it is to be
    /// treated as [`Exception::GapFull`], and counted by [`Streams::count`].
    Hold(Ahead),
    /// Ahead of a gap, and another that is held has all of it: it is to be freed.
    Covered,
    /// None of these: the policy of the exception decides.
    Exception(Exception),
}

/// What of a header counts here.
#[derive(Clone, Copy)]
struct Header {
    /// Of the first byte of data.
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    /// Where the data begins.
    data: usize,
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
            flags: header.flags(),
            data,
        })
    }

    #[inline(always)]
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Streams<'_> {
    /// What a segment is to its stream: its TCP header and its data, without what the frame has behind them, and with
    /// a checksum that was found right. What is put right in it goes into its checksum by RFC 1624.
    #[inline]
    pub fn segment(&mut self, handle: Handle, direction: Direction, segment: &mut [u8]) -> Step {
        let step = self.step(handle, direction, segment);
        let counters = &mut self.counters;
        match step {
            Step::Fresh { from, rewritten, .. } => {
                counters.fresh += 1;
                counters.released += (segment.len() - from) as u64;
                counters.rewritten += u64::from(rewritten > 0);
            }
            Step::Repeat { rewritten } => {
                counters.repeats += 1;
                counters.rewritten += u64::from(rewritten > 0);
            }
            Step::Covered => counters.covered += 1,
            Step::Hold(_) => {}
            Step::Exception(exception) => counters.count(exception),
        }
        step
    }

    #[inline]
    fn step(&mut self, handle: Handle, direction: Direction, segment: &mut [u8]) -> Step {
        let Some(mut header) = Header::read(segment) else {
            return Step::Exception(Exception::Malformed);
        };
        let Some(connection) = connection(self.connections, self.places, handle) else {
            return Step::Exception(Exception::Closed);
        };
        let [forward, reverse] = &mut connection.sides;
        let (side, peer) = match direction {
            Direction::Forward => (forward, reverse),
            Direction::Reverse => (reverse, forward),
        };
        if header.has(flag::URG) && !self.keep_urgent {
            ordinary(segment, &mut header);
        }
        // A side that is settled has begun; the flags that need a look are rare.
        let opening = if header.has(flag::SYN | flag::RST) || !side.has(mark::SETTLED) {
            open(side, peer, &mut self.windows, &mut header, segment.len(), self.reach)
        } else {
            None
        };
        let step = match opening {
            Some(step) => step,
            None if header.sequence.wrapping_sub(side.next) as i32 > 0 => {
                ahead(side, &self.holds, self.reach, &header, segment)
            }
            None => in_order(side, peer, &mut self.windows, &mut header, segment),
        };
        if header.has(flag::ACK) && !matches!(step, Step::Exception(_)) {
            acknowledge(peer, &mut self.windows, &header);
        }
        step
    }
}

/// A segment that begins ahead of what was released.
#[cold]
fn ahead(side: &Side, holds: &Holds<'_>, reach: u32, header: &Header, segment: &[u8]) -> Step {
    let length = segment.len() - header.data;
    let end = header.sequence.wrapping_sub(side.next) as usize + length;
    if end > reach as usize {
        return Step::Exception(Exception::OutOfWindow);
    }
    if length == 0 && !header.has(flag::FIN) {
        return Step::Repeat { rewritten: 0 };
    }
    if side.has(mark::FINISHED) {
        return Step::Exception(Exception::BeyondEnd);
    }
    let ahead = Ahead {
        sequence: header.sequence,
        length: length as u16,
        fin: header.has(flag::FIN),
    };
    if holds.cover(side, ahead) {
        return Step::Covered;
    }
    if !holds.has_room(side, length) {
        return Step::Exception(Exception::GapFull);
    }
    Step::Hold(ahead)
}

/// Where the stream begins, and where it is cut off: what a SYN and a reset say, and what comes before either. None
/// where the data is to be looked at.
#[cold]
fn open(
    side: &mut Side,
    peer: &mut Side,
    windows: &mut Windows<'_>,
    header: &mut Header,
    length: usize,
    reach: u32,
) -> Option<Step> {
    let brings = length > header.data || header.has(flag::FIN);
    if header.has(flag::RST) {
        return Some(reset(side, peer, header, reach));
    }
    if header.has(flag::SYN) {
        let initial = header.sequence;
        header.sequence = initial.wrapping_add(1);
        // The answer to a SYN that began another connection between the same ports: the old one is over.
        let anew = header.has(flag::ACK) && answers(peer, header.acknowledgment);
        if !side.has(mark::OPEN) || (anew && initial != side.initial) {
            side.begin(initial);
            windows.forget(side);
        } else if initial != side.initial {
            if brings {
                return Some(Step::Exception(Exception::Handshake));
            }
            side.asked = initial;
            side.marks |= mark::ASKED;
            return Some(Step::Repeat { rewritten: 0 });
        }
    }
    let open = match (side.has(mark::OPEN), side.has(mark::SETTLED), side.has(mark::ASKED)) {
        (false, ..) => Exception::Midstream,
        (true, false, true) => Exception::Handshake,
        _ => return None,
    };
    Some(if brings {
        Step::Exception(open)
    } else {
        Step::Repeat { rewritten: 0 }
    })
}

/// Whether a number that a SYN acknowledges is that of the newer SYN of `peer`, and none of the stream that it has sent
/// so far: of that, a SYN that was delayed could speak.
fn answers(peer: &Side, acknowledgment: u32) -> bool {
    let sent = peer.released.saturating_add(1).min(u64::from(SPAN)) as u32;
    let own = peer.has(mark::SETTLED) && peer.top().wrapping_sub(acknowledgment) <= sent;
    peer.has(mark::ASKED) && acknowledgment == peer.asked.wrapping_add(1) && !own
}

/// A reset: its receiver takes it where its number is what it wants next, or, before it knows a number, where it
/// acknowledges the SYN.
fn reset(side: &mut Side, peer: &Side, header: &Header, reach: u32) -> Step {
    let within = |number: u32, side: &Side| number.wrapping_sub(side.acked) <= side.top().wrapping_sub(side.acked);
    let taken = if side.has(mark::OPEN) {
        within(header.sequence, side)
    } else {
        header.has(flag::ACK) && peer.has(mark::OPEN) && within(header.acknowledgment, peer)
    };
    if taken {
        side.marks |= mark::RESET;
    } else if side.has(mark::OPEN) {
        let distance = header.sequence.wrapping_sub(side.next) as i32;
        if distance.unsigned_abs() > reach {
            return Step::Exception(Exception::OutOfWindow);
        }
    }
    Step::Repeat { rewritten: 0 }
}

/// A segment that begins where the stream goes on, or before.
#[inline(always)]
fn in_order(
    side: &mut Side,
    peer: &mut Side,
    windows: &mut Windows<'_>,
    header: &mut Header,
    segment: &mut [u8],
) -> Step {
    let length = segment.len() - header.data;
    let old = side.next.wrapping_sub(header.sequence);
    let mut fin = header.has(flag::FIN);
    if old > SPAN {
        return Step::Exception(Exception::OutOfWindow);
    }
    let known = (old as usize).min(length);
    let fresh = length - known;
    if fresh > 0 {
        if side.has(mark::FINISHED) {
            return behind_end(side, header, length);
        }
        if side.window == NONE && !windows.take(side) {
            return Step::Exception(Exception::NoMemory);
        }
    }
    let mut rewritten = 0;
    if old > 0 {
        match repeat(side, windows, header, segment, known) {
            Some(differing) => rewritten = differing,
            None => return Step::Exception(Exception::BeyondWindow),
        }
        fin = header.has(flag::FIN);
    }
    let from = header.data + known;
    let offset = side.released;
    if fresh > 0 {
        windows.append(side, &segment[from..]);
        if !side.has(mark::TURN) {
            side.message = side.released;
            peer.marks &= !mark::TURN;
        }
        side.marks |= mark::SETTLED | mark::TURN;
        side.next = side.next.wrapping_add(fresh as u32);
        side.released += fresh as u64;
        side.bound_acknowledged();
    }
    let ends = fin && !side.has(mark::FINISHED);
    if ends {
        side.marks |= mark::SETTLED | mark::FINISHED;
    }
    if fresh > 0 || ends {
        Step::Fresh {
            from,
            offset,
            rewritten,
        }
    } else {
        Step::Repeat { rewritten }
    }
}

/// Data where the FIN stands or behind: a probe that is acknowledged is harmless.
#[cold]
fn behind_end(side: &Side, header: &Header, length: usize) -> Step {
    let end = header
        .sequence
        .wrapping_add(length as u32 + u32::from(header.has(flag::FIN)));
    if end.wrapping_sub(side.acked) as i32 <= 0 {
        return Step::Repeat { rewritten: 0 };
    }
    Step::Exception(Exception::BeyondEnd)
}

/// Put right what a segment repeats otherwise than it was released: `known` bytes of its data, and a FIN where data
/// stood. How much differed; none where it can't be told.
#[cold]
fn repeat(side: &Side, windows: &Windows<'_>, header: &mut Header, segment: &mut [u8], known: usize) -> Option<usize> {
    let data = &segment[header.data..][..known];
    let mut rewritten = match windows.compare(side, header.sequence, data) {
        Compared::Gone => return None,
        Compared::Same => 0,
        Compared::Differ { at, released } => {
            let bytes = header.data + at..header.data + known;
            // From an even offset, so that the words are those of the checksum.
            let words = bytes.start & !1..bytes.end;
            let before = checksum::sum(&segment[words.clone()]);
            let differing = windows.rewrite(side, released, &mut segment[bytes]);
            let after = checksum::sum(&segment[words]);
            mend(segment, Delta::default().word(before, after));
            differing
        }
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

/// Take the urgent pointer away.
#[cold]
fn ordinary(segment: &mut [u8], header: &mut Header) {
    let urgent = tcp::URGENT.read(segment);
    tcp::URGENT.write(segment, 0);
    mend(segment, Delta::default().word(urgent, 0));
    clear(segment, header, flag::URG);
}

/// Take a flag away.
fn clear(segment: &mut [u8], header: &mut Header, flag: u8) {
    let flags = header.flags & !flag;
    mend(segment, Delta::default().word(header.flags.into(), flags.into()));
    tcp::FLAGS.write(segment, flags);
    header.flags = flags;
}

fn mend(segment: &mut [u8], delta: Delta) {
    let checksum = delta.apply(tcp::CHECKSUM.read(segment));
    tcp::CHECKSUM.write(segment, checksum);
}

/// What the other side of `peer` says that it has of it.
#[inline(always)]
fn acknowledge(peer: &mut Side, windows: &mut Windows<'_>, header: &Header) {
    if peer.marks & (mark::OPEN | mark::ASKED) == mark::OPEN {
        peer.acknowledge(header.acknowledgment);
    } else {
        agree(peer, windows, header);
    }
}

/// Where the stream of `peer` begins, said by who receives it.
#[cold]
fn agree(peer: &mut Side, windows: &mut Windows<'_>, header: &Header) {
    let (syn, acknowledgment) = (header.has(flag::SYN), header.acknowledgment);
    let is = |initial: u32| acknowledgment == initial.wrapping_add(1);
    let begins = match (peer.has(mark::OPEN), peer.has(mark::SETTLED)) {
        (false, _) => syn,
        (true, false) => is(peer.asked) || (syn && !is(peer.initial)),
        (true, true) => syn && answers(peer, acknowledgment),
    };
    if begins {
        peer.begin(acknowledgment.wrapping_sub(1));
        windows.forget(peer);
        return;
    }
    if !peer.has(mark::SETTLED) && is(peer.initial) {
        peer.marks &= !mark::ASKED;
    }
    if peer.has(mark::OPEN) {
        peer.acknowledge(acknowledgment);
    }
}
