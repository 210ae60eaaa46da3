//! The packets of a burst by the interfaces on which they arrived.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::Context;
use sluice_wire::Window;
use sluice_wire::field::Mac;
use sluice_wire::vlan;

use crate::packet::io::{ALL_SLOTS, BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::snapshot::{Link, MAX_TAGS, Snapshot};

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
        })
    }

    /// Whether the lane may take any packets of the interface.
    fn is_in_lane(&self) -> bool {
        let link = self.link;
        (link.express[0] | link.express[1] | link.routed_in_lane) && usize::from(link.tags) <= MAX_TAGS
    }
}

/// Maximum number of interfaces of a burst whose packets the lane takes. The graph processes the packets of further ones.
const MAX_GROUPS: usize = 8;

/// The packets of a burst that arrived on one interface.
pub(super) struct Group<'s> {
    /// The interface.
    pub(super) ingress: Ingress<'s>,
    /// The slots in ascending order.
    pub(super) slots: Slots,
}

/// Slots of a burst in ascending order.
pub(super) enum Slots {
    /// Consecutive slots.
    Run(Range<usize>),
    /// Other slots.
    List(ArrayVec<BufferIndex, BURST_SIZE>),
}

impl Slots {
    /// The slots.
    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[BufferIndex] {
        match self {
            Self::Run(run) => ALL_SLOTS.get(run.clone()).unwrap_or_default(),
            Self::List(list) => list,
        }
    }

    /// These of the slots as a bit mask: bit k of `positions` is the k-th slot.
    #[inline(always)]
    pub(super) fn mask(&self, positions: u64) -> u128 {
        match self {
            Self::Run(run) => u128::from(positions) << (run.start % BURST_BUFFERS),
            Self::List(list) => {
                let places = list.iter().zip(0u32..);
                places.fold(0, |mask, (slot, place)| {
                    mask | u128::from(positions >> place & 1) << (usize::from(*slot) % BURST_BUFFERS)
                })
            }
        }
    }
}

/// The packets of these slots, which were received on one port, by interface. Packets are left out if the lane takes none of
/// their interface.
#[inline(always)]
pub(super) fn groups<'s>(
    snapshot: &'s Snapshot,
    port: PortIndex,
    slots: Range<usize>,
    buffers: &mut Buffers<'_, '_>,
) -> ArrayVec<Group<'s>, MAX_GROUPS> {
    let mut groups = ArrayVec::new();
    if snapshot.is_tagged(port) {
        by_tags(snapshot, port, slots, buffers, &mut groups);
        return groups;
    }
    let untagged = snapshot.untagged.get(usize::from(port)).copied().flatten();
    if let Some(ingress) = untagged.and_then(|number| Ingress::of(snapshot, number))
        && ingress.is_in_lane()
    {
        let slots = Slots::Run(slots);
        groups.push(Group { ingress, slots });
    }
    groups
}

/// The same for a port with VLANs.
#[inline(never)]
fn by_tags<'s>(
    snapshot: &'s Snapshot,
    port: PortIndex,
    slots: Range<usize>,
    buffers: &mut Buffers<'_, '_>,
    groups: &mut ArrayVec<Group<'s>, MAX_GROUPS>,
) {
    let slots = ALL_SLOTS.get(slots).unwrap_or_default();
    let (mut heads, mut windows) = (NO_HEADS, [Window::default(); BURST_SIZE]);
    buffers.heads(slots, &mut heads, &mut windows);
    // The tags by which a group was found, and its place among the groups, if it has one.
    let mut known: ArrayVec<(u64, Option<usize>), BURST_SIZE> = ArrayVec::new();
    for ((slot, head), window) in slots.iter().zip(&heads).zip(&windows) {
        let Some(head) = head.as_deref().filter(|_| usize::from(window.length) >= MIN_LENGTH) else {
            continue;
        };
        let word = vlan::word(head).unwrap_or(UNTAGGED);
        let place = match known.iter().rev().find(|(tags, _)| *tags == word) {
            Some((_, place)) => *place,
            None => {
                let place = add(snapshot, port, word, groups);
                known.push((word, place));
                place
            }
        };
        if let Some(Slots::List(list)) = place
            .and_then(|place| groups.get_mut(place))
            .map(|group| &mut group.slots)
        {
            list.push(*slot);
        }
    }
}

/// The word of a frame without tags.
const UNTAGGED: u64 = 0;

/// Length of the bytes of a frame in which tags are found.
const MIN_LENGTH: usize = 20;

/// Adds a group for packets with these tags. Returns its place, or `None` if the lane does not take its packets.
fn add<'s>(
    snapshot: &'s Snapshot,
    port: PortIndex,
    word: u64,
    groups: &mut ArrayVec<Group<'s>, MAX_GROUPS>,
) -> Option<usize> {
    let number = match word {
        UNTAGGED => snapshot.untagged.get(usize::from(port)).copied().flatten()?,
        word => snapshot.tagged_by(port, word)?,
    };
    let ingress = Ingress::of(snapshot, number).filter(Ingress::is_in_lane)?;
    let slots = Slots::List(ArrayVec::new());
    groups.try_push(Group { ingress, slots }).ok()?;
    Some(groups.len() - 1)
}
