//! bridge: forwards frames between the two interfaces of a bridge. Tags, EtherType and hop limit don't change, except that the
//! tags of a VLAN interface are popped and those of the outgoing VLAN interface are pushed.

use std::ops::Range;

use sluice_inspect::Skipped;
use sluice_inspect::stream::{Exception, Policy as Exceptional};
use sluice_table::flow::RecordIndex;
use sluice_wire::ipv4::protocol::{TCP, is_icmp};
use sluice_wire::layers::{self, Class, Flags, Fragment, Layers};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::validity::{self, Validity};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Checksums, Context, Direction, Fault, Packet, ethernet};

use crate::features::context::NodeContext;
use crate::features::creation::{FlowDecision, FlowTranslation, NewFlows};
use crate::features::translation::{self, read_segment};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::leave;
use crate::nodes::output::OutputResult;
use crate::nodes::parse::{self, ReceiveTally};
use crate::nodes::slow_path;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, BufferIndices, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::{Own, Reason};
use crate::session::family::{Family, Session, V4, V6};
use crate::snapshot::{Bridge, Interface, LATER_SIDE, Snapshot};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "bridge",
    help: "forwards frames between the two interfaces of a bridge",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "inspected flow", needs::BRIDGED | needs::INSPECTED),
        Exit::new(
            "virtual-reassembly",
            "fragment of an inspected flow",
            needs::BRIDGED | needs::INSPECTED,
        ),
        Exit::new("transmit", "unchanged", needs::BRIDGED),
    ],
};

/// Receives the packets of `slots`. All packets arrived on `port`, which is interface `number` of a bridge.
#[inline(never)]
pub fn receive(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    number: u16,
    slots: Range<usize>,
) {
    let snapshot = ctx.snapshot;
    let Some((interface, bridge)) = snapshot.interface(number).and_then(|on| Some((on, on.bridge?))) else {
        return;
    };
    let inspects = inspects(snapshot, number, bridge);
    if snapshot
        .interface(bridge.peer)
        .is_some_and(|peer| !peer.tags.is_empty())
    {
        let all = slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
        let all = all.fold(0, |all, slot| all | 1 << slot);
        gather(batch, lists, ctx, (port, all), |_| Some(number));
        return;
    }
    let mut tally = ReceiveTally::of(ctx, port);
    for slot in slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS) {
        let (place, packet) = (slot as BufferIndex, &mut batch.packets[slot]);
        tally.count(ctx, number, packet.len() as u64);
        let meta = &mut batch.meta[slot];
        *meta = Meta {
            interface: number,
            ..Meta::default()
        };
        match look(packet, interface, ctx) {
            Ok(layers) => {
                meta.layers = layers;
                onward(place, bridge, inspects, batch, lists, ctx);
            }
            Err(reason) if inspects && reason == WRONG_CHECKSUM => {
                wrong_checksum(place, bridge, batch, lists, ctx);
            }
            Err(reason) if bridge.drops_invalid => lists.drop_packet(place, reason),
            Err(reason) if inspects && is_of_addresses(reason) => match look_at_the_rest(packet, interface, ctx) {
                Ok(layers) => {
                    meta.layers = layers;
                    spare(meta, reason, ctx);
                    onward(place, bridge, inspects, batch, lists, ctx);
                }
                Err(reason) => unparsable(place, reason, bridge, batch, lists, ctx),
            },
            // A bridge that inspects forwards malformed ARP, because it is not IP.
            Err(reason) if inspects && reason == Fault::BadArp.into() => {
                ctx.counters.bypass_before(Skipped::NotIp);
                spare(meta, reason, ctx);
                send(place, bridge.peer, batch, lists, ctx);
            }
            Err(reason) if inspects => unparsable(place, reason, bridge, batch, lists, ctx),
            Err(reason) => {
                spare(meta, reason, ctx);
                send(place, bridge.peer, batch, lists, ctx);
            }
        }
    }
    tally.flush(ctx);
}

/// Receives those packets of a slot mask that have the tags of a bridge's interface. All packets arrived on `port`. Returns the mask of the others.
#[inline(never)]
pub fn receive_tagged(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    port: PortIndex,
    slots: u128,
) -> u128 {
    gather(batch, lists, ctx, (port, slots), |frame| {
        vlan_of(ctx.snapshot, port, frame)
    })
}

