//! The second step of session creation: looks up the routes of new flows and matches source rules.

use arrayvec::ArrayVec;
use sluice_nat::rule::{self, SourceAction};
use sluice_nat::sites::{is_site, outer};
use sluice_nat::{PoolIndex, Target, Tuple};
use sluice_route::{Lookup, SourceValidation};
use sluice_wire::Context;
use sluice_wire::ipv4::protocol::{TCP, is_icmp};
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use super::destination::translate_destination;
use super::hairpin::hairpin;
use super::{DestinationMatch, FlowDecision, FlowTranslation, NewFlows, RoutedFlow, SourceMatch, is_first_segment};
use crate::features::context::NodeContext;
use crate::features::sites;
use crate::features::source_validation::is_outside_address;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::EngineReason;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::Family;
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingDecision;

impl<F: Family> NewFlows<F> {
    /// Looks up the route of each flow, then matches source rules for all flows together.
    pub fn route(&mut self, batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>) {
        let mut leaving = ArrayVec::<_, BURST_BUFFERS>::new();
        let flows = self.flows.iter_mut().zip(&self.keys).skip(self.classified);
        for (flow, key) in flows {
            let meta = batch.meta(flow.slot);
            let routed = match sites::unknown_site::<F>(ctx.snapshot, meta, key) {
                Some(reason) => Err(FlowDecision::Drop(reason.into())),
                None => route_flow::<F>(ctx, meta, key, flow.destination, None),
            };
            match routed {
                Ok(route) => {
                    if !route.settled {
                        put(&mut leaving, (F::tuple(key), F::protocol(key), route.outgoing()));
                    }
                    flow.route = Some(route);
                }
                Err(decision) => flow.decision = decision,
            }
        }
        let mut matches = [None; BURST_BUFFERS];
        ctx.snapshot.nat::<F>().rules.match_sources(&leaving, &mut matches);
        let mut matches = matches.iter();
        let flows = self.flows.iter_mut().zip(&self.keys).skip(self.classified);
        for (flow, key) in flows {
            let Some(route) = &flow.route else { continue };
            let source = match route.settled {
                true => None,
                false => matches.next().copied().flatten(),
            };
            flow.source_rule = source.map(|decided| decided.rule);
            flow.decision = complete::<F>(ctx, batch.meta(flow.slot), key, route, source);
        }
    }
}

/// The adjacency of a terminal of a site.
#[inline(always)]
fn terminal<F: Family>(
    ctx: &NodeContext<'_, '_>,
    context: Context,
    address: F::Address,
) -> Result<ForwardingDecision, FlowDecision<F>> {
    // Terminals of a site need no neighbour resolution, because their DHCP leases contain their MACs.
    match sites::hop::<F>(ctx.snapshot, context, address) {
        Some(hop) => Ok(ForwardingDecision::Hop(hop)),
        None => Err(FlowDecision::Drop(EngineReason::SiteAddressLost.into())),
    }
}

/// Whether a packet to an interface's address is for the gateway or its host.
#[inline(always)]
fn is_for_gateway(ctx: &NodeContext<'_, '_>, interface: u16, layers: &Layers, destination_port: u16) -> bool {
    // The address may belong both to an interface and to a pool. The gateway itself answers ICMP queries to this
    // address. Other packets go to the host of the interface if they match no mapping.
    let is_request = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
    let answers = layers.flags.has(Flags::ICMP_REPLY) && ctx.snapshot.probes.expects(destination_port);
    is_request || answers || ctx.snapshot.host(interface).is_some()
}

