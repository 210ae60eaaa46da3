//! Removal of priority tags (IEEE 802.1Q), which carry no VLAN identifier.

use sluice_wire::{Packet, vlan};

use crate::snapshot::Snapshot;

/// Whether a frame has a priority tag that must be popped. Such a tag precedes two other tags. If sites exist, every priority tag must be popped,
/// because sites are identified by their tags. Priority tags in other positions stay, and their priority is forwarded.
#[inline(always)]
pub(super) fn has_priority_tag(frame: &[u8], snapshot: &Snapshot) -> bool {
    let Some(outer) = vlan::tag(frame, 0) else {
        return false;
    };
    match snapshot.sites.is_some() {
        true => outer.is_priority() || vlan::tag(frame, 1).is_some_and(|inner| inner.is_priority()),
        false => outer.is_priority() && vlan::tag(frame, 2).is_some(),
    }
}

/// Pops the first priority tag. If sites exist, also pops priority tags before, between and after the tags of a site, because an
/// access switch puts its tag around the customer's priority tag. At most four are popped; a frame with more is rejected.
#[cold]
pub(super) fn pop_priority_tags(packet: &mut Packet<'_>, snapshot: &Snapshot) {
    vlan::pop_priority(packet);
    if snapshot.sites.is_some() {
        for _ in 0..3 {
            vlan::pop_priority(packet);
            let is_priority = vlan::tag(packet.bytes(), 1).is_some_and(|inner| inner.is_priority());
            if is_priority && let Some(outer) = vlan::pop(packet) {
                vlan::pop(packet);
                // There is space for the tag, because a tag was popped.
                vlan::push(packet, outer);
            }
        }
    }
}
