//! Tracks the start, the reset and the acknowledgements of streams.

use sluice_wire::tcp::{self, flag};

use super::Exception;
use super::segment::{Header, SegmentKind};
use super::side::{Half, MAX_WINDOW, mark, scale};
use super::window::Windows;

/// Handles SYN and reset segments, and segments that arrive before the start of the stream is known. Returns `None` if
/// the data of the segment must be inspected.
#[cold]
pub(super) fn track_handshake(
    side: &mut Half,
    peer: &mut Half,
    own: bool,
    windows: &mut Windows<'_>,
    header: &mut Header,
    segment: &[u8],
    reach: u32,
) -> Option<SegmentKind> {
    let has_payload = segment.len() > header.data || header.has(flag::FIN);
    if header.has(flag::RST) {
        return Some(reset(side, peer, own, windows, header, reach));
    }
    if header.has(flag::SYN) {
        set_window_scale(side, &segment[tcp::LENGTH..header.data]);
        let initial = header.sequence;
        header.sequence = initial.wrapping_add(1);
        // The SYN-ACK answers the SYN of a new connection between the same ports, so the old connection has ended.
        let anew = header.has(flag::ACK) && answers(peer, header.acknowledgment);
        if !side.has(mark::OPEN) || (anew && initial != side.initial) {
            side.start(initial);
            windows.forget(side);
        } else if initial != side.initial {
            if has_payload {
                return Some(SegmentKind::Exception(Exception::Handshake));
            }
            side.new_initial = initial;
            side.flags |= mark::SYN_CONFLICT;
            return Some(SegmentKind::Retransmission { rewritten: 0 });
        }
    }
    let open = match (
        side.has(mark::OPEN),
        side.has(mark::SETTLED),
        side.has(mark::SYN_CONFLICT),
    ) {
        (false, ..) => Exception::Midstream,
        (true, false, true) => Exception::Handshake,
        _ => return None,
    };
    Some(if has_payload {
        SegmentKind::Exception(open)
    } else {
        SegmentKind::Retransmission { rewritten: 0 }
    })
}

/// Stores the window scale of a SYN. If there are several SYNs, the largest scale is kept, because it serves as an upper
/// bound.
fn set_window_scale(side: &mut Half, options: &[u8]) {
    let offered = window_scale(options).unwrap_or(scale::NONE);
    let known = side.scale;
    side.scale = match (known, offered) {
        (scale::UNKNOWN | scale::NONE, offered) => offered,
        (known, scale::NONE) => known,
        (known, offered) => known.max(offered),
    };
}

/// Window scale option of a SYN (RFC 7323, 2.2).
fn window_scale(options: &[u8]) -> Option<u8> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            tcp::option::END => return None,
            tcp::option::NO_OPERATION => at += 1,
            kind => {
                let length = usize::from(*options.get(at + 1)?);
                if kind == tcp::option::WINDOW_SCALE && length == 3 {
                    return Some((*options.get(at + 2)?).min(scale::LARGEST));
                }
                at += length.max(2);
            }
        }
    }
}

/// Whether the acknowledgement number of a SYN-ACK belongs to the newer SYN of `peer`. A delayed SYN-ACK might instead
/// acknowledge the old stream of `peer`.
fn answers(peer: &Half, acknowledgment: u32) -> bool {
    let sent = peer.released.saturating_add(1).min(u64::from(MAX_WINDOW)) as u32;
    let own = peer.has(mark::SETTLED) && peer.top().wrapping_sub(acknowledgment) <= sent;
    peer.has(mark::SYN_CONFLICT) && acknowledgment == peer.new_initial.wrapping_add(1) && !own
}

