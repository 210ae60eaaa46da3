//! Parks fragments until their datagram is complete, and then inspects the whole datagram.

use sluice_inspect::inspector::Verdict;
use sluice_inspect::stream::Exception;
use sluice_inspect::{Limit, Reason};
use sluice_wire::Fault;
use sluice_wire::validity::{self, Validity};

use crate::features::inspection::classification::facts;
use crate::features::inspection::reassembly::{FragmentOutcome, FragmentSpan};
use crate::features::inspection::{FragmentNote, Inspector};
use crate::nodes::virtual_reassembly::datagram_key;
use crate::packet::batch::{Meta, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::session::family::Family;

use super::payload::InspectContext;
use super::verdict::{finish, log_drop};
use super::{Packet, forward};

/// Parks a fragment until its datagram is complete. The complete datagram is then inspected.
#[cold]
pub(super) fn fragment<F: Family>(
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
    let note = fragment_note(&meta);
    while let Some(oldest) = work.assemblies.victim(&key, &piece) {
        look.counters.inspection.limits.add(Limit::FragmentsEvicted as usize, 1);
        for ticket in work.assemblies.take_tickets(oldest) {
            drop_reassembly(ticket, Reason::FragmentsFull, lists, work);
        }
        work.assemblies.clear(oldest);
    }
    match work.assemblies.place(&key, meta.shard, piece, look.now) {
        FragmentOutcome::Refused(reason, invalid) => {
            let tickets = invalid.map(|place| work.assemblies.take_tickets(place));
            for ticket in tickets.into_iter().flatten() {
                log_drop(look.packet, look.shard, reason, look.ends);
                drop_reassembly(ticket, reason, lists, work);
            }
            look.refuse(reason, lists);
        }
        FragmentOutcome::Incomplete(place) => {
            let ticket = work.parked_packets.reserve(slot, note);
            work.assemblies.keep(place, ticket);
            match ticket {
                Some(ticket) => put(&mut work.parking, (slot, ticket)),
                None => look.refuse(Reason::FragmentsFull, lists),
            }
        }
        FragmentOutcome::Whole(place) => whole(look, place, frame, lists, work),
    }
}

/// Inspects a datagram after all its fragments have arrived. The last fragment is in the current burst.
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
        Ok(Validity::PartialChecksum) | Err(Fault::BadTransportChecksum) => look.exception(Exception::BadChecksum),
        Err(_) => look.exception(Exception::Malformed),
    };
    // The normalised payload can't be written back, because the datagram is in several buffers, and most buffers are parked.
    if !matches!(verdict, Verdict::Drop(_) | Verdict::Reject(_)) && payload != copy {
        verdict = Verdict::Drop(Reason::FragmentRewritten);
    }
    let others = work.assemblies.take_tickets(place);
    work.assemblies.clear(place);
    finish(packet, verdict, &others, look.shard, None, lists, look.ends, work);
}

/// Forwards a packet after the other fragments of its datagram. If a fragment is parked, all fragments leave in a later burst.
pub(super) fn forward_fragment<F: Family>(
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

/// Drops a fragment that waits for its datagram. A fragment in the current burst is dropped immediately, a parked one in a later burst.
pub(super) fn drop_reassembly(ticket: u32, reason: Reason, lists: &mut Lists, work: &mut Inspector) {
    if let Some(slot) = work.parked_packets.take_from_burst(ticket) {
        work.parking.retain(|(held, _)| *held != slot);
        lists.drop_packet(slot, reason);
    } else if work.expired.len() < work.expired.capacity() {
        work.expired.push((ticket, reason));
    }
}

/// The results of virtual reassembly for a fragment.
fn fragment_note(meta: &Meta) -> FragmentNote {
    FragmentNote {
        ports: (meta.layers.source_port, meta.layers.destination_port),
        identification: meta.identification,
    }
}
