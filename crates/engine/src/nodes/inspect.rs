//! inspect: reassembles the streams of inspected sessions, searches them for patterns, and evaluates the inspection rules.
//! The node processes packets before their translation.

use sluice_inspect::evaluate::PacketFields;
use sluice_inspect::inspector::{BurstContext, DetectionContext, FlowHandle, FlowPacket, RuleMatch, Settings, Verdict};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::transactions::Transaction;
use sluice_inspect::{Limit, Reason, Skipped};
use sluice_table::flow::RecordIndex;
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{self, Flags, Fragment};
use sluice_wire::tcp::Reset;
use sluice_wire::validity::{self, Validity};
use sluice_wire::{Checksums, Direction, Fault};

use crate::features::context::NodeContext;
use crate::features::inspection::classification::{ends, facts, payload};
use crate::features::inspection::reassembly::{FragmentOutcome, FragmentSpan};
use crate::features::inspection::{
    Alert, AlertQueue, FlowPrefetch, FragmentNote, InspectState, InspectionPolicy, Inspector, Shed,
};
use crate::features::session_end::{SessionTools, log_end};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::virtual_reassembly::datagram_key;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::counters::WorkerCounters;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::packet::time::Now;
use crate::session::family::{Family, Session};
use crate::session::records::{About, EndReason, RecordKind, flow_number};
use crate::session::shard::Shard;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "inspect",
    help: "inspects streams in order",
    stage: Some(CycleStage::Inspect),
    leaves: &[Leave::Park, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "passed", needs::INSPECTED),
        Exit::new("icmp-error", "rejected", needs::INSPECTED),
    ],
};

/// A packet of an inspected session.
struct Packet<'a, F: Family> {
    slot: BufferIndex,
    index: RecordIndex,
    direction: Direction,
    session: F::Session,
    ends: Endpoints,
    meta: Meta,
    inspection: &'a InspectionPolicy,
    settings: Settings,
}

/// Inspects packets.
#[inline(never)]
pub fn inspect<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    let snapshot = ctx.snapshot;
    let Some(work) = tools.inspector.as_deref_mut() else {
        return;
    };
    let packets = std::mem::take(lists.inspect.of::<F>());
    work.follow(snapshot.inspected);
    let soon = FlowPrefetch::of::<F>(&packets, batch, ctx.shards);
    for (place, &(slot, index, direction)) in packets.iter().enumerate() {
        soon.prefetch(place, &packets, batch, ctx.shards);
        let Some(inspection) = snapshot.inspection.as_deref() else {
            forward::<F>(slot, lists);
            continue;
        };
        let meta = *batch.meta(slot);
        let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
        let session = shard.and_then(|shard| F::table_ref(shard).get(index).copied());
        let Some(session) = session else {
            lists.drop_packet(slot, Own::Forgotten);
            continue;
        };
        let packet = Packet::<F> {
            slot,
            index,
            direction,
            ends: ends::<F>(&session, direction),
            session,
            meta,
            inspection,
            settings: inspection.settings,
        };
        ctx.counters.inspection.received.add(1);
        one(packet, batch, lists, ctx, work);
    }
}