/// Handles a reset. The receiver accepts a reset with the expected sequence number. A receiver that has sent a SYN and
/// received no SYN accepts a reset that acknowledges its SYN.
///
/// Most of the connection's blocks are [released](super::blocks::Blocks::cut) if the sequence number is exactly the
/// expected number (RFC 5961, 3.2), which a blind attacker is unlikely to guess.
fn reset(
    side: &mut Half,
    peer: &mut Half,
    own: bool,
    windows: &mut Windows<'_>,
    header: &Header,
    reach: u32,
) -> SegmentKind {
    let within = |number: u32, side: &Half| number.wrapping_sub(side.acked) <= side.top().wrapping_sub(side.acked);
    let taken = if side.has(mark::OPEN) {
        within(header.sequence, side)
    } else {
        header.has(flag::ACK) && peer.has(mark::OPEN) && within(header.acknowledgment, peer)
    };
    if taken && own {
        side.flags |= mark::RESET;
        if side.has(mark::OPEN) && [side.acked, side.top()].contains(&header.sequence) {
            windows.blocks.cut(side);
            windows.blocks.cut(peer);
        }
    } else if side.has(mark::OPEN) {
        let distance = header.sequence.wrapping_sub(side.next) as i32;
        if distance.unsigned_abs() > reach {
            return SegmentKind::Exception(Exception::OutOfWindow);
        }
    }
    SegmentKind::Retransmission { rewritten: 0 }
}

/// Processes the acknowledgement and the window of an acceptable segment.
#[inline(always)]
pub(super) fn acknowledge(side: &Half, peer: &mut Half, windows: &mut Windows<'_>, header: &Header) {
    if !is_acceptable(side, header) {
        return;
    }
    if peer.flags & (mark::OPEN | mark::SYN_CONFLICT) == mark::OPEN {
        acknowledged(peer, windows, header.acknowledgment);
    } else {
        confirm_initial(peer, windows, header);
    }
    let is_scaled = !header.has(flag::SYN);
    let shift = match (side.scale, peer.scale) {
        _ if !is_scaled => 0,
        (scale::NONE, _) | (_, scale::NONE) => 0,
        (scale::UNKNOWN, _) | (_, scale::UNKNOWN) => scale::LARGEST,
        (shift, _) => shift,
    };
    if peer.has(mark::OPEN) {
        // The receiver may acknowledge bytes that were not observed here.
        let ahead = header.acknowledgment.wrapping_sub(peer.acked);
        let from = if ahead <= MAX_WINDOW {
            header.acknowledgment
        } else {
            peer.acked
        };
        peer.offer(from.wrapping_add(u32::from(header.window) << shift));
    }
}

/// Whether the receiver of a segment processes the segment's acknowledgement (RFC 9293, 3.10.7.4). The sequence number
/// must be in the window, or at most one window before it, as in delayed segments.
#[inline(always)]
fn is_acceptable(side: &Half, header: &Header) -> bool {
    if !side.has(mark::OPEN) {
        return true;
    }
    let window = side.reach(side.acked).max(u16::MAX.into());
    header.sequence.wrapping_sub(side.acked.wrapping_sub(window)) <= 2 * window
}

#[inline(always)]
fn acknowledged(peer: &mut Half, windows: &mut Windows<'_>, acknowledgment: u32) {
    let before = peer.acked;
    peer.acknowledge(acknowledgment);
    if peer.blocks != 0 && before != peer.acked {
        windows.blocks.acknowledged(peer, before);
    }
}

/// Sets the start of the stream of `peer`, which an acknowledgement of the stream's receiver confirms.
#[cold]
fn confirm_initial(peer: &mut Half, windows: &mut Windows<'_>, header: &Header) {
    let (syn, acknowledgment) = (header.has(flag::SYN), header.acknowledgment);
    let is = |initial: u32| acknowledgment == initial.wrapping_add(1);
    let starts = match (peer.has(mark::OPEN), peer.has(mark::SETTLED)) {
        (false, _) => syn,
        (true, false) => is(peer.new_initial) || (syn && !is(peer.initial)),
        (true, true) => syn && answers(peer, acknowledgment),
    };
    if starts {
        peer.start(acknowledgment.wrapping_sub(1));
        windows.forget(peer);
        return;
    }
    if !peer.has(mark::SETTLED) && is(peer.initial) {
        peer.flags &= !mark::SYN_CONFLICT;
    }
    if peer.has(mark::OPEN) {
        acknowledged(peer, windows, acknowledgment);
    }
}
