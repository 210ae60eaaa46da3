//! slow-path: the first packet of a flow: destination rule, route, filter, source rule, port, insert.

use arrayvec::ArrayVec;
use sluice_filter::{Filters, Header, Known, Marking, Verdict};
use sluice_nat::bindings::Inbound;
use sluice_nat::rule::{self, Balance, HostSetIndex, RuleMatch, SetHost, SourceAction};
use sluice_nat::sites::{is_site, outer};
use sluice_nat::{Address, PoolIndex, PortClass, RuleId, Rules, Target, TimeoutClass, Tuple};
use sluice_route::{Lookup, RouterIndex, SourceValidation};
use sluice_wire::Context;
use sluice_wire::ipv4::protocol::{TCP, is_icmp};
use sluice_wire::layers::{Flags, Fragment, Layers};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::features::context::NodeContext;
use crate::features::creation::{self, NewSessions};
use crate::features::filter::{self, Exception, FilterQueries, Rejection};
use crate::features::input_filter;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::{bridge, host, subscriber};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Leave;
use crate::packet::lists::Lists;
use crate::packet::reason::{Own, Reason};
use crate::packet::task::UnresolvedNeighbour;
use crate::packet::task::UnsolicitedSyn;
use crate::session::bound_interfaces::is_outside_address;
use crate::session::family::Family;
use crate::session::shard::end;
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingDecision;
use crate::snapshot::marks::set_class;

/// The node.
pub const NODE: Node = Node {
    name: "slow-path",
    help: "decides the first packet of a flow",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::Park, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "session created", needs::FLOWS),
        Exit::new("host", "from the host, no session", needs::STATEFUL | needs::HOSTED),
        Exit::new("forward", "nothing to translate", needs::STATEFUL),
        Exit::new("local-delivery", "to the router itself", needs::STATEFUL),
        Exit::new("neighbour-resolution", "neighbour unknown", needs::STATEFUL),
        Exit::new("icmp-error", "no route, rejected", needs::STATEFUL),
    ],
};

/// What is to become of a flow.
#[derive(Clone, Copy)]
pub enum FlowDecision<F: Family> {
    /// A session, translated so.
    Session(FlowTranslation<F>),
    /// Forwarding without a session.
    Plain,
    /// An address of the gateway's own.
    Gateway,
    /// To an inside host by its outside address, from one that is not translated itself: as if it came from outside.
    Hairpin,
    /// A neighbour has to be found first.
    Wait(UnresolvedNeighbour),
    /// Refused, and the sender is told.
    Complain(IcmpError, Reason),
    /// Refused.
    Drop(Reason),
}

/// What rules and routes say of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowTranslation<F: Family> {
    /// Where a destination rule leads.
    pub target: Option<Target<F::Address>>,
    /// Pool that a source rule names.
    pub pool: Option<PoolIndex>,
    /// Outside address of the source, where that is translated one to one.
    pub outside: Option<F::Address>,
    /// Pool whose mapping leads to the target.
    pub mapped: Option<PoolIndex>,
    /// Next hops of both directions.
    pub hops: [AdjacencyIndex; 2],
    /// Context that answers arrive in, where that is another than the question's.
    pub answers: Option<Context>,
}

impl<F: Family> FlowTranslation<F> {
    /// The context that answers to what came in one arrive in.
    #[inline(always)]
    pub fn answers(&self, context: Context) -> Context {
        self.answers.unwrap_or(context)
    }
}

/// What is known of a flow before source rules are asked.
#[derive(Clone, Copy, Debug)]
struct RoutedFlow<F: Family> {
    target: Option<Target<F::Address>>,
    mapped: Option<PoolIndex>,
    /// A hop, or a neighbour that has to be found first.
    there: ForwardingDecision,
    /// Source rules have nothing to say about it.
    settled: bool,
    /// Context of the inside host that it leads to, where that is another than of its own.
    inside: Option<Context>,
}

impl<F: Family> RoutedFlow<F> {
    /// The interface that it leaves by.
    #[inline(always)]
    fn outgoing(&self) -> u16 {
        leaves(self.there).unwrap_or(u16::MAX)
    }

    /// A flow's tuple with its destination as translated.
    #[inline(always)]
    fn translated(&self, tuple: &F::Tuple) -> F::Tuple {
        let Some(Target { address, port }) = self.target else {
            return *tuple;
        };
        F::Tuple::new(tuple.source(), address, tuple.source_port(), port, tuple.context())
    }
}

