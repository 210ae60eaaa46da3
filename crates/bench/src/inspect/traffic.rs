//! Traffic of a source: flows that send in both directions, with one endpoint on each side of a bridge. Every second
//! flow is a long-lived TCP connection; the others are UDP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use etherparse::PacketBuilder;
use sluice_wire::ipv4::protocol;
use sluice_wire::tcp::flag;

use crate::rig::frames::{Random, ipv4};

pub const FLOWS: u32 = 2_048;
/// Offset of the transport header.
const TRANSPORT: usize = 34;
/// Length of a TCP header.
const TCP: usize = 20;
const UDP: usize = 8;
/// First client port; a flow's client port is this value plus the flow's number.
const PORTS: u16 = 20_000;
/// First server port. None of the server ports identifies a protocol.
const SERVERS: u16 = 40_000;
/// Number of bytes after which the receiver sends an acknowledgment.
const ACKNOWLEDGED: u32 = 4_096;
/// Words of protocols; no single word matches a rule.
pub const WORDS: [&str; 12] = [
    "the ",
    "and ",
    "of ",
    "<div class=\"",
    "\">",
    "</div>\n",
    "session=",
    ".html",
    "a1b2",
    "&",
    "index",
    "0",
];
/// Number of payloads among which the flows choose.
const PAGES: usize = 16;

/// Kind of traffic, by frame size and distribution over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Frames of one size (RFC 2544).
    Rfc2544,
    /// Frame sizes of the customer traffic of a carrier.
    Mix,
    /// Frames of one size, half of which belong to one flow.
    Elephant,
}

/// Transport protocol of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Every second flow is a TCP connection, the others are UDP.
    #[default]
    Both,
    /// All flows are TCP connections.
    Tcp,
    /// All flows are UDP.
    Udp,
}

impl Transport {
    /// Whether a flow is a TCP connection.
    #[inline(always)]
    pub fn connects(self, flow: u32) -> bool {
        match self {
            Self::Both => flow % 2 == 1,
            Self::Tcp => true,
            Self::Udp => false,
        }
    }
}

/// Payloads made of words, generated once.
#[derive(Debug)]
pub struct Pages(Vec<Vec<u8>>);

impl Pages {
    /// Creates all payloads, each long enough for the longest frame.
    pub fn new() -> Self {
        let mut random = Random(0x0123_4567_89ab_cdef);
        Self((0..PAGES).map(|_| text(&WORDS, &mut random, 1_600)).collect())
    }

    /// Creates all payloads; payload `page` contains the given text near its beginning.
    #[cfg(test)]
    pub fn with(page: usize, text: &str) -> Self {
        let mut pages = Self::new();
        pages.0[page][8..][..text.len()].copy_from_slice(text.as_bytes());
        pages
    }
}

/// Concatenates randomly chosen words up to a length.
pub fn text(words: &[&str], random: &mut Random, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        text.extend_from_slice(random.of(words).as_bytes());
    }
    text.truncate(length);
    text
}

/// Endpoints of a flow: client and server, each with address and port.
pub fn ends(flow: u32) -> [(u32, u16); 2] {
    let client = (0x0a00_0000 | flow >> 2, PORTS + flow as u16);
    [client, (0xc612_0000 | flow & 0xff, SERVERS)]
}

/// A frame of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub flow: u32,
    /// Side of the bridge on which the frame arrives.
    pub side: u16,
    /// Position of the frame in its direction of the flow: the TCP sequence number, or the number of earlier datagrams.
    pub number: u32,
    /// Time at which the frame is due, in cycles.
    pub due: u64,
}

/// TCP fields of a segment besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub flags: u8,
    /// Acknowledgment number.
    pub acknowledgment: u32,
}

/// Address and port of an endpoint.
pub type End = ([u8; 4], u16);