/// Validates the source of a flow. `is_transit` is true if the packet is not for the gateway itself.
#[inline(always)]
fn validate_source<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    tuple: &F::Tuple,
    (outside, is_transit): (bool, bool),
) -> Result<(), FlowDecision<F>> {
    let is_hairpin = meta.origin == Origin::Hairpinned;
    // Only a hairpinned packet can have an outside address of NAT as its source.
    if outside && !is_hairpin && is_outside_address::<F>(ctx.snapshot, outer(tuple.context()), tuple.source()) {
        return Err(FlowDecision::Drop(sluice_nat::Reason::ForgedSource.into()));
    }
    // The source of a site's terminal is validated by its lease, not by routes.
    if !is_transit || is_hairpin || is_site(tuple.context()) {
        return Ok(());
    }
    let came = ctx.snapshot.interface(meta.interface);
    let validation = came.map_or(SourceValidation::Strict, |i| i.validation);
    let router = ctx.snapshot.router_of(meta.interface);
    let validated = ctx
        .forwarding
        .validate_source::<F>(validation, router, meta.interface, tuple.source());
    validated.map_err(|reason| FlowDecision::Drop(reason.into()))
}

/// Looks up the route of a flow after its destination rules were matched.
pub(super) fn route_flow<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    redirection: DestinationMatch<F>,
    host: Option<F::Address>,
) -> Result<RoutedFlow<F>, FlowDecision<F>> {
    let (tuple, interface, layers) = (&F::tuple(key), meta.interface, &meta.layers);
    // Link-local packets are never routed (RFC 4291, 2.5.6). The node `forward` handles the gateway's own link-local addresses.
    let of_link = |address| F::IS_V6 && F::address(address).is_link_local();
    if of_link(tuple.source()) || of_link(tuple.destination()) {
        return Err(FlowDecision::Plain);
    }
    let came = ctx.snapshot.interface(interface);
    let router = ctx.snapshot.router_of(interface);
    let lookup = ctx.snapshot.lookup::<F>(router, tuple.source());
    let flow = || F::hash_one(ctx.hasher, key);
    let is_hairpin = meta.origin == Origin::Hairpinned;
    let outside = is_hairpin || came.is_some_and(|i| i.outside);
    let context = outer(tuple.context());
    let to = translate_destination::<F>(ctx, meta, key, (redirection, host), outside)?;
    let (target, mapped, inside) = (to.target, to.mapped, to.inside);
    let is_own = || sites::is_own::<F>(ctx.snapshot, context, tuple.destination());
    let public = target.is_some() || to.pooled || !to.exempt && is_own();
    // A packet whose destination a rule translates to another host outside is sent there without hairpinning.
    let leads_out = |target: &Target<F::Address>| {
        let interface = egress(ctx.forwarding.find::<F>(lookup, target.address, flow));
        let interface = interface.and_then(|number| ctx.snapshot.interface(number));
        interface.is_some_and(|interface| interface.outside)
    };
    // If the matching rule is bound to the packet's ingress interface, the packet is translated without hairpinning.
    let is_direct = redirection.is_some_and(|decided| decided.inbound);
    let must_hairpin = public && !outside && !is_direct && !target.as_ref().is_some_and(leads_out);
    let address = match target {
        Some(target) if !must_hairpin => target.address,
        _ => tuple.destination(),
    };
    if F::is_group(address) {
        return Err(FlowDecision::Drop(EngineReason::Multicast.into()));
    }
    let destination = match inside.filter(|_| !must_hairpin) {
        None => ctx.forwarding.find::<F>(lookup, address, flow),
        Some(context) => terminal::<F>(ctx, context, address)?,
    };
    if target.is_none() && public {
        let is_local = matches!(destination, ForwardingDecision::Local);
        if is_local && is_for_gateway(ctx, interface, layers, tuple.destination_port()) {
            return Err(FlowDecision::Gateway);
        }
        if outside {
            return Err(FlowDecision::Drop(sluice_nat::Reason::Unsolicited.into()));
        }
    }
    let is_transit = destination != ForwardingDecision::Local || must_hairpin || target.is_some();
    validate_source::<F>(ctx, meta, tuple, (outside, is_transit))?;
    if must_hairpin {
        return Err(hairpin::<F>(ctx, router, key, destination));
    }
    let there = match destination {
        ForwardingDecision::Hop(_) | ForwardingDecision::Unknown(_) => destination,
        // A rule translates the packet to the router's host.
        ForwardingDecision::Local if target.is_some() && mapped.is_none() && ctx.snapshot.host(interface).is_some() => {
            destination
        }
        ForwardingDecision::Local => return Err(FlowDecision::Gateway),
        ForwardingDecision::Refused(reason) => return Err(refused(reason)),
    };
    Ok(RoutedFlow {
        target,
        mapped,
        there,
        // The target of a mapping is an inside host. The source of a hairpinned packet is already translated.
        settled: there == ForwardingDecision::Local
            || to.exempt
            || mapped.is_some()
            || is_hairpin && target.is_some()
            || is_site(tuple.context()),
        inside,
    })
}