/// Whether the filter is asked about packets of which this is to become: of those that have no session, every single one is
/// asked about later where flows have none.
#[inline(always)]
fn needs_filter<F: Family>(filter: &Filters, plan: &FlowDecision<F>) -> bool {
    match plan {
        FlowDecision::Session(translation) => {
            !matches!(translation.hops[0], AdjacencyIndex::HAIRPIN | AdjacencyIndex::LOCAL)
        }
        FlowDecision::Plain | FlowDecision::Wait(_) => filter.sessions,
        _ => false,
    }
}

/// Whether a rule leads a flow to the router's own host.
#[inline(always)]
fn leads_to_host<F: Family>(plan: &FlowDecision<F>) -> bool {
    matches!(plan, FlowDecision::Session(translation) if translation.hops[0] == AdjacencyIndex::LOCAL)
}

/// The plan of a flow that a rule leads to the router's own host, unless the filter refuses it.
#[cold]
fn unless_refused<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &RoutedFlow<F>,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let tuple = way.translated(F::tuple(key));
    let filters = ctx.snapshot.filter_of(tuple.context());
    let Some((filters, filter)) = filters.and_then(|filters| Some((filters, F::gateway_filter(filters)?))) else {
        return plan;
    };
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return plan;
    }
    let header = input_filter::header(filter::header::<F>(ctx.snapshot, meta, frame, &tuple, way.outgoing()));
    match filter::query_filter::<F>((filters, filter), &header, ctx.own, ctx.now.nanoseconds) {
        Ok(()) => plan,
        Err(refused) => reject(refused),
    }
}

/// What a destination rule says of a flow.
type Redirection<F> = Option<RuleMatch<rule::Destination<<F as Family>::Address>>>;
/// What a source rule says of it.
type Sourcing<F> = Option<RuleMatch<SourceAction<<F as Family>::Address>>>;

/// Ask rules and routes about a flow that came in by the interface of `meta`, and belongs to its shard; rules of the filter
/// with what is known of its application, but for what they refuse of that, and with its mark.
/// Of several hosts that a rule leads to, `host` stays the one that it has.
pub fn decide<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    (known, mark): (Option<Known>, u32),
    host: Option<F::Address>,
) -> FlowDecision<F> {
    let (rules, tuple, protocol) = (&ctx.snapshot.nat::<F>().rules, F::tuple(key), F::protocol(key));
    if let Some(plan) = bridge::decide(ctx.snapshot, meta, tuple.context()) {
        return plan;
    }
    let redirection = rules.match_destination(tuple, protocol, meta.interface);
    match route_flow::<F>(ctx, meta, key, redirection, host) {
        Ok(way) => {
            let interface = way.outgoing();
            let sourcing = rules.match_source(tuple, protocol, interface).filter(|_| !way.settled);
            let plan = complete::<F>(ctx, meta, key, &way, sourcing);
            let is_local = leads_to_host(&plan);
            let filter = ctx
                .snapshot
                .filter_of(tuple.context())
                .filter(|filter| is_local || needs_filter(filter, &plan));
            let fate = filter.map(|filter| {
                let tuple = way.translated(tuple);
                let header = filter::first_header::<F>(ctx.snapshot, meta, protocol, &tuple, interface);
                let back = match &plan {
                    FlowDecision::Session(translation) => translation.hops[1],
                    _ => AdjacencyIndex::UNRESOLVED,
                };
                let header = filter::with_macs(ctx.snapshot, header.with_mark(mark), || {
                    filter::macs_from(ctx.snapshot, ctx.paths, meta.interface, back)
                });
                match is_local {
                    true => filter::query_gateway::<F>(filter, header),
                    false => F::filter(filter).would_as(&header, known),
                }
            });
            match fate {
                Some(fate) if !filter::may_begin(fate) => FlowDecision::Drop(sluice_filter::Reason::Denied.into()),
                Some(fate) if fate.verdict == Verdict::AcceptUntracked => untracked::<F>(ctx, meta, key, &way, plan),
                _ => plan,
            }
        }
        Err(plan) => plan,
    }
}

/// The host that a flow goes to of those that a rule deals flows among: `kept` where that is one of them.
#[cold]
pub(super) fn choose<F: Family>(
    ctx: &NodeContext<'_, '_>,
    key: &F::Key,
    set: HostSetIndex,
    port: u16,
    kept: Option<F::Address>,
) -> Result<Target<F::Address>, FlowDecision<F>> {
    let set = ctx.snapshot.nat::<F>().rules.set(set);
    let host = set.and_then(|set| {
        let kept = kept.and_then(|address| set.host(address));
        kept.or_else(|| {
            set.choose(match set.balance {
                Balance::Random => F::hash_one(ctx.hasher, key),
                Balance::Source => {
                    let tuple = F::tuple(key);
                    let client = F::Tuple::new(tuple.source(), F::Address::default(), 0, 0, tuple.context());
                    F::hash_one(ctx.hasher, &F::make_key(client, 0))
                }
            })
        })
    });
    match host {
        Some(&SetHost { address, .. }) => Ok(Target { address, port }),
        None => Err(FlowDecision::Drop(sluice_nat::Reason::NoHostUp.into())),
    }
}

