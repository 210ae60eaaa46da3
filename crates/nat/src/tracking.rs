//! Connection tracking (RFC 7857, section 2, based on RFC 6146, section 3.5.2): the state transitions of a session, and
//! its timer.
//!
//! Tracked sequence numbers show whether a reset or a FIN belongs to the connection (RFC 7857, section 2.2). Sequence
//! numbers of one endpoint are accepted only up to [`MAX_IN_FLIGHT`] beyond the last acknowledgment of the other endpoint. Thus
//! an off-path attacker can't move the window in which a reset or FIN must lie.

use core::hint::select_unpredictable;

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::timeout::{Schedule, TimeoutClass};

/// Maximum number of tracked bytes in flight after the last acknowledgment.
pub const MAX_IN_FLIGHT: u32 = 1 << 22;

/// State of a TCP connection. The client is the host that sent the session's first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// No packet was received, or the session is not TCP.
    #[default]
    Closed = 0,
    /// The client has sent a SYN.
    Init = 1,
    /// Client and server have sent a SYN.
    Established = 2,
    /// The client has sent a FIN.
    ClientFin = 3,
    /// The server has sent a FIN.
    ServerFin = 4,
    /// Client and server have sent a FIN. The session ends after its timeout if no new data follows.
    BothFin = 5,
    /// A reset was received. The session ends after its timeout if no new data follows.
    Transitory = 6,
}

impl TcpState {
    /// Name of the state in the style of `conntrack`.
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

/// Tracking state of a session. The state has 20 bytes, which are all zero before the first packet. Arrays are indexed
/// by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tracking {
    /// For each endpoint: highest tracked sequence number, plus one.
    end: [u32; 2],
    /// Last acknowledgment number of each endpoint. Before the first acknowledgment: initial sequence number of the
    /// peer.
    acknowledged: [u32; 2],
    /// The connection's [`TcpState`].
    state: u8,
    /// Combination of [`FORWARD_SEEN`], [`REVERSE_SEEN`], [`REVERSE_SEEN_ANY`] and [`SERVER_OPENED`].
    flags: u8,
    /// The [`TimeoutClass`] of a session with a protocol other than TCP.
    class: u8,
    /// The [`TimeoutClass`] of the running timer.
    timer: u8,
}

/// Flag: the sequence numbers of an endpoint are known (1 for the client, 2 for the server).
const FORWARD_SEEN: u8 = 1;
const REVERSE_SEEN: u8 = 2;
const SEEN: u8 = FORWARD_SEEN | REVERSE_SEEN;
/// Flag: a packet of the reverse direction was received. The flag applies to all protocols.
const REVERSE_SEEN_ANY: u8 = 4;
/// Flag: this connection reuses the ports of an earlier, closed connection, and was opened by that connection's server.
const SERVER_OPENED: u8 = 8;

/// Fields of a TCP segment that tracking needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// TCP control flags.
    pub flags: u8,
    /// TCP sequence number.
    pub sequence: u32,
    /// Acknowledgment number; valid only with the ACK flag.
    pub acknowledgment: u32,
    /// Number of data bytes, without the header.
    pub length: u32,
}

impl Segment {
    /// Reads the fields from a transport header with its data; `None` if the header is truncated.
    #[inline(always)]
    pub fn read(payload: &[u8]) -> Option<Self> {
        Some(Self::of(payload.first_chunk()?, payload.len()))
    }

    /// Reads the fields from a transport header. `length` is the number of bytes in header and data.
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

    /// Reads the fields from the transport header of a segment with data or an acknowledgment, and no other control flags.
    /// `length` is the number of bytes of data.
    #[inline(always)]
    pub fn of_data(header: &[u8; 20], length: u16) -> Self {
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Self {
            flags: ACK,
            sequence: number(4),
            acknowledgment: number(8),
            length: length.into(),
        }
    }

    /// Whether the segment may create a session: only a SYN without ACK may create a session.
    #[inline(always)]
    pub fn opens(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// Sequence number after the segment, including SYN and FIN.
    #[inline(always)]
    fn end(&self) -> u32 {
        let controls = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.length).wrapping_add(controls)
    }
}