/// Inspects one packet. The verdict applies only to the slot of the packet.
fn one<F: Family>(
    mut packet: Packet<'_, F>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    work: &mut Inspector,
) {
    let (slot, meta) = (packet.slot, packet.meta);
    let tools = ctx.tools();
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut) else {
        return lists.drop_packet(slot, Own::Forgotten);
    };
    shard.follow_rules(ctx.snapshot.inspected, ctx.now);
    // An ICMP error for a flow contains none of the flow's data.
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return skip::<F>(slot, Skipped::IcmpError, lists, ctx.counters);
    }
    // Packets of flows with an earlier decision, and packets shed because of overload, are not inspected.
    let open = match packet.session.inspect() {
        InspectState::Flow(handle) => Some(FlowHandle(handle)),
        InspectState::Nothing
        | InspectState::Enabled
        | InspectState::Left
        | InspectState::Pending
        | InspectState::Remarked
        | InspectState::Denied(_) => None,
    };
    let decided = open
        .zip(shard.inspector.as_deref_mut())
        .and_then(|(handle, inspector)| inspector.decided_verdict(handle, ctx.now.nanoseconds));
    if let Some(verdict) = decided.or_else(|| shed(&mut packet, open, shard, work)) {
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    }
    if packet.session.inspect() == InspectState::Enabled
        && packet.inspection.bypass.iter().any(|class| class.has(&packet.ends))
    {
        let verdict = Verdict::Leave(Some(Skipped::Class));
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    }
    let Some(handle) = flow::<F>(shard, packet.index, &packet.session, ctx.now) else {
        // No flow state can be allocated, so the out-of-memory policy applies.
        let verdict = match packet.settings.policy(Exception::NoMemory) {
            Policy::Pass => Verdict::Skip(Skipped::NoMemory),
            Policy::Bypass => Verdict::Leave(Some(Skipped::NoMemory)),
            Policy::DropPacket | Policy::DropFlow => Verdict::Drop(Reason::FlowsFull),
        };
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    };
    let frame = &mut batch.packets[slot as usize];
    let layers = &meta.layers;
    let (checksums, frame) = (frame.checksums(), frame.bytes_mut());
    let mut look = InspectContext {
        packet: &packet,
        handle,
        shard,
        now: ctx.now.nanoseconds,
        counters: ctx.counters,
        ends: &tools,
    };
    if layers.fragment != Fragment::Whole {
        let context = ctx.snapshot.context(&meta, frame);
        return fragment(&mut look, context, frame, lists, work);
    }
    let verdict = match checksums {
        Checksums::BadL4 => look.exception(Exception::BadChecksum),
        _ => {
            let facts = facts(layers, layers.datagram(frame), layers.payload(frame));
            look.inspect_payload(facts, layers.payload_mut(frame), &mut work.tools, &mut work.alerts)
        }
    };
    finish(&packet, verdict, &[], look.shard, Some(batch), lists, &tools, work);
}

/// State that is needed to inspect one packet.
struct InspectContext<'a, 'm, F: Family> {
    packet: &'a Packet<'a, F>,
    handle: FlowHandle,
    shard: &'a mut Shard<'m>,
    now: u64,
    counters: &'a WorkerCounters,
    /// State that is needed to end a flow and to log its end.
    ends: &'a SessionTools<'a>,
}

impl<F: Family> InspectContext<'_, '_, F> {
    /// The verdict for a packet with this transport header and payload.
    fn inspect_payload(
        &mut self,
        facts: PacketFields,
        segment: &mut [u8],
        tools: &mut DetectionContext,
        alerts: &mut AlertQueue,
    ) -> Verdict {
        let Packet {
            session,
            ends,
            meta,
            inspection,
            settings,
            direction,
            ..
        } = self.packet;
        let track = session.track();
        let (at, counters) = (self.now, self.counters);
        let (number, records) = (self.shard.number, self.ends.records);
        let Some(inspector) = self.shard.inspector.as_deref_mut() else {
            return Verdict::Skip(Skipped::NoMemory);
        };
        let mut told = |matched: RuleMatch| {
            let flow = flow_number(number, matched.flow);
            let alert = Alert {
                about: About {
                    service: matched.service,
                    ..About::packet(at, flow, ends, meta.interface)
                },
                rule: matched.rule,
                action: matched.action,
                packets: track.packets,
                bytes: track.bytes,
            };
            alerts.push(alert, counters);
        };
        // In protocol events of a flow, the client is the first endpoint.
        let client = match direction {
            Direction::Forward => *ends,
            Direction::Reverse => ends.reversed(),
        };
        let mut said = |flow, transaction: &Transaction| {
            let about = About {
                service: Some(transaction.service),
                ..About::packet(at, flow_number(number, flow), &client, session.interface())
            };
            records.push(about, RecordKind::Transaction(*transaction), counters);
        };
        let mut round = BurstContext {
            settings,
            hosts: &inspection.rates,
            context: tools,
            now: at,
            matches: &mut told,
            log: &mut said,
        };
        let payload = payload(meta.layers.protocol, segment);
        let seen = FlowPacket {
            ends: *ends,
            fields: PacketFields {
                payload: (segment.len() - payload) as u32,
                ..facts
            },
            direction: *direction,
            segment,
            payload,
            own_side: is_own_side::<F>(session, *direction, meta.interface),
        };
        let before = inspector.counters;
        let urgent = inspector.streams().counters().urgent;
        let verdict = inspector.inspect(self.handle, seen, &mut round);
        counters
            .inspection
            .searched
            .add(inspector.counters.searched - before.searched);
        counters
            .inspection
            .reopened
            .add(inspector.counters.rule_switches - before.rule_switches);
        counters
            .inspection
            .records_lost
            .add(inspector.counters.unlogged - before.unlogged);
        inspector.report_counts(
            |anomaly, count| counters.inspection.anomalies.add(anomaly, count),
            |limit, count| counters.inspection.limits.add(limit, count),
        );
        counters
            .inspection
            .urgent_cleared
            .add(inspector.streams().counters().urgent - urgent);
        verdict
    }