/// Where a flow goes, of which destination rules have been asked.
fn route_flow<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    redirection: Redirection<F>,
    host: Option<F::Address>,
) -> Result<RoutedFlow<F>, FlowDecision<F>> {
    let nat = ctx.snapshot.nat::<F>();
    let (tuple, interface, layers) = (F::tuple(key), meta.interface, &meta.layers);
    // Nothing of a link is forwarded (RFC 4291, 2.5.6): `forward` knows which of it is the gateway's own.
    let of_link = |address| F::IS_V6 && F::address(address).is_link_local();
    if of_link(tuple.source()) || of_link(tuple.destination()) {
        return Err(FlowDecision::Plain);
    }
    let came = ctx.snapshot.interface(interface);
    let router = ctx.snapshot.router_of(interface);
    let lookup = ctx.snapshot.lookup::<F>(router, tuple.source());
    let flow = || F::hash_one(ctx.hasher, key);
    let turned = meta.origin == Origin::Hairpinned;
    let outside = turned || came.is_some_and(|i| i.outside);
    let validation = came.map_or(SourceValidation::Strict, |i| i.validation);
    let (mut target, mut mapped, mut exempt, mut inside) = (None, None, false, None);
    let context = outer(tuple.context());
    match redirection.map(|decided| decided.action) {
        Some(rule::Destination::To(to)) => target = Some(to),
        Some(rule::Destination::Among(set, port)) => target = Some(choose::<F>(ctx, key, set, port, host)?),
        Some(rule::Destination::Exempt) => exempt = true,
        None => {}
    }
    let pooled = !exempt && target.is_none() && nat.pools.owner(context, tuple.destination()).is_some();
    if outside && pooled {
        match inbound::<F>(ctx, meta, key) {
            Inbound::Inside {
                address,
                port,
                pool,
                context,
            } => {
                (target, mapped) = (Some(Target { address, port }), Some(pool));
                inside = Some(context).filter(|&context| is_site(context));
            }
            Inbound::Filtered => return Err(FlowDecision::Drop(sluice_nat::Reason::Filtered.into())),
            Inbound::Unmapped => {}
        }
    }
    let public =
        target.is_some() || pooled || !exempt && subscriber::is_own::<F>(ctx.snapshot, context, tuple.destination());
    // What a rule sends from inside on to outside need not come back first.
    let leads_out = |target: &Target<F::Address>| {
        let interface = leaves(ctx.paths.find::<F>(lookup, target.address, flow));
        let interface = interface.and_then(|number| ctx.snapshot.interface(number));
        interface.is_some_and(|interface| interface.outside)
    };
    // What a rule names by the interface that it came in by goes on from there at once.
    let is_direct = redirection.is_some_and(|decided| decided.inbound);
    let comes_back = public && !outside && !is_direct && !target.as_ref().is_some_and(leads_out);
    let address = match target {
        Some(target) if !comes_back => target.address,
        _ => tuple.destination(),
    };
    if F::is_group(address) {
        return Err(FlowDecision::Drop(Own::Multicast.into()));
    }
    let destination = match inside.filter(|_| !comes_back) {
        None => ctx.paths.find::<F>(lookup, address, flow),
        // Nobody is asked for in a site.
        Some(context) => match subscriber::hop::<F>(ctx.snapshot, context, address) {
            Some(hop) => ForwardingDecision::Hop(hop),
            None => return Err(FlowDecision::Drop(Own::SiteAddressLost.into())),
        },
    };
    if target.is_none() && public {
        // An interface's own address may be a pool's too: what asks for the gateway itself is answered by it, and what
        // no inside host expects is its host's.
        let asks = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
        let has_host = || ctx.snapshot.host(interface).is_some();
        let answers = layers.flags.has(Flags::ICMP_REPLY) && ctx.snapshot.probes.expects(tuple.destination_port());
        if matches!(destination, ForwardingDecision::Local) && (asks || answers || has_host()) {
            return Err(FlowDecision::Gateway);
        }
        if outside {
            return Err(FlowDecision::Drop(sluice_nat::Reason::Unsolicited.into()));
        }
    }
    // A source that only a packet between inside hosts can have.
    if outside && !turned && is_outside_address::<F>(ctx.snapshot, context, tuple.source()) {
        return Err(FlowDecision::Drop(sluice_nat::Reason::ForgedSource.into()));
    }
    // Of a site's terminals the lease says more than routes do.
    if (destination != ForwardingDecision::Local || comes_back || target.is_some())
        && !turned
        && !is_site(tuple.context())
        && let Err(reason) = ctx
            .paths
            .validate_source::<F>(validation, router, interface, tuple.source())
    {
        return Err(FlowDecision::Drop(reason.into()));
    }
    if comes_back {
        return Err(hairpin::<F>(ctx, router, key, destination));
    }
    let there = match destination {
        ForwardingDecision::Hop(_) | ForwardingDecision::Unknown(_) => destination,
        // A rule leads it to the host of the router.
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
        // The source of what comes back has been translated before, and a mapping leads to where it was made from.
        settled: there == ForwardingDecision::Local
            || exempt
            || mapped.is_some()
            || turned && target.is_some()
            || is_site(tuple.context()),
        inside,
    })
}