/// The decision for a packet that the routing table rejects.
pub fn refused<F: Family>(reason: sluice_route::Reason) -> FlowDecision<F> {
    match IcmpError::of(reason) {
        Some(icmp_error) => FlowDecision::SendIcmpError(icmp_error, reason.into()),
        None => FlowDecision::Drop(reason.into()),
    }
}

/// The pool, or the outside address, to which the source of a flow is translated.
#[inline(always)]
fn translate_source<F: Family>(
    ctx: &NodeContext<'_, '_>,
    context: Context,
    sourcing: SourceMatch<F>,
) -> Result<(Option<PoolIndex>, Option<F::Address>), EngineReason> {
    let (mut pool, mut outside) = (None, None);
    match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        Some(SourceAction::Exempt) | None if is_site(context) => match sites::source::<F>(ctx.snapshot, context) {
            Some(SourceAction::Pool(index)) => pool = Some(index),
            Some(SourceAction::Static(address)) => outside = Some(address),
            _ => return Err(EngineReason::SiteAddressMissing),
        },
        Some(SourceAction::Exempt) | None => {}
    }
    Ok((pool, outside))
}

/// The decision for a flow, after its route was looked up and its source rules were matched.
pub(super) fn complete<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    routed: &RoutedFlow<F>,
    sourcing: SourceMatch<F>,
) -> FlowDecision<F> {
    let tuple = &F::tuple(key);
    let (pool, outside) = match translate_source::<F>(ctx, tuple.context(), sourcing) {
        Ok(translation) => translation,
        Err(reason) => return FlowDecision::Drop(reason.into()),
    };
    let there = match routed.there {
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return FlowDecision::Wait(wanted),
        ForwardingDecision::Local if routed.target.is_some() => AdjacencyIndex::LOCAL,
        ForwardingDecision::Local | ForwardingDecision::Refused(_) => return FlowDecision::Gateway,
    };
    // An ICMP error that quotes a packet of an unknown flow does not create a session.
    let kept = (ctx.snapshot.filters_sessions(tuple.context())
        || is_examined(ctx.snapshot, meta, F::protocol(key), there))
        && !meta.layers.flags.has(Flags::ICMP_ERROR);
    if routed.target.is_none() && pool.is_none() && outside.is_none() && !kept {
        let needs_host_session = needs_host_session::<F>(ctx.snapshot, meta.interface, tuple, F::protocol(key));
        if !needs_host_session || meta.origin != Origin::Received || meta.layers.flags.has(Flags::ICMP_ERROR) {
            return FlowDecision::Plain;
        }
        if !ctx.snapshot.passes_untranslated {
            return FlowDecision::Drop(sluice_nat::Reason::UntranslatedInbound.into());
        }
        if !may_start(&meta.layers) {
            return FlowDecision::Plain;
        }
    }
    if is_site(tuple.context()) {
        let Some(back) = sites::hop::<F>(ctx.snapshot, tuple.context(), tuple.source()) else {
            return FlowDecision::Drop(EngineReason::TerminalUnknown.into());
        };
        return FlowDecision::Session(FlowTranslation {
            target: routed.target,
            pool,
            outside,
            mapped: routed.mapped,
            hops: [there, back],
            answers: Some(routed.inside.unwrap_or(outer(tuple.context()))),
        });
    }
    let is_hairpin = meta.origin == Origin::Hairpinned;
    let router = ctx.snapshot.router_of(meta.interface);
    let answers = ctx.snapshot.lookup::<F>(router, routed.translated(tuple).destination());
    let by_uplink = by_uplink::<F>(ctx, meta, routed, (answers, tuple.source()));
    let back = match by_uplink.unwrap_or_else(|| {
        let flow = || F::hash_one(ctx.hasher, key);
        ctx.forwarding.find::<F>(answers, tuple.source(), flow)
    }) {
        _ if is_hairpin && is_outside_address::<F>(ctx.snapshot, tuple.context(), tuple.source()) => {
            AdjacencyIndex::HAIRPIN
        }
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return FlowDecision::Wait(wanted),
        ForwardingDecision::Local => return FlowDecision::Drop(EngineReason::Loop.into()),
        ForwardingDecision::Refused(reason) => return FlowDecision::Drop(reason.into()),
    };
    FlowDecision::Session(FlowTranslation {
        target: routed.target,
        pool,
        outside,
        mapped: routed.mapped,
        hops: [there, back],
        answers: routed.inside,
    })
}

