//! Mapping of frames with VLAN tags to interfaces, by port and tags.

use sluice_wire::vlan::Tag;

use crate::packet::io::PortIndex;
use crate::snapshot::Interface;

/// Entry of a tag that belongs to no interface.
const NONE: u16 = u16::MAX;

/// Number of VLAN identifiers.
const IDENTIFIERS: usize = 1 << 12;

/// Table of the interfaces that have tags.
#[derive(Clone, Debug, Default)]
pub struct VlanTable {
    /// For each port: whether it has VLAN interfaces.
    ports: Vec<bool>,
    /// For each port: whether any of its VLAN interfaces belongs to a bridge.
    bridged: Vec<bool>,
    /// For each port that has VLAN interfaces: the interface to which frames with a single 802.1Q tag belong, by VLAN
    /// identifier.
    single: Vec<Option<Box<[u16]>>>,
    /// All other combinations of tags, sorted: port, tags, interface.
    others: Vec<(PortIndex, u64, u16)>,
}

/// Encodes tags as a word; `None` if there are more than two tags.
fn word(tags: impl Iterator<Item = Tag>) -> Option<u64> {
    let mut word = 0;
    for (place, tag) in tags.enumerate() {
        if place == 2 {
            return None;
        }
        word = word << 32 | u64::from(tag.protocol) << 16 | u64::from(tag.id());
    }
    Some(word)
}

/// The VLAN identifier, if the word is a single 802.1Q tag.
fn single(word: u64) -> Option<usize> {
    let plain = u64::from(Tag::vlan(0).protocol) << 16;
    (word & !0xfff == plain).then_some(word as usize & (IDENTIFIERS - 1))
}

impl VlanTable {
    /// Creates the table of interfaces, by number, for a number of ports.
    pub fn of(ports: usize, interfaces: &[Interface]) -> Self {
        let mut tagged = Self {
            ports: vec![false; ports],
            bridged: vec![false; ports],
            single: vec![None; ports],
            others: Vec::new(),
        };
        for (number, interface) in (0..NONE).zip(interfaces) {
            let Some(word) = word(interface.tags.iter().copied()).filter(|_| !interface.tags.is_empty()) else {
                continue;
            };
            if let Some(of_port) = tagged.ports.get_mut(usize::from(interface.port)) {
                *of_port = true;
            }
            if let Some(bridged) = tagged.bridged.get_mut(usize::from(interface.port)) {
                *bridged |= interface.bridge.is_some();
            }
            match (single(word), tagged.single.get_mut(usize::from(interface.port))) {
                (Some(id), Some(of_port)) => {
                    let of_port = of_port.get_or_insert_with(|| vec![NONE; IDENTIFIERS].into());
                    of_port[id] = number;
                }
                _ => tagged.others.push((interface.port, word, number)),
            }
        }
        tagged.others.sort_unstable();
        tagged
    }

    /// Whether a port has VLAN interfaces.
    #[inline(always)]
    pub fn is_on(&self, port: PortIndex) -> bool {
        self.ports.get(usize::from(port)).copied().unwrap_or(false)
    }

    /// Whether a port has VLAN interfaces of a bridge.
    #[inline(always)]
    pub fn is_bridged(&self, port: PortIndex) -> bool {
        self.bridged.get(usize::from(port)).copied().unwrap_or(false)
    }

    /// The interface that receives the frames of a port if they have these tags. Tags with VLAN 0 are ignored.
    #[inline]
    pub fn find(&self, port: PortIndex, tags: &[Option<Tag>; 2]) -> Option<u16> {
        let vlans = tags.iter().flatten().filter(|tag| !tag.is_priority());
        self.find_word(port, word(vlans.copied())?)
    }

    /// The interface that receives the frames of a port if they have these tags. The tags are encoded as a word that
    /// contains 32 bits (TPID and VLAN) for each tag. The innermost tag is in the lowest bits.
    #[inline]
    pub fn find_word(&self, port: PortIndex, word: u64) -> Option<u16> {
        if let Some(id) = single(word) {
            let of_port = self.single.get(usize::from(port))?.as_deref()?;
            return of_port.get(id).copied().filter(|number| *number != NONE);
        }
        let place = self
            .others
            .binary_search_by_key(&(port, word), |other| (other.0, other.1))
            .ok()?;
        self.others.get(place).map(|other| other.2)
    }
}