/// What becomes of what routes lead nowhere.
pub fn refused<F: Family>(reason: sluice_route::Reason) -> FlowDecision<F> {
    match IcmpError::of(reason) {
        Some(complaint) => FlowDecision::Complain(complaint, reason.into()),
        None => FlowDecision::Drop(reason.into()),
    }
}

/// What becomes of a flow whose way is known, and of which source rules have been asked.
fn complete<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    way: &RoutedFlow<F>,
    sourcing: Sourcing<F>,
) -> FlowDecision<F> {
    let (mut pool, mut outside) = (None, None);
    let tuple = F::tuple(key);
    match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        Some(SourceAction::Exempt) | None if is_site(tuple.context()) => {
            match subscriber::source::<F>(ctx.snapshot, tuple.context()) {
                Some(SourceAction::Pool(index)) => pool = Some(index),
                Some(SourceAction::Static(address)) => outside = Some(address),
                _ => return FlowDecision::Drop(Own::SiteAddressMissing.into()),
            }
        }
        Some(SourceAction::Exempt) | None => {}
    }
    let there = match way.there {
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return FlowDecision::Wait(wanted),
        ForwardingDecision::Local if way.target.is_some() => AdjacencyIndex::LOCAL,
        ForwardingDecision::Local | ForwardingDecision::Refused(_) => return FlowDecision::Gateway,
    };
    // An error about a flow that nobody knows has none of its own.
    let kept = (ctx.snapshot.filters_sessions(tuple.context())
        || is_examined(ctx.snapshot, meta, F::protocol(key), there))
        && !meta.layers.flags.has(Flags::ICMP_ERROR);
    if way.target.is_none() && pool.is_none() && outside.is_none() && !kept {
        let keeps_address = keeps_address::<F>(ctx.snapshot, meta.interface, tuple, F::protocol(key));
        if !keeps_address || meta.origin != Origin::Received || meta.layers.flags.has(Flags::ICMP_ERROR) {
            return FlowDecision::Plain;
        }
        if !ctx.snapshot.passes_untranslated {
            return FlowDecision::Drop(sluice_nat::Reason::UntranslatedInbound.into());
        }
        if !may_begin(&meta.layers) {
            return FlowDecision::Plain;
        }
    }
    if is_site(tuple.context()) {
        let Some(back) = subscriber::hop::<F>(ctx.snapshot, tuple.context(), tuple.source()) else {
            return FlowDecision::Drop(Own::TerminalUnknown.into());
        };
        return FlowDecision::Session(FlowTranslation {
            target: way.target,
            pool,
            outside,
            mapped: way.mapped,
            hops: [there, back],
            answers: Some(way.inside.unwrap_or(outer(tuple.context()))),
        });
    }
    let turned = meta.origin == Origin::Hairpinned;
    let router = ctx.snapshot.router_of(meta.interface);
    let answers = ctx.snapshot.lookup::<F>(router, way.translated(tuple).destination());
    let by_uplink = by_uplink::<F>(ctx, meta, way, (answers, tuple.source()));
    let back = match by_uplink.unwrap_or_else(|| {
        let flow = || F::hash_one(ctx.hasher, key);
        ctx.paths.find::<F>(answers, tuple.source(), flow)
    }) {
        _ if turned && is_outside_address::<F>(ctx.snapshot, tuple.context(), tuple.source()) => {
            AdjacencyIndex::HAIRPIN
        }
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return FlowDecision::Wait(wanted),
        ForwardingDecision::Local => return FlowDecision::Drop(Own::Loop.into()),
        ForwardingDecision::Refused(reason) => return FlowDecision::Drop(reason.into()),
    };
    FlowDecision::Session(FlowTranslation {
        target: way.target,
        pool,
        outside,
        mapped: way.mapped,
        hops: [there, back],
        answers: way.inside,
    })
}