    /// Drops the packet and logs the drop.
    fn refuse(&mut self, reason: Reason, lists: &mut Lists) {
        tell_drop(self.packet, self.shard, reason, self.ends);
        lists.drop_packet(self.packet.slot, reason);
    }

    /// The verdict for a packet that can't be inspected.
    fn exception(&mut self, exception: Exception) -> Verdict {
        let Some(inspector) = self.shard.inspector.as_deref_mut() else {
            return Verdict::Skip(exception.into());
        };
        inspector.streams().count(exception);
        inspector.apply_policy(self.handle, exception, &self.packet.settings)
    }
}

/// Parks a fragment until its datagram is complete, and then inspects the datagram.
#[cold]
fn fragment<F: Family>(
    look: &mut InspectContext<'_, '_, F>,
    context: u32,
    frame: &[u8],
    lists: &mut Lists,
    work: &mut Inspector,
) {
    let Packet { slot, meta, .. } = *look.packet;
    let key = datagram_key(frame, &meta, context);
    let Some(piece) = FragmentSpan::read(&meta.layers, frame) else {
        return look.refuse(Reason::FragmentInconsistent, lists);
    };
    let told = fragment_note(&meta);
    while let Some(oldest) = work.assemblies.victim(&key, &piece) {
        look.counters.inspection.limits.add(Limit::FragmentsEvicted as usize, 1);
        for ticket in work.assemblies.take_tickets(oldest) {
            give_up(ticket, Reason::FragmentsFull, lists, work);
        }
        work.assemblies.clear(oldest);
    }
    match work.assemblies.place(&key, meta.shard, piece, look.now) {
        FragmentOutcome::Refused(reason, spoilt) => {
            let tickets = spoilt.map(|place| work.assemblies.take_tickets(place));
            for ticket in tickets.into_iter().flatten() {
                tell_drop(look.packet, look.shard, reason, look.ends);
                give_up(ticket, reason, lists, work);
            }
            look.refuse(reason, lists);
        }
        FragmentOutcome::Waits(place) => {
            let ticket = work.parked_packets.reserve(slot, told);
            work.assemblies.keep(place, ticket);
            match ticket {
                Some(ticket) => put(&mut work.parking, (slot, ticket)),
                None => look.refuse(Reason::FragmentsFull, lists),
            }
        }
        FragmentOutcome::Whole(place) => whole(look, place, frame, lists, work),
    }
}

/// Inspects a datagram whose fragments are complete. The last fragment of the datagram is in the current burst.
#[cold]
fn whole<F: Family>(
    look: &mut InspectContext<'_, '_, F>,
    place: u32,
    frame: &[u8],
    lists: &mut Lists,
    work: &mut Inspector,
) {
    let (packet, layers) = (look.packet, look.packet.meta.layers);
    let datagram = layers.datagram(frame);
    let (payload, copy) = work.assemblies.payload(place);
    let mut verdict = match validity::validate_assembled(datagram, payload, &layers) {
        Ok(Validity::Valid) => {
            let facts = facts(&layers, datagram, payload);
            look.inspect_payload(facts, payload, &mut work.tools, &mut work.alerts)
        }
        Ok(Validity::LeftToOffload) | Err(Fault::BadTransportChecksum) => look.exception(Exception::BadChecksum),
        Err(_) => look.exception(Exception::Malformed),
    };
    // A normalised payload can't be written back, because it is distributed over several buffers, most of them parked.
    if !matches!(verdict, Verdict::Drop(_) | Verdict::Reject(_)) && payload != copy {
        verdict = Verdict::Drop(Reason::FragmentRewritten);
    }
    let others = work.assemblies.take_tickets(place);
    work.assemblies.clear(place);
    finish(packet, verdict, &others, look.shard, None, lists, look.ends, work);
}