/// Moves packets to the bridge list if their interface has other tags than its bridge peer. Returns the mask of the others.
fn gather(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    (port, slots): (PortIndex, u128),
    interface_of: impl Fn(&[u8]) -> Option<u16>,
) -> u128 {
    let (mut tally, mut left, mut others) = (ReceiveTally::of(ctx, port), slots, slots);
    while left != 0 {
        let slot = left.trailing_zeros() as usize;
        left &= left - 1;
        let Some(packet) = batch.packets.get(slot) else { break };
        let Some(number) = interface_of(packet.bytes()) else {
            continue;
        };
        others &= !(1 << slot);
        tally.count(ctx, number, packet.len() as u64);
        batch.meta[slot % BURST_BUFFERS] = Meta {
            interface: number,
            ..Meta::default()
        };
        put(&mut lists.bridge, slot as BufferIndex);
    }
    tally.flush(ctx);
    others
}

/// The bridge interface to which the outermost tags of a frame belong. Inner tags belong to the customer.
fn vlan_of(snapshot: &Snapshot, port: PortIndex, frame: &[u8]) -> Option<u16> {
    let first = usize::from(vlan::tag(frame, 0)?.is_priority());
    let outer = vlan::tag(frame, first)?;
    let of = |inner| {
        snapshot
            .tagged(port, &[Some(outer), inner])
            .filter(|&number| snapshot.is_bridged(number))
    };
    vlan::tag(frame, first + 1)
        .and_then(|inner| of(Some(inner)))
        .or_else(|| of(None))
}

/// Forwards frames, without inspection, between two interfaces with different tags: pops the tags of one and pushes those of the other.
#[inline(never)]
pub fn bridge(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    for slot in std::mem::take(&mut lists.bridge) {
        let (packet, meta) = (
            &mut batch.packets[slot as usize],
            &mut batch.meta[slot as usize % BURST_BUFFERS],
        );
        let interface = ctx.snapshot.interface(meta.interface);
        let Some((interface, bridge)) = interface.and_then(|on| Some((on, on.bridge?))) else {
            lists.drop_packet(slot, Own::InterfaceGone);
            continue;
        };
        // The priority tag precedes the tags of the VLAN. It is popped, so that the frame is forwarded as if it had arrived without one.
        let outer = vlan::tag(packet.bytes(), 0);
        vlan::pop_priority(packet);
        for _ in &interface.tags {
            vlan::pop(packet);
        }
        match look(packet, interface, ctx) {
            Ok(layers) => meta.layers = layers,
            // A frame that ends within its Ethernet header has no space for tags, so it is dropped even if the bridge forwards invalid frames.
            Err(reason) if bridge.drops_invalid || reason == Fault::ShortFrame.into() => {
                lists.drop_packet(slot, reason);
                continue;
            }
            Err(reason) => spare(meta, reason, ctx),
        }
        let peer = ctx.snapshot.interface(bridge.peer);
        // If the interface has no tags, only a preceding priority tag belongs to the bridge; other tags belong to the customer.
        let outer = outer.filter(|tag| tag.is_priority() || !interface.tags.is_empty());
        match peer.is_none_or(|peer| peer.push_tags_after(packet, outer)) {
            true => send(slot, bridge.peer, batch, lists, ctx),
            false => lists.drop_packet(slot, Own::NoBuffer),
        }
    }
}

/// The fault to which inspection's policy for bad checksums applies.
const WRONG_CHECKSUM: Reason = Reason::Wire(Fault::BadTransportChecksum);

/// Applies the policy for bad checksums to a packet with a wrong transport checksum. The receiver of such a packet would discard it.
fn wrong_checksum(
    slot: BufferIndex,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspection = ctx.snapshot.inspection.as_deref();
    let said = inspection.map(|inspection| inspection.settings.policy(Exception::BadChecksum));
    let packet = &mut batch.packets[slot as usize];
    match (said, layers::parse(packet.bytes())) {
        (Some(Exceptional::DropFlow | Exceptional::Bypass), Ok(layers)) if !bridge.drops_invalid => {
            packet.set_checksums(Checksums::BadL4);
            batch.meta[slot as usize % BURST_BUFFERS].layers = layers;
            onward(slot, bridge, true, batch, lists, ctx);
        }
        (Some(Exceptional::Pass), _) if !bridge.drops_invalid => {
            ctx.counters.bypass_before(Skipped::BadChecksum);
            spare(batch.meta(slot), WRONG_CHECKSUM, ctx);
            send(slot, bridge.peer, batch, lists, ctx);
        }
        _ => {
            ctx.counters.inspection.received.add(1);
            lists.drop_packet(slot, sluice_inspect::Reason::BadChecksum);
        }
    }
}