/// Whether `a` follows `b` in sequence space.
#[inline(always)]
fn beyond(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Tracking {
    /// Creates the state for a session with a protocol other than TCP. The timer class of such a session never changes.
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

    /// Creates the state for a TCP session that is picked up midstream, for example after a restart. The session counts
    /// as established. Tracking learns the sequence numbers from the first packets.
    pub fn midstream() -> Self {
        Self {
            state: TcpState::Established as u8,
            ..Self::default()
        }
    }

    /// Class of the running timer, as stored by [`Tracking::set_timer`].
    #[inline(always)]
    pub fn timer(&self) -> TimeoutClass {
        TimeoutClass(self.timer)
    }

    /// Stores the class of the running timer.
    pub fn set_timer(&mut self, class: TimeoutClass) {
        self.timer = class.0;
    }

    /// State of the connection; [`TcpState::Closed`] if the protocol is not TCP.
    pub fn state(&self) -> TcpState {
        TcpState::of(self.state)
    }

    /// Whether a reset or the FINs of client and server have closed the connection. A SYN then starts a new connection
    /// with the same ports (RFC 9293, section 3.6.1).
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.state >= TcpState::BothFin as u8
    }

    /// Whether the connection is or was established. False for a refused connection.
    pub fn was_established(&self) -> bool {
        match self.state() {
            TcpState::Closed | TcpState::Init => false,
            TcpState::Established | TcpState::ClientFin | TcpState::ServerFin | TcpState::BothFin => true,
            TcpState::Transitory => self.flags & SEEN == SEEN,
        }
    }

    /// Next sequence number of each endpoint, by direction. `Some` only if both SYNs were received and everything
    /// except the server's SYN is acknowledged. After the handshake, the first data bytes have these sequence numbers.
    pub fn initial_sequences(&self) -> Option<[u32; 2]> {
        let [client, server] = self.end;
        let is_opening = self.state() == TcpState::Established
            && self.flags & SEEN == SEEN
            && self.acknowledged[1] == client
            && server.wrapping_sub(self.acknowledged[0]) <= 1;
        is_opening.then_some([client, server])
    }

    /// Whether a packet of the reverse direction was received.
    pub fn answered(&self) -> bool {
        self.flags & REVERSE_SEEN_ANY != 0
    }

    /// Tracks a packet of a session with a protocol other than TCP.
    #[inline(always)]
    pub fn track_datagram(&mut self, direction: Direction) -> TimeoutClass {
        self.flags |= (direction as u8) << 2;
        TimeoutClass(self.class)
    }

    /// Fast path for most packets: data of an established TCP session, or a datagram, if the right timer is already
    /// running. Returns false, without effect, for other packets and if `usual` is false. The caller must then call
    /// [`Tracking::track`] or [`Tracking::track_datagram`]. `segment` is used only if `tcp` is set. The code does not
    /// branch on the protocol, because the branch would be mispredicted often.
    #[inline(always)]
    pub fn track_fast(&mut self, direction: Direction, tcp: bool, segment: &Segment, usual: bool) -> bool {
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

    /// Whether data and acknowledgments of a direction need only [`advance`](Self::advance), and datagrams need nothing. The right
    /// timer must be running. A TCP connection must be established, with known sequence numbers of both endpoints. For the
    /// reverse direction, an earlier packet must have been received. `advance` never changes the result.
    pub fn is_settled(&self, direction: Direction, tcp: bool) -> bool {
        let class = if tcp {
            TimeoutClass::TCP_ESTABLISHED.0
        } else {
            self.class
        };
        let is_known = !tcp || self.state == TcpState::Established as u8 && self.flags & SEEN == SEEN;
        class == self.timer && is_known && (direction == Direction::Forward || self.answered())
    }

    /// Tracks a segment with data or an acknowledgment, and no other control flags, of a session that
    /// [is settled](Self::is_settled).
    #[inline(always)]
    pub fn advance(&mut self, direction: Direction, segment: &Segment) {
        self.follow(direction, segment, true);
    }

    /// Tracks a segment of a TCP session. Returns the timer to restart.
    #[inline(always)]
    pub fn track(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        if self.is_established_data(segment) {
            self.flags |= (direction as u8) << 2;
            self.follow(direction, segment, true);
            return TimeoutClass::TCP_ESTABLISHED;
        }
        self.track_control(direction, segment)
    }

    /// Advances the tracked sequence numbers of both endpoints if they are known. Has no effect if `counts` is false.
    #[inline(always)]
    fn follow(&mut self, direction: Direction, segment: &Segment, counts: bool) {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        let end = segment.end();
        let credible = end.wrapping_sub(self.acknowledged[other]) <= MAX_IN_FLIGHT;
        let ahead = beyond(end, self.end[this]) & credible & counts;
        self.end[this] = select_unpredictable(ahead, end, self.end[this]);
        // The acknowledgment of an implausible segment is ignored. An acknowledgment may advance by at most the number
        // of bytes in flight, or by twice that number if some of these bytes are not tracked.
        let step = segment.acknowledgment.wrapping_sub(self.acknowledged[this]);
        let ahead = (step.wrapping_sub(1) < 2 * MAX_IN_FLIGHT) & credible & counts;
        self.acknowledged[this] = select_unpredictable(ahead, segment.acknowledgment, self.acknowledged[this]);
    }

    /// Whether the sequence numbers of an endpoint are known.
    fn is_tracked(&self, side: usize) -> bool {
        self.flags & (FORWARD_SEEN << side) != 0
    }

    /// End and length of an endpoint's unacknowledged data.
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

    /// Whether a segment starts within or directly after its sender's earlier data, and ends after the acknowledged
    /// data.
    fn continues(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length.saturating_add(segment.length)
    }

    /// Whether a segment acknowledges new data of the peer.
    fn acknowledges(&self, direction: Direction, segment: &Segment) -> bool {
        let (end, length) = self.in_flight(direction.opposite());
        segment.flags & ACK != 0 && end.wrapping_sub(segment.acknowledgment) <= length
    }

    /// Whether a reset lies within its sender's unacknowledged data. If its sender has sent nothing before, the reset
    /// must acknowledge exactly the data that the peer has sent.
    fn reset_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.is_tracked(this) {
            return segment.flags & ACK != 0 && self.is_tracked(other) && segment.acknowledgment == self.end[other];
        }
        let (end, length) = self.in_flight(direction);
        end.wrapping_sub(segment.sequence) <= length
    }

    /// Whether a FIN belongs to the connection. The FIN must pass the test for a reset. If earlier data was lost or
    /// reordered, the FIN may acknowledge new data instead.
    fn fin_in_window(&self, direction: Direction, segment: &Segment) -> bool {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        if !self.is_tracked(this) {
            // A connection that is picked up midstream starts without known sequence numbers.
            return !self.is_tracked(other) || self.acknowledges(direction, segment);
        }
        let ahead = segment.sequence.wrapping_sub(self.in_flight(direction).0);
        self.continues(direction, segment) || ahead <= MAX_IN_FLIGHT && self.acknowledges(direction, segment)
    }

    /// Whether an endpoint sends data after its FIN or after a reset. The FIN or reset was then forged or not accepted
    /// by its receiver, and the connection continues.
    fn reuses_connection(&self, direction: Direction, segment: &Segment) -> bool {
        let is_over = match self.state() {
            TcpState::ClientFin => direction == Direction::Forward,
            TcpState::ServerFin => direction == Direction::Reverse,
            TcpState::BothFin => true,
            // Only a connection with both sequence numbers known can continue: a refused connection has no data.
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

    /// Tracks all segments except data of an established connection.
    #[inline(never)]
    fn track_control(&mut self, direction: Direction, segment: &Segment) -> TimeoutClass {
        let state = self.state();
        let forward = direction == Direction::Forward;
        self.flags |= (direction as u8) << 2;
        if segment.flags & RST != 0 {
            return self.track_reset(direction, segment);
        }
        let opens = segment.opens() && forward && matches!(state, TcpState::Closed | TcpState::Init);
        let reopens = segment.opens() && !forward && self.has_ended();
        if opens || reopens {
            *self = Self {
                flags: self.flags & REVERSE_SEEN_ANY | if reopens { SERVER_OPENED } else { 0 },
                timer: self.timer,
                ..Self::default()
            };
            self.start(direction, segment);
            self.state = TcpState::Init as u8;
            return TimeoutClass::TCP_TRANSITORY_OPEN;
        }
        if self.has_ended() && segment.flags & SYN != 0 {
            return TimeoutClass::UNCHANGED;
        }
        let revived = self.reuses_connection(direction, segment);
        let fin = segment.flags & FIN != 0 && self.fin_in_window(direction, segment);
        let next = match if revived { TcpState::Established } else { state } {
            TcpState::Init if forward == (self.flags & SERVER_OPENED != 0) && segment.flags & SYN != 0 => {
                // A SYN with an acknowledgment must acknowledge the client's SYN. A SYN without an acknowledgment is a
                // simultaneous open.
                if segment.flags & ACK != 0 && !self.acknowledges_syn_data(segment) {
                    return TimeoutClass::UNCHANGED;
                }
                TcpState::Established
            }
            TcpState::Established if fin && forward => TcpState::ClientFin,
            TcpState::Established if fin => TcpState::ServerFin,
            TcpState::ClientFin if fin && !forward => TcpState::BothFin,
            TcpState::ServerFin if fin && forward => TcpState::BothFin,
            // Data without a preceding SYN does not establish a connection.
            other => other,
        };
        // A refused connection has no sequence numbers to track.
        if next != TcpState::Transitory {
            self.start(direction, segment);
        }
        self.advance_known(direction, segment, fin);
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
            // The server refused the connection. The session keeps its port, because the client may retry. The refusal
            // of a connection from outside does not refresh a mapping (RFC 7857, section 7.1).
            TcpState::Init => {
                self.state = TcpState::Transitory as u8;
                TimeoutClass::UNCHANGED
            }
            TcpState::Closed | TcpState::BothFin | TcpState::Transitory => TimeoutClass::UNCHANGED,
        }
    }

    /// Whether a segment acknowledges the SYN. An acknowledgment of a SYN with data need not include the data (RFC
    /// 7413).
    fn acknowledges_syn_data(&self, segment: &Segment) -> bool {
        let client = usize::from(self.flags & SERVER_OPENED != 0);
        let from = self.acknowledged[1 - client];
        let acknowledged = segment.acknowledgment.wrapping_sub(from);
        acknowledged != 0 && acknowledged <= self.end[client].wrapping_sub(from)
    }

    /// Learns the sequence numbers of an endpoint from its first segment.
    fn start(&mut self, direction: Direction, segment: &Segment) {
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

    /// Advances the tracked sequence numbers of an endpoint. A FIN is counted only if it belongs to the connection.
    fn advance_known(&mut self, direction: Direction, segment: &Segment, fin: bool) {
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
