//! Subscribers' sites as flows and sessions meet them: whose addresses are whose, where terminals are, whose session it is.

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
use crate::packet::reason::Own;
use crate::session::family::{Family, Session};
use crate::snapshot::Snapshot;

/// Whether a packet that the gateway answers came from a terminal of a site.
#[inline(always)]
pub fn came_from(snapshot: &Snapshot, meta: &Meta) -> bool {
    meta.origin == Origin::Received && snapshot.is_access(meta.interface)
}

/// An IPv4 address as the table of sites has it.
#[inline(always)]
fn to_v4<F: Family>(address: F::Address) -> u32 {
    F::words(address)[1] as u32
}

/// Whether an address is a site's own, in a virtual router.
#[inline(always)]
pub fn is_own<F: Family>(snapshot: &Snapshot, router: Context, address: F::Address) -> bool {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6);
    sites.is_some_and(|sites| {
        let address = to_v4::<F>(address);
        sites.is_own(router, address) && sites.table.owner(router as RouterIndex, address).is_some()
    })
}

/// The hop to a terminal of a site; none where nobody there has the address.
#[inline]
pub fn hop<F: Family>(snapshot: &Snapshot, context: Context, address: F::Address) -> Option<AdjacencyIndex> {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6)?;
    let address = to_v4::<F>(address);
    let terminal = sites.table.find(context, address)?;
    let view = sites.table.view(terminal, context, address)?;
    Some(AdjacencyIndex::terminal(view.interface, terminal))
}

/// What sources of a site are translated to; none where its address is not there.
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

/// Why a packet is dropped that came in by an interface of sites and is of none of these.
#[inline(always)]
pub fn unknown_site<F: Family>(snapshot: &Snapshot, meta: &Meta, key: &F::Key) -> Option<Own> {
    let is_nobodys = came_from(snapshot, meta) && !is_site(F::tuple(key).context());
    is_nobodys.then_some(match meta.layers.tags {
        0 => Own::SiteUnknown,
        _ => Own::UnknownVlan,
    })
}

/// A session's plan, but where a terminal opens it from another's address.
#[inline(always)]
pub fn unless_forged<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let tuple = F::tuple(key);
    if !is_site(tuple.context()) || meta.origin != Origin::Received {
        return plan;
    }
    let mac = frame.get(6..12);
    match view::<F>(snapshot, &plan, tuple) {
        Some(view) if mac.and_then(|mac| mac.try_into().ok()).map(word_of) != Some(view.mac) => {
            FlowDecision::Drop(Own::TerminalForged.into())
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

/// Whose terminal's a session is.
#[derive(Clone, Copy, Debug)]
enum SiteOwner {
    /// No site's.
    Nobodys,
    /// A site's: the terminal as it is now, and whether the packet comes from it. No terminal where its lease has gone, or the site
    /// has another public address than the session was given.
    Sites(Option<View>, bool),
}

/// Whose terminal's a session is, by the key of a packet of a direction.
#[inline(always)]
fn site_owner<F: Family>(table: &Sites, session: &F::Session, direction: Direction, key: &F::Tuple) -> SiteOwner {
    let other = match direction {
        Direction::Forward => session.reverse(),
        Direction::Reverse => session.forward(),
    };
    // Packets to the terminal go the way of what comes from outside.
    let (upstream, own, answer, hop) = if is_site(key.context()) {
        (true, key, other, session.adjacency(direction.opposite()))
    } else if is_site(other.context()) {
        (false, other, key, session.adjacency(direction))
    } else {
        return SiteOwner::Nobodys;
    };
    let view = hop
        .terminal_bits()
        .and_then(|terminal| table.view(terminal, own.context(), to_v4::<F>(own.source())))
        .filter(|view| is_pooled(own.context()) || view.public == to_v4::<F>(answer.destination()));
    SiteOwner::Sites(view, upstream)
}

/// Why a packet of a site's session goes nowhere.
#[derive(Clone, Copy, Debug)]
pub enum TerminalFault {
    /// The lease of its terminal has gone, or its site has another public address; whether the packet comes from the terminal.
    LeaseLost(bool),
    /// It came for somebody else's MAC.
    NotOurMac,
}

/// The terminal of a packet's session as it is now, and whether the packet comes from it; none where the session is no site's.
#[inline(always)]
pub fn terminal<F: Family>(
    session: &F::Session,
    direction: Direction,
    key: &F::Key,
    meta: &Meta,
    frame: &[u8],
    exit: &OutputContext<'_>,
) -> Result<Option<(View, bool)>, TerminalFault> {
    let Some(sites) = exit.snapshot.sites.as_deref() else {
        return Ok(None);
    };
    match site_owner::<F>(&sites.table, session, direction, F::tuple(key)) {
        SiteOwner::Nobodys => Ok(None),
        SiteOwner::Sites(None, upstream) => Err(TerminalFault::LeaseLost(upstream)),
        SiteOwner::Sites(Some(view), false) if !is_for(&view, frame, meta, exit) => Err(TerminalFault::NotOurMac),
        SiteOwner::Sites(Some(view), upstream) => Ok(Some((view, upstream))),
    }
}

/// What becomes of a packet of a site's session that goes nowhere.
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
        TerminalFault::NotOurMac => lists.drop_packet(slot, Own::NotOurMac),
    }
}

/// A session's lease has gone: the private one of its terminal, or the public one of its site. It ends; what comes from the
/// terminal may open another, what comes for it is dropped.
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
        false => lists.drop_packet(slot, Own::SiteAddressLost),
    }
}

/// Whether a frame that came for a site's session is for the site: by its virtual MAC, or for the interface.
#[inline(always)]
fn is_for(view: &View, frame: &[u8], meta: &Meta, exit: &OutputContext<'_>) -> bool {
    let destination = frame.first_chunk::<6>();
    let word = frame.first_chunk().map(|head| u64::from_le_bytes(*head));
    match word {
        Some(word) if (word ^ view.virtual_mac) << 16 == 0 => true,
        // Who knows the address by an earlier answer of ARP, and packets that turn back at it.
        _ => {
            let own = exit.snapshot.interface(meta.interface).map(|interface| &interface.mac);
            destination == own || meta.origin != Origin::Received
        }
    }
}
