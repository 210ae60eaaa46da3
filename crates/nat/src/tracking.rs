//! Connection tracking (RFC 7857, section 2, after RFC 6146, section 3.5.2): what a session's packets do to its
//! state, and which timer runs.
//!
//! Sequence numbers are followed as far as it takes to tell whether a reset or a FIN belongs to the connection (RFC 7857,
//! section 2.2): each side's are trusted only up to [`REACH`] beyond what the other side has acknowledged, so that
//! somebody who does not see the packets cannot move the window that a reset or a FIN must hit.

use core::hint::select_unpredictable;

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::timeout::{Schedule, TimeoutClass};

/// How far beyond the last acknowledgment data in flight are followed, in bytes.
pub const REACH: u32 = 1 << 22;

/// State of a TCP connection. The client is who sent the session's first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// Nothing seen, or not TCP.
    #[default]
    Closed = 0,
    /// The client's SYN seen.
    Init = 1,
    /// Both sides have sent a SYN.
    Established = 2,
    /// The client has sent a FIN.
    ClientFin = 3,
    /// The server has sent a FIN.
    ServerFin = 4,
    /// Both have: the session ends unless new data follow.
    BothFin = 5,
    /// A reset seen: the session ends unless new data follow.
    Transitory = 6,
}

impl TcpState {
    /// The state's name, as operators know it from `conntrack`.
    pub fn name(self) -> &'static str {
        match self {
            TcpState::Closed => "NONE",
            TcpState::Init => "SYN_SENT",
            TcpState::Established => "ESTABLISHED",
            TcpState::ClientFin | TcpState::ServerFin => "FIN_WAIT",
            TcpState::BothFin => "TIME_WAIT",
            TcpState::Transitory => "CLOSE",
        }
    }

    fn of(number: u8) -> Self {
        match number {
            1 => TcpState::Init,
            2 => TcpState::Established,
            3 => TcpState::ClientFin,
            4 => TcpState::ServerFin,
            5 => TcpState::BothFin,
            6 => TcpState::Transitory,
            _ => TcpState::Closed,
        }
    }
}

/// What a session remembers of its packets: 20 bytes, all zeros before the first. Arrays are by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tracking {
    /// End of the sequence space that each side has sent, as far as followed.
    end: [u32; 2],
    /// Last acknowledgment that each side has sent; before the first, where the other side's numbers begin.
    acknowledged: [u32; 2],
    /// A [`TcpState`].
    state: u8,
    /// [`FORWARD_SEEN`], [`REVERSE_SEEN`], [`ANSWERED`], [`TURNED`].
    flags: u8,
    /// The [`TimeoutClass`] of a session that is not TCP.
    class: u8,
    /// The [`TimeoutClass`] of the timer that runs.
    timer: u8,
}

/// The side's sequence numbers are known: 1 for forward, 2 for reverse.
const FORWARD_SEEN: u8 = 1;
const REVERSE_SEEN: u8 = 2;
const SEEN: u8 = FORWARD_SEEN | REVERSE_SEEN;
/// A packet of the reverse direction was seen, of any protocol.
const ANSWERED: u8 = 4;
/// The server has opened the connection, on the ports of one that had ended.
const TURNED: u8 = 8;

/// What tracking reads of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Control flags.
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number; counts where the flags have ACK.
    pub acknowledgment: u32,
    /// Bytes of data, header excluded.
    pub length: u32,
}

impl Segment {
    /// Of a transport header and its data; none where the header is cut short.
    #[inline(always)]
    pub fn read(payload: &[u8]) -> Option<Self> {
        Some(Self::of(payload.first_chunk()?, payload.len()))
    }

    /// Of a transport header that with its data has `length` bytes.
    #[inline(always)]
    pub fn of(header: &[u8; 20], length: usize) -> Self {
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let offset = usize::from(header[12] >> 4) * 4;
        Self {
            flags: header[13],
            sequence: number(4),
            acknowledgment: number(8),
            length: length.saturating_sub(offset) as u32,
        }
    }

    /// May it open a session? A SYN alone does.
    #[inline(always)]
    pub fn opens(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// Where its part of the sequence space ends: SYN and FIN count.
    #[inline(always)]
    fn end(&self) -> u32 {
        let controls = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.length).wrapping_add(controls)
    }
}

