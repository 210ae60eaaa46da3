//! Connection tracking (RFC 7857, section 2, based on RFC 6146, section 3.5.2): state transitions of a session, and the
//! timer that runs.
//!
//! Sequence numbers are tracked to check whether a reset or FIN belongs to the connection (RFC 7857, section 2.2). Each
//! side's numbers are accepted only up to [`REACH`] beyond the other side's last acknowledgment. So an off-path
//! attacker cannot move the window that a reset or FIN must fall into.

use core::hint::select_unpredictable;

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::timeout::{Schedule, TimeoutClass};

/// Maximum distance, in bytes, beyond the last acknowledgment up to which data in flight is tracked.
pub const REACH: u32 = 1 << 22;

/// State of a TCP connection. The client is the host that sent the session's first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// No packet has been seen, or the session is not TCP.
    #[default]
    Closed = 0,
    /// The client has sent a SYN.
    Init = 1,
    /// Both sides have sent a SYN.
    Established = 2,
    /// The client has sent a FIN.
    ClientFin = 3,
    /// The server has sent a FIN.
    ServerFin = 4,
    /// Both sides have sent a FIN: the session ends unless new data follows.
    BothFin = 5,
    /// A reset was seen: the session ends unless new data follows.
    Transitory = 6,
}

impl TcpState {
    /// Name of the state, as in `conntrack`.
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

/// Tracking state of a session: 20 bytes, all zeros before the first packet. Arrays are indexed by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tracking {
    /// End of the sequence space that each side has sent, as far as tracked.
    end: [u32; 2],
    /// Last acknowledgment that each side has sent; before the first one, the other side's initial sequence number.
    acknowledged: [u32; 2],
    /// The connection's [`TcpState`].
    state: u8,
    /// Combination of [`FORWARD_SEEN`], [`REVERSE_SEEN`], [`ANSWERED`] and [`TURNED`].
    flags: u8,
    /// The [`TimeoutClass`] of a session that is not TCP.
    class: u8,
    /// The [`TimeoutClass`] of the running timer.
    timer: u8,
}

/// Flag: the sequence numbers of a side are known (1 for forward, 2 for reverse).
const FORWARD_SEEN: u8 = 1;
const REVERSE_SEEN: u8 = 2;
const SEEN: u8 = FORWARD_SEEN | REVERSE_SEEN;
/// Flag: a packet of the reverse direction was seen, of any protocol.
const ANSWERED: u8 = 4;
/// Flag: the server opened the connection, on the ports of a connection that had ended.
const TURNED: u8 = 8;

/// Fields of a TCP segment that tracking needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Control flags.
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number; valid only with the ACK flag.
    pub acknowledgment: u32,
    /// Bytes of data, header excluded.
    pub length: u32,
}

impl Segment {
    /// Read from a transport header with its data; `None` if the header is truncated.
    #[inline(always)]
    pub fn read(payload: &[u8]) -> Option<Self> {
        Some(Self::of(payload.first_chunk()?, payload.len()))
    }

    /// Read from a transport header; `length` is the number of bytes of header and data.
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

    /// Whether the segment may create a session: only a SYN without ACK does.
    #[inline(always)]
    pub fn opens(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// End of the segment's sequence space, including SYN and FIN.
    #[inline(always)]
    fn end(&self) -> u32 {
        let controls = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.length).wrapping_add(controls)
    }
}