/// Where the answers go to what comes in by an uplink to an inside host: back by that uplink. The sender knows the outside address
/// of it, and others refuse what leaves by them with that.
fn by_uplink<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    way: &RoutedFlow<F>,
    (answers, sender): (Lookup<'_>, F::Address),
) -> Option<ForwardingDecision> {
    let is_uplink = ctx
        .snapshot
        .interface(meta.interface)
        .is_some_and(|interface| interface.outside);
    if way.target.is_none() || !is_uplink || meta.origin != Origin::Received {
        return None;
    }
    ctx.paths
        .find_by_interface::<F>(answers, sender, meta.interface)
        .or_else(|| {
            let address = ctx.snapshot.uplink(meta.interface, F::IS_V6)?;
            Some(ctx.paths.neighbour(UnresolvedNeighbour {
                interface: meta.interface,
                address,
            }))
        })
}

/// Whether the answers to what comes in by an interface would get an outside address, though nobody has asked that: what began
/// outside, to an inside host's own address, is answered from there.
pub fn keeps_address<F: Family>(snapshot: &Snapshot, interface: u16, tuple: &F::Tuple, protocol: u8) -> bool {
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
fn may_begin(layers: &Layers) -> bool {
    match layers.protocol {
        TCP => creation::is_first_segment(layers),
        _ => !layers.flags.has(Flags::ICMP_REPLY),
    }
}

/// Whether a flow has a session as inspection, or the search for its application, needs one.
fn is_examined(snapshot: &Snapshot, meta: &Meta, protocol: u8, there: AdjacencyIndex) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(meta.interface) || on.is_on(there.interface() as u16))
        || is_identified(snapshot, meta, protocol, there)
}

/// What becomes of a packet that a rule lets pass without a session: what needs one has it all the same, as translation does.
fn untracked<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    way: &RoutedFlow<F>,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let FlowDecision::Session(FlowTranslation {
        pool, outside, hops, ..
    }) = plan
    else {
        return plan;
    };
    let (tuple, protocol) = (F::tuple(key), F::protocol(key));
    let translates = way.target.is_some() || pool.is_some() || outside.is_some() || is_site(tuple.context());
    let needs = translates
        || way.inside.is_some()
        || meta.origin != Origin::Received
        || is_examined(ctx.snapshot, meta, protocol, hops[0])
        || keeps_address::<F>(ctx.snapshot, meta.interface, tuple, protocol) && may_begin(&meta.layers);
    match needs {
        true => plan,
        false => FlowDecision::Plain,
    }
}

/// Whether a flow has a session for the sake of its application: not a connection whose beginning was not seen, nor what its
/// protocol says.
fn is_identified(snapshot: &Snapshot, meta: &Meta, protocol: u8, there: AdjacencyIndex) -> bool {
    snapshot.identifies([meta.interface, there.interface() as u16])
        && !is_icmp(protocol)
        && (protocol != TCP || meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN)
}

/// Who is behind an outside address and port.
fn inbound<F: Family>(ctx: &NodeContext<'_, '_>, meta: &Meta, key: &F::Key) -> Inbound<F::Address> {
    // Queries are answered to whom the inside host asked, and nobody asks it by an identifier.
    let class = PortClass::of(F::protocol(key), <F::Address as Address>::BITS);
    let class = class.filter(|&class| class != PortClass::Query);
    let (Some(class), Some(shard)) = (class, ctx.shard_of(meta)) else {
        return Inbound::Unmapped;
    };
    let is_known = || {
        meta.layers.tcp_flags != 0
            && creation::reusable_session::<F>(shard, F::hash_one(ctx.hasher, key), key, &meta.layers).is_some()
    };
    F::bindings_ref(shard).inbound(F::tuple(key), class, is_known)
}

/// The interface that leads to a destination.
fn leaves(destination: ForwardingDecision) -> Option<u16> {
    match destination {
        ForwardingDecision::Hop(hop) => Some(hop.interface() as u16),
        ForwardingDecision::Unknown(wanted) => Some(wanted.interface),
        ForwardingDecision::Local | ForwardingDecision::Refused(_) => None,
    }
}

