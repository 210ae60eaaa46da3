//! A minimal TCP host whose code is independent of the gateway between the two hosts.

use super::random::Random;

/// TCP flags.
pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;

/// The copy of a byte that a receiver keeps while the byte is not in order.
#[derive(Clone, Copy, Debug)]
pub enum Prefers {
    First,
    Last,
    /// Keep the bytes of the segment with the lower start (BSD).
    Lower,
    /// Keep the bytes of the segment with the higher start. If the starts are equal, keep those of the later segment (Linux).
    Higher,
}

/// Received bytes of a stream of limited length.
#[derive(Clone, Debug)]
pub struct Assembly {
    pub prefers: Prefers,
    bytes: Vec<Option<(u8, i64)>>,
}

impl Assembly {
    fn take(&mut self, place: usize, byte: u8, began: i64) {
        let replaces = match (self.prefers, self.bytes[place]) {
            (_, None) | (Prefers::Last, _) => true,
            (Prefers::First, _) => false,
            (Prefers::Lower, Some((_, other))) => began < other,
            (Prefers::Higher, Some((_, other))) => began >= other,
        };
        if replaces {
            self.bytes[place] = Some((byte, began));
        }
    }

    /// The first `ordered` bytes, which were delivered to the application.
    pub fn delivered(&self, ordered: usize) -> Vec<u8> {
        let bytes = self.bytes[..ordered].iter();
        bytes.map(|byte| byte.expect("in order").0).collect()
    }
}

/// Fixed properties of a host.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Size of the receive buffer in bytes.
    pub buffer: usize,
    /// Window scale that the host offers, if any.
    pub scale: Option<u8>,
    /// Whether the host sends SACK blocks, and does not retransmit bytes in received SACK blocks (RFC 2018).
    pub sacks: bool,
    /// Whether the host sends and accepts data in a SYN (RFC 7413).
    pub fast_open: bool,
    /// Whether the host accepts a whole segment if only the start of the segment is within the window.
    pub lenient: bool,
    /// Whether the application reads data immediately.
    pub reads: bool,
    /// Maximum segment size in bytes.
    pub longest: usize,
}

pub struct Host {
    pub habits: Habits,
    pub initial: u32,
    is_client: bool,
    /// Bytes to send, bytes sent, and bytes acknowledged.
    pub content: Vec<u8>,
    /// Number of bytes that may be sent so far, and whether a FIN may follow these bytes.
    pub may: usize,
    pub may_end: bool,
    pub next: usize,
    pub acknowledged: usize,
    is_end_sent: bool,
    is_end_acknowledged: bool,
    sacked: Vec<bool>,
    /// Initial sequence number, window scale, and right window edge of the other host.
    other: Option<u32>,
    other_scale: u8,
    pub reach: usize,
    pub is_established: bool,
    /// Received bytes for each preference, number of bytes in order, and end of the stream.
    pub received: [Assembly; 4],
    pub ordered: usize,
    pub end: Option<usize>,
    read: usize,
    edge: usize,
}

impl Host {
    /// Creates a host that can receive up to `most` bytes.
    pub fn new(is_client: bool, initial: u32, content: Vec<u8>, most: usize, habits: Habits) -> Self {
        let preferences = [Prefers::First, Prefers::Last, Prefers::Lower, Prefers::Higher];
        Self {
            sacked: vec![false; content.len()],
            is_client,
            initial,
            content,
            may: 0,
            may_end: false,
            next: 0,
            acknowledged: 0,
            is_end_sent: false,
            is_end_acknowledged: false,
            other: None,
            other_scale: 0,
            reach: 0,
            is_established: false,
            received: preferences.map(|prefers| Assembly {
                prefers,
                bytes: vec![None; most + 100],
            }),
            ordered: 0,
            end: None,
            read: 0,
            edge: habits.buffer,
            habits,
        }
    }

    /// Whether both streams are complete and acknowledged.
    pub fn is_done(&self) -> bool {
        self.end == Some(self.ordered) && self.is_end_acknowledged
    }