/// Applies the verdict to a packet and to the other fragments of its datagram.
#[expect(
    clippy::too_many_arguments,
    reason = "what is said, of what, and everything that it is done with"
)]
fn finish<F: Family>(
    packet: &Packet<'_, F>,
    verdict: Verdict,
    others: &[u32],
    shard: &mut Shard<'_>,
    batch: Option<&mut Batch<'_, '_>>,
    lists: &mut Lists,
    tools: &SessionTools<'_>,
    work: &mut Inspector,
) {
    let (slot, counters) = (packet.slot, tools.counters);
    let skipped = match verdict {
        Verdict::Pass | Verdict::Leave(None) => None,
        Verdict::Skip(why) | Verdict::Leave(Some(why)) => Some(why),
        Verdict::Drop(reason) | Verdict::Reject(reason) => {
            tell_drop(packet, shard, reason, tools);
            for &ticket in others {
                tell_drop(packet, shard, reason, tools);
                give_up(ticket, reason, lists, work);
            }
            // No reset or ICMP error is sent for a fragmented datagram: it would be made in the packet's buffer, and there are several.
            let is_told = matches!(verdict, Verdict::Reject(_)) && packet.meta.layers.fragment == Fragment::Whole;
            return match packet.session.protocol() {
                _ if !is_told => lists.drop_packet(slot, reason),
                // The receiver gets the reset now. The sender retransmits the unacknowledged segment, and then gets a reset as well.
                protocol::TCP if reason == Reason::Signature && batch.is_some_and(|batch| reset(slot, batch)) => {
                    if let Some(counters) = counters.interfaces.get(packet.meta.interface as usize) {
                        counters.drop(reason.into());
                        counters.originated.add(1);
                    }
                    forward::<F>(slot, lists);
                }
                protocol::TCP => lists.icmp_error(slot, IcmpError::Reset, reason),
                _ => lists.icmp_error(slot, IcmpError::Prohibited, reason),
            };
        }
    };
    let count = 1 + others.len() as u64;
    match skipped {
        None => counters.inspection.inspected.add(count),
        Some(why) => counters.bypass(why, count),
    }
    forward_fragment::<F>(slot, &packet.meta, others, lists, work);
    if matches!(verdict, Verdict::Leave(_)) {
        counters.inspection.bypassed_flows.add(1);
        leave::<F>(shard, packet, tools);
    }
}

/// Forwards a packet after the other fragments of its datagram. If some of the fragments are parked, all are sent in a later burst.
fn forward_fragment<F: Family>(
    slot: BufferIndex,
    meta: &Meta,
    others: &[u32],
    lists: &mut Lists,
    work: &mut Inspector,
) {
    let parked_packets = &mut work.parked_packets;
    if others.iter().all(|&ticket| parked_packets.in_burst(ticket).is_some()) {
        for &ticket in others {
            if let Some(slot) = parked_packets.take_from_burst(ticket) {
                work.parking.retain(|(held, _)| *held != slot);
                forward::<F>(slot, lists);
            }
        }
        return forward::<F>(slot, lists);
    }
    others.iter().for_each(|&ticket| parked_packets.pass(ticket));
    match parked_packets.reserve(slot, fragment_note(meta)) {
        Some(ticket) => {
            put(&mut work.parking, (slot, ticket));
            parked_packets.pass(ticket);
        }
        None => forward::<F>(slot, lists),
    }
}

/// Log that a packet is dropped.
fn tell_drop<F: Family>(packet: &Packet<'_, F>, shard: &mut Shard<'_>, reason: Reason, tools: &SessionTools<'_>) {
    let (number, now, interface) = (shard.number, tools.now.nanoseconds, packet.meta.interface);
    let known = F::table_ref(shard).get(packet.index).map(Session::inspect);
    let summary = match (known, shard.inspector.as_deref_mut()) {
        (Some(InspectState::Flow(handle)), Some(inspector)) => inspector.summary(FlowHandle(handle)),
        _ => None,
    };
    let about = || match &summary {
        Some(summary) => {
            let about = About::flow(now, number, summary, packet.direction)?;
            Some(About { interface, ..about })
        }
        // The packet belongs to no flow.
        None => Some(About::packet(now, 0, &packet.ends, interface)),
    };
    let rule = summary.and_then(|summary| summary.ended_by);
    let layers = &packet.meta.layers;
    let length = u32::from(layers.end.saturating_sub(layers.l3));
    tools.records.push_drop(about, reason, rule, length, tools.counters);
}

/// Drops a waiting packet, immediately if it is in the current burst.
fn give_up(ticket: u32, reason: Reason, lists: &mut Lists, work: &mut Inspector) {
    if let Some(slot) = work.parked_packets.take_from_burst(ticket) {
        work.parking.retain(|(held, _)| *held != slot);
        lists.drop_packet(slot, reason);
    } else if work.given_up.len() < work.given_up.capacity() {
        work.given_up.push((ticket, reason));
    }
}

