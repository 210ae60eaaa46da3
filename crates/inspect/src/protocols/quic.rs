//! The first flight of QUIC (RFC 9000, RFC 9001, RFC 9369): the parser decrypts a client's Initial packets with the
//! keys derived from their connection ID, reassembles the CRYPTO frames, and parses the ClientHello.

mod initial;

use arrayvec::ArrayVec;
pub use initial::PACKET;

use super::{Anomaly, ClientHello, MessageEvent, ParserPools, Slot};
use crate::source_quota::SlotPool;

/// Maximum number of client datagrams that are decrypted until the hello is complete.
pub const MAX_DATAGRAMS: u8 = 8;
/// Maximum number of Initial packets of a datagram that are decrypted.
const MAX_PACKETS: usize = 4;
/// Units of work to derive the keys of a connection ID and to decrypt with them, in addition to the bytes of the
/// packet.
const KEY_COST: u32 = 8 << 10;
/// Maximum number of reassembled bytes of a ClientHello.
pub const MAX_HELLO: usize = 4096;
/// Maximum number of separate ranges of a ClientHello that is being reassembled.
const MAX_RANGES: usize = 16;

/// A ClientHello that is being reassembled.
#[derive(Debug)]
struct HelloBuffer {
    bytes: [u8; MAX_HELLO],
    /// Received ranges: start and end, sorted, with gaps between them.
    ranges: ArrayVec<(usize, usize), MAX_RANGES>,
}

impl HelloBuffer {
    /// Stores the data of a CRYPTO frame. If bytes are received twice, the first copy is kept.
    fn take(&mut self, offset: usize, data: &[u8]) -> bool {
        let end = offset.saturating_add(data.len());
        if end > MAX_HELLO {
            return false;
        }
        let mut at = offset;
        // Fill the gap before each overlapping range with bytes of the frame.
        for &(start, behind) in &self.ranges {
            if at < start.min(end) {
                self.bytes[at..start.min(end)].copy_from_slice(&data[at - offset..start.min(end) - offset]);
            }
            at = at.max(behind);
        }
        if at < end {
            self.bytes[at..end].copy_from_slice(&data[at - offset..]);
        }
        let (mut from, mut to) = (offset, end);
        self.ranges.retain(|&mut (start, behind)| {
            let joins = start <= to && behind >= from;
            if joins {
                (from, to) = (from.min(start), to.max(behind));
            }
            !joins
        });
        let place = self.ranges.partition_point(|&(start, _)| start < from);
        self.ranges.try_insert(place, (from, to)).is_ok()
    }

    /// Number of contiguous bytes from the start of the hello.
    fn whole(&self) -> usize {
        self.ranges
            .first()
            .filter(|(start, _)| *start == 0)
            .map_or(0, |(_, end)| *end)
    }
}

/// Memory for hellos that are being reassembled, and for the packet that is being decrypted.
#[derive(Debug)]
pub struct HelloBuffers {
    all: Box<[HelloBuffer]>,
    pub(super) places: SlotPool,
    packet: Box<[u8]>,
}

impl HelloBuffers {
    pub(super) fn new(count: u32) -> Self {
        let flight = |_| HelloBuffer {
            bytes: [0; MAX_HELLO],
            ranges: ArrayVec::new(),
        };
        Self {
            all: (0..count).map(flight).collect(),
            places: SlotPool::new(count),
            packet: vec![0; PACKET].into(),
        }
    }

    /// Number of free buffers.
    pub fn available(&self) -> usize {
        self.places.available()
    }
}

/// The client's side of a connection, until its hello is complete.
#[derive(Debug)]
pub struct Quic {
    tls: ClientHello,
    place: Option<u32>,
    /// Destination connection ID of the first Initial packet, from which the keys are derived.
    id: ArrayVec<u8, 20>,
    datagrams: u8,
    /// Number of parsed bytes of the hello.
    parsed: usize,
    done: bool,
}

impl Default for Quic {
    fn default() -> Self {
        Self {
            tls: ClientHello::within_quic(),
            place: None,
            id: ArrayVec::new(),
            datagrams: 0,
            parsed: 0,
            done: false,
        }
    }
}