/// A packet from inside to an outside address that is translated: its source is translated as if it left, and then it
/// comes back (RFC 4787, REQ-9).
#[cold]
fn hairpin<F: Family>(
    ctx: &NodeContext<'_, '_>,
    router: RouterIndex,
    key: &F::Key,
    destination: ForwardingDecision,
) -> FlowDecision<F> {
    let (nat, tuple) = (ctx.snapshot.nat::<F>(), F::tuple(key));
    let interfaces = (0u16..).zip(&ctx.snapshot.interfaces);
    let outside = interfaces
        .filter(|(_, interface)| interface.outside)
        .map(|(number, _)| number);
    let sourcing = leaves(destination)
        .into_iter()
        .chain(outside)
        .find_map(|interface| nat.rules.match_source(tuple, F::protocol(key), interface));
    let (mut pool, mut outside) = (None, None);
    let of_site = is_site(tuple.context());
    let action = match of_site {
        true => subscriber::source::<F>(ctx.snapshot, tuple.context()),
        false => sourcing.map(|decided| decided.action),
    };
    match action {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        _ if of_site => return FlowDecision::Drop(Own::SiteAddressMissing.into()),
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
        let back = subscriber::hop::<F>(ctx.snapshot, tuple.context(), tuple.source());
        return back.map_or(FlowDecision::Drop(Own::TerminalUnknown.into()), session);
    }
    let answers = ctx.snapshot.lookup::<F>(router, tuple.destination());
    match ctx
        .paths
        .find::<F>(answers, tuple.source(), || F::hash_one(ctx.hasher, key))
    {
        ForwardingDecision::Hop(back) => session(back),
        ForwardingDecision::Unknown(wanted) => FlowDecision::Wait(wanted),
        ForwardingDecision::Local => FlowDecision::Drop(Own::Loop.into()),
        ForwardingDecision::Refused(reason) => FlowDecision::Drop(reason.into()),
    }
}

/// A SYN from outside that nobody expects waits before it is answered.
fn unsolicited<F: Family>(
    ctx: &NodeContext<'_, '_>,
    slot: BufferIndex,
    meta: &Meta,
    key: &F::Key,
    reason: Reason,
) -> Option<UnsolicitedSyn> {
    use sluice_nat::Reason::{Filtered, Unsolicited as Unexpected};
    let waits = matches!(reason, Reason::Nat(Unexpected | Filtered))
        && !is_site(F::tuple(key).context())
        && ctx.snapshot.answers_syns
        && ctx.start.unsolicited_syns > 0
        && meta.origin == Origin::Received
        && F::protocol(key) == TCP
        && meta.layers.fragment == Fragment::Whole
        && meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
    let pools = &ctx.snapshot.nat::<F>().pools;
    let pool = pools.owner(F::tuple(key).context(), F::tuple(key).destination());
    let timeouts = pool
        .and_then(|pool| pools.get(pool))
        .map_or(&ctx.snapshot.timeouts, |pool| pool.timeouts());
    let seconds = u64::from(timeouts.seconds(TimeoutClass::TCP_INCOMING_SYN));
    waits.then(|| UnsolicitedSyn {
        slot,
        hash: F::hash_one(ctx.hasher, key),
        due: ctx.now.nanoseconds + seconds * 1_000_000_000,
        reason,
    })
}

/// A later fragment shares what became of its first one: it has too little for rules to be asked, and what it would open
/// would let everything of its flow pass.
#[inline(always)]
fn later_fragment<F: Family>(snapshot: &Snapshot, meta: &Meta, plan: FlowDecision<F>) -> FlowDecision<F> {
    let opens = matches!(plan, FlowDecision::Session(_)) && meta.layers.fragment == Fragment::Later;
    let context = snapshot
        .interface(meta.interface)
        .map_or(0, |interface| interface.context);
    match opens && snapshot.filter_of(context).is_some() {
        true => FlowDecision::Drop(sluice_filter::Reason::Fragment.into()),
        false => plan,
    }
}

/// Whether a later fragment passes by itself, as rules let it pass without a session.
#[inline(always)]
fn is_untracked_fragment<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &RoutedFlow<F>,
    plan: &FlowDecision<F>,
) -> bool {
    meta.layers.fragment == Fragment::Later
        && filter_query::<F>(ctx, meta, frame, key, way, plan).is_some_and(|header| {
            let filter = ctx.snapshot.filter_of(F::tuple(key).context());
            let fate = filter.map(|filter| F::filter(filter).would(&header));
            fate.is_some_and(|fate| fate.verdict == Verdict::AcceptUntracked)
                && matches!(untracked::<F>(ctx, meta, key, way, *plan), FlowDecision::Plain)
        })
}

/// Whether a later fragment, which may open nothing itself, came together with what opens its session.
#[cold]
fn is_with_first_fragment<F: Family>(
    place: usize,
    keys: &[F::Key],
    plans: &[(FlowDecision<F>, Option<RuleId>)],
) -> bool {
    let before = keys.iter().zip(plans).take(place);
    let key = keys.get(place);
    before
        .filter(|(_, (plan, _))| matches!(plan, FlowDecision::Session(_)))
        .any(|(other, _)| Some(other) == key)
}