/// Whether `a` is after `b` in sequence space.
#[inline(always)]
fn beyond(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Tracking {
    /// Create for a session of a protocol other than TCP; its timer class is fixed at creation.
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

    /// Create for a TCP session that is picked up midstream, as after a restart: it counts as established, and sequence
    /// numbers are learned from the first packets.
    pub fn midstream() -> Self {
        Self {
            state: TcpState::Established as u8,
            ..Self::default()
        }
    }

    /// Class of the running timer, as set by [`Tracking::set_timer`].
    #[inline(always)]
    pub fn timer(&self) -> TimeoutClass {
        TimeoutClass(self.timer)
    }

    /// Store the class of the running timer.
    pub fn set_timer(&mut self, class: TimeoutClass) {
        self.timer = class.0;
    }

    /// State of the connection; [`TcpState::Closed`] if it is not TCP.
    pub fn state(&self) -> TcpState {
        TcpState::of(self.state)
    }

    /// Whether the connection has ended by FINs of both sides or by a reset. A SYN then starts a new connection between
    /// the same ports (RFC 9293, section 3.6.1).
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.state >= TcpState::BothFin as u8
    }

    /// Whether the connection is or was established; a refused connection was not.
    pub fn was_established(&self) -> bool {
        match self.state() {
            TcpState::Closed | TcpState::Init => false,
            TcpState::Established | TcpState::ClientFin | TcpState::ServerFin | TcpState::BothFin => true,
            TcpState::Transitory => self.flags & SEEN == SEEN,
        }
    }

    /// Next sequence number of each side, by direction. `Some` only if the SYNs were seen and everything except the
    /// server's SYN is acknowledged: after the handshake these are the initial sequence numbers of the data.
    pub fn initial_sequences(&self) -> Option<[u32; 2]> {
        let [client, server] = self.end;
        let is_opening = self.state() == TcpState::Established
            && self.flags & SEEN == SEEN
            && self.acknowledged[1] == client
            && server.wrapping_sub(self.acknowledged[0]) <= 1;
        is_opening.then_some([client, server])
    }

    /// Whether the reverse direction has sent a packet.
    pub fn answered(&self) -> bool {
        self.flags & ANSWERED != 0
    }

    /// Track a packet of a session that is not TCP.
    #[inline(always)]
    pub fn track_datagram(&mut self, direction: Direction) -> TimeoutClass {
        self.flags |= (direction as u8) << 2;
        TimeoutClass(self.class)
    }

    /// Fast path for most packets: data of an established TCP session, or a datagram, with the timer already running.
    /// Returns false, without effect, for other packets and if `usual` is false, which means that the caller must
    /// process the packet in full. `segment` is used only if `tcp` is set. No branch depends on the protocol, because
    /// the mix of protocols is unpredictable.
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

    /// Track a segment of a TCP session. Returns the timer to restart.
    #[inline(always)]
    pub fn track(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        if self.is_established_data(segment) {
            self.flags |= (direction as u8) << 2;
            self.follow(direction, segment, true);
            return TimeoutClass::TCP_ESTABLISHED;
        }
        self.track_control(direction, segment)
    }

    /// Advance the tracked numbers of both sides if both are known; does nothing if `counts` is false.
    #[inline(always)]
    fn follow(&mut self, direction: Direction, segment: &Segment, counts: bool) {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        let end = segment.end();
        let credible = end.wrapping_sub(self.acknowledged[other]) <= REACH;
        let ahead = beyond(end, self.end[this]) & credible & counts;
        self.end[this] = select_unpredictable(ahead, end, self.end[this]);
        // The acknowledgment of an implausible segment is ignored. The acknowledged amount is limited to the data that
        // may be in flight, or twice that if not all of it was tracked.
        let step = segment.acknowledgment.wrapping_sub(self.acknowledged[this]);
        let ahead = (step.wrapping_sub(1) < 2 * REACH) & credible & counts;
        self.acknowledged[this] = select_unpredictable(ahead, segment.acknowledgment, self.acknowledged[this]);
    }

    /// Whether a side's sequence numbers are known.
    fn has_seen(&self, side: usize) -> bool {
        self.flags & (FORWARD_SEEN << side) != 0
    }

    /// End and length of the data that a side has sent and the other has not acknowledged.
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

    /// Whether a segment starts within or directly after the data that its side has sent, and extends into data that
    /// the other side has not acknowledged.
    fn continues(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length.saturating_add(segment.length)
    }

    /// Whether a segment acknowledges data that the other side has sent and this side had not acknowledged.
    fn acknowledges(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction.opposite());
        segment.flags & ACK != 0 && end.wrapping_sub(segment.acknowledgment) <= length
    }

    /// Whether a reset falls into the data that its side has sent and the other has not acknowledged. Before its side
    /// has sent anything, the reset must acknowledge what the other side has sent.
    fn reset_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.has_seen(this) {
            return segment.flags & ACK != 0 && self.has_seen(other) && segment.acknowledgment == self.end[other];
        }
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length
    }

    /// Whether a FIN belongs to the connection: by the same test as a reset, or, if earlier data was lost or reordered,
    /// by its acknowledgment.
    fn fin_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.has_seen(this) {
            // The numbers of a connection that was picked up midstream are not known yet.
            return !self.has_seen(other) || self.acknowledges(direction, segment);
        }
        let ahead = segment.sequence.wrapping_sub(self.in_flight(direction).0);
        self.continues(direction, segment) || ahead <= REACH && self.acknowledges(direction, segment)
    }

    /// Whether a side sends data where the connection allows none: after its FIN or after a reset. Then the FIN or
    /// reset was forged or not accepted, and the connection continues.
    fn reuses_connection(&self, direction: Direction, segment: &Segment) -> bool {
        let is_over = match self.state() {
            TcpState::ClientFin => direction == Direction::Forward,
            TcpState::ServerFin => direction == Direction::Reverse,
            TcpState::BothFin => true,
            // A refused connection carries no data.
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

    /// Track all segments other than data of an established connection.
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
                // A SYN with an acknowledgment must acknowledge the client's SYN. A SYN without one is a simultaneous
                // open.
                if segment.flags & ACK != 0 && !self.acknowledges_syn_data(segment) {
                    return TimeoutClass::UNCHANGED;
                }
                TcpState::Established
            }
            TcpState::Established if fin && forward => TcpState::ClientFin,
            TcpState::Established if fin => TcpState::ServerFin,
            TcpState::ClientFin if fin && !forward => TcpState::BothFin,
            TcpState::ServerFin if fin && forward => TcpState::BothFin,
            // Data without an earlier SYN does not establish a connection.
            other => other,
        };
        // A refused connection has no sequence numbers to track.
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
            // The connection was refused. The client may retry and keeps its port in the meantime. Refusal of a
            // connection from outside refreshes no mapping (RFC 7857, section 7.1).
            TcpState::Init => {
                self.state = TcpState::Transitory as u8;
                TimeoutClass::UNCHANGED
            }
            TcpState::Closed | TcpState::BothFin | TcpState::Transitory => TimeoutClass::UNCHANGED,
        }
    }

    /// A SYN with data may be acknowledged with or without the data (RFC 7413).
    fn acknowledges_syn_data(&self, segment: &Segment) -> bool {
        let opener = usize::from(self.flags & TURNED != 0);
        let from = self.acknowledged[1 - opener];
        let acknowledged = segment.acknowledgment.wrapping_sub(from);
        acknowledged != 0 && acknowledged <= self.end[opener].wrapping_sub(from)
    }

    /// Learn a side's sequence numbers from its first segment.
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

    /// Advance a side's tracked numbers; a FIN is counted only if it belongs to the connection.
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
