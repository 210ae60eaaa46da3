//! Writes the link header of an adjacency.

use std::cmp::Ordering;

use sluice_nat::sites::View;
use sluice_wire::layers::Layers;
use sluice_wire::{Packet, Window};

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::io::{BufferIndex, Head, NO_PORT, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::MAX_TAGS;

use super::super::OutputResult;
use super::{Adjacency, Egress};

/// Mask of a MAC in a word. The lowest byte of the word is the first byte of the MAC.
const MAC: u64 = (1 << 48) - 1;

impl Adjacency {
    /// Whether a packet arrived without tags and can be sent without tags through this worker's own queue.
    #[inline(always)]
    pub fn takes(&self, layers: &Layers) -> bool {
        self.plain && layers.tags == 0
    }

    /// Writes the link header `link` of a frame of `length` bytes that arrived without tags, and sends the frame. If
    /// the frame needs tags or the queue of another worker, returns `false` without an effect.
    #[inline(always)]
    pub fn take(
        &mut self,
        link: &mut [u8],
        length: usize,
        slot: BufferIndex,
        meta: &mut Meta,
        lists: &mut Lists,
    ) -> bool {
        if self.takes(&meta.layers)
            && let Some(head) = link.first_chunk_mut()
        {
            self.rewrite_link(head, length);
            meta.egress = self.egress();
            lists.send(self.port, slot);
            return true;
        }
        false
    }

    /// Whether this worker's own queue can send, with this number of tags, a packet that arrived with as many tags and has this L3
    /// length.
    #[inline(always)]
    pub fn is_direct_for<const TAGS: usize>(&self, length: u16) -> bool {
        match TAGS {
            0 => length <= self.direct,
            _ => length <= self.open && usize::from(self.tags) == TAGS,
        }
    }

    /// Whether a packet of this L3 length can be sent with any number of tags, through this worker's own queue or that of another
    /// worker. The frame has headroom for the tags.
    #[inline]
    pub fn is_open_for(&self, length: u16, window: &Window) -> bool {
        let has_port = self.port != NO_PORT && usize::from(self.tags) <= MAX_TAGS;
        has_port && length <= self.mtu && usize::from(window.start) >= 4 * MAX_TAGS
    }

    /// The index of the adjacency.
    #[inline(always)]
    pub fn index(&self) -> AdjacencyIndex {
        self.hop
    }

    /// Writes the MAC addresses and tags of a frame of `length` bytes that [`is_direct_for`](Self::is_direct_for) this number of
    /// tags, and counts the frame as sent.
    #[inline(always)]
    pub fn rewrite_head<const TAGS: usize>(&mut self, head: &mut Head, length: usize) {
        let kept = head[14] & self.keeps;
        match TAGS {
            0 => write(head, self.head.first_chunk::<12>()),
            1 => write(head, self.head.first_chunk::<16>()),
            _ => write(head, Some(&self.head)),
        }
        for tag in 0..TAGS {
            head[14 + 4 * tag] |= kept;
        }
        self.frames += 1;
        self.bytes += length as u64;
    }

    /// Number of the egress interface.
    #[inline(always)]
    pub fn egress(&self) -> u16 {
        self.hop.interface() as u16
    }

    /// The port and the interface on which frames are sent.
    #[inline(always)]
    pub fn port_and_interface(&self) -> Egress {
        self.by
    }

    /// Number of tags of sent frames.
    #[inline(always)]
    pub fn tags(&self) -> u8 {
        self.tags
    }

    /// The port on which frames are sent.
    #[inline(always)]
    pub fn port(&self) -> PortIndex {
        self.port
    }

    /// Writes the MAC addresses of an untagged frame of `length` bytes, and counts the frame as sent.
    #[inline(always)]
    pub fn rewrite_link(&mut self, head: &mut [u8; 12], length: usize) {
        // The sent frame keeps the EtherType of the received frame.
        if let Some(addresses) = self.head.first_chunk() {
            *head = *addresses;
        }
        self.frames += 1;
        self.bytes += length as u64;
    }

    /// Counts untagged frames with this number of bytes in total as sent, and returns the MAC addresses for them.
    #[inline(always)]
    pub fn rewrite_heads(&mut self, frames: usize, bytes: u64) -> [u8; 12] {
        self.frames += frames as u32;
        self.bytes += bytes;
        *self.head.first_chunk().unwrap_or(&[0; 12])
    }

    /// Whether a packet with an L3 datagram of this length can be sent through this worker's own queue, with or without tags.
    #[inline(always)]
    pub fn may_send(&self, length: u16) -> bool {
        length <= self.open
    }

    /// Writes the MAC addresses and tags of a frame that arrived with this number of tags, and counts the frame as
    /// sent if this worker sends it. If the headroom is too small for the tags, returns `false` without an effect.
    #[inline(always)]
    pub fn relabel(&mut self, packet: &mut Packet<'_>, tags: u8) -> bool {
        let kept = self.priority_of(packet, tags);
        // The EtherType of the received frame stays at its position in the buffer.
        let fits = match self.tags.cmp(&tags) {
            Ordering::Equal => true,
            Ordering::Greater => packet.grow_front(4 * usize::from(self.tags - tags)),
            Ordering::Less => packet.trim_front(4 * usize::from(tags - self.tags)),
        };
        if !fits {
            return false;
        }
        let length = packet.len();
        let frame = packet.bytes_mut();
        match self.tags {
            0 => write(frame, self.head.first_chunk::<12>()),
            1 => {
                write(frame, self.head.first_chunk::<16>());
                keep(frame, 14, kept);
            }
            _ => {
                write(frame, Some(&self.head));
                keep(frame, 14, kept);
                keep(frame, 18, kept);
            }
        }
        if self.sender.is_none() {
            self.frames += 1;
            self.bytes += length as u64;
        }
        true
    }

    /// The bits of the received priority that the sent frame keeps. `tags` is the number of received tags.
    #[inline(always)]
    fn priority_of(&self, packet: &Packet<'_>, tags: u8) -> u8 {
        match packet.bytes().get(14) {
            Some(priority) if tags > 0 => priority & self.keeps,
            _ => 0,
        }
    }
}

impl Adjacency {
    /// Writes the MAC addresses and tags of a frame in a site's session. The frame arrived with this number of tags.
    /// The frame is sent to the MAC of its terminal, or, if `upstream` is set, to the next hop with the site's virtual
    /// MAC as its source. The frame is counted as sent unless it must still be fragmented. If the headroom is too small
    /// for the tags, returns `false` without an effect.
    #[inline(always)]
    pub fn relabel_as(&mut self, packet: &mut Packet<'_>, tags: u8, view: &View, upstream: bool, cut: bool) -> bool {
        // The header is built in registers, in little-endian words: if the header were in memory, store forwarding would delay its loads.
        let word = |at: usize| {
            let bytes = self.head.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let interface = word(6) & MAC;
        // The priority is written to both tags.
        let kept = u64::from(self.priority_of(packet, tags)) * 0x0001_0000_0001_0000;
        let (to, from, labels, own) = match upstream {
            true if view.virtual_mac != 0 => (word(0) & MAC, view.virtual_mac, word(12), self.tags),
            true => (word(0) & MAC, interface, word(12), self.tags),
            false => (view.mac, interface, view.tags, view.tag_count),
        };
        let fits = match own.cmp(&tags) {
            Ordering::Equal => true,
            Ordering::Greater => packet.grow_front(4 * usize::from(own - tags)),
            Ordering::Less => packet.trim_front(4 * usize::from(tags - own)),
        };
        if !fits {
            return false;
        }
        let length = packet.len();
        let frame = packet.bytes_mut();
        let labels = labels | kept;
        let (first, second, third) = (to | from << 48, from >> 16 | labels << 32, labels >> 32);
        let words = [first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes()];
        match own {
            0 => write_words::<12>(frame, &words),
            1 => write_words::<16>(frame, &words),
            _ => write_words::<20>(frame, &words),
        }
        if !cut && self.sender.is_none() {
            self.frames += 1;
            self.bytes += length as u64;
        }
        true
    }

    /// How a frame whose link header is finished leaves.
    #[inline(always)]
    pub fn out(&self) -> OutputResult {
        match self.sender {
            None => OutputResult::Transmit(self.port),
            Some(sender) => OutputResult::HandOver(sender, self.hop.interface() as u16),
        }
    }

    /// The index of this adjacency.
    pub fn hop(&self) -> AdjacencyIndex {
        self.hop
    }
}

/// Writes the header before the EtherType.
#[inline(always)]
pub(in crate::nodes::output) fn write<const LENGTH: usize>(frame: &mut [u8], head: Option<&[u8; LENGTH]>) {
    if let (Some(place), Some(head)) = (frame.first_chunk_mut(), head) {
        *place = *head;
    }
}

/// Sets the kept priority in a tag.
#[inline(always)]
fn keep(frame: &mut [u8], at: usize, kept: u8) {
    if let Some(control) = frame.get_mut(at) {
        *control |= kept;
    }
}

/// Writes the header before the EtherType from words.
#[inline(always)]
fn write_words<const LENGTH: usize>(frame: &mut [u8], words: &[[u8; 8]; 3]) {
    if let Some(place) = frame.first_chunk_mut::<LENGTH>() {
        for (place, word) in place.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word[..place.len()]);
        }
    }
}