impl Quic {
    /// Parses a datagram of the client.
    pub fn datagram(&mut self, store: &mut ParserPools, bytes: &[u8], sink: &mut impl FnMut(Slot<'_>, MessageEvent)) {
        if self.done {
            return;
        }
        self.datagrams += 1;
        let mut packet = std::mem::take(&mut store.hellos.packet);
        let mut rest = bytes;
        // A datagram may contain several packets (RFC 9000, section 12.2).
        for _ in 0..MAX_PACKETS {
            let Some((header, behind)) = initial::Header::read(rest) else {
                break;
            };
            self.packet(store, rest, &header, &mut packet, sink);
            rest = behind;
        }
        store.hellos.packet = packet;
        if self.tls.is_done() || self.datagrams >= MAX_DATAGRAMS {
            self.done = true;
            self.release(store);
        }
    }

    fn packet(
        &mut self,
        store: &mut ParserPools,
        bytes: &[u8],
        header: &initial::Header<'_>,
        packet: &mut [u8],
        sink: &mut impl FnMut(Slot<'_>, MessageEvent),
    ) {
        if self.id.is_empty() {
            self.id.extend(header.destination.iter().copied().take(20));
        }
        // After a Retry the keys are derived from the ID that the server chose (RFC 9001, section 5.2).
        let work = store.work.clone();
        let mut open = |id: &[u8]| match work.charge(KEY_COST + bytes.len() as u32) {
            true => initial::open(bytes, header, id, packet),
            false => None,
        };
        let opened = open(&self.id).or_else(|| {
            if self.id.as_slice() == header.destination {
                return None;
            }
            self.id = header.destination.iter().copied().take(20).collect();
            open(header.destination)
        });
        if work.is_exhausted() {
            return;
        }
        let Some(length) = opened else {
            store.anomalies.add(Anomaly::BadInitial);
            return sink(Slot::NO_SLOT, MessageEvent::Anomaly(Anomaly::BadInitial));
        };
        if self.place.is_none() {
            self.place = store.hellos.places.allocate();
            match self.place.and_then(|place| store.hellos.all.get_mut(place as usize)) {
                Some(flight) => flight.ranges.clear(),
                None => {
                    store.anomalies.add(Anomaly::NoSlot);
                    self.done = true;
                    return;
                }
            }
        }
        let Some(place) = self.place.map(|place| place as usize) else {
            return;
        };
        let flight = &mut store.hellos.all[place];
        let mut fits = true;
        initial::frames(&packet[..length], &mut |offset, data| fits &= flight.take(offset, data));
        if !fits {
            store.anomalies.add(Anomaly::LongFlight);
            sink(Slot::NO_SLOT, MessageEvent::Anomaly(Anomaly::LongFlight));
        }
        let mut all = std::mem::take(&mut store.hellos.all);
        let fresh = all[place]
            .bytes
            .get(self.parsed..all[place].whole())
            .unwrap_or_default();
        self.parsed += fresh.len();
        self.tls.bytes(store, fresh, sink);
        store.hellos.all = std::mem::take(&mut all);
    }

    /// Releases all resources after the hello was evaluated, or at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        self.tls.release(store);
        if let Some(place) = self.place.take() {
            store.hellos.places.release(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_put_in_order_and_the_first_copy_counts() {
        let whole = b"abcdefghij";
        let parts = [(6, 8), (0, 2), (4, 7), (9, 10), (1, 5), (7, 10), (0, 10)];
        let mut flight = HelloBuffer {
            bytes: [0; MAX_HELLO],
            ranges: ArrayVec::new(),
        };
        let complete = parts.map(|(from, to)| {
            assert!(flight.take(from, &whole[from..to]));
            flight.whole()
        });
        assert_eq!([0, 2, 2, 2, 8, 10, 10], complete);
        assert!(flight.take(3, b"XXXXXXXXX"));
        assert_eq!(b"abcdefghijXX", &flight.bytes[..flight.whole()]);
        assert!(!flight.take(MAX_HELLO, b"x"));
        for part in 0..40 {
            flight.take(100 + 2 * part, b"x");
        }
        assert_eq!(MAX_RANGES, flight.ranges.len());
    }
}