/// The adjacency of the reverse direction for a flow from an uplink to an inside host: answers leave through the uplink
/// of the request. The provider of another uplink would drop the answers, because their source is an outside address of
/// the first uplink.
fn by_uplink<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    routed: &RoutedFlow<F>,
    (answers, sender): (Lookup<'_>, F::Address),
) -> Option<ForwardingDecision> {
    let is_uplink = ctx
        .snapshot
        .interface(meta.interface)
        .is_some_and(|interface| interface.outside);
    if routed.target.is_none() || !is_uplink || meta.origin != Origin::Received {
        return None;
    }
    ctx.forwarding
        .find_by_interface::<F>(answers, sender, meta.interface)
        .or_else(|| {
            let address = ctx.snapshot.uplink(meta.interface, F::IS_V6)?;
            Some(ctx.forwarding.neighbour(UnresolvedNeighbour {
                interface: meta.interface,
                address,
            }))
        })
}

/// Whether a flow from outside that is addressed to the untranslated address of an inside host needs a session. Without
/// a session, a source rule would translate the answers.
pub fn needs_host_session<F: Family>(snapshot: &Snapshot, interface: u16, tuple: &F::Tuple, protocol: u8) -> bool {
    if !snapshot.interface(interface).is_some_and(|interface| interface.outside) {
        return false;
    }
    let answer = F::Tuple::new(
        tuple.destination(),
        tuple.source(),
        tuple.destination_port(),
        tuple.source_port(),
        tuple.context(),
    );
    let rules = &snapshot.nat::<F>().rules;
    let translates = rules
        .match_source(&answer, protocol, interface)
        .is_some_and(|decided| !matches!(decided.action, SourceAction::Exempt));
    let is_exempt = || {
        rules
            .match_destination(&answer, protocol, interface)
            .is_some_and(|decided| matches!(decided.action, rule::Destination::Exempt))
    };
    translates && !is_exempt()
}

/// Whether a packet may be the first of its flow.
pub(super) fn may_start(layers: &Layers) -> bool {
    match layers.protocol {
        TCP => is_first_segment(layers),
        _ => !layers.flags.has(Flags::ICMP_REPLY),
    }
}

/// Whether a session is created for a flow because of inspection or application identification.
pub(super) fn is_examined(snapshot: &Snapshot, meta: &Meta, protocol: u8, there: AdjacencyIndex) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(meta.interface) || on.is_on(there.interface() as u16))
        || is_identified(snapshot, meta, protocol, there)
}

/// Whether application identification requires a session for a flow. It requires none for a midstream connection, and
/// none if the IP protocol alone determines the application.
fn is_identified(snapshot: &Snapshot, meta: &Meta, protocol: u8, there: AdjacencyIndex) -> bool {
    snapshot.identifies([meta.interface, there.interface() as u16])
        && !is_icmp(protocol)
        && (protocol != TCP || meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN)
}

/// The egress interface of a forwarding decision.
pub(super) fn egress(destination: ForwardingDecision) -> Option<u16> {
    match destination {
        ForwardingDecision::Hop(hop) => Some(hop.interface() as u16),
        ForwardingDecision::Unknown(wanted) => Some(wanted.interface),
        ForwardingDecision::Local | ForwardingDecision::Refused(_) => None,
    }
}
