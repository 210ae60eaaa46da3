//! Frames of sources: for each packet, a flow is drawn uniformly, and its frame is written into the packet's buffer.

use sluice_wire::checksum;
use sluice_wire::tcp::flag;

/// Length of the shortest frames without the frame check sequence: 64 bytes on the wire.
pub const SHORTEST: usize = 60;
/// Length of the longest headers: Ethernet, IPv4, TCP.
pub const HEADERS: usize = 54;
/// Length of the frame check sequence, which counts towards a frame's size but is not in memory.
pub const CHECK_SEQUENCE: usize = 4;
/// Length of the tail of a frame: a 48-bit timestamp, or 16 unused bits and a 32-bit flow number.
const TAIL: usize = 6;

/// Inside MAC address of the gateway.
pub const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// MAC address from which all inside hosts' frames come: that of one router in front of them.
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 254];
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];

/// Seed of most random draws.
pub const SEED: u64 = 88_172_645_463_325_252;

/// A random number generator (the one of the stand-alone probe).
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

/// A random number generator (splitmix64) whose numbers don't depend on the previous number.
#[derive(Clone, Copy, Debug)]
pub struct Mixed(pub u64);

impl Mixed {
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random {
    /// Returns a random number below `count`.
    #[inline(always)]
    pub fn below(&mut self, count: u64) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * count) >> 32) as u32
    }

    /// Returns a random element of a slice.
    #[inline(always)]
    pub fn of<'t, T>(&mut self, some: &'t [T]) -> &'t T {
        &some[self.below(some.len() as u64) as usize]
    }

    /// Shuffles a slice; every order has the same probability (Fisher-Yates).
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Addresses and ports of a flow's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub inside: (u32, u16),
    pub remote: (u32, u16),
    pub tcp: bool,
}

/// Assignment of flows to inside hosts.
#[derive(Clone, Copy, Debug)]
pub enum Hosts {
    /// Sixteen consecutive flows per host.
    Sixteen,
    /// Consecutive flows belong to this number of hosts in turn.
    InTurn(u32),
}

/// Endpoints of flow `number`; half of the flows are TCP, the others UDP.
#[inline(always)]
pub fn ends(hosts: Hosts, number: u32) -> Ends {
    let remote = 0x0808_0000u32.wrapping_add(number.wrapping_mul(2_654_435_761) >> 12);
    let (host, port) = match hosts {
        Hosts::Sixteen => (number >> 4, 1024 + (number & 15) as u16 * 16),
        Hosts::InTurn(count) => (number % count, 1024 + (number / count) as u16),
    };
    Ends {
        inside: (0x0a00_0000 | host, port),
        remote: (remote, 443),
        tcp: match hosts {
            Hosts::Sixteen => number & 1 == 0,
            Hosts::InTurn(_) => (host ^ u32::from(port)) & 1 == 0,
        },
    }
}

/// A frame to write.
pub trait Frame: Copy {
    /// IP version: 4 or 6.
    const FAMILY: u32 = 4;
    /// Offsets of the last 32 bits of the source address, and of the source port, in a frame.
    const SOURCE: (usize, usize) = (26, 34);

    /// Length of this frame without the frame check sequence.
    fn length(&self) -> usize;

    /// Writes the frame with correct checksums.
    fn write(&self, frame: &mut [u8]);
}

/// A packet of a flow, written as the shortest frame over IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub source: (u32, u16),
    pub destination: (u32, u16),
    pub tcp: bool,
    pub flags: u8,
    /// TCP sequence number and acknowledgment number.
    pub numbers: (u32, u32),
    pub macs: ([u8; 6], [u8; 6]),
    /// Number of the flow, which is in the last four bytes of the frame.
    pub mark: u32,
}

/// Flow number in a frame.
pub fn mark(frame: &[u8]) -> u32 {
    frame.last_chunk().map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
}

/// Data packet of flow `number`: a packet from inside, or a reply to the given public address and port.
#[inline(always)]
pub fn data(hosts: Hosts, number: u32, public: Option<(u32, u16)>) -> Written {
    let e = ends(hosts, number);
    let (source, destination, macs) = match public {
        None => (e.inside, e.remote, (INSIDE_MAC, HOST_MAC)),
        Some(public) => (e.remote, public, (OUTSIDE_MAC, ROUTER_MAC)),
    };
    Written {
        source,
        destination,
        tcp: e.tcp,
        flags: flag::ACK,
        numbers: (2, 2),
        macs,
        mark: number,
    }
}

impl Written {
    /// This packet changed to the first packet of its flow.
    pub fn first(self) -> Self {
        self.with(flag::SYN, (1, 0))
    }

    /// This packet with other TCP flags and numbers.
    #[inline(always)]
    pub fn with(self, flags: u8, numbers: (u32, u32)) -> Self {
        Self { flags, numbers, ..self }
    }
}