/// A frame with a TCP segment: its sequence and acknowledgment number, whether it is a SYN, its options and data.
/// Segments with data have the flag PSH; the window is the maximum.
pub fn tcp_frame(
    [from, to]: [End; 2],
    (sequence, acknowledged): (u32, Option<u32>),
    syn: bool,
    options: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let step = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(from.0, to.0, 64);
    let mut step = step.tcp(from.1, to.1, sequence, u16::MAX);
    if syn {
        step = step.syn();
    }
    if let Some(number) = acknowledged {
        step = step.ack(number);
    }
    if !data.is_empty() {
        step = step.psh();
    }
    let mut frame = Vec::with_capacity(step.size(data.len()) + options.len());
    // No error can occur: writing to a vector does not fail, and no segment exceeds the maximum size of a datagram.
    if let Ok(step) = step.options_raw(options) {
        let _ = step.write(&mut frame, data);
    }
    frame
}

/// Number of bytes of a timestamp in a frame, which is written into the source MAC address after its first byte.
const MOMENT: usize = 5;
/// Largest timestamp.
const MOMENTS: u64 = (1 << (8 * MOMENT)) - 1;

/// Writes a frame: a TCP segment if `segment` is given, otherwise a UDP datagram.
#[inline(always)]
pub fn write(bytes: &mut [u8], frame: &Frame, segment: Option<Segment>, pages: &Pages) {
    let length = bytes.len();
    let [client, server] = ends(frame.flow);
    let (source, destination) = match frame.side {
        0 => (client, server),
        _ => (server, client),
    };
    let [_, _, from @ ..] = (frame.due & MOMENTS | 2 << (8 * MOMENT)).to_be_bytes();
    let macs = ([2, 0, 0, 0, 0, 1 - frame.side as u8], from);
    let number = match segment {
        Some(_) => protocol::TCP,
        None => protocol::UDP,
    };
    if let Some(head) = bytes.first_chunk_mut() {
        ipv4(head, macs, number, (source.0, destination.0), length);
    }
    bytes[34..36].copy_from_slice(&source.1.to_be_bytes());
    bytes[36..38].copy_from_slice(&destination.1.to_be_bytes());
    let payload = match segment {
        Some(segment) => {
            bytes[38..42].copy_from_slice(&frame.number.to_be_bytes());
            bytes[42..46].copy_from_slice(&segment.acknowledgment.to_be_bytes());
            // The checksum stays unset, because the network card counts as having verified it.
            bytes[46..54].copy_from_slice(&[5 << 4, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
            TRANSPORT + TCP
        }
        None => {
            bytes[38..40].copy_from_slice(&((length - TRANSPORT) as u16).to_be_bytes());
            bytes[40..42].fill(0);
            bytes[42..46].copy_from_slice(&frame.number.to_be_bytes());
            TRANSPORT + UDP + 4
        }
    };
    let page = &pages.0[frame.flow as usize % PAGES];
    bytes[payload..].copy_from_slice(&page[..length - payload]);
}

/// Reads a frame that [`write`] has written; returns the frame and the length of its data after the number.
#[inline(always)]
pub fn read(bytes: &[u8]) -> Option<(Frame, u32)> {
    let header: &[u8; 46] = bytes.first_chunk()?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let side = u16::from(half(34) == SERVERS);
    let flow = u32::from(half(if side == 0 { 34 } else { 36 }).checked_sub(PORTS)?);
    let (number, data) = match header[23] {
        protocol::TCP => (word(38), u32::from(half(16)) - (20 + TCP as u32)),
        _ => (word(42), 1),
    };
    let due = u64::from(header[7]) << 32 | u64::from(word(8));
    let frame = Frame {
        flow,
        side,
        number,
        due,
    };
    Some((frame, data))
}

/// Cycles since a frame's due time.
#[inline(always)]
pub fn since(due: u64, now: u64) -> u64 {
    now.wrapping_sub(due) & MOMENTS
}

/// Acknowledged position in each direction of each flow.
#[derive(Debug)]
pub struct Acknowledged([Box<[AtomicU32]>; 2]);

impl Default for Acknowledged {
    fn default() -> Self {
        // The first position after the SYN.
        Self([(); 2].map(|()| (0..FLOWS).map(|_| AtomicU32::new(1)).collect()))
    }
}

impl Acknowledged {
    /// Next byte that the receiver expects from a side of a flow.
    #[inline(always)]
    fn of(&self, side: u16, flow: u32) -> u32 {
        self.0[usize::from(side)][flow as usize].load(Ordering::Relaxed)
    }

    fn say(&self, side: u16, flow: u32, next: u32) {
        self.0[usize::from(side)][flow as usize].store(next, Ordering::Relaxed);
    }
}

/// Statistics of the output frames of each flow.
pub struct Seen {
    /// Next expected position in each direction of each flow.
    next: [Box<[u32]>; 2],
    said: [Box<[u32]>; 2],
    acknowledged: Arc<Acknowledged>,
    /// Number of frames that arrived after a later frame of the same flow.
    pub reordered: u64,
}

impl Seen {
    /// Creates empty statistics; sources read the acknowledgments.
    pub fn new(acknowledged: Arc<Acknowledged>) -> Self {
        let none = || [(); 2].map(|()| vec![0; FLOWS as usize].into());
        Self {
            next: none(),
            said: none(),
            acknowledged,
            reordered: 0,
        }
    }

    /// Records a frame, with the length of its data after the number.
    #[inline(always)]
    pub fn see(&mut self, frame: &Frame, data: u32) {
        let (side, flow) = (usize::from(frame.side), frame.flow as usize);
        let Some(next) = self.next[side].get_mut(flow) else {
            return;
        };
        if (frame.number.wrapping_sub(*next) as i32) < 0 {
            self.reordered += 1;
            return;
        }
        *next = frame.number.wrapping_add(data);
        let said = &mut self.said[side][flow];
        if data > 1 && next.wrapping_sub(*said) >= ACKNOWLEDGED {
            *said = *next;
            self.acknowledged.say(frame.side, frame.flow, *next);
        }
    }
}

/// Random generator of the frames that arrive from one side.
pub struct Draw {
    pub side: u16,
    /// Index of the lane that sends the frames.
    pub at: usize,
    pub flows: Vec<u32>,
    /// The flow with more packets than the others, if this generator sends packets of it.
    pub hot: Option<u32>,
    /// Share of packets that belong to the hot flow, in units of 2^-32.
    pub share: u64,
    pub transport: Transport,
    /// Frame lengths, each repeated in proportion to its frequency.
    pub lengths: Vec<usize>,
    pub random: Random,
    /// Next position of each flow.
    pub numbers: Box<[u32]>,
    /// Acknowledged positions, which the sink of the other side publishes.
    pub acknowledged: Arc<Acknowledged>,
}

impl Draw {
    /// Position of each flow after it is opened.
    pub fn opened() -> Box<[u32]> {
        vec![1; FLOWS as usize].into()
    }

    /// Returns the next frame, its TCP segment if any, and its length.
    #[inline(always)]
    pub fn next(&mut self, due: u64) -> (Frame, Option<Segment>, usize) {
        let length = match self.lengths.len() {
            1 => self.lengths[0],
            count => self.lengths[self.random.below(count as u64) as usize],
        };
        let flow = match self.hot {
            Some(hot) if u64::from(self.random.below(1 << 32)) < self.share => hot,
            _ => self.flows[self.random.below(self.flows.len() as u64) as usize],
        };
        let next = &mut self.numbers[flow as usize];
        let number = *next;
        let segment = self.transport.connects(flow).then(|| Segment {
            flags: flag::ACK | flag::PSH,
            acknowledgment: self.acknowledged.of(1 - self.side, flow),
        });
        let data = segment.map_or(1, |_| (length - TRANSPORT - TCP) as u32);
        *next = number.wrapping_add(data);
        let frame = Frame {
            flow,
            side: self.side,
            number,
            due,
        };
        (frame, segment, length)
    }
}

/// The frames that open a flow, in their order: side, position, and TCP segment if the flow is a connection.
pub fn opening(connects: bool) -> Vec<(u16, u32, Option<Segment>)> {
    let segment = |flags, acknowledgment| Some(Segment { flags, acknowledgment });
    match connects {
        true => vec![
            (0, 0, segment(flag::SYN, 0)),
            (1, 0, segment(flag::SYN | flag::ACK, 1)),
            (0, 1, segment(flag::ACK, 1)),
        ],
        false => vec![(0, 0, None), (1, 0, None)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::layers;

    fn draw(side: u16, transport: Transport, acknowledged: &Arc<Acknowledged>) -> Draw {
        Draw {
            side,
            at: 0,
            flows: vec![6, 7],
            hot: None,
            share: 0,
            transport,
            lengths: vec![60, 1514],
            random: Random(1),
            numbers: Draw::opened(),
            acknowledged: acknowledged.clone(),
        }
    }

    #[test]
    fn frame_is_of_its_flow_in_either_direction_and_is_read_back() {
        let pages = Pages::new();
        for length in [60, 1514] {
            let segment = Segment {
                flags: flag::ACK,
                acknowledgment: 9,
            };
            for (side, segment) in [(0, None), (0, Some(segment)), (1, None), (1, Some(segment))] {
                let mut bytes = vec![0; length];
                let frame = Frame {
                    flow: 7,
                    side,
                    number: 3,
                    due: 0x12_3456_789a,
                };
                write(&mut bytes, &frame, segment, &pages);
                let layers = layers::parse(&bytes).unwrap();
                assert_eq!(length, usize::from(layers.end));
                let [client, server] = ends(7).map(|(_, port)| port);
                let expected = if side == 0 { (client, server) } else { (server, client) };
                assert_eq!(expected, (layers.source_port, layers.destination_port));
                let data = segment.map_or(1, |_| length as u32 - 54);
                assert_eq!(Some((frame, data)), read(&bytes));
                assert_eq!(0, bytes[6] & 1, "the source is one host");
            }
        }
    }

    #[test]
    fn flows_have_ends_of_their_own() {
        let mut all: Vec<_> = (0..FLOWS).map(ends).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(FLOWS as usize, all.len());
    }

    #[test]
    fn connection_goes_on_where_its_last_frame_ended() {
        let acknowledged = Arc::default();
        let mut draw = draw(0, Transport::Both, &acknowledged);
        let mut next = [1; 8];
        for _ in 0..100 {
            let (frame, segment, length) = draw.next(0);
            assert_eq!(frame.flow == 7, segment.is_some());
            assert_eq!(next[frame.flow as usize], frame.number);
            next[frame.flow as usize] += if segment.is_some() { length as u32 - 54 } else { 1 };
        }
    }

    #[test]
    fn what_has_come_is_acknowledged_and_what_comes_late_is_counted() {
        let acknowledged = Arc::default();
        let (mut draw, mut seen) = (draw(0, Transport::Tcp, &acknowledged), Seen::new(acknowledged.clone()));
        let mut other = self::draw(1, Transport::Tcp, &acknowledged);
        let frames: Vec<_> = (0..64).map(|_| draw.next(0)).collect();
        for (frame, _, length) in &frames {
            seen.see(frame, *length as u32 - 54);
        }
        assert_eq!(0, seen.reordered);
        let (frame, segment, _) = other.next(0);
        let acknowledgment = segment.unwrap().acknowledgment;
        let last = draw.numbers[frame.flow as usize];
        assert!(last - acknowledgment < ACKNOWLEDGED + 1514 && acknowledgment > 1);
        seen.see(&frames[0].0, 6);
        assert_eq!(1, seen.reordered);
    }
}