    /// Builds the TCP header of a segment at a position of the stream, with options.
    fn header(&self, place: i64, mut flags: u8) -> Vec<u8> {
        let mut options = Vec::new();
        if flags & SYN != 0 {
            options.extend(self.habits.scale.map_or([1; 4], |scale| [1, 3, 3, scale]));
        } else if self.habits.sacks {
            options.extend(self.sack());
        }
        let acknowledgment = self.other.map_or(0, |other| {
            flags |= ACK;
            let ends = usize::from(self.end == Some(self.ordered));
            other.wrapping_add((1 + self.ordered + ends) as u32)
        });
        let shift = match flags & SYN {
            0 => self.shift(),
            _ => 0,
        };
        let window = ((self.edge - self.ordered) >> shift).min(usize::from(u16::MAX)) as u16;
        let mut segment = vec![0; 20];
        segment[0..2].copy_from_slice(&if self.is_client { 40_000u16 } else { 80 }.to_be_bytes());
        segment[2..4].copy_from_slice(&if self.is_client { 80 } else { 40_000u16 }.to_be_bytes());
        let sequence = self.initial.wrapping_add(1).wrapping_add(place as u32);
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        segment[12] = ((20 + options.len()) as u8 / 4) << 4;
        segment[13] = flags;
        segment[14..16].copy_from_slice(&window.to_be_bytes());
        segment.extend(options);
        segment
    }

    /// Shift of the host's windows: 0 unless both hosts offer window scaling.
    fn shift(&self) -> u8 {
        match self.other_scale {
            u8::MAX => 0,
            _ => self.habits.scale.unwrap_or(0),
        }
    }

    fn sack(&self) -> Vec<u8> {
        let has = |place: usize| self.received[0].bytes.get(place).is_some_and(Option::is_some);
        let (Some(other), Some(from)) = (self.other, (self.ordered..self.edge).find(|&place| has(place))) else {
            return Vec::new();
        };
        let to = (from..).find(|&place| !has(place)).unwrap_or(from);
        let number = |place: usize| other.wrapping_add(1 + place as u32).to_be_bytes();
        [&[1, 1, 5, 10][..], &number(from), &number(to)].concat()
    }

    /// Builds a segment with a range of `stream`, whose bytes may differ from the host's content.
    pub fn segment(&self, stream: &[u8], from: usize, to: usize, flags: u8) -> Vec<u8> {
        let mut segment = self.header(from as i64, flags);
        segment.extend_from_slice(&stream[from..to]);
        if flags & URG != 0 {
            segment[19] = 1;
        }
        segment
    }

    /// Builds an acknowledgement of all received bytes plus `more` bytes.
    pub fn acknowledgment(&self, more: u32) -> Vec<u8> {
        let mut segment = self.header(self.next as i64 + i64::from(self.is_end_sent), ACK);
        let number = u32::from_be_bytes(segment[8..12].try_into().unwrap()).wrapping_add(more);
        segment[8..12].copy_from_slice(&number.to_be_bytes());
        segment
    }

    fn syn(&mut self, random: &mut Random) -> Vec<u8> {
        let mut segment = self.header(-1, SYN);
        if self.is_client && self.habits.fast_open && random.one_in(2) {
            let length = self.may.min(self.habits.longest);
            segment.extend_from_slice(&self.content[..length]);
            self.next = self.next.max(length);
        }
        segment
    }

    /// Sends new data, if the window and the conversation allow new data.
    pub fn send(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        if !self.is_established {
            return None;
        }
        let end = self.may.min(self.reach);
        if self.next < end {
            let to = end.min(self.next + 1 + random.below(self.habits.longest));
            let from = std::mem::replace(&mut self.next, to);
            let flags = self.flags(to, random);
            return Some(self.segment(&self.content, from, to, flags));
        }
        None
    }

    fn flags(&mut self, to: usize, random: &mut Random) -> u8 {
        let ends = self.may_end && to == self.content.len();
        let urgent = random.one_in(20);
        self.is_end_sent |= ends;
        ACK | if ends { FIN } else { 0 } | if urgent { URG } else { 0 }
    }

    /// Handles a timeout: a retransmission, a window probe, or a keep-alive.
    pub fn time_out(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        if !self.is_established {
            return (self.is_client || self.other.is_some()).then(|| self.syn(random));
        }
        if self.acknowledged == self.may && (!self.may_end || self.is_end_acknowledged) {
            // A keep-alive contains a byte with an acknowledged sequence number and an arbitrary value (RFC 9293,
            // 3.8.4).
            let mut segment = self.header(self.next as i64 - 1 + i64::from(self.is_end_sent), ACK);
            segment.extend_from_slice(&[0; 1][..random.below(2)]);
            return Some(segment);
        }
        // Retransmit from the first unacknowledged byte on, with different segment boundaries. If the window is closed,
        // retransmit only one byte.
        let skip = |place: &usize| self.habits.sacks && self.sacked.get(*place).is_some_and(|&sacked| sacked);
        let from = (self.acknowledged..self.content.len()).find(|place| !skip(place));
        let from = from.unwrap_or(self.acknowledged).min(self.may);
        let end = self.may.min(self.reach.max(from + 1));
        let to = end.min(from + 1 + random.below(self.habits.longest));
        self.next = self.next.max(to);
        let flags = self.flags(to, random);
        Some(self.segment(&self.content, from, to, flags))
    }

