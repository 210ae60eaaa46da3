//! The packets of a burst by the interfaces on which they arrived.

use arrayvec::ArrayVec;
use sluice_wire::Window;
use sluice_wire::field::Mac;
use sluice_wire::vlan;
use sluice_wire::{Checksums, Context};

use crate::packet::batch::{BufferIndices, Meta, Origin};
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::chains::Chains;
use crate::snapshot::sites::AccessInterface;
use crate::snapshot::{Express, Link, MAX_TAGS, Snapshot};

use super::{Buffers, NO_HEADS};

/// The interface on which packets were received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ingress<'s> {
    /// Number of the interface.
    pub(super) number: u16,
    /// MAC of the interface.
    pub(super) mac: Mac,
    /// Context of its packets.
    pub(super) context: Context,
    /// Whether it is an outside interface.
    pub(super) outside: bool,
    /// What the fast path knows about it.
    pub(super) link: &'s Link,
    /// Number of tags of its packets.
    pub(super) tags: u8,
    /// Its role for subscribers' sites.
    pub(super) side: Side<'s>,
    /// Whether its packets have been parsed, verified and counted as received before, perhaps by another worker.
    pub(super) is_parsed: bool,
}

/// Role of an interface for subscribers' sites.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'s> {
    /// There are no sites.
    NoSites,
    /// An access interface.
    Access(&'s AccessInterface),
    /// An interface that receives frames for virtual MACs.
    Public,
    /// Another interface.
    Other,
}

impl<'s> Side<'s> {
    fn of(snapshot: &'s Snapshot, number: u16) -> Self {
        let Some(sites) = snapshot.sites.as_deref() else {
            return Self::NoSites;
        };
        match sites.access_interface(number) {
            Some(access) => Self::Access(access),
            None if sites.is_public(number) => Self::Public,
            None => Self::Other,
        }
    }
}

impl<'s> Ingress<'s> {
    /// The interface with this number.
    #[inline(always)]
    fn of(snapshot: &'s Snapshot, number: u16) -> Option<Self> {
        let link = snapshot.links.get(usize::from(number))?;
        let interface = snapshot.interface(number)?;
        Some(Self {
            number,
            mac: *link.mac(),
            context: interface.context,
            outside: interface.outside,
            link,
            tags: link.tags,
            side: Side::of(snapshot, number),
            is_parsed: false,
        })
    }

    /// The interface of a port's untagged frames, if the lane may take its packets.
    #[inline(always)]
    pub(super) fn untagged(snapshot: &'s Snapshot, port: PortIndex) -> Option<Self> {
        let number = snapshot.untagged.get(usize::from(port)).copied().flatten()?;
        Self::of(snapshot, number).filter(Self::is_in_lane)
    }

    /// Counts received packets, unless they were counted before.
    #[inline(always)]
    pub(super) fn count_received(&self, packets: u64, bytes: u64, counters: &WorkerCounters) {
        if let Some(counters) = counters.interfaces.get(usize::from(self.number))
            && !self.is_parsed
        {
            counters.received.add(packets);
            counters.received_bytes.add(bytes);
        }
    }

    /// Whether a packet's checksums are known to be correct: the device has verified them, or `parse` has.
    #[inline(always)]
    pub(super) fn is_verified(&self, checksums: Checksums) -> bool {
        checksums == Checksums::Vouched || self.is_parsed && checksums == Checksums::Unverified
    }

    /// Whether any packet may have checksums that are not [`is_verified`](Self::is_verified). `differences` has all bits in which the
    /// state of a packet's checksums differs from [`Checksums::Vouched`].
    #[inline(always)]
    pub(super) fn has_unverified(&self, differences: u8) -> bool {
        const PARSED: u8 = Checksums::Unverified as u8 ^ Checksums::Vouched as u8;
        differences != 0 && !(self.is_parsed && differences == PARSED)
    }

    /// The chains through which its packets have to go: none if they went through them before they were handed over.
    #[inline(always)]
    pub(super) fn chains(&self, snapshot: &'s Snapshot) -> Option<&'s Chains> {
        snapshot.chains_of(self.link.router).filter(|_| !self.is_parsed)
    }

    /// Whether the tags of packets determine their site.
    pub(super) fn has_tags_of_sites(&self) -> bool {
        matches!(self.side, Side::Access(AccessInterface::Tags(_)))
    }

    /// Whether the lane may take any packets of the interface.
    fn is_in_lane(&self) -> bool {
        self.link.express != [Express::Nothing; 2] && usize::from(self.link.tags) <= MAX_TAGS
    }
}

/// Maximum number of interfaces of a burst whose packets the lane takes. The graph processes the packets of other ones, and those of
/// an interface that received less than this part of the burst.
const MAX_GROUPS: usize = 8;

/// Maximum number of different tags that are looked up in a burst.
const MAX_KNOWN: usize = 2 * MAX_GROUPS;

/// The packets of a burst that arrived on one interface.
pub(super) struct Group<'s> {
    /// The interface.
    pub(super) ingress: Ingress<'s>,
    /// The slots in ascending order.
    pub(super) slots: ArrayVec<BufferIndex, BURST_SIZE>,
}

/// The groups of a burst.
pub(super) type Groups<'s> = ArrayVec<Group<'s>, MAX_GROUPS>;