impl Frame for Written {
    #[inline(always)]
    fn length(&self) -> usize {
        SHORTEST
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let Some(frame) = frame.first_chunk_mut::<SHORTEST>() else {
            return;
        };
        frame[HEADERS..SHORTEST - 4].fill(0);
        frame[SHORTEST - 4..].copy_from_slice(&self.mark.to_be_bytes());
        let mark = checksum::add((self.mark >> 16) as u16, self.mark as u16);
        if let Some(head) = frame.first_chunk_mut() {
            headers(head, self, SHORTEST, mark);
        }
    }
}

/// Writes the headers of a frame of `length` bytes without the frame check sequence; `rest` is the checksum of the
/// bytes after [`HEADERS`]. After a UDP header, the bytes up to the length of [`HEADERS`] are payload, all zeros.
#[inline(always)]
fn headers(head: &mut [u8; HEADERS], w: &Written, length: usize, rest: u16) {
    let (protocol, segment) = (if w.tcp { 6 } else { 17 }, length as u16 - 34);
    if let Some(head) = head.first_chunk_mut() {
        ipv4(head, w.macs, protocol, (w.source.0, w.destination.0), length);
    }
    let pseudo = checksum::pseudo4(w.source.0, w.destination.0, protocol, segment);
    transport(&mut head[34..], w, segment, checksum::add(pseudo, rest));
}

/// Writes the Ethernet and IPv4 headers of a frame of `length` bytes without the frame check sequence.
#[inline(always)]
pub fn ipv4(
    head: &mut [u8; 34],
    macs: ([u8; 6], [u8; 6]),
    protocol: u8,
    (source, destination): (u32, u32),
    length: usize,
) {
    head[..6].copy_from_slice(&macs.0);
    head[6..12].copy_from_slice(&macs.1);
    head[12..26].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    head[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    head[26..30].copy_from_slice(&source.to_be_bytes());
    head[30..34].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum::checksum(&head[14..34]);
    head[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the transport header of a segment of `length` bytes. After a UDP header, writes zeros up to the length of a
/// TCP header. `rest` is the checksum of the pseudo-header and of the bytes that follow.
#[inline(always)]
fn transport(segment: &mut [u8], w: &Written, length: u16, rest: u16) {
    segment[..2].copy_from_slice(&w.source.1.to_be_bytes());
    segment[2..4].copy_from_slice(&w.destination.1.to_be_bytes());
    segment[4..20].fill(0);
    let at = if w.tcp {
        segment[4..8].copy_from_slice(&w.numbers.0.to_be_bytes());
        segment[8..12].copy_from_slice(&w.numbers.1.to_be_bytes());
        segment[12..16].copy_from_slice(&[0x50, w.flags, 0x20, 0]);
        16
    } else {
        segment[4..6].copy_from_slice(&length.to_be_bytes());
        6
    };
    let sum = transport_sum(checksum::add(checksum::sum(&segment[..20]), rest), w.tcp);
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Transport checksum from a one's complement sum. For UDP, zero is written as 0xffff, because zero would mean that
/// there is no checksum (RFC 768).
#[inline(always)]
fn transport_sum(sum: u16, tcp: bool) -> u16 {
    match !sum {
        0 if !tcp => 0xffff,
        sum => sum,
    }
}

/// First 64 bits of the IPv6 addresses of inside hosts, remote hosts, and public addresses.
pub const INSIDE6: u64 = 0x2001_0db8_0001_0000;
pub const REMOTE6: u64 = 0x2001_0db8_0002_0000;
pub const PUBLIC6: u64 = 0x2001_0db8_0003_0000;

/// Number of bytes after the IPv6 header: a TCP header and the flow number.
const PAYLOAD6: u16 = 24;

/// The same packet over IPv6: the last 32 bits of each IPv6 address are the IPv4 address in [`Written`].
#[derive(Clone, Copy, Debug)]
pub struct Written6(Written);

impl From<Written> for Written6 {
    fn from(written: Written) -> Self {
        Self(written)
    }
}

/// An IPv6 address from its first 64 bits and a number.
pub fn address6(half: u64, number: u32) -> [u8; 16] {
    (u128::from(half) << 64 | u128::from(number)).to_be_bytes()
}

impl Frame for Written6 {
    const FAMILY: u32 = 6;
    const SOURCE: (usize, usize) = (34, 54);

    #[inline(always)]
    fn length(&self) -> usize {
        HEADERS + usize::from(PAYLOAD6)
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let Some(frame) = frame.first_chunk_mut::<{ HEADERS + PAYLOAD6 as usize }>() else {
            return;
        };
        let w = &self.0;
        let up = w.macs.0 == INSIDE_MAC;
        let (from, to) = if up { (INSIDE6, REMOTE6) } else { (REMOTE6, PUBLIC6) };
        frame[..6].copy_from_slice(&w.macs.0);
        frame[6..12].copy_from_slice(&w.macs.1);
        let protocol = if w.tcp { 6 } else { 17 };
        frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, PAYLOAD6 as u8, protocol, 64]);
        frame[22..38].copy_from_slice(&address6(from, w.source.0));
        frame[38..54].copy_from_slice(&address6(to, w.destination.0));
        frame[74..].copy_from_slice(&w.mark.to_be_bytes());
        // Pseudo-header: addresses, length, protocol.
        let pseudo = checksum::add(checksum::sum(&frame[22..54]), PAYLOAD6 + u16::from(protocol));
        let rest = checksum::add(pseudo, checksum::sum(&frame[74..]));
        transport(&mut frame[54..74], w, PAYLOAD6, rest);
    }
}

/// Bytes between headers and tail, for frames of one size.
#[derive(Clone, Debug)]
pub struct Filling {
    bytes: Box<[u8]>,
    sum: u16,
}

impl Filling {
    /// Creates the bytes for frames of `size` bytes including the frame check sequence; `size` is at least 64.
    pub fn new(size: usize) -> Self {
        let length = size - CHECK_SEQUENCE - TAIL - HEADERS;
        let bytes: Box<[u8]> = (0..length).map(|at| at as u8).collect();
        let sum = checksum::sum(&bytes);
        Self { bytes, sum }
    }

    /// Length of the frames without the frame check sequence.
    pub fn length(&self) -> usize {
        HEADERS + self.bytes.len() + TAIL
    }

    /// Returns the bytes after a transport header of `transport` bytes, in a frame with this tail.
    pub fn payload(&self, tail: u64, transport: usize) -> Vec<u8> {
        // The longest transport header is that of TCP, with 20 bytes.
        let zeros = vec![0; 20 - transport];
        [&zeros, &*self.bytes, &tail.to_be_bytes()[2..]].concat()
    }
}

/// A packet written as a frame of any size.
#[derive(Clone, Copy, Debug)]
pub struct Filled<'f> {
    pub written: Written,
    /// Tail, of which the lowest 48 bits are written.
    pub tail: u64,
    pub filling: &'f Filling,
    /// Whether the buffer already contains the bytes between headers and tail.
    pub kept: bool,
}

impl<'f> Filled<'f> {
    /// A frame with all of its bytes; its tail is the flow number of the packet.
    #[inline(always)]
    pub fn new(written: Written, filling: &'f Filling) -> Self {
        let (tail, kept) = (written.mark.into(), false);
        Self {
            written,
            tail,
            filling,
            kept,
        }
    }
}

impl Frame for Filled<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.filling.length()
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let length = frame.len();
        let Some((head, rest)) = frame.split_first_chunk_mut() else {
            return;
        };
        let Some((body, tail)) = rest.split_last_chunk_mut::<TAIL>() else {
            return;
        };
        if !self.kept {
            body.copy_from_slice(&self.filling.bytes);
        }
        tail.copy_from_slice(&self.tail.to_be_bytes()[8 - TAIL..]);
        // If the number of preceding bytes is odd, each byte of the tail is in the other half of its 16-bit word.
        let sum = match body.len() % 2 {
            0 => checksum::sum(tail),
            _ => checksum::sum(tail).swap_bytes(),
        };
        let sum = checksum::add(self.filling.sum, sum);
        headers(head, &self.written, length, sum);
    }
}

