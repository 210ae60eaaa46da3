//! inspect: packets of inspected sessions, as they came: put in order, searched, and rules asked about them.
//!
//! Exits: established again (it goes on), park (it waits for what comes before it), complain (rejected), drop.

use std::net::IpAddr;

use sluice_inspect::Inspector;
use sluice_inspect::evaluate::{self, Facts, Icmp, Ip};
use sluice_inspect::inspector::{FlowHandle, Round, Seen, Verdict};
use sluice_inspect::scope::Ends;
use sluice_inspect::signature::Toward;
use sluice_inspect::stream::Exception;
use sluice_inspect::transactions::Transaction;
use sluice_nat::Tuple;
use sluice_nat::tracking::TcpState;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ipv4::{self, Ipv4, protocol};
use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use sluice_wire::tcp::Tcp;

use crate::batch::{Batch, Complaint, Lists, Meta, put};
use crate::context::Ctx;
use crate::family::{Family, Session};
use crate::inspection::{Alert, Inspect, Inspecting, Inspection, Released};
use crate::io::{HAND, Slot};
use crate::reason::Own;
use crate::records::{About, Ending, Said, flow_number};
use crate::shard::{Shard, tell_end};
use crate::time::Now;

/// Inspect.
#[inline(never)]
pub fn inspect<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>, work: &mut Inspecting) {
    let policy = ctx.policy;
    for (slot, index, direction) in std::mem::take(F::inspects(lists)) {
        let Some(inspection) = policy.inspection.as_deref() else {
            go_on::<F>(slot, lists);
            continue;
        };
        one::<F>(slot, index, direction, batch, lists, ctx, inspection, work);
    }
}