/// Is `a` behind `b` in sequence space?
#[inline(always)]
fn beyond(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Tracking {
    /// For a session of a protocol other than TCP: its timer is known when it is made.
    pub fn of_datagrams(protocol: u8, destination_port: u16, schedule: &Schedule) -> Self {
        let class = match protocol {
            17 => schedule.udp(destination_port),
            1 | 58 => TimeoutClass::ICMP,
            _ => TimeoutClass::OTHER,
        };
        Self {
            class: class.0,
            ..Self::default()
        }
    }

    /// For a TCP session that begins in the middle, as after a restart: taken as established, sequence numbers from
    /// the first packets on.
    pub fn midstream() -> Self {
        Self {
            state: TcpState::Established as u8,
            ..Self::default()
        }
    }

    /// The class of the timer that runs, as [`Tracking::set_timer`] was told.
    #[inline(always)]
    pub fn timer(&self) -> TimeoutClass {
        TimeoutClass(self.timer)
    }

    /// Remember which timer runs.
    pub fn set_timer(&mut self, class: TimeoutClass) {
        self.timer = class.0;
    }

    /// The connection's state; [`TcpState::Closed`] where it is not TCP.
    pub fn state(&self) -> TcpState {
        TcpState::of(self.state)
    }

    /// Whether the connection is over, by FINs of both sides or by a reset: a SYN begins another one between the same ports
    /// (RFC 9293, section 3.6.1).
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.state >= TcpState::BothFin as u8
    }

    /// Whether the connection is, or was, established: one that was refused was not.
    pub fn was_established(&self) -> bool {
        match self.state() {
            TcpState::Closed | TcpState::Init => false,
            TcpState::Established | TcpState::ClientFin | TcpState::ServerFin | TcpState::BothFin => true,
            TcpState::Transitory => self.flags & SEEN == SEEN,
        }
    }

    /// Where each side's data go on, by direction, of a TCP connection whose SYNs were seen and of which all is
    /// acknowledged but the server's SYN: after the handshake, where they begin.
    pub fn initial_sequences(&self) -> Option<[u32; 2]> {
        let [client, server] = self.end;
        let is_opening = self.state() == TcpState::Established
            && self.flags & SEEN == SEEN
            && self.acknowledged[1] == client
            && server.wrapping_sub(self.acknowledged[0]) <= 1;
        is_opening.then_some([client, server])
    }

    /// Has the reverse direction sent anything?
    pub fn answered(&self) -> bool {
        self.flags & ANSWERED != 0
    }

    /// A packet of a session that is not TCP.
    #[inline(always)]
    pub fn track_datagram(&mut self, direction: Direction) -> TimeoutClass {
        self.flags |= (direction as u8) << 2;
        TimeoutClass(self.class)
    }

    /// The short way for what most packets are: data of an established TCP session, or any datagram, whose timer
    /// runs already. False, and nothing done, where it is another packet, or one that the caller wants to look at again:
    /// `usual` is false. `segment` counts where `tcp` says so; no branch depends on the protocol, since nobody can
    /// foretell it.
    #[inline(always)]
    pub fn track_plain(&mut self, direction: Direction, tcp: bool, segment: &Segment, usual: bool) -> bool {
        let class = select_unpredictable(tcp, TimeoutClass::TCP_ESTABLISHED.0, self.class);
        if (class != self.timer) | (tcp & !self.is_established_data(segment)) | !usual {
            return false;
        }
        self.flags |= (direction as u8) << 2;
        self.follow(direction, segment, tcp);
        true
    }

    #[inline(always)]
    fn is_established_data(&self, segment: &Segment) -> bool {
        let plain = segment.flags & (SYN | FIN | RST | ACK) == ACK;
        plain & (self.state == TcpState::Established as u8) & (self.flags & SEEN == SEEN)
    }

    /// A segment of a TCP session. Says which timer begins anew.
    #[inline(always)]
    pub fn track(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        if self.is_established_data(segment) {
            self.flags |= (direction as u8) << 2;
            self.follow(direction, segment, true);
            return TimeoutClass::TCP_ESTABLISHED;
        }
        self.track_control(direction, segment)
    }

    /// Follow both sides' numbers, where both are known; nothing where `counts` is false.
    #[inline(always)]
    fn follow(&mut self, direction: Direction, segment: &Segment, counts: bool) {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        let end = segment.end();
        let credible = end.wrapping_sub(self.acknowledged[other]) <= REACH;
        let ahead = beyond(end, self.end[this]) & credible & counts;
        self.end[this] = select_unpredictable(ahead, end, self.end[this]);
        // Of a segment that is not credible neither is what it acknowledges; and that is at most what may be in flight, and as
        // much again where not all of it was followed.
        let step = segment.acknowledgment.wrapping_sub(self.acknowledged[this]);
        let ahead = (step.wrapping_sub(1) < 2 * REACH) & credible & counts;
        self.acknowledged[this] = select_unpredictable(ahead, segment.acknowledgment, self.acknowledged[this]);
    }

    /// Has a side sent anything whose numbers are known?
    fn has_seen(&self, side: usize) -> bool {
        self.flags & (FORWARD_SEEN << side) != 0
    }

    /// What a side has sent and the other has not acknowledged yet: where it ends, and its length.
    fn in_flight(&self, direction: Direction) -> (u32, u32) {
        let (from, end) = (
            self.acknowledged[direction.opposite() as usize],
            self.end[direction as usize],
        );
        match beyond(from, end) {
            true => (from, 0),
            false => (end, end.wrapping_sub(from)),
        }
    }

    /// Does a segment begin in what its side has sent, or where that ends, and reach to what the other side has not acknowledged?
    fn continues(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length.saturating_add(segment.length)
    }

    /// Does a segment acknowledge what the other side has sent and this one had not acknowledged?
    fn acknowledges(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction.opposite());
        segment.flags & ACK != 0 && end.wrapping_sub(segment.acknowledgment) <= length
    }

    /// Does a reset fall into what its side has sent and the other not yet acknowledged? Before that side has sent
    /// anything, it must acknowledge what the other has.
    fn reset_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.has_seen(this) {
            return segment.flags & ACK != 0 && self.has_seen(other) && segment.acknowledgment == self.end[other];
        }
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length
    }

    /// Does a FIN belong to the connection? As a reset; and where data before it were lost or overtaken, by what it acknowledges.
    fn fin_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.has_seen(this) {
            // Of a connection that was taken over in its midst nothing is known yet.
            return !self.has_seen(other) || self.acknowledges(direction, segment);
        }
        let ahead = segment.sequence.wrapping_sub(self.in_flight(direction).0);
        self.continues(direction, segment) || ahead <= REACH && self.acknowledges(direction, segment)
    }

    /// Does a side send data where none can be: behind its FIN, or after a reset? Then somebody else has sent that, or the
    /// connection did not take it, and it goes on.
    fn reuses_connection(&self, direction: Direction, segment: &Segment) -> bool {
        let is_over = match self.state() {
            TcpState::ClientFin => direction == Direction::Forward,
            TcpState::ServerFin => direction == Direction::Reverse,
            TcpState::BothFin => true,
            // One that was refused has no data.
            TcpState::Transitory => self.flags & SEEN == SEEN,
            TcpState::Closed | TcpState::Init | TcpState::Established => false,
        };
        is_over
            && segment.length > 0
            && self.continues(direction, segment)
            && beyond(
                segment.sequence.wrapping_add(segment.length),
                self.end[direction as usize],
            )
    }

    /// Everything but established data.
    #[inline(never)]
    fn track_control(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        let state = self.state();
        let forward = direction == Direction::Forward;
        self.flags |= (direction as u8) << 2;
        if segment.flags & RST != 0 {
            return self.track_reset(direction, segment);
        }
        let begins = segment.opens() && forward && matches!(state, TcpState::Closed | TcpState::Init);
        let begins_again = segment.opens() && !forward && self.has_ended();
        if begins || begins_again {
            *self = Self {
                flags: self.flags & ANSWERED | if begins_again { TURNED } else { 0 },
                timer: self.timer,
                ..Self::default()
            };
            self.begin(direction, segment);
            self.state = TcpState::Init as u8;
            return TimeoutClass::TCP_TRANSITORY_OPEN;
        }
        if self.has_ended() && segment.flags & SYN != 0 {
            return TimeoutClass::UNCHANGED;
        }
        let revived = self.reuses_connection(direction, segment);
        let fin = segment.flags & FIN != 0 && self.fin_in_window(direction, segment);
        let next = match if revived { TcpState::Established } else { state } {
            TcpState::Init if forward == (self.flags & TURNED != 0) && segment.flags & SYN != 0 => {
                // With an acknowledgment it must be for the opener's SYN; without, both open at once.
                if segment.flags & ACK != 0 && !self.acknowledges_syn_data(segment) {
                    return TimeoutClass::UNCHANGED;
                }
                TcpState::Established
            }
            TcpState::Established if fin && forward => TcpState::ClientFin,
            TcpState::Established if fin => TcpState::ServerFin,
            TcpState::ClientFin if fin && !forward => TcpState::BothFin,
            TcpState::ServerFin if fin && forward => TcpState::BothFin,
            // Data without a SYN before them do not establish anything.
            other => other,
        };
        // What was refused has no numbers to follow.
        if next != TcpState::Transitory {
            self.begin(direction, segment);
        }
        self.follow_known(direction, segment, fin);
        self.state = next as u8;
        match next {
            TcpState::Closed | TcpState::Init => TimeoutClass::TCP_TRANSITORY_OPEN,
            TcpState::Established | TcpState::ClientFin | TcpState::ServerFin => TimeoutClass::TCP_ESTABLISHED,
            TcpState::BothFin if state != next => TimeoutClass::TCP_TRANSITORY_CLOSE,
            TcpState::BothFin | TcpState::Transitory => TimeoutClass::UNCHANGED,
        }
    }

    fn track_reset(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        let state = self.state();
        if !self.reset_in_window(direction, segment) {
            return TimeoutClass::UNCHANGED;
        }
        match state {
            TcpState::Established | TcpState::ClientFin | TcpState::ServerFin => {
                self.state = TcpState::Transitory as u8;
                TimeoutClass::TCP_TRANSITORY_CLOSE
            }
            // Refused: the client may try again, and keeps its port meanwhile. The refusal of what came from outside refreshes
            // no mapping (RFC 7857, section 7.1).
            TcpState::Init => {
                self.state = TcpState::Transitory as u8;
                TimeoutClass::UNCHANGED
            }
            TcpState::Closed | TcpState::BothFin | TcpState::Transitory => TimeoutClass::UNCHANGED,
        }
    }

    /// A SYN with data may be acknowledged with or without them (RFC 7413).
    fn acknowledges_syn_data(&self, segment: &Segment) -> bool {
        let opener = usize::from(self.flags & TURNED != 0);
        let from = self.acknowledged[1 - opener];
        let acknowledged = segment.acknowledgment.wrapping_sub(from);
        acknowledged != 0 && acknowledged <= self.end[opener].wrapping_sub(from)
    }

    /// Learn where a side's numbers begin, from its first segment.
    fn begin(&mut self, direction: Direction, segment: &Segment) {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if self.flags & (FORWARD_SEEN << this) != 0 {
            return;
        }
        self.flags |= FORWARD_SEEN << this;
        self.end[this] = segment.end();
        if self.flags & (FORWARD_SEEN << other) == 0 || segment.flags & SYN != 0 {
            self.acknowledged[other] = segment.sequence;
        }
        if segment.flags & ACK != 0 {
            self.acknowledged[this] = segment.acknowledgment;
        }
    }

    /// Follow a side's numbers; a FIN counts where it belongs to the connection.
    fn follow_known(&mut self, direction: Direction, segment: &Segment, fin: bool) {
        let acknowledges = segment.flags & ACK != 0;
        let known = Segment {
            flags: if fin { segment.flags } else { segment.flags & !FIN },
            acknowledgment: if acknowledges {
                segment.acknowledgment
            } else {
                self.acknowledged[direction as usize]
            },
            ..*segment
        };
        self.follow(direction, &known, true);
    }
}