/// A frame of which only headers and tail are written; the bytes between them keep the buffer's contents. The transport
/// checksum does not match these bytes, so the device must report it as verified.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'f> {
    pub head: &'f [u8; HEADERS],
    /// Tail, of which the lowest 48 bits are written.
    pub tail: u64,
    pub length: usize,
}

impl Frame for Stamped<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        if let Some(head) = frame.first_chunk_mut() {
            *head = *self.head;
        }
        if let Some(tail) = frame.last_chunk_mut::<TAIL>() {
            tail.copy_from_slice(&self.tail.to_be_bytes()[8 - TAIL..]);
        }
    }
}

/// Reads the tail of a frame.
#[inline(always)]
pub fn tail(frame: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(tail) = frame.last_chunk::<TAIL>() {
        bytes[8 - TAIL..].copy_from_slice(tail);
    }
    u64::from_be_bytes(bytes)
}

/// A frame, optionally with `N` bytes of VLAN tags in addition to its length.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<F, const N: usize> {
    pub frame: F,
    pub tags: Option<[u8; N]>,
}

/// Inserts VLAN tags into a frame; the frame was written after a gap that is reserved for the tags.
#[inline(always)]
pub fn put_tags<const N: usize>(frame: &mut [u8], tags: [u8; N]) {
    if frame.len() >= 12 + N {
        frame.copy_within(N..N + 12, 0);
        frame[12..12 + N].copy_from_slice(&tags);
    }
}

impl<F: Frame, const N: usize> Frame for Tagged<F, N> {
    const FAMILY: u32 = F::FAMILY;

    #[inline(always)]
    fn length(&self) -> usize {
        self.frame.length() + if self.tags.is_some() { N } else { 0 }
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        match self.tags {
            None => self.frame.write(frame),
            Some(tags) => {
                if let Some((_, rest)) = frame.split_at_mut_checked(N) {
                    self.frame.write(rest);
                }
                put_tags(frame, tags);
            }
        }
    }
}

#[cfg(test)]
mod tests;