/// What happens to a packet goes no further than its slot, but for those that waited for it.
#[expect(
    clippy::too_many_arguments,
    reason = "a packet, where it is known, and what it is inspected with"
)]
fn one<F: Family>(
    slot: Slot,
    index: RecordIndex,
    direction: Direction,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    inspection: &Inspection,
    work: &mut Inspecting,
) {
    let (now, counters, generation) = (ctx.now, ctx.counters, ctx.policy.generation);
    let (records, tools) = (ctx.records, ctx.tools());
    let meta = &batch.meta[slot as usize % HAND];
    // An error about a flow is none of its data.
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        counters.uninspected.add(1);
        return go_on::<F>(slot, lists);
    }
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut) else {
        return lists.discard(slot, Own::Forgotten);
    };
    let Some(session) = F::table_ref(shard).get(index).copied() else {
        return lists.discard(slot, Own::Forgotten);
    };
    let number = shard.number;
    let length = u32::from(meta.layers.end.saturating_sub(meta.layers.l3));
    let ends = ends::<F>(&session, direction);
    // Of a packet that no flow has.
    let stray = |reason, lists: &mut Lists| {
        let about = || Some(About::packet(now.nanoseconds, 0, &ends, meta.interface));
        records.tell_drop(about, reason, None, length, counters);
        lists.discard(slot, reason);
    };
    if meta.layers.fragment != Fragment::Whole {
        return stray(sluice_inspect::Reason::Fragment, lists);
    }
    let Some(handle) = flow::<F>(shard, index, &session, now) else {
        // No place: what the policy for want of memory says.
        let exception = Exception::NoMemory;
        return match inspection.settings.policies.of(exception) {
            sluice_inspect::stream::Policy::Pass | sluice_inspect::stream::Policy::Bypass => {
                counters.uninspected.add(1);
                go_on::<F>(slot, lists);
            }
            _ => stray(sluice_inspect::Reason::FlowsFull, lists),
        };
    };
    let Some(inspector) = shard.inspector.as_deref_mut() else {
        return go_on::<F>(slot, lists);
    };
    let facts = facts(meta, batch.packets[slot as usize].bytes());
    let meta = *meta;
    let layers = &meta.layers;
    let frame = batch.packets[slot as usize].bytes_mut();
    let end = usize::from(layers.end).min(frame.len());
    let begin = usize::from(layers.l4).min(end);
    let segment = &mut frame[begin..end];
    let payload = payload(layers, segment);
    let track = session.track();
    let mut told = |matched: sluice_inspect::inspector::Match| {
        work.alerts.tell(
            Alert {
                about: About {
                    service: matched.service,
                    ..About::packet(
                        now.nanoseconds,
                        flow_number(number, matched.flow),
                        &ends,
                        meta.interface,
                    )
                },
                rule: matched.rule,
                generation,
                action: matched.action,
                packets: track.packets,
                bytes: track.bytes,
            },
            counters,
        );
    };
    // What is said is the flow's, whose client comes first.
    let client = match direction {
        Direction::Forward => ends,
        Direction::Reverse => ends.turned(),
    };
    let mut said = |flow, transaction: &Transaction| {
        let about = About {
            service: Some(transaction.service),
            ..About::packet(now.nanoseconds, flow_number(number, flow), &client, session.interface())
        };
        records.tell(about, Said::Transaction(*transaction), counters);
    };
    let facts = Facts {
        payload: (segment.len() - payload) as u32,
        ..facts
    };
    let seen = Seen {
        ends,
        facts,
        direction,
        segment,
        payload,
    };
    let mut round = Round {
        settings: &inspection.settings,
        rates: &inspection.rates,
        tools: &mut work.tools,
        now: now.nanoseconds,
        report: &mut told,
        tell: &mut said,
    };
    let before = inspector.counters;
    let verdict = inspector.packet(handle, seen, &mut round);
    counters.inspected.add(inspector.counters.inspected - before.inspected);
    counters.searched.add(inspector.counters.searched - before.searched);
    counters.uninspected.add(inspector.counters.passed - before.passed);
    counters.records_lost.add(inspector.counters.untold - before.untold);
    let refused = |inspector: &mut Inspector<'_>, reason| {
        let story = inspector.story(handle);
        let rule = story.and_then(|story| story.ended_by);
        let about = || {
            let about = About::flow(now.nanoseconds, number, &story?, direction)?;
            let interface = meta.interface;
            Some(About { interface, ..about })
        };
        records.tell_drop(about, reason, rule, length, counters);
    };
    if let Verdict::Drop(reason) | Verdict::Reject(reason) = verdict {
        refused(inspector, reason);
    }
    match verdict {
        Verdict::Pass => go_on::<F>(slot, lists),
        Verdict::Leave => {
            counters.left.add(1);
            tell_end::<F>(inspector, (number, handle), &session, Ending::Bypass, &tools);
            leave::<F>(shard, index, handle, lists, work);
            return go_on::<F>(slot, lists);
        }
        Verdict::Hold(ahead) => {
            let ticket = work.holding.reserve(slot);
            let held = ticket.filter(|&ticket| {
                let held = inspector.held(handle, direction, ahead, ticket, now.nanoseconds);
                if !held {
                    work.holding.cancel(ticket);
                }
                held
            });
            match held {
                Some(ticket) => put(&mut work.parking, (slot, ticket)),
                None => {
                    let reason = sluice_inspect::Reason::GapFull;
                    refused(inspector, reason);
                    lists.discard(slot, reason);
                }
            }
            return;
        }
        Verdict::Drop(reason) => lists.discard(slot, reason),
        Verdict::Reject(reason) => match session.protocol() {
            protocol::TCP => lists.complain(slot, Complaint::Reset, reason),
            _ => lists.complain(slot, Complaint::Prohibited, reason),
        },
    }
    // What waited for this packet follows it.
    while let Some(ticket) = inspector.next_held(handle, direction) {
        back::<F>(ticket, lists, work);
    }
}

/// A ticket came back: its packet is looked at again.
fn back<F: Family>(ticket: u32, lists: &mut Lists, work: &mut Inspecting) {
    if let Released::InHand(slot) = work.holding.release(ticket) {
        work.parking.retain(|(held, _)| *held != slot);
        put(F::lookups(lists), slot);
    }
}

/// Nothing of a flow is inspected any more.
fn leave<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    handle: FlowHandle,
    lists: &mut Lists,
    work: &mut Inspecting,
) {
    if let Some(session) = F::table(shard).get_mut(index) {
        session.set_inspect(Inspect::Nothing);
    }
    if let Some(inspector) = shard.inspector.as_deref_mut() {
        inspector.close(handle, |ticket| back::<F>(ticket, lists, work));
    }
}