/// What the filter is asked about a packet, if it is to be asked.
#[inline(always)]
fn filter_query<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &RoutedFlow<F>,
    plan: &FlowDecision<F>,
) -> Option<Header<F::Number>> {
    let filter = ctx.snapshot.filter_of(F::tuple(key).context())?;
    let error = meta.layers.flags.has(Flags::ICMP_ERROR);
    if !needs_filter(filter, plan) || error && matches!(plan, FlowDecision::Session(_)) {
        return None;
    }
    let header = filter::header::<F>(
        ctx.snapshot,
        meta,
        frame,
        &way.translated(F::tuple(key)),
        way.outgoing(),
    );
    // What waits for a neighbour comes again, and counts then; what won't pass need not wait.
    let waits = matches!(plan, FlowDecision::Wait(_)) && filter::would_pass::<F>(F::filter(filter), &header);
    (!waits).then_some(header)
}

/// What becomes of a packet that does not pass the filter.
#[inline(always)]
fn reject<F: Family>((complaint, reason): Rejection) -> FlowDecision<F> {
    match complaint {
        Some(complaint) => FlowDecision::Complain(complaint, reason),
        None => FlowDecision::Drop(reason),
    }
}

/// Count a flow of the host that it was dealt to.
#[inline(always)]
pub(super) fn count_host<F: Family>(
    rules: &Rules<F::Address>,
    redirection: &Redirection<F>,
    target: Option<Target<F::Address>>,
) {
    if let Some(RuleMatch {
        action: rule::Destination::Among(set, _),
        ..
    }) = redirection
        && let (Some(set), Some(target)) = (rules.set(*set), target)
    {
        set.count(target.address);
    }
}

/// Flows that a rule decided, one after the other: they are counted together.
#[derive(Default)]
struct RuleHits {
    rule: Option<RuleId>,
    flows: u64,
}

impl RuleHits {
    #[inline(always)]
    fn note(&mut self, rule: Option<RuleId>, count: impl FnOnce(RuleId, u64)) {
        if rule == self.rule {
            self.flows += 1;
        } else {
            let before = std::mem::replace(self, Self { rule, flows: 1 });
            before.flush(count);
        }
    }

    #[inline(always)]
    fn flush(self, count: impl FnOnce(RuleId, u64)) {
        if let Some(rule) = self.rule {
            count(rule, self.flows);
        }
    }
}