/// The verdict for a packet under overload; `None` if the packet is inspected, in full or to a smaller depth.
fn shed<F: Family>(
    packet: &mut Packet<'_, F>,
    open: Option<FlowHandle>,
    shard: &mut Shard<'_>,
    work: &Inspector,
) -> Option<Verdict> {
    if !work.load.is_on() {
        return None;
    }
    match packet.inspection.overload.shed(&packet.ends) {
        Shed::Inspect => None,
        Shed::Less(depth) => {
            packet.settings.depth = match packet.settings.depth {
                0 => depth,
                usual => usual.min(depth),
            };
            let inspector = shard.inspector.as_deref_mut()?;
            let searched = inspector.cleared_bytes(open?)?;
            (searched >= depth).then_some(Verdict::Leave(Some(Skipped::Overload)))
        }
        Shed::Bypass if packet.session.protocol() == protocol::TCP => Some(Verdict::Leave(Some(Skipped::Overload))),
        Shed::Bypass => Some(Verdict::Skip(Skipped::Overload)),
        Shed::Drop => Some(Verdict::Drop(Reason::Overload)),
    }
}

/// Whether a packet arrived on an interface of its sender's side. False only if it arrived on the interface of the other side,
/// the interfaces of the sides differ, and the route to the server is known.
fn is_own_side<F: Family>(session: &F::Session, direction: Direction, interface: u16) -> bool {
    let [client, server] = [
        usize::from(session.interface()),
        session.adjacency(Direction::Forward).interface(),
    ];
    let other = match direction {
        Direction::Forward => server,
        Direction::Reverse => client,
    };
    client == server || server >= AdjacencyIndex::MAX_INTERFACES || usize::from(interface) != other
}

/// Ends the inspection of a flow.
fn leave<F: Family>(shard: &mut Shard<'_>, packet: &Packet<'_, F>, tools: &SessionTools<'_>) {
    let number = shard.number;
    let Some(session) = F::table(shard).get_mut(packet.index) else {
        return;
    };
    let before = session.inspect();
    session.set_inspect(InspectState::Left);
    if let (InspectState::Flow(handle), Some(inspector)) = (before, shard.inspector.as_deref_mut()) {
        let handle = FlowHandle(handle);
        log_end::<F>(inspector, (number, handle), &packet.session, EndReason::Bypass, tools);
        inspector.remove_flow(handle);
    }
}

/// The inspection flow of a session. The flow is created if it does not exist.
fn flow<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, session: &F::Session, now: Now) -> Option<FlowHandle> {
    let inspector = shard.inspector.as_deref_mut()?;
    let gave_way = match session.inspect() {
        InspectState::Flow(handle) if inspector.contains(FlowHandle(handle)) => return Some(FlowHandle(handle)),
        InspectState::Flow(_) => true,
        InspectState::Enabled => false,
        InspectState::Nothing
        | InspectState::Left
        | InspectState::Pending
        | InspectState::Remarked
        | InspectState::Denied(_) => return None,
    };
    let handle = inspector.create_flow(session.protocol() == protocol::TCP)?;
    let client = ends::<F>(session, Direction::Forward);
    inspector.begin_flow(handle, client, session.interface(), now.nanoseconds);
    if gave_way {
        inspector.resume_flow(handle, session.track().tracking.initial_sequences());
    }
    F::table(shard)
        .get_mut(index)?
        .set_inspect(InspectState::Flow(handle.0));
    Some(handle)
}

/// Turns a segment with data into a reset of its connection. Returns `false` if that is not possible.
fn reset(slot: BufferIndex, batch: &mut Batch<'_, '_>) -> bool {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    let (begin, end) = (usize::from(meta.layers.l4), usize::from(meta.layers.end));
    let segment = packet.bytes().get(begin..end).unwrap_or_default();
    if payload(meta.layers.protocol, segment) == segment.len() || !Reset::replace(packet, &meta.layers) {
        return false;
    }
    let layers = layers::parse(packet.bytes());
    layers.map(|layers| meta.layers = layers).is_ok()
}

/// Forwards a packet without inspection.
fn skip<F: Family>(slot: BufferIndex, why: Skipped, lists: &mut Lists, counters: &WorkerCounters) {
    counters.bypass(why, 1);
    forward::<F>(slot, lists);
}

/// Forwards a packet, and prevents another inspection in this burst.
fn forward<F: Family>(slot: BufferIndex, lists: &mut Lists) {
    lists.passed |= 1 << (slot as usize % BURST_BUFFERS);
    put(lists.session_lookup.of::<F>(), slot);
}

/// The results of virtual reassembly for a fragment.
fn fragment_note(meta: &Meta) -> FragmentNote {
    FragmentNote {
        ports: (meta.layers.source_port, meta.layers.destination_port),
        identification: meta.identification,
    }
}
