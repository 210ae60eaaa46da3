//! Fast path for plain packets of VLAN interfaces.

use sluice_wire::{Packet, plain4, plain6, transit4, vlan};

use crate::features::context::NodeContext;
use crate::packet::batch::{Meta, put};
use crate::packet::io::{BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::{Link, Snapshot};

use super::end_frame;
use super::routed::trim_padding;
use super::tally::ReceiveTally;

/// Fast path for plain packets on a port with VLAN interfaces. The tags of the previous packet are cached, because most packets have the same tags.
pub(super) struct Tagged {
    port: PortIndex,
    /// Whether the port has VLAN interfaces.
    any: bool,
    /// Whether packets that need only a route lookup are passed to ip4-fast-forward.
    passes: bool,
    /// The cached tags, in the format of [`Snapshot::tagged_by`].
    word: u64,
    /// Number of the interface to which the cached tags belong.
    number: u16,
    link: Link,
}

impl Tagged {
    pub(super) fn of(ctx: &NodeContext<'_, '_>, port: PortIndex) -> Self {
        Self {
            port,
            any: ctx.snapshot.is_tagged(port),
            passes: ctx.role.sessions.is_empty(),
            // No tags are cached.
            word: 0,
            number: 0,
            link: Link::NONE,
        }
    }

    /// Classifies a plain packet. If its tags belong to no interface, or if the packet isn't plain, returns `false` without an effect.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        slot: BufferIndex,
        packet: &mut Packet<'_>,
        meta: &mut Meta,
        lists: &mut Lists,
        ctx: &NodeContext<'_, '_>,
        tally: &mut ReceiveTally,
    ) -> bool {
        if !self.any {
            return false;
        }
        let frame = packet.bytes();
        let Some(word) = vlan::word(frame) else { return false };
        if word != self.word {
            self.find(word, ctx.snapshot);
        }
        let link = &self.link;
        if self.passes
            && link.passes
            && let Some((destination, has_trailer)) = transit4(frame, link.tags.into(), packet.checksums(), link.mac())
        {
            tally.count(ctx, self.number, frame.len() as u64);
            if has_trailer {
                trim_padding(packet, link.tags);
            }
            (meta.interface, meta.layers.tags) = (self.number, link.tags);
            lists.ip4_fast_forward.tagged = true;
            lists.ip4_fast_forward.validated |= link.validated;
            lists.ip4_fast_forward.put(slot, link.router, destination);
            return true;
        }
        if !link.places {
            return false;
        }
        let (tags, checksums) = (link.tags.into(), packet.checksums());
        let list = if let Some(layers) = plain4(frame, tags, checksums, link.mac()) {
            *meta = Meta {
                layers,
                interface: self.number,
                ..Meta::default()
            };
            if link.stateful[0] {
                &mut lists.session_lookup.v4
            } else {
                &mut lists.forward.v4
            }
        } else if let Some(layers) = plain6(frame, tags, checksums, link.mac()) {
            *meta = Meta {
                layers,
                interface: self.number,
                ..Meta::default()
            };
            if link.stateful[1] {
                &mut lists.session_lookup.v6
            } else {
                &mut lists.forward.v6
            }
        } else {
            return false;
        };
        tally.count(ctx, self.number, frame.len() as u64);
        end_frame(packet, frame.len(), meta.layers.end);
        put(list, slot);
        true
    }

    #[inline]
    fn find(&mut self, word: u64, snapshot: &Snapshot) {
        self.word = word;
        let number = snapshot.tagged_by(self.port, word);
        let found = number.and_then(|number| Some((number, *snapshot.links.get(usize::from(number))?)));
        (self.number, self.link) = found.unwrap_or((0, Link::NONE));
    }
}
