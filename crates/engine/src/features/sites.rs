//! Subscribers' sites in the data plane: ownership of addresses, location of terminals, and assignment of sessions to sites.

use sluice_nat::Tuple;
use sluice_nat::rule::SourceAction;
use sluice_nat::sites::{Sites, View, is_pooled, is_site, site, word_of};
use sluice_route::RouterIndex;
use sluice_table::flow::RecordIndex;
use sluice_wire::{Context, Direction};

use crate::features::context::{NodeContext, OutputContext};
use crate::features::creation::FlowDecision;
use crate::features::session_end::end;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, Origin, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session};
use crate::snapshot::Snapshot;

/// Whether the packet that the gateway answers came from a terminal of a site.
#[inline(always)]
pub fn is_from_terminal(snapshot: &Snapshot, meta: &Meta) -> bool {
    meta.origin == Origin::Received && snapshot.is_access(meta.interface)
}

/// The IPv4 address in the form that the site table uses.
#[inline(always)]
fn to_v4<F: Family>(address: F::Address) -> u32 {
    F::words(address)[1] as u32
}

/// Whether an address is a public address of a site in a virtual router.
#[inline(always)]
pub fn is_own<F: Family>(snapshot: &Snapshot, router: Context, address: F::Address) -> bool {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6);
    sites.is_some_and(|sites| {
        let address = to_v4::<F>(address);
        sites.is_own(router, address) && sites.table.owner(router as RouterIndex, address).is_some()
    })
}

/// The adjacency of a site's terminal; `None` if no terminal of the site has the address.
#[inline]
pub fn hop<F: Family>(snapshot: &Snapshot, context: Context, address: F::Address) -> Option<AdjacencyIndex> {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6)?;
    let address = to_v4::<F>(address);
    let terminal = sites.table.find(context, address)?;
    let view = sites.table.view(terminal, context, address)?;
    Some(AdjacencyIndex::terminal(view.interface, terminal))
}

/// The source translation of a site; `None` if the site has no public address.
#[inline]
pub fn source<F: Family>(snapshot: &Snapshot, context: Context) -> Option<SourceAction<F::Address>> {
    let table = &snapshot.sites.as_deref().filter(|_| !F::IS_V6)?.table;
    match is_pooled(context) {
        true => table.pool(site(context)).map(SourceAction::Pool),
        false => table
            .public(site(context))
            .map(|address| SourceAction::Static(sluice_nat::Address::from_number(address.into()))),
    }
}

/// The drop reason of a packet that arrived on an access interface but belongs to no site.
#[inline(always)]
pub fn unknown_site<F: Family>(snapshot: &Snapshot, meta: &Meta, key: &F::Key) -> Option<EngineReason> {
    let has_no_site = is_from_terminal(snapshot, meta) && !is_site(F::tuple(key).context());
    has_no_site.then_some(match meta.layers.tags {
        0 => EngineReason::SiteUnknown,
        _ => EngineReason::UnknownVlan,
    })
}

/// Returns the decision for a session, or a drop if its terminal uses the address of another terminal.
#[inline(always)]
pub fn reject_forged<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let tuple = &F::tuple(key);
    if !is_site(tuple.context()) || meta.origin != Origin::Received {
        return plan;
    }
    let mac = frame.get(6..12);
    match view::<F>(snapshot, &plan, tuple) {
        Some(view) if mac.and_then(|mac| mac.try_into().ok()).map(word_of) != Some(view.mac) => {
            FlowDecision::Drop(EngineReason::TerminalForged.into())
        }
        _ => plan,
    }
}

fn view<F: Family>(snapshot: &Snapshot, plan: &FlowDecision<F>, tuple: &F::Tuple) -> Option<View> {
    let FlowDecision::Session(translation) = plan else {
        return None;
    };
    let terminal = translation.hops[1].as_terminal()?;
    let table = &snapshot.sites.as_deref()?.table;
    table.view(terminal, tuple.context(), to_v4::<F>(tuple.source()))
}

/// The site to which a session belongs.
#[derive(Clone, Copy, Debug)]
enum SiteOwner {
    /// The session belongs to no site.
    NoSite,
    /// The current state of the terminal, and whether the terminal sent the packet. The state is `None` if the
    /// terminal's lease has ended, or if the public address of the site has changed since the session was created.
    Sites(Option<View>, bool),
}