/// Decide about packets of no known session. Rules are asked about all of them together.
#[inline(never)]
pub fn slow_path<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    let mut slots = std::mem::take(lists.slow_path.of::<F>());
    let snapshot = ctx.snapshot;
    if snapshot.bridges {
        slots = bridge::create_sessions::<F>(slots, batch, lists, ctx);
    }
    let mut openings = NewSessions::<F>::default();
    if snapshot.hosted {
        host::create_sessions::<F>(&mut slots, batch, lists, &mut openings, ctx);
    }
    let rules = &snapshot.nat::<F>().rules;
    let mut keys = ArrayVec::<F::Key, BURST_BUFFERS>::new();
    let mut flows = ArrayVec::<_, BURST_BUFFERS>::new();
    for &slot in &slots {
        let meta = batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.snapshot.context(meta, frame);
        let key = F::key(&meta.layers, frame, context);
        put(&mut keys, key);
        put(&mut flows, (*F::tuple(&key), F::protocol(&key), meta.interface));
    }
    let mut redirections = [None; BURST_BUFFERS];
    rules.match_destinations(&flows, &mut redirections);
    let mut ways = ArrayVec::<_, BURST_BUFFERS>::new();
    let mut leaving = ArrayVec::<_, BURST_BUFFERS>::new();
    for (((&slot, key), &(tuple, protocol, _)), &redirection) in slots.iter().zip(&keys).zip(&flows).zip(&redirections)
    {
        let way = match subscriber::unknown_site::<F>(ctx.snapshot, batch.meta(slot), key) {
            Some(reason) => Err(FlowDecision::Drop(reason.into())),
            None => route_flow::<F>(ctx, batch.meta(slot), key, redirection, None),
        };
        if let Ok(RoutedFlow {
            there, settled: false, ..
        }) = way
        {
            put(&mut leaving, (tuple, protocol, leaves(there).unwrap_or(u16::MAX)));
        }
        put(&mut ways, way);
    }
    let mut sourcings = [None; BURST_BUFFERS];
    rules.match_sources(&leaving, &mut sourcings);
    let mut sourcings = sourcings.iter();
    let (mut plans, mut asked) = (ArrayVec::<_, BURST_BUFFERS>::new(), FilterQueries::<F>::default());
    for (place, ((&slot, key), &way)) in slots.iter().zip(&keys).zip(&ways).enumerate() {
        let meta = batch.meta(slot);
        let mut sourcing = None;
        let plan = match way {
            Ok(way) => {
                if !way.settled {
                    sourcing = sourcings.next().copied().flatten();
                }
                let frame = batch.packets[slot as usize].bytes();
                let plan = complete::<F>(ctx, meta, key, &way, sourcing);
                let plan = match is_untracked_fragment::<F>(ctx, meta, frame, key, &way, &plan) {
                    true => plan,
                    false => later_fragment::<F>(snapshot, meta, plan),
                };
                let plan = subscriber::unless_forged::<F>(snapshot, meta, frame, key, plan);
                if let Some(header) = filter_query::<F>(ctx, meta, frame, key, &way, &plan) {
                    asked.push(place, header);
                }
                match leads_to_host(&plan) {
                    true => unless_refused::<F>(ctx, meta, frame, key, &way, plan),
                    false => plan,
                }
            }
            Err(plan) => plan,
        };
        put(&mut plans, (plan, sourcing.map(|decided| decided.rule)));
    }
    let mut led = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
    if let Some(filter) = snapshot.filter.as_deref() {
        let marked = |place: usize, marking: Marking| {
            openings.mark(slots[place], marking);
            if !marking.class.is_any() {
                let slot = slots[place] as usize % BURST_BUFFERS;
                set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
            }
        };
        for (place, exception) in asked.exceptions(filter, ctx, marked) {
            plans[place].0 = match (exception, &ways[place]) {
                (Exception::Refused(refused), _) => reject(refused),
                (Exception::Untracked, Ok(way)) => {
                    untracked::<F>(ctx, batch.meta(slots[place]), &keys[place], way, plans[place].0)
                }
                (Exception::Untracked, Err(_)) => continue,
            };
        }
    }
    let (mut sources, mut destinations) = (RuleHits::default(), RuleHits::default());
    let tools = ctx.tools();
    let decided = slots.iter().zip(&keys).zip(&plans).zip(&redirections);
    for (place, (((&slot, key), &(plan, source)), redirection)) in decided.enumerate() {
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        if matches!(plan, FlowDecision::Session(_) | FlowDecision::Plain) {
            sources.note(source, |rule, flows| rules.count_source(rule, flows));
            let rule = redirection.map(|decided| decided.rule);
            destinations.note(rule, |rule, flows| rules.count_destination(rule, flows));
        }
        let error = meta.layers.flags.has(Flags::ICMP_ERROR);
        match plan {
            // What would have to be translated is about a session that does not exist (RFC 5508, REQ-4 and REQ-5).
            FlowDecision::Session(_) | FlowDecision::Drop(Reason::Nat(sluice_nat::Reason::Unsolicited)) if error => {
                lists.drop_packet(slot, sluice_nat::Reason::IcmpErrorWithoutSession);
            }
            FlowDecision::Session(translation) => {
                count_host::<F>(rules, redirection, translation.target);
                openings.push(slot, *key, translation);
            }
            FlowDecision::Plain => {
                let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
                if let Some(shard) = shard.filter(|_| creation::is_first_segment(&meta.layers)) {
                    let hash = F::hash_one(ctx.hasher, key);
                    if let Some(index) = creation::reusable_session::<F>(shard, hash, key, &meta.layers) {
                        end::<F>(shard, index, &tools);
                    }
                }
                put(lists.forward.of::<F>(), slot);
            }
            FlowDecision::Gateway => put(&mut lists.local_delivery, slot),
            FlowDecision::Hairpin => {
                meta.origin = Origin::Hairpinned;
                put(lists.session_lookup.of::<F>(), slot);
            }
            FlowDecision::Wait(wanted) => lists.wait_for_neighbour(slot, Some(wanted)),
            FlowDecision::Complain(complaint, reason) => lists.icmp_error(slot, complaint, reason),
            FlowDecision::Drop(Reason::Filter(sluice_filter::Reason::Fragment))
                if is_with_first_fragment::<F>(place, &keys, &plans) =>
            {
                put(&mut led, slot);
            }
            FlowDecision::Drop(reason) => match unsolicited::<F>(ctx, slot, meta, key, reason) {
                Some(syn) => put(&mut lists.park_syn, syn),
                None => lists.drop_packet(slot, reason),
            },
        }
    }
    sources.flush(|rule, flows| rules.count_source(rule, flows));
    destinations.flush(|rule, flows| rules.count_destination(rule, flows));
    openings.create(batch, lists, ctx);
    led.into_iter()
        .for_each(|slot| put(lists.session_lookup.of::<F>(), slot));
}
