//! parse: locates and validates the headers of a packet, and selects its next node.

use std::ops::Range;

use sluice_route::SourceValidation;
use sluice_wire::layers::{self, Class, Flags, Fragment, Layers};
use sluice_wire::validity::{self, Validity};
use sluice_wire::{Checksums, Fault, Packet, ethernet, ipv4, plain4, plain6, transit4, vlan};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::{bridge, ip4_fast_forward};
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::{Own, Reason};
use crate::snapshot::{Interface, Link, SiteClassifier, Snapshot, sites};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "parse",
    help: "parses headers and checks their validity",
    stage: None,
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new(
            "hand-off",
            "routed by another worker",
            needs::ROUTED | needs::ROUTED_ELSEWHERE,
        ),
        Exit::new("session-lookup", "has a stateful service", needs::STATEFUL),
        Exit::new("forward", "no stateful service", needs::ROUTED),
        Exit::new("ip4-fast-forward", "plain, no stateful service", needs::PLAIN),
        Exit::new("virtual-reassembly", "fragment", needs::FLOWS),
        Exit::new("neighbour-discovery", "ARP, ND", needs::ROUTED),
        Exit::new("bridge", "on a bridge", needs::BRIDGED),
        Exit::new("punt", "multicast to the router's host", needs::HOSTED),
        Exit::new("subscriber", "DHCP of sites", needs::SITES),
        Exit::new("chain", "its router has chains", needs::CHAINED),
        Exit::new("decapsulate", "to a tunnel endpoint", needs::TUNNELLED),
    ],
};

/// Parses slots with packets that were all received on `port`.
pub fn parse(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    slots: Range<usize>,
) {
    let untagged = ctx.snapshot.untagged.get(port as usize).copied().flatten();
    if let Some(number) = untagged
        && ctx.snapshot.is_bridged(number)
    {
        return bridge::receive(batch, lists, ctx, port, number, slots);
    }
    if ctx.snapshot.bridges_tags(port) {
        return parse_admitted(batch, lists, ctx, (port, slots), 0);
    }
    if let Some((number, interface)) = untagged.and_then(|number| Some((number, ctx.snapshot.interface(number)?)))
        && ip4_fast_forward::is_sufficient(ctx, number)
    {
        let mut tally = ReceiveTally::of(ctx, port);
        passing(batch, lists, ctx, number, interface, (port, slots), &mut tally);
        return tally.flush(ctx);
    }
    let end = slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    parse_those(batch, lists, ctx, port, slots.start..end);
}

/// Parses all slots except those in the mask of packets that `admit` has refused.
pub fn parse_admitted(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (port, slots): (PortIndex, Range<usize>),
    refused: u128,
) {
    let end = slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    let below = |end: usize| 1u128.checked_shl(end as u32).map_or(u128::MAX, |bit| bit - 1);
    let mut left = below(end) & !below(slots.start) & !refused;
    if ctx.snapshot.bridges_tags(port) {
        left = bridge::receive_tagged(batch, lists, ctx, port, left);
    }
    let admitted = std::iter::from_fn(|| {
        let slot = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (slot < BURST_BUFFERS).then_some(slot)
    });
    parse_those(batch, lists, ctx, port, admitted);
}