/// Forwards or drops an unparsable frame on a bridge that inspects. No rule can match such a frame.
fn unparsable(
    slot: BufferIndex,
    reason: Reason,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let passes = ctx
        .snapshot
        .inspection
        .as_deref()
        .is_none_or(|on| on.passes_unparsable());
    if !passes {
        return lists.drop_packet(slot, reason);
    }
    ctx.counters.bypass_before(Skipped::Invalid);
    spare(batch.meta(slot), reason, ctx);
    send(slot, bridge.peer, batch, lists, ctx);
}

/// Whether the fault concerns only addresses or a source route, so that the headers can be parsed nevertheless.
fn is_of_addresses(reason: Reason) -> bool {
    use Fault::{MartianDestination, MartianSource, SourceRoute};
    matches!(reason, Reason::Wire(MartianSource | MartianDestination | SourceRoute))
}

/// Repeats the checks of [`look`] for a packet that failed a check of addresses or source routes. These checks are left out.
#[cold]
fn look_at_the_rest(
    packet: &mut Packet<'_>,
    interface: &Interface,
    ctx: &NodeContext<'_, '_>,
) -> Result<Layers, Reason> {
    let snapshot = validity::Policy {
        martians: false,
        source_routes: false,
        ..interface.validity
    };
    let layers = look_by(packet, interface, &snapshot, ctx)?;
    let frame = packet.bytes();
    let to_itself = match layers.class {
        Class::Ipv4 => V4::addresses(&layers, frame).0 == V4::addresses(&layers, frame).1,
        _ => V6::addresses(&layers, frame).0 == V6::addresses(&layers, frame).1,
    };
    // A session has one key per direction. If both addresses are equal, both keys may be equal.
    match to_itself {
        true => Err(Fault::Land.into()),
        false => Ok(layers),
    }
}

/// Processes a packet again that was parked.
pub fn again(
    slot: BufferIndex,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspects = inspects(ctx.snapshot, batch.meta(slot).interface, bridge);
    onward(slot, bridge, inspects, batch, lists, ctx);
}

/// Whether packets received on an interface of a bridge are inspected.
fn inspects(snapshot: &Snapshot, number: u16, bridge: Bridge) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|inspection| inspection.is_on(number) || inspection.is_on(bridge.peer))
}

/// Parses and validates a frame, and returns its layers. A checksum that the sender left to checksum offload is completed.
fn look(packet: &mut Packet<'_>, interface: &Interface, ctx: &NodeContext<'_, '_>) -> Result<Layers, Reason> {
    look_by(packet, interface, &interface.validity, ctx)
}

#[inline(always)]
fn look_by(
    packet: &mut Packet<'_>,
    interface: &Interface,
    snapshot: &validity::Policy,
    ctx: &NodeContext<'_, '_>,
) -> Result<Layers, Reason> {
    let checksums = packet.checksums();
    let layers = layers::parse(packet.bytes())?;
    match validity::validate(packet.bytes(), checksums, &layers, snapshot)? {
        Validity::Valid => parse::forget_wrong(packet),
        Validity::LeftToOffload if interface.complete_checksums => parse::complete_checksum(packet, &layers, ctx),
        Validity::LeftToOffload => return Err(Own::LeftToOffload.into()),
    }
    Ok(layers)
}

/// Passes packets of flows that are inspected, or whose application is being identified, to session lookup. Packets of other
/// flows are forwarded to the peer interface.
fn onward(
    slot: BufferIndex,
    bridge: Bridge,
    inspects: bool,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = batch.meta(slot);
    let tells = meta.layers.fragment == Fragment::Whole && !is_icmp(meta.layers.protocol);
    let looks = inspects || tells && ctx.snapshot.identifies([meta.interface, bridge.peer]);
    match meta.layers.class {
        Class::Ipv4 | Class::Ipv6 if inspects && meta.layers.fragment != Fragment::Whole => {
            put(&mut lists.virtual_reassembly, slot);
        }
        Class::Ipv4 if looks => put(&mut lists.session_lookup.v4, slot),
        Class::Ipv6 if looks => put(&mut lists.session_lookup.v6, slot),
        Class::Other if inspects && hides_ip(&batch.packets[slot as usize], &batch.meta(slot).layers) => {
            unparsable(slot, Own::EncapsulatedIp.into(), bridge, batch, lists, ctx);
        }
        _ => {
            if inspects {
                ctx.counters.bypass_before(Skipped::NotIp);
                spare(meta, Own::NotIp, ctx);
            }
            send(slot, bridge.peer, batch, lists, ctx);
        }
    }
}

