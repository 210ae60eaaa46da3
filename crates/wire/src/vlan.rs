//! VLAN tags: 802.1Q and 802.1ad.

use crate::ethernet::ethertype;
use crate::field::header;
use crate::packet::Packet;

header! {
    /// Tag control information of a VLAN tag, and the following EtherType. The tag protocol identifier is not included.
    Vlan 4
    "Priority (3 bits), drop eligible (1), VLAN (12)." control: u16 = CONTROL @ 0, set_control;
    "EtherType of what follows." ethertype: u16 = ETHERTYPE @ 2, set_ethertype;
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol identifier: 0x8100, 0x88a8, 0x9100 or 0x9200.
    pub protocol: u16,
    /// Tag control information: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
    pub control: u16,
}

impl Tag {
    /// An 802.1Q tag with this VLAN and priority 0.
    pub fn vlan(id: u16) -> Self {
        Self {
            protocol: ethertype::VLAN,
            control: id & 0x0fff,
        }
    }

    /// An 802.1ad service tag with this VLAN and priority 0.
    pub fn service(id: u16) -> Self {
        Self {
            protocol: ethertype::SERVICE_VLAN,
            control: id & 0x0fff,
        }
    }

    /// Returns this tag with a different priority (0 to 7) and without drop eligibility.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self {
            control: self.id() | u16::from(priority) << 13,
            ..self
        }
    }

    /// Whether the tag is a priority tag, which has VLAN 0. A frame with only a priority tag counts as untagged (IEEE
    /// 802.1Q, section 6.9).
    #[inline(always)]
    pub fn is_priority(self) -> bool {
        self.id() == 0
    }

    /// VLAN number, 0 to 4095.
    #[inline(always)]
    pub fn id(self) -> u16 {
        self.control & 0x0fff
    }

    /// Priority code point, 0 to 7.
    #[inline(always)]
    pub fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// Whether the frame is drop eligible.
    #[inline(always)]
    pub fn drop_eligible(self) -> bool {
        self.control & 0x1000 != 0
    }
}

/// Whether an EtherType identifies a VLAN tag.
#[inline(always)]
pub fn is_tag(protocol: u16) -> bool {
    protocol == ethertype::VLAN || protocol == ethertype::SERVICE_VLAN || ethertype::QINQ.contains(&protocol)
}

/// The one or two tags of a frame in one word, each reduced to its TPID and VLAN identifier; `None` without tags.
#[inline(always)]
pub fn word(frame: &[u8]) -> Option<u64> {
    let head: &[u8; 20] = frame.first_chunk()?;
    let word = u64::from_be_bytes(*head.last_chunk()?);
    match (is_tag((word >> 48) as u16), is_tag((word >> 16) as u16)) {
        (false, _) => None,
        (true, false) => Some(word >> 32 & 0xffff_0fff),
        (true, true) => Some(word & 0xffff_0fff_ffff_0fff),
    }
}

/// The `k`-th tag of a frame. Tag 0 is the outermost tag.
#[inline]
pub fn tag(frame: &[u8], k: usize) -> Option<Tag> {
    let bytes = frame.get(12 + 4 * k..)?.first_chunk::<4>()?;
    let tag = Tag {
        protocol: u16::from_be_bytes([bytes[0], bytes[1]]),
        control: u16::from_be_bytes([bytes[2], bytes[3]]),
    };
    is_tag(tag.protocol).then_some(tag)
}

/// Adds an outermost tag. Returns false, without effect, if the headroom or the frame is too small.
pub fn push(packet: &mut Packet<'_>, tag: Tag) -> bool {
    if packet.len() < crate::ethernet::LENGTH || !packet.grow_front(4) {
        return false;
    }
    let frame = packet.bytes_mut();
    if let Some(head) = frame.first_chunk_mut::<16>() {
        head.copy_within(4..16, 0);
        let ([a, b], [c, d]) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
        if let Some(tag_bytes) = head.last_chunk_mut::<4>() {
            *tag_bytes = [a, b, c, d];
        }
    }
    true
}

/// Removes an outermost priority tag. The next tag, if any, gets the priority of the removed tag. No effect if the
/// outermost tag has a VLAN.
pub fn pop_priority(packet: &mut Packet<'_>) {
    let Some(outer) = tag(packet.bytes(), 0).filter(|tag| tag.is_priority()) else {
        return;
    };
    pop(packet);
    if let Some(inner) = tag(packet.bytes(), 0)
        && let Some(place) = packet.bytes_mut().get_mut(14..16)
    {
        place.copy_from_slice(&(inner.id() | outer.control & PRIORITY).to_be_bytes());
    }
}

/// Mask of priority and drop eligibility in the tag control information.
pub const PRIORITY: u16 = 0xf000;

/// Removes and returns the outermost tag, if any.
pub fn pop(packet: &mut Packet<'_>) -> Option<Tag> {
    let tag = tag(packet.bytes(), 0)?;
    let head = packet.bytes_mut().first_chunk_mut::<16>()?;
    head.copy_within(0..12, 4);
    packet.trim_front(4);
    Some(tag)
}