#[inline(never)]
fn parse_those(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    slots: impl Iterator<Item = usize>,
) {
    let snapshot = ctx.snapshot;
    let untagged = snapshot.untagged.get(port as usize).copied().flatten();
    let mut tally = ReceiveTally::of(ctx, port);
    let ours = untagged.and_then(|number| Some((number, snapshot.interface(number)?)));
    let ends = ours.is_some_and(|(_, interface)| snapshot.tunnels.end_in(interface.router));
    let (mut frames, mut bytes, mut tagged) = (0, 0, Tagged::of(ctx, port));
    let mut site = Sites::of(ctx, port, untagged);
    for slot in slots {
        let (packet, meta) = (&mut batch.packets[slot], &mut batch.meta[slot]);
        let frame = packet.bytes();
        if let Some(sites) = &mut site {
            if !sites.take(slot as BufferIndex, packet, meta, lists, ctx)
                && !tagged.take(slot as BufferIndex, packet, meta, lists, ctx, &mut tally)
            {
                parse_other(
                    slot as BufferIndex,
                    packet,
                    meta,
                    lists,
                    ctx,
                    (port, untagged),
                    &mut tally,
                );
            }
        } else if let Some((number, interface)) = ours
            && let Some(layers) = plain4(frame, 0, packet.checksums(), &interface.mac)
        {
            frames += 1;
            bytes += frame.len() as u64;
            let is_outer = ends && snapshot.tunnels.take(interface.router, &layers, frame);
            end_frame(packet, frame.len(), layers.end);
            *meta = Meta {
                layers,
                interface: number,
                ..Meta::default()
            };
            let list = if is_outer {
                &mut lists.decapsulate
            } else if interface.stateful[0] {
                &mut lists.session_lookup.v4
            } else {
                &mut lists.forward.v4
            };
            put(list, slot as BufferIndex);
        } else if !tagged.take(slot as BufferIndex, packet, meta, lists, ctx, &mut tally) {
            parse_other(
                slot as BufferIndex,
                packet,
                meta,
                lists,
                ctx,
                (port, untagged),
                &mut tally,
            );
        }
    }
    if let Some(mut sites) = site {
        sites.tally.flush(ctx);
    }
    tally.flush(ctx);
    if let Some((number, _)) = ours {
        let interface = number;
        ReceiveTally {
            interface,
            frames,
            bytes,
        }
        .flush(ctx);
    }
}

/// Fast path for plain packets (unfragmented, no options) on a port with an access or public interface of subscribers' sites.
struct Sites<'c> {
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
    tally: ReceiveTally,
}