/// The flow of a session, opened where it is not.
fn flow<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, session: &F::Session, now: Now) -> Option<FlowHandle> {
    match session.inspect() {
        Inspect::Flow(handle) => Some(FlowHandle(handle)),
        Inspect::Nothing => None,
        Inspect::Wanted => {
            let inspector = shard.inspector.as_deref_mut()?;
            let handle = inspector.open(session.protocol() == protocol::TCP)?;
            let client = ends::<F>(session, Direction::Forward);
            inspector.introduce(handle, client, session.interface(), now.nanoseconds);
            F::table(shard).get_mut(index)?.set_inspect(Inspect::Flow(handle.0));
            Some(handle)
        }
    }
}

/// It goes on, and is not looked at again.
fn go_on<F: Family>(slot: Slot, lists: &mut Lists) {
    lists.passed |= 1 << (slot as usize % HAND);
    put(F::lookups(lists), slot);
}

/// The two ends of a session's packet, as the inside sees them.
fn ends<F: Family>(session: &F::Session, direction: Direction) -> Ends {
    let tuple = session.forward();
    let address = |address: F::Address| -> IpAddr { F::ip(address) };
    let [client, server] = [address(tuple.source()), address(tuple.destination())];
    let ports = [tuple.source_port(), tuple.destination_port()];
    let track = session.track();
    let established = match session.protocol() {
        protocol::TCP => !matches!(track.tracking.state(), TcpState::Closed | TcpState::Init),
        _ => track.packets.iter().all(|&packets| packets > 0),
    };
    let to_server = Ends {
        source: client,
        destination: server,
        ports,
        protocol: session.protocol(),
        toward: Toward::Server,
        established,
        service: None,
    };
    match direction {
        Direction::Forward => to_server,
        Direction::Reverse => to_server.turned(),
    }
}

/// What rules ask of headers.
pub fn facts(meta: &Meta, frame: &[u8]) -> Facts {
    let layers = &meta.layers;
    let (datagram, transport) = (layers.datagram(frame), layers.payload(frame));
    let ip = Ip {
        ttl: layers.ttl,
        protocol: layers.protocol,
        ..Ip::default()
    };
    let ip = match layers.class {
        Class::Ipv4 => Ipv4::new(datagram).map_or(ip, |header| Ip {
            type_of_service: header.service(),
            identification: Some(header.identification()),
            fragment_bits: (header.fragment() >> 13) as u8,
            fragment_offset: header.fragment() & ipv4::FRAGMENT_OFFSET,
            same_address: header.source() == header.destination(),
            ..ip
        }),
        _ => Ip {
            type_of_service: datagram
                .first_chunk()
                .map_or(0, |&[first, second]| first << 4 | second >> 4),
            same_address: datagram
                .get(8..24)
                .is_some_and(|source| datagram.get(24..40) == Some(source)),
            ..ip
        },
    };
    let tcp = Tcp::new(transport)
        .filter(|_| layers.protocol == protocol::TCP)
        .map(|header| evaluate::Tcp {
            flags: header.flags(),
            sequence: header.sequence(),
            acknowledgement: header.acknowledgment(),
            window: header.window(),
        });
    let icmp = matches!(layers.protocol, protocol::ICMP | protocol::ICMPV6);
    let icmp = icmp.then(|| transport.first_chunk::<8>()).flatten().map(|head| {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        Icmp {
            kind: head[0],
            code: head[1],
            identifier: word(4),
            sequence: word(6),
        }
    });
    Facts {
        ip,
        tcp,
        icmp,
        ..Facts::default()
    }
}

/// Where the payload begins in a segment or datagram of the fourth layer.
pub fn payload(layers: &Layers, segment: &[u8]) -> usize {
    let length = match layers.protocol {
        protocol::TCP => usize::from(segment.get(12).copied().unwrap_or(0) >> 4) * 4,
        protocol::UDP => 8,
        protocol::ICMP | protocol::ICMPV6 => 8,
        _ => 0,
    };
    length.min(segment.len())
}