/// Whether a frame whose EtherType is not that of IP nevertheless carries an IP packet.
#[cold]
fn hides_ip(packet: &Packet<'_>, layers: &Layers) -> bool {
    let (type_at, body) = (usize::from(layers.l3).saturating_sub(2), usize::from(layers.l3));
    let kind = packet.bytes().get(type_at..body).and_then(|kind| kind.try_into().ok());
    let body = packet.bytes().get(body..).unwrap_or_default();
    kind.is_some_and(|kind| ethernet::hides_ip(u16::from_be_bytes(kind), body))
}

/// Handles an ICMP error whose flow can't be determined. On a bridge it is treated like an error for a flow without a session.
#[cold]
pub fn unattributed_error(
    slot: BufferIndex,
    fault: Fault,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let interface = ctx.snapshot.interface(batch.meta(slot).interface);
    match (interface.and_then(|interface| interface.bridge), fault) {
        (Some(bridge), Fault::ShortQuote | Fault::QuotedFragment) => {
            midstream_flow(slot, fault.into(), bridge, batch, lists, ctx);
        }
        _ => lists.drop_packet(slot, fault),
    }
}

/// Counts a packet that the bridge forwards although it has a fault.
fn spare(meta: &Meta, reason: impl Into<Reason>, ctx: &NodeContext<'_, '_>) {
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.count_exempted(reason.into());
    }
}

/// Whether a frame without its tags exceeds the MTU. Devices drop such frames, some of them without counting.
#[cold]
fn is_too_long(frame: &[u8], mtu: u16) -> bool {
    let tags = (0..).take_while(|&k| vlan::tag(frame, k).is_some()).count();
    frame.len() > usize::from(mtu) + ethernet::LENGTH + tags * vlan::LENGTH
}

/// Transmits a frame unchanged through an interface.
pub fn send(slot: BufferIndex, to: u16, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let Some(interface) = ctx.snapshot.interface(to) else {
        return lists.drop_packet(slot, Own::InterfaceGone);
    };
    let frame = batch.packets[slot as usize].bytes();
    if frame.len() > usize::from(interface.mtu) + ethernet::LENGTH && is_too_long(frame, interface.mtu) {
        return lists.drop_packet(slot, Own::LongerThanMtu);
    }
    let out = match ctx.snapshot.sender(interface.port, ctx.own) {
        Some(sender) => OutputResult::HandOver(sender, to),
        None => {
            if let Some(counters) = ctx.counters.interfaces.get(to as usize) {
                counters.sent.add(1);
                counters.sent_bytes.add(batch.packets[slot as usize].len() as u64);
            }
            OutputResult::Transmit(interface.port)
        }
    };
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    leave(slot, out, meta, AdjacencyIndex::bridge(to), lists);
}

/// Forwards or drops a packet that can't be inspected, according to the fail-open setting of its bridge.
pub fn fail(
    slot: BufferIndex,
    reason: Reason,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = batch.meta(slot);
    let bridge = ctx
        .snapshot
        .interface(meta.interface)
        .and_then(|interface| interface.bridge);
    match bridge {
        // The bridge only identifies applications here, and none of its rules depends on the result.
        Some(bridge) if !inspects(ctx.snapshot, meta.interface, bridge) => send(slot, bridge.peer, batch, lists, ctx),
        Some(bridge) if bridge.fails_open => {
            ctx.counters.bypass_before(Skipped::FailOpen);
            spare(meta, reason, ctx);
            send(slot, bridge.peer, batch, lists, ctx);
        }
        Some(_) | None => lists.drop_packet(slot, reason),
    }
}

/// The decision for a new flow at the interface of `meta`, if that interface belongs to a bridge.
#[inline(always)]
pub fn decide<F: Family>(snapshot: &Snapshot, meta: &Meta, context: Context) -> Option<FlowDecision<F>> {
    let bridge = snapshot.interface(meta.interface)?.bridge?;
    let keeps = inspects(snapshot, meta.interface, bridge) || snapshot.identifies([meta.interface, bridge.peer]);
    Some(match keeps {
        true => FlowDecision::Session(translation(meta.interface, bridge, context)),
        false => FlowDecision::Drop(Own::Forgotten.into()),
    })
}

/// The decision for a bridged session, whose addresses are not translated. `context` is that of packets received on `interface`.
fn translation<F: Family>(interface: u16, bridge: Bridge, context: Context) -> FlowTranslation<F> {
    FlowTranslation {
        target: None,
        pool: None,
        outside: None,
        mapped: None,
        hops: [AdjacencyIndex::bridge(bridge.peer), AdjacencyIndex::bridge(interface)],
        answers: Some(context ^ LATER_SIDE),
    }
}

