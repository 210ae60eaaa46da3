//! Hairpinning of new flows: packets from inside to a translated outside address (RFC 4787, REQ-9).

use sluice_nat::Tuple;
use sluice_nat::rule::SourceAction;
use sluice_nat::sites::{is_site, outer};
use sluice_route::RouterIndex;

use super::route::egress;
use super::{FlowDecision, FlowTranslation};
use crate::features::context::NodeContext;
use crate::features::sites;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::reason::EngineReason;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;

/// Decides about a packet from inside to a translated outside address (RFC 4787, REQ-9): the source is translated as
/// for an outgoing packet, and then the packet is processed like a packet received from outside.
#[cold]
pub(super) fn hairpin<F: Family>(
    ctx: &NodeContext<'_, '_>,
    router: RouterIndex,
    key: &F::Key,
    destination: ForwardingDecision,
) -> FlowDecision<F> {
    let (nat, tuple) = (ctx.snapshot.nat::<F>(), &F::tuple(key));
    let interfaces = (0u16..).zip(&ctx.snapshot.interfaces);
    let outside = interfaces
        .filter(|(_, interface)| interface.outside)
        .map(|(number, _)| number);
    let sourcing = egress(destination)
        .into_iter()
        .chain(outside)
        .find_map(|interface| nat.rules.match_source(tuple, F::protocol(key), interface));
    let (mut pool, mut outside) = (None, None);
    let of_site = is_site(tuple.context());
    let action = match of_site {
        true => sites::source::<F>(ctx.snapshot, tuple.context()),
        false => sourcing.map(|decided| decided.action),
    };
    match action {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        _ if of_site => return FlowDecision::Drop(EngineReason::SiteAddressMissing.into()),
        Some(SourceAction::Exempt) | None => return FlowDecision::Hairpin,
    }
    let session = |back| {
        FlowDecision::Session(FlowTranslation {
            target: None,
            pool,
            outside,
            mapped: None,
            hops: [AdjacencyIndex::HAIRPIN, back],
            answers: of_site.then(|| outer(tuple.context())),
        })
    };
    if of_site {
        let back = sites::hop::<F>(ctx.snapshot, tuple.context(), tuple.source());
        return back.map_or(FlowDecision::Drop(EngineReason::TerminalUnknown.into()), session);
    }
    let answers = ctx.snapshot.lookup::<F>(router, tuple.destination());
    match ctx
        .forwarding
        .find::<F>(answers, tuple.source(), || F::hash_one(ctx.hasher, key))
    {
        ForwardingDecision::Hop(back) => session(back),
        ForwardingDecision::Unknown(wanted) => FlowDecision::Wait(wanted),
        ForwardingDecision::Local => FlowDecision::Drop(EngineReason::Loop.into()),
        ForwardingDecision::Refused(reason) => FlowDecision::Drop(reason.into()),
    }
}
