//! Fragmentation of IPv4 datagrams (RFC 791, section 3.2).

use crate::ipv4::{self, Ipv4, option};
use crate::layers::{Class, Layers};
use crate::packet::Packet;

/// Maximum length of IPv4 options in bytes.
const OPTIONS: usize = 40;

/// Fragmentation of one IPv4 datagram or fragment.
#[derive(Clone, Debug)]
pub struct Fragments<'f> {
    frame: &'f [u8],
    layers: Layers,
    /// Number of payload bytes in the first fragment.
    first: usize,
    later: usize,
    /// IPv4 options of later fragments, padded to 32-bit words.
    copied: [u8; OPTIONS],
    copied_length: usize,
}

impl<'f> Fragments<'f> {
    /// Divides the datagram of `frame` into fragments that don't exceed `mtu`. `None` if the datagram is not IPv4, or
    /// if `mtu` leaves less than 8 bytes for payload. The caller must check whether the datagram may be fragmented (see
    /// [`Ipv4::dont_fragment`]).
    pub fn new(frame: &'f [u8], layers: &Layers, mtu: u16) -> Option<Self> {
        if layers.class != Class::Ipv4 {
            return None;
        }
        let header = Ipv4::new(layers.datagram(frame))?;
        let (copied, copied_length) = copied_options(header.options());
        let capacity = |header: usize| {
            (mtu as usize)
                .checked_sub(header)
                .map(|capacity| capacity & !7)
                .filter(|capacity| *capacity > 0)
        };
        let first = capacity(header.header_length())?;
        let later = capacity(ipv4::LENGTH + copied_length)?;
        Some(Self {
            frame,
            layers: *layers,
            first,
            later,
            copied,
            copied_length,
        })
    }

    /// Number of fragments, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one fragment")]
    pub fn len(&self) -> usize {
        1 + self
            .layers
            .payload(self.frame)
            .len()
            .saturating_sub(self.first)
            .div_ceil(self.later)
    }

    /// Writes the `k`-th fragment, with the frame's Ethernet header and VLAN tags, to `packet`. Returns false, without
    /// effect, if the fragment does not exist or the buffer is too small.
    pub fn emit(&self, k: usize, packet: &mut Packet<'_>) -> bool {
        let datagram = self.layers.datagram(self.frame);
        let payload = self.layers.payload(self.frame);
        let Some(header) = Ipv4::new(datagram) else {
            return false;
        };
        let (start, max, options) = match k.checked_sub(1) {
            None => (0, self.first, header.options()),
            Some(before) => {
                let options = self.copied.get(..self.copied_length).unwrap_or_default();
                (
                    self.first.saturating_add(before.saturating_mul(self.later)),
                    self.later,
                    options,
                )
            }
        };
        let end = start.saturating_add(max).min(payload.len());
        let Some(part) = payload.get(start..end).filter(|part| k == 0 || !part.is_empty()) else {
            return false;
        };
        let l3 = self.layers.l3 as usize;
        let header_length = ipv4::LENGTH + options.len();
        if !packet.set_len(l3 + header_length + part.len()) {
            return false;
        }
        let fixed = self.frame.get(..l3 + ipv4::LENGTH).unwrap_or_default();
        for (to, from) in packet
            .bytes_mut()
            .iter_mut()
            .zip(fixed.iter().chain(options).chain(part))
        {
            *to = *from;
        }
        let Some(mut made) = packet.bytes_mut().get_mut(l3..).and_then(Ipv4::new) else {
            return false;
        };
        let more = end < payload.len() || header.fragment() & ipv4::MORE_FRAGMENTS != 0;
        let offset = (header.fragment_offset() + start) >> 3;
        made.set_version_length(0x40 | (header_length >> 2) as u8);
        made.set_total_length((header_length + part.len()) as u16);
        made.set_fragment(
            offset as u16 & ipv4::FRAGMENT_OFFSET
                | if more { ipv4::MORE_FRAGMENTS } else { 0 }
                | header.fragment() & ipv4::DONT_FRAGMENT,
        );
        made.fill_checksum();
        true
    }
}

/// The options that must be copied to every fragment, padded with zeros to 32-bit words, and their length in bytes.
fn copied_options(options: &[u8]) -> ([u8; OPTIONS], usize) {
    let mut copied = [0; OPTIONS];
    let mut length = 0;
    let mut rest = options;
    while let Some((&kind, tail)) = rest.split_first() {
        match kind {
            option::END => break,
            option::NO_OPERATION => rest = tail,
            _ => {
                let size = tail.first().copied().unwrap_or(0) as usize;
                let Some(whole) = rest.get(..size).filter(|whole| whole.len() >= 2) else {
                    break;
                };
                if kind & 0x80 != 0
                    && let Some(capacity) = copied.get_mut(length..length + size)
                {
                    capacity.copy_from_slice(whole);
                    length += size;
                }
                rest = rest.get(size..).unwrap_or_default();
            }
        }
    }
    (copied, length.next_multiple_of(4).min(OPTIONS))
}