/// Creates sessions for packets that arrived on a bridge and have no session. Returns the packets that did not arrive on a bridge.
#[cold]
pub fn create_sessions<F: Family>(
    slots: BufferIndices,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) -> BufferIndices {
    let mut others = BufferIndices::new();
    let mut flows = NewFlows::<F>::default();
    for slot in slots {
        let meta = batch.meta(slot);
        let bridge = ctx
            .snapshot
            .interface(meta.interface)
            .and_then(|interface| interface.bridge);
        let Some(bridge) = bridge else {
            put(&mut others, slot);
            continue;
        };
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.snapshot.context(meta, frame);
        let key = F::key(&meta.layers, frame, context);
        let inspection = ctx.snapshot.inspection.as_deref();
        let picks_up = inspection.is_some_and(|inspection| inspection.accepts_midstream(&meta.layers));
        match midstream::<F>(&meta.layers, &key).filter(|_| !picks_up) {
            None => flows.push(slot, key, translation(meta.interface, bridge, context)),
            Some(reason) => midstream_flow(slot, reason, bridge, batch, lists, ctx),
        }
    }
    slow_path::create(&mut flows, batch, lists, ctx);
    others
}

/// The reason for which a packet can't be the first of a flow.
fn midstream<F: Family>(layers: &Layers, key: &F::Key) -> Option<Reason> {
    if layers.flags.has(Flags::ICMP_ERROR) {
        Some(sluice_nat::Reason::IcmpErrorWithoutSession.into())
    } else if layers.flags.has(Flags::ICMP_REPLY) {
        Some(sluice_nat::Reason::Unsolicited.into())
    } else {
        let opens = F::protocol(key) != TCP || layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
        (!opens).then(|| sluice_nat::Reason::NotOpening.into())
    }
}

/// Applies the midstream policy to a packet of a flow whose first packet was not seen.
fn midstream_flow(
    slot: BufferIndex,
    reason: Reason,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspection = ctx.snapshot.inspection.as_deref();
    if !inspects(ctx.snapshot, batch.meta(slot).interface, bridge) {
        return send(slot, bridge.peer, batch, lists, ctx);
    }
    let said = inspection.map(|inspection| inspection.settings.policy(Exception::Midstream));
    if !matches!(said, Some(Exceptional::Pass | Exceptional::Bypass)) {
        return lists.drop_packet(slot, reason);
    }
    ctx.counters
        .bypass_before(match batch.meta(slot).layers.flags.has(Flags::ICMP_ERROR) {
            true => Skipped::IcmpError,
            false => Skipped::Midstream,
        });
    spare(batch.meta(slot), reason, ctx);
    send(slot, bridge.peer, batch, lists, ctx);
}

/// Counts and tracks a packet of a known session, and sends it through the other interface of the bridge.
#[inline(never)]
pub fn forward_session<F: Family>(
    slot: BufferIndex,
    (index, direction): (RecordIndex, Direction),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let meta = *batch.meta(slot);
    let frame = batch.packets[slot as usize].bytes();
    let Some(bridge) = ctx
        .snapshot
        .interface(meta.interface)
        .and_then(|interface| interface.bridge)
    else {
        return lists.drop_packet(slot, Own::InterfaceGone);
    };
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut) else {
        return lists.drop_packet(slot, Own::Forgotten);
    };
    let Some(session) = F::table(shard).get_mut(index) else {
        return lists.drop_packet(slot, Own::Forgotten);
    };
    let tracked = read_segment(frame, &meta.layers, session.protocol());
    let track = session.track_mut();
    track.packets[direction as usize] += 1;
    track.bytes[direction as usize] += u64::from(meta.layers.end.saturating_sub(meta.layers.l3));
    translation::track::<F>(tracked, shard, index, direction, ctx.snapshot, ctx.now);
    send(slot, bridge.peer, batch, lists, ctx);
}

/// The tags of a frame to which an answer is sent.
pub fn tags(meta: &Meta, frame: &[u8]) -> [Option<Tag>; 2] {
    [0, 1].map(|k| meta.layers.tag(frame, k))
}

/// Sends an answer that was made in the buffer of a received frame. The answer leaves through the interface and with the tags of that frame.
pub fn answer(
    slot: BufferIndex,
    tags: [Option<Tag>; 2],
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let packet = &mut batch.packets[slot as usize];
    let tagged = tags.into_iter().rev().flatten().all(|tag| vlan::push(packet, tag));
    let to = batch.meta(slot).interface;
    match tagged {
        true => send(slot, to, batch, lists, ctx),
        false => lists.drop_packet(slot, Own::NoBuffer),
    }
}