/// Sorts the packets of these slots, which were received on a port with VLANs, by interface. Packets are left out if the lane takes
/// none of their interface.
#[inline(never)]
pub(super) fn by_tags<'s>(
    snapshot: &'s Snapshot,
    port: PortIndex,
    slots: &[BufferIndex],
    buffers: &mut Buffers<'_, '_>,
    groups: &mut Groups<'s>,
) {
    let (mut heads, mut windows) = (NO_HEADS, [Window::default(); BURST_SIZE]);
    buffers.heads(slots, &mut heads, &mut windows);
    // Tags, and the place of their group, if they have one.
    let mut known: ArrayVec<(u64, Option<usize>), MAX_KNOWN> = ArrayVec::new();
    for ((slot, head), window) in slots.iter().zip(&heads).zip(&windows) {
        let Some(head) = head.as_deref().filter(|_| usize::from(window.length) >= MIN_LENGTH) else {
            continue;
        };
        let word = vlan::word(head).unwrap_or(UNTAGGED);
        let place = match known.iter().rev().find(|(tags, _)| *tags == word) {
            Some((_, place)) => *place,
            None if known.is_full() => None,
            None => {
                let place = add(snapshot, port, word, groups);
                known.push((word, place));
                place
            }
        };
        if let Some(group) = place.and_then(|place| groups.get_mut(place)) {
            group.slots.push(*slot);
        }
    }
    // The passes over a few packets cost more than they save.
    groups.retain(|group| MAX_GROUPS * group.slots.len() >= slots.len());
}

/// Sorts the packets of an access interface whose sites have tags by their number of tags. Packets without tags are left out.
#[inline(never)]
pub(super) fn by_count_of_tags<'s>(
    ingress: Ingress<'s>,
    slots: &[BufferIndex],
    buffers: &mut Buffers<'_, '_>,
    groups: &mut Groups<'s>,
) {
    let (mut heads, mut windows) = (NO_HEADS, [Window::default(); BURST_SIZE]);
    buffers.heads(slots, &mut heads, &mut windows);
    let mut by_count = [1, 2].map(|tags| Group {
        ingress: Ingress { tags, ..ingress },
        slots: ArrayVec::new(),
    });
    for ((slot, head), window) in slots.iter().zip(&heads).zip(&windows) {
        let head = head.as_deref().filter(|_| usize::from(window.length) >= MIN_LENGTH);
        if let Some(word) = head.and_then(|head| vlan::word(head)) {
            by_count[usize::from(word >> 32 != 0)].slots.push(*slot);
        }
    }
    groups.extend(by_count.into_iter().filter(|group| !group.slots.is_empty()));
}

/// Sorts packets that were parsed before by interface. Packets are left out if the lane takes none of their interface. There are no
/// groups if a packet is routed past its session by a chain, is hairpinned, or came over an inter-router link or out of a tunnel.
#[inline(never)]
pub(super) fn by_interface<'s>(
    snapshot: &'s Snapshot,
    list: &[BufferIndex],
    meta: &[Meta; BURST_BUFFERS],
    groups: &mut Groups<'s>,
) {
    for slot in list.iter().take(BURST_SIZE) {
        let meta = &meta[usize::from(*slot) % BURST_BUFFERS];
        if (meta.origin, meta.identification, meta.link_passes) != (Origin::Received, 0, 0) {
            return groups.clear();
        }
        let is_of_packet = |group: &&mut Group<'_>| {
            let Ingress { number, tags, .. } = group.ingress;
            number == meta.interface && (tags == meta.layers.tags || !group.ingress.has_tags_of_sites())
        };
        if let Some(group) = groups.iter_mut().rev().find(is_of_packet) {
            group.slots.push(*slot);
        } else if let Some(mut ingress) = Ingress::of(snapshot, meta.interface).filter(Ingress::is_in_lane) {
            ingress.is_parsed = true;
            if ingress.has_tags_of_sites() {
                ingress.tags = meta.layers.tags;
            }
            let slots = [*slot].into_iter().collect();
            let _ = groups.try_push(Group { ingress, slots });
        }
    }
    groups.retain(|group| MAX_GROUPS * group.slots.len() >= list.len());
}

/// The word of a frame without tags.
const UNTAGGED: u64 = 0;

/// Length of the bytes of a frame in which tags are found.
const MIN_LENGTH: usize = 20;

/// Adds a group for packets with these tags. Returns its place, or `None` if the lane does not take its packets.
fn add<'s>(snapshot: &'s Snapshot, port: PortIndex, word: u64, groups: &mut Groups<'s>) -> Option<usize> {
    let ingress = match word {
        // The graph finds out whether tags belong to a site or to an interface of this port.
        UNTAGGED => Ingress::untagged(snapshot, port).filter(|ingress| !matches!(ingress.side, Side::Access(_)))?,
        word => Ingress::of(snapshot, snapshot.tagged_by(port, word)?).filter(Ingress::is_in_lane)?,
    };
    let slots = ArrayVec::new();
    groups.try_push(Group { ingress, slots }).ok()?;
    Some(groups.len() - 1)
}

/// The list of the parsed packets of an address family that the graph would translate, or route without sessions.
pub(super) fn list_of(lists: &mut Lists, express: Express, is_v6: bool) -> &mut BufferIndices {
    let (forward, session_lookup) = (&mut lists.forward, &mut lists.session_lookup);
    match (express, is_v6) {
        (Express::Routes, false) => &mut forward.v4,
        (Express::Routes, true) => &mut forward.v6,
        (_, false) => &mut session_lookup.v4,
        (_, true) => &mut session_lookup.v6,
    }
}