/// The site to which a session belongs. `key` is the key of a packet in direction `direction`.
#[inline(always)]
fn site_owner<F: Family>(table: &Sites, session: &F::Session, direction: Direction, key: &F::Tuple) -> SiteOwner {
    let other = match direction {
        Direction::Forward => &session.reverse(),
        Direction::Reverse => &session.forward(),
    };
    // If the key is not in a site's context, the packet goes to the terminal.
    let (upstream, own, answer, hop) = if is_site(key.context()) {
        (true, key, other, session.adjacency(direction.opposite()))
    } else if is_site(other.context()) {
        (false, other, key, session.adjacency(direction))
    } else {
        return SiteOwner::NoSite;
    };
    let view = hop
        .terminal_bits()
        .and_then(|terminal| table.view(terminal, own.context(), to_v4::<F>(own.source())))
        .filter(|view| is_pooled(own.context()) || view.public == to_v4::<F>(answer.destination()));
    SiteOwner::Sites(view, upstream)
}

/// Why a packet of a site's session can't be forwarded.
#[derive(Clone, Copy, Debug)]
pub enum TerminalFault {
    /// The lease of the terminal has ended, or the public address of the site has changed. The flag is true if the terminal sent
    /// the packet.
    LeaseLost(bool),
    /// The destination MAC of the frame belongs to another host.
    NotOurMac,
}

/// The current state of the terminal to which a packet's session belongs, and whether the terminal sent the packet. `None` if
/// the session belongs to no site. `frame` may be only the head of the frame.
#[inline(always)]
pub fn terminal<F: Family>(
    session: &F::Session,
    direction: Direction,
    key: &F::Key,
    arrival: (u16, Origin),
    frame: &[u8],
    exit: &OutputContext<'_>,
) -> Result<Option<(View, bool)>, TerminalFault> {
    let Some(sites) = exit.snapshot.sites.as_deref() else {
        return Ok(None);
    };
    match site_owner::<F>(&sites.table, session, direction, &F::tuple(key)) {
        SiteOwner::NoSite => Ok(None),
        SiteOwner::Sites(None, upstream) => Err(TerminalFault::LeaseLost(upstream)),
        SiteOwner::Sites(Some(view), false) if !is_for(&view, frame, arrival, exit) => Err(TerminalFault::NotOurMac),
        SiteOwner::Sites(Some(view), upstream) => Ok(Some((view, upstream))),
    }
}

/// Handles a packet of a site's session that can't be forwarded.
#[cold]
pub fn refuse<F: Family>(
    fault: TerminalFault,
    slot: BufferIndex,
    index: RecordIndex,
    meta: &Meta,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    match fault {
        TerminalFault::LeaseLost(upstream) => lease_lost::<F>(slot, index, upstream, lists, meta, ctx),
        TerminalFault::NotOurMac => lists.drop_packet(slot, EngineReason::NotOurMac),
    }
}

/// Ends a session because the lease of its terminal or the public address of its site is lost. A packet from the terminal may
/// then create a new session; a packet to the terminal is dropped.
#[cold]
fn lease_lost<F: Family>(
    slot: BufferIndex,
    index: RecordIndex,
    upstream: bool,
    lists: &mut Lists,
    meta: &Meta,
    ctx: &mut NodeContext<'_, '_>,
) {
    let tools = ctx.tools();
    if let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) {
        end::<F>(shard, index, &tools);
        ctx.counters.sessions_lost_lease.add(1);
    }
    match upstream {
        true => put(lists.session_lookup.of::<F>(), slot),
        false => lists.drop_packet(slot, EngineReason::SiteAddressLost),
    }
}

/// Whether a frame of a site's session is addressed to the virtual MAC of the site, or to the MAC of the interface.
#[inline(always)]
fn is_for(view: &View, frame: &[u8], (interface, origin): (u16, Origin), exit: &OutputContext<'_>) -> bool {
    let destination = frame.first_chunk::<6>();
    let word = frame.first_chunk().map(|head| u64::from_le_bytes(*head));
    match word {
        Some(word) if (word ^ view.virtual_mac) << 16 == 0 => true,
        // Senders that have resolved the site's address earlier may still use the MAC of the interface. Hairpinned
        // packets keep the destination MAC of the received frame.
        _ => {
            let own = exit.snapshot.interface(interface).map(|interface| &interface.mac);
            destination == own || origin != Origin::Received
        }
    }
}