    /// Lets the application read, and sends a window update if the window was closed.
    pub fn read(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        let waiting = self.ordered - self.read;
        if waiting == 0 {
            return None;
        }
        self.read += if self.habits.reads {
            waiting
        } else {
            1 + random.below(waiting)
        };
        let was_closed = self.edge == self.ordered;
        self.edge = self.edge.max(self.read + self.habits.buffer);
        was_closed.then(|| self.acknowledgment(0))
    }

    /// Handles a received segment and returns the reply.
    pub fn receive(&mut self, segment: &[u8], random: &mut Random) -> Option<Vec<u8>> {
        let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
        let (sequence, acknowledgment, flags) = (number(4), number(8), segment[13]);
        let window = usize::from(u16::from_be_bytes([segment[14], segment[15]]));
        let data = usize::from(segment[12] >> 4) * 4;
        let (options, mut data) = (&segment[20..data], &segment[data..]);
        let mut place = sequence;
        if flags & SYN != 0 {
            if *self.other.get_or_insert(sequence) != sequence {
                return None;
            }
            self.other_scale = match options {
                [1, 3, 3, scale] => *scale,
                _ => u8::MAX,
            };
            place = sequence.wrapping_add(1);
            if !self.habits.fast_open {
                data = &[];
            }
        }
        let other = self.other?;
        if flags & ACK != 0 {
            let acknowledged = acknowledgment.wrapping_sub(self.initial.wrapping_add(1)) as usize;
            let sent = self.next + usize::from(self.is_end_sent);
            if acknowledged <= sent {
                self.is_established = true;
                self.is_end_acknowledged |= acknowledged > self.content.len();
                let acknowledged = acknowledged.min(self.content.len());
                self.acknowledged = self.acknowledged.max(acknowledged);
                self.next = self.next.max(self.acknowledged);
                let scaled = flags & SYN == 0 && self.other_scale != u8::MAX && self.habits.scale.is_some();
                let shift = if scaled { self.other_scale } else { 0 };
                self.reach = self.reach.max(acknowledged + (window << shift));
                if let [1, 1, 5, 10, blocks @ ..] = options {
                    let place = |at: usize| {
                        let number = u32::from_be_bytes(blocks[at..at + 4].try_into().unwrap());
                        number.wrapping_sub(self.initial.wrapping_add(1)) as usize
                    };
                    let (from, to) = (place(0), place(4).min(self.sacked.len()));
                    self.sacked[from.min(to)..to].fill(true);
                }
            }
        }
        let at = i64::from(place.wrapping_sub(other.wrapping_add(1)) as i32);
        let fin = flags & FIN != 0;
        self.take(at, data, fin);
        if self.habits.reads {
            let _ = self.read(random);
        }
        let answers = !data.is_empty() || flags & (SYN | FIN) != 0 || at < self.ordered as i64;
        if !answers {
            return None;
        }
        match self.is_client || self.is_established {
            true => Some(self.acknowledgment(0)),
            false => Some(self.syn(random)),
        }
    }

    fn take(&mut self, at: i64, data: &[u8], fin: bool) {
        if at >= self.edge as i64 && self.edge > self.ordered {
            return;
        }
        for (place, byte) in (at..).zip(data) {
            let Ok(place) = usize::try_from(place) else { continue };
            let is_in = place >= self.ordered
                && place < self.received[0].bytes.len()
                && (place < self.edge || self.habits.lenient && self.edge > self.ordered);
            if is_in && self.end.is_none_or(|end| place < end) {
                self.received.iter_mut().for_each(|one| one.take(place, *byte, at));
            }
        }
        let end = at + data.len() as i64;
        let fits = end >= self.ordered as i64 && end <= self.edge.max(self.ordered) as i64;
        if fin && fits && self.end.is_none() {
            self.end = Some(end as usize);
        }
        while self.end != Some(self.ordered) && self.received[0].bytes.get(self.ordered).is_some_and(Option::is_some) {
            self.ordered += 1;
        }
        self.edge = self.edge.max(self.ordered);
    }
}
