//! Removal of priority tags (IEEE 802.1Q), which carry no VLAN identifier.

use sluice_wire::{Packet, vlan};

use crate::snapshot::Snapshot;

/// Whether a frame has a priority tag that must be popped. This is a priority tag before two other tags, or, if sites
/// exist, any priority tag, because tags identify sites. Other priority tags stay in the frame, and their priority is
/// forwarded.
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

/// Pops the first priority tag. If sites exist, also pops priority tags before, between and after the tags of a site, because an access
/// switch pushes its tag before the customer's priority tag. Pops at most four tags, and rejects a frame with more priority tags.
#[cold]
pub(super) fn pop_priority_tags(packet: &mut Packet<'_>, snapshot: &Snapshot) {
    vlan::pop_priority(packet);
    if snapshot.sites.is_some() {
        for _ in 0..3 {
            vlan::pop_priority(packet);
            let is_priority = vlan::tag(packet.bytes(), 1).is_some_and(|inner| inner.is_priority());
            if is_priority && let Some(outer) = vlan::pop(packet) {
                vlan::pop(packet);
                // The headroom suffices for this tag, because a tag was popped before.
                vlan::push(packet, outer);
            }
        }
    }
}
