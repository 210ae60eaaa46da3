//! Fast path for plain packets of subscribers' sites.

use sluice_wire::{Packet, plain4, vlan};

use crate::features::context::NodeContext;
use crate::packet::batch::{Meta, put};
use crate::packet::io::{BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::{Interface, SiteClassifier, sites};

use super::end_frame;
use super::tally::ReceiveTally;

/// Fast path for plain packets (unfragmented, no options) on a port with an access or public interface of subscribers' sites.
pub(super) struct Sites<'c> {
    interface: &'c Interface,
    sites: &'c SiteClassifier,
    /// Whether frames have the tags of their site.
    has_tags: bool,
    /// Whether the port also has VLAN interfaces.
    shares_port: bool,
    /// Whether the interface receives frames for virtual MACs of sites.
    is_public: bool,
    /// UDP port of DHCP packets, which are passed to the control plane.
    dhcp: u16,
    pub(super) tally: ReceiveTally,
}

impl<'c> Sites<'c> {
    pub(super) fn of(ctx: &NodeContext<'c, '_>, port: PortIndex, untagged: Option<u16>) -> Option<Self> {
        let (sites, number) = (ctx.snapshot.sites.as_deref()?, untagged?);
        let (is_access_interface, is_public) = (sites.is_access(number), sites.is_public(number));
        (is_access_interface || is_public).then_some(Self {
            interface: ctx.snapshot.interface(number)?,
            sites,
            has_tags: sites.has_tags(number),
            shares_port: ctx.snapshot.is_tagged(port),
            is_public,
            dhcp: if is_public { sites::CLIENT } else { sites::SERVER },
            tally: ReceiveTally::at(number),
        })
    }

    /// Classifies a plain packet. If the packet isn't plain, returns `false` without an effect.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        slot: BufferIndex,
        packet: &mut Packet<'_>,
        meta: &mut Meta,
        lists: &mut Lists,
        ctx: &NodeContext<'_, '_>,
    ) -> bool {
        let frame = packet.bytes();
        let count = match self.has_tags {
            false => 0,
            true => match vlan::word(frame) {
                Some(word) => 1 + usize::from(word >> 32 != 0),
                None => return false,
            },
        };
        let mut mac = &self.interface.mac;
        // Session lookup checks whether this virtual MAC belongs to the packet's site.
        if self.is_public
            && let Some(own) = frame.first_chunk()
            && sites::is_local(own)
        {
            mac = own;
        }
        let Some(layers) = plain4(frame, count, packet.checksums(), mac) else {
            return false;
        };
        if layers.destination_port == self.dhcp {
            return false;
        }
        *meta = Meta {
            layers,
            interface: self.tally.interface,
            ..Meta::default()
        };
        // On a shared port, the tags may belong to another interface, so the site is looked up here, before session lookup.
        if self.shares_port && self.sites.context(meta.interface, &layers, frame).is_none() {
            return false;
        }
        self.tally.frames += 1;
        self.tally.bytes += frame.len() as u64;
        let tunnels = &ctx.snapshot.tunnels;
        if self.is_public
            && tunnels.end_in(self.interface.router)
            && tunnels.take(self.interface.router, &layers, frame)
        {
            put(&mut lists.decapsulate, slot);
        } else {
            put(&mut lists.session_lookup.v4, slot);
        }
        end_frame(packet, packet.len(), layers.end);
        true
    }
}
