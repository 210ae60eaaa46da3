//! Selection of a different port for a session, if an existing session has the same reverse key.

use sluice_nat::bindings::PortRequest;
use sluice_nat::decision::NewSource;
use sluice_nat::sites::is_site;
use sluice_nat::{Address, PortClass, Tuple, decision};
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::Direction;

use super::insert::{CLASH, insert};
use super::{FlowTranslation, Refusal};
use crate::packet::batch::Meta;
use crate::packet::icmp_error::IcmpError;
use crate::packet::reason::Reason;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;
use crate::snapshot::StartParameters;

/// Maximum number of ports that are tried for a session.
const PORT_ATTEMPTS: u64 = 1024;

/// Inserts a session with the next usable outside port, because another session has the same reverse key.
#[cold]
pub(super) fn insert_with_other_outside_port<F: Family>(
    shard: &mut Shard<'_>,
    mut session: F::Session,
    translation: &FlowTranslation<F>,
    request: &PortRequest<F::Address>,
    hash: u64,
    hasher: &sluice_table::hash::Hasher,
    due: u64,
) -> Result<RecordIndex, Refusal> {
    let (forward, protocol) = (session.forward(), session.protocol());
    let exhausted = (
        Some(IcmpError::NoResources),
        Reason::from(sluice_nat::Reason::PortsExhausted),
    );
    for attempt in 1..sluice_nat::bindings::TRIES {
        let Some(pool) = translation.pool else { break };
        let Some(lease) = F::bindings(shard).another(request, &forward, attempt) else {
            continue;
        };
        let made = decision::translate(
            &forward,
            protocol,
            translation.answers(forward.context()),
            translation.target,
            NewSource::Allocated(pool, lease),
        );
        let decision = made.decision.with_resources(pool, session.nat().resources());
        session.translate_as(made.reverse, decision);
        let reverse = F::hash_one(hasher, &session.key(Direction::Reverse));
        match insert::<F>(shard, session, (hash, reverse), due) {
            Err((_, CLASH)) => {}
            other => return other,
        }
    }
    Err(exhausted)
}

/// Whether RSS, if the NIC hashes addresses and ports, delivers the reverse packets to the shard to which a packet
/// belongs.
pub(super) fn fits<F: Family>(start: &StartParameters, meta: &Meta, answer: &F::Tuple) -> bool {
    let class = PortClass::of_layers(&meta.layers);
    start.steering.fits::<F>(meta.shard, answer, class) != Some(false)
}

/// Inserts a session with a different source port, because another session has the same reverse key. The conflict
/// occurs if two terminals of a site use the same port with the same remote endpoint, or if a client reaches one inside
/// host by two outside addresses or ports. Without such a conflict, the session of a site keeps its source port.
#[cold]
pub(super) fn insert_with_other_source_port<F: Family>(
    shard: &mut Shard<'_>,
    mut session: F::Session,
    translation: &FlowTranslation<F>,
    fits: impl Fn(&F::Tuple) -> bool,
    (hash, hasher, due): (u64, &sluice_table::hash::Hasher, u64),
) -> Result<RecordIndex, Refusal> {
    let (forward, protocol, old) = (session.forward(), session.protocol(), session.nat());
    // An untranslated session must keep its addresses and ports. An earlier packet of the batch may already have
    // created this session.
    let is_open = F::table_ref(shard)
        .find(hash, &session.key(Direction::Forward))
        .is_some();
    if is_open || translation.outside.is_none() && translation.target.is_none() {
        return Err((None, CLASH));
    }
    if PortClass::of(protocol, <F::Address as Address>::BITS).is_none() {
        return Err((Some(IcmpError::NoResources), sluice_nat::Reason::AddressTaken.into()));
    }
    let is_site = is_site(forward.context());
    // The hash of the flow is keyed, so that an observer of one port can't predict the next port.
    let mut random = hash | 1;
    for _ in 0..PORT_ATTEMPTS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let port = 1024 + (random >> 32) as u16 % (u16::MAX - 1023);
        let source = match translation.outside {
            Some(address) => NewSource::At(sluice_nat::Lease { address, port }),
            None => NewSource::Port(port),
        };
        let made = decision::translate(
            &forward,
            protocol,
            translation.answers(forward.context()),
            translation.target,
            source,
        );
        if !is_site && !fits(&made.reverse) {
            continue;
        }
        let decision = match old.pool() {
            Some(pool) => made.decision.with_resources(pool, old.resources()),
            None => made.decision,
        };
        session.translate_as(made.reverse, decision);
        let reverse = F::hash_one(hasher, &session.key(Direction::Reverse));
        match insert::<F>(shard, session, (hash, reverse), due) {
            Err((_, CLASH)) => {}
            other => return other,
        }
    }
    Err((Some(IcmpError::NoResources), sluice_nat::Reason::PortsExhausted.into()))
}