impl<'c> Sites<'c> {
    fn of(ctx: &NodeContext<'c, '_>, port: PortIndex, untagged: Option<u16>) -> Option<Self> {
        let (sites, number) = (ctx.snapshot.sites.as_deref()?, untagged?);
        let (is_door, is_public) = (sites.is_access(number), sites.is_public(number));
        (is_door || is_public).then_some(Self {
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
    fn take(
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
            true => match tags(frame) {
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

/// Parses packets of an interface that needs only route lookups for plain IPv4 packets.
#[inline(never)]
fn passing(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    number: u16,
    interface: &Interface,
    (port, slots): (PortIndex, Range<usize>),
    tally: &mut ReceiveTally,
) {
    let router = interface.router;
    lists.ip4_fast_forward.validated |= interface.validation != SourceValidation::Off;
    let (mut plain, mut tagged) = (ReceiveTally::at(number), Tagged::of(ctx, port));
    for slot in slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS) {
        let (packet, meta) = (&mut batch.packets[slot], &mut batch.meta[slot]);
        let (frame, slot) = (packet.bytes(), slot as BufferIndex);
        if let Some((destination, is_trailed)) = transit4(frame, 0, packet.checksums(), &interface.mac) {
            (plain.frames, plain.bytes) = (plain.frames + 1, plain.bytes + frame.len() as u64);
            if is_trailed {
                cut_passing(packet, 0);
            }
            (meta.interface, meta.layers.tags) = (number, 0);
            lists.ip4_fast_forward.put(slot, router, destination);
        } else if !tagged.take(slot, packet, meta, lists, ctx, tally) {
            parse_other(slot, packet, meta, lists, ctx, (port, Some(number)), tally);
        }
    }
    plain.flush(ctx);
}

/// Truncates a frame of this length to the end of its datagram.
#[inline(always)]
fn end_frame(packet: &mut Packet<'_>, length: usize, end: u16) {
    if usize::from(end) != length {
        packet.cut_trailer(end.into());
    }
}

/// Truncates a frame with this number of tags to the end of its IPv4 datagram.
#[inline(never)]
fn cut_passing(packet: &mut Packet<'_>, tags: u8) {
    let at = ethernet::LENGTH + 4 * usize::from(tags);
    let total = ipv4::TOTAL_LENGTH.read(packet.bytes().get(at..).unwrap_or_default());
    packet.cut_trailer(at + usize::from(total));
}

/// Fast path for plain packets on a port with VLAN interfaces. The tags of the previous packet are cached, because most packets have the same tags.
struct Tagged {
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
    fn of(ctx: &NodeContext<'_, '_>, port: PortIndex) -> Self {
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
    fn take(
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
        let Some(word) = tags(frame) else { return false };
        if word != self.word {
            self.find(word, ctx.snapshot);
        }
        let link = &self.link;
        if self.passes
            && link.passes
            && let Some((destination, is_trailed)) = transit4(frame, link.tags.into(), packet.checksums(), link.mac())
        {
            tally.count(ctx, self.number, frame.len() as u64);
            if is_trailed {
                cut_passing(packet, link.tags);
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

/// The one or two tags of a frame, each reduced to its TPID and VLAN identifier.
#[inline(always)]
fn tags(frame: &[u8]) -> Option<u64> {
    let head: &[u8; 20] = frame.first_chunk()?;
    let word = u64::from_be_bytes(*head.last_chunk()?);
    let is_tag = |kind: u64| vlan::is_tag(kind as u16);
    match (is_tag(word >> 48), is_tag(word >> 16)) {
        (false, _) => None,
        (true, false) => Some(word >> 32 & 0xffff_0fff),
        (true, true) => Some(word & 0xffff_0fff_ffff_0fff),
    }
}

/// Parses a packet that none of the fast paths can process. `untagged` is the interface of untagged frames on the packet's port.
#[inline(never)]
pub(super) fn parse_other(
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    (port, untagged): (PortIndex, Option<u16>),
    tally: &mut ReceiveTally,
) {
    let snapshot = ctx.snapshot;
    let checksums = packet.checksums();
    let frame = packet.bytes();
    let length = frame.len() as u64;
    if let Some(number) = untagged
        && let Some(interface) = snapshot.interface(number)
        && let Some(layers) = plain6(frame, 0, checksums, &interface.mac)
    {
        *meta = Meta {
            layers,
            interface: number,
            ..Meta::default()
        };
        tally.count(ctx, number, length);
        let is_outer = is_tunnelled(snapshot, interface, &layers, frame);
        end_frame(packet, packet.len(), layers.end);
        let list = if is_outer {
            &mut lists.decapsulate
        } else if interface.stateful[1] {
            &mut lists.session_lookup.v6
        } else {
            &mut lists.forward.v6
        };
        return put(list, slot);
    }
    if has_priority_tag(frame, snapshot) {
        pop_priority_tags(packet, snapshot);
    }
    let frame = packet.bytes();
    let layers = match layers::parse(frame) {
        Ok(layers) => layers,
        Err(fault) => {
            tally.count(ctx, tally.interface, length);
            (meta.interface, meta.layers, meta.crossed) = (tally.interface, Layers::default(), 0);
            return lists.drop_packet(slot, fault);
        }
    };
    let tags = [layers.tag(frame, 0), layers.tag(frame, 1)];
    let number = if tags.iter().flatten().all(|tag| tag.is_priority()) {
        untagged
    } else {
        let tagged = ctx.snapshot.tagged(port, &tags);
        // Whether the frame has the tags of a site on this interface.
        let site = |number: &u16| {
            let sites = snapshot.sites.as_deref();
            sites.is_some_and(|sites| sites.context(*number, &layers, frame).is_some())
        };
        tagged.or_else(|| untagged.filter(site))
    };
    meta.layers = layers;
    meta.interface = number.unwrap_or(tally.interface);
    meta.origin = Origin::Received;
    (meta.identification, meta.crossed) = (0, 0);
    tally.count(ctx, meta.interface, length);
    let Some(interface) = number.and_then(|number| snapshot.interface(number)) else {
        return lists.drop_packet(slot, Own::UnknownVlan);
    };
    let judged = check(frame, checksums, &layers, interface, snapshot);
    if matches!(layers.class, Class::Ipv4 | Class::Ipv6) {
        end_frame(packet, packet.len(), layers.end);
    }
    match judged {
        Ok(Validity::Valid) => {
            forget_wrong(packet);
            place(slot, packet, &layers, interface, lists, snapshot);
        }
        Ok(Validity::LeftToOffload) if interface.complete_checksums => {
            complete_checksum(packet, &layers, ctx);
            place(slot, packet, &layers, interface, lists, snapshot);
        }
        Ok(Validity::LeftToOffload) => lists.drop_packet(slot, Own::LeftToOffload),
        // Session lookup finds the flow of the packet, and inspection applies its bad-checksum policy.
        Err(Reason::Wire(fault)) if is_for_inspection(snapshot, meta, fault) => {
            packet.set_checksums(Checksums::BadL4);
            classify(slot, packet, &layers, interface, lists);
        }
        Err(reason) => lists.drop_packet(slot, reason),
    }
}

/// Whether a frame has a priority tag to pop: a priority tag before two other tags, or any priority tag if sites exist,
/// because tags identify sites. Other priority tags stay in the frame, and their priority is forwarded.
#[inline(always)]
fn has_priority_tag(frame: &[u8], snapshot: &Snapshot) -> bool {
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
fn pop_priority_tags(packet: &mut Packet<'_>, snapshot: &Snapshot) {
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

/// Whether a packet belongs to a local tunnel endpoint: an outer packet or an ICMP error for one. Outer packets have no session.
#[inline(always)]
fn is_tunnelled(snapshot: &Snapshot, interface: &Interface, layers: &Layers, frame: &[u8]) -> bool {
    snapshot.tunnels.end_in(interface.router)
        && interface.bridge.is_none()
        && matches!(layers.class, Class::Ipv4 | Class::Ipv6)
        && !layers.flags.has(Flags::MULTICAST)
        && snapshot.tunnels.take(interface.router, layers, frame)
}

#[cold]
fn is_for_inspection(snapshot: &Snapshot, meta: &Meta, fault: Fault) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|inspection| inspection.is_on(meta.interface) && inspection.takes_wrong_checksums(fault))
}

/// Completes a partial checksum. If the NIC computed the checksum again, it would include the finished checksum in the sum.
pub(super) fn complete_checksum(packet: &mut Packet<'_>, layers: &Layers, ctx: &NodeContext<'_, '_>) {
    validity::complete_checksum(packet.bytes_mut(), layers);
    packet.set_checksums(Checksums::Vouched);
    ctx.counters.checksums_completed.add(1);
}

/// Clears the device's report of a bad transport checksum if the packet has no checksum.
pub(super) fn forget_wrong(packet: &mut Packet<'_>) {
    if packet.checksums() == Checksums::BadL4 {
        packet.set_checksums(Checksums::Unverified);
    }
}

/// Checks that the frame is addressed to this interface and valid. A router that only routes doesn't check TCP and UDP headers.
#[inline(always)]
fn check(
    frame: &[u8],
    checksums: Checksums,
    layers: &Layers,
    interface: &Interface,
    snapshot: &Snapshot,
) -> Result<Validity, Reason> {
    let ours = frame.first_chunk::<6>() == Some(&interface.mac);
    if !ours && !layers.flags.has(Flags::MULTICAST) && !is_virtual(snapshot, interface, frame) {
        return Err(Own::NotOurMac.into());
    }
    let judged = validity::validate(frame, checksums, layers, &interface.validity);
    if judged.is_err() && snapshot.only_routes(interface) {
        let lenient = validity::Policy {
            headers: false,
            ..interface.validity
        };
        return Ok(validity::validate(frame, checksums, layers, &lenient)?);
    }
    Ok(judged?)
}

/// Whether a frame is addressed to the virtual MAC of a site.
#[cold]
fn is_virtual(snapshot: &Snapshot, interface: &Interface, frame: &[u8]) -> bool {
    let sites = snapshot.sites.as_deref();
    sites.is_some_and(|sites| sites.has_mac(interface.link.index, frame))
}

/// Selects the next node of a valid packet that was just received.
#[inline(always)]
fn place(
    slot: BufferIndex,
    packet: &Packet<'_>,
    layers: &Layers,
    interface: &Interface,
    lists: &mut Lists,
    snapshot: &Snapshot,
) {
    if let Some(sites) = snapshot.sites.as_deref() {
        let number = interface.link.index;
        if sites.takes(number, interface.context, layers, packet.bytes()) {
            return put(&mut lists.subscriber, slot);
        }
        if sites.is_access(number) && layers.class == Class::Ipv6 {
            return lists.drop_packet(slot, Own::SiteFamily);
        }
    }
    match is_tunnelled(snapshot, interface, layers, packet.bytes()) {
        true => put(&mut lists.decapsulate, slot),
        false => classify(slot, packet, layers, interface, lists),
    }
}

/// Selects the next node of a valid packet.
#[inline(always)]
pub fn classify(slot: BufferIndex, packet: &Packet<'_>, layers: &Layers, interface: &Interface, lists: &mut Lists) {
    let stateful = interface.stateful;
    match layers.class {
        Class::Ipv4 if !layers.flags.has(Flags::MULTICAST) => {
            if !stateful[0] {
                put(&mut lists.forward.v4, slot);
            } else if layers.fragment == Fragment::Whole {
                put(&mut lists.session_lookup.v4, slot);
            } else {
                put(&mut lists.virtual_reassembly, slot);
            }
        }
        Class::Ipv6 if is_discovery(packet.bytes(), layers) => put(&mut lists.neighbour_discovery, slot),
        Class::Ipv6 if !layers.flags.has(Flags::MULTICAST) => {
            if !stateful[1] {
                put(&mut lists.forward.v6, slot);
            } else if layers.fragment == Fragment::Whole {
                put(&mut lists.session_lookup.v6, slot);
            } else {
                put(&mut lists.virtual_reassembly, slot);
            }
        }
        Class::Arp => put(&mut lists.neighbour_discovery, slot),
        Class::Ipv4 | Class::Ipv6 if interface.host => put(&mut lists.punt, slot),
        Class::Ipv4 | Class::Ipv6 => lists.drop_packet(slot, Own::Multicast),
        Class::Other => lists.drop_packet(slot, Own::UnknownEthertype),
    }
}

/// Selects the next node of a packet that was parked after the chains of its router were executed.
pub fn again(
    slot: BufferIndex,
    packet: &Packet<'_>,
    layers: &Layers,
    (interface, origin): (&Interface, Origin),
    lists: &mut Lists,
) {
    match (origin, layers.class) {
        (Origin::Routed, Class::Ipv4) => put(&mut lists.forward.v4, slot),
        (Origin::Routed, Class::Ipv6) => put(&mut lists.forward.v6, slot),
        _ => classify(slot, packet, layers, interface, lists),
    }
}

/// Whether a packet belongs to router or neighbour discovery (RFC 4861): ICMPv6 types 133 to 137, not fragmented.
#[inline(always)]
fn is_discovery(frame: &[u8], layers: &Layers) -> bool {
    layers.protocol == ipv4::protocol::ICMPV6
        && layers.fragment == Fragment::Whole
        && frame
            .get(layers.l4 as usize)
            .is_some_and(|kind| (133..=137).contains(kind))
}

/// Counts received frames and bytes, and adds them to the counters of an interface when the interface changes.
pub(super) struct ReceiveTally {
    pub interface: u16,
    frames: u64,
    bytes: u64,
}

impl ReceiveTally {
    /// Starts on a port. Packets of no interface are counted for the port's untagged interface, or for its first VLAN interface.
    pub fn of(ctx: &NodeContext<'_, '_>, port: PortIndex) -> Self {
        let snapshot = ctx.snapshot;
        let untagged = snapshot.untagged.get(port as usize).copied().flatten();
        let any = || {
            snapshot
                .interfaces
                .iter()
                .position(|i| i.port == port)
                .map(|i| i as u16)
        };
        Self {
            interface: untagged.or_else(any).unwrap_or(0),
            frames: 0,
            bytes: 0,
        }
    }

    /// Starts counting on an interface, with counts of 0.
    pub fn at(interface: u16) -> Self {
        Self {
            interface,
            frames: 0,
            bytes: 0,
        }
    }

    #[inline(always)]
    pub fn count(&mut self, ctx: &NodeContext<'_, '_>, interface: u16, bytes: u64) {
        if interface != self.interface {
            self.flush(ctx);
            self.interface = interface;
        }
        self.frames += 1;
        self.bytes += bytes;
    }
    pub fn flush(&mut self, ctx: &NodeContext<'_, '_>) {
        if let Some(counters) = ctx.counters.interfaces.get(self.interface as usize) {
            counters.received.add(self.frames);
            counters.received_bytes.add(self.bytes);
        }
        (self.frames, self.bytes) = (0, 0);
    }
}
