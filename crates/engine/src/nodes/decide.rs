//! decide: the first packet of a flow: destination rule, route, filter, source rule, port, insert.
//!
//! Exits: established again (a session now exists), forward (nothing to translate), gateway, unresolved, complain,
//! park (a SYN that nobody expects), drop. What is found is data in the session's record; only `established` touches the packet.

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

use crate::arrivals::is_outside_address;
use crate::batch::{Batch, Complaint, Hop, Lists, Meta, Origin, put};
use crate::context::Ctx;
use crate::family::Family;
use crate::filter::{self, Asked, Exception, Refused};
use crate::io::{HAND, Slot};
use crate::local;
use crate::marks::set_class;
use crate::nodes::{bridge, host, subscriber};
use crate::opening::{self, Openings};
use crate::paths::{Destination, Wanted};
use crate::policy::Policy;
use crate::reason::{Own, Reason};
use crate::shard::end;
use crate::unsolicited::Unsolicited;

/// What is to become of a flow.
#[derive(Clone, Copy)]
pub enum Plan<F: Family> {
    /// A session, translated so.
    Session(Translation<F>),
    /// Forwarding without a session.
    Plain,
    /// An address of the gateway's own.
    Gateway,
    /// To an inside host by its outside address, from one that is not translated itself: as if it came from outside.
    Hairpin,
    /// A neighbour has to be found first.
    Wait(Wanted),
    /// Refused, and the sender is told.
    Complain(Complaint, Reason),
    /// Refused.
    Drop(Reason),
}

/// What rules and routes say of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Translation<F: Family> {
    /// Where a destination rule leads.
    pub target: Option<Target<F::Address>>,
    /// Pool that a source rule names.
    pub pool: Option<PoolIndex>,
    /// Outside address of the source, where that is translated one to one.
    pub outside: Option<F::Address>,
    /// Pool whose mapping leads to the target.
    pub mapped: Option<PoolIndex>,
    /// Next hops of both directions.
    pub hops: [Hop; 2],
    /// Context that answers arrive in, where that is another than the question's.
    pub answers: Option<Context>,
}

impl<F: Family> Translation<F> {
    /// The context that answers to what came in one arrive in.
    #[inline(always)]
    pub fn answers(&self, context: Context) -> Context {
        self.answers.unwrap_or(context)
    }
}

/// What is known of a flow before source rules are asked.
#[derive(Clone, Copy, Debug)]
struct Way<F: Family> {
    target: Option<Target<F::Address>>,
    mapped: Option<PoolIndex>,
    /// A hop, or a neighbour that has to be found first.
    there: Destination,
    /// Source rules have nothing to say about it.
    settled: bool,
    /// Context of the inside host that it leads to, where that is another than of its own.
    inside: Option<Context>,
}

impl<F: Family> Way<F> {
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
fn asks<F: Family>(filter: &Filters, plan: &Plan<F>) -> bool {
    match plan {
        Plan::Session(translation) => !matches!(translation.hops[0], Hop::HAIRPIN | Hop::LOCAL),
        Plan::Plain | Plan::Wait(_) => filter.sessions,
        _ => false,
    }
}

/// Whether a rule leads a flow to the router's own host.
#[inline(always)]
fn leads_to_host<F: Family>(plan: &Plan<F>) -> bool {
    matches!(plan, Plan::Session(translation) if translation.hops[0] == Hop::LOCAL)
}

/// The plan of a flow that a rule leads to the router's own host, unless the filter refuses it.
#[cold]
fn unless_refused<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &Way<F>,
    plan: Plan<F>,
) -> Plan<F> {
    let tuple = way.translated(F::tuple(key));
    let filters = ctx.policy.filter_of(tuple.context());
    let Some((filters, filter)) = filters.and_then(|filters| Some((filters, F::gateway_filter(filters)?))) else {
        return plan;
    };
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return plan;
    }
    let header = local::header(filter::header::<F>(ctx.policy, meta, frame, &tuple, way.outgoing()));
    match filter::ask_of::<F>((filters, filter), &header, ctx.own, ctx.now.nanoseconds) {
        Ok(()) => plan,
        Err(refused) => turned_away(refused),
    }
}

/// What a destination rule says of a flow.
type Redirection<F> = Option<RuleMatch<rule::Destination<<F as Family>::Address>>>;
/// What a source rule says of it.
type Sourcing<F> = Option<RuleMatch<SourceAction<<F as Family>::Address>>>;

/// Ask rules and routes about a flow that came in by the interface of `meta`, and belongs to its shard; rules of the filter
/// with what is known of its application, but for what they refuse of that, and with its mark.
/// Of several hosts that a rule leads to, `host` stays the one that it has.
pub fn plan<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    (known, mark): (Option<Known>, u32),
    host: Option<F::Address>,
) -> Plan<F> {
    let (rules, tuple, protocol) = (&F::nat(ctx.policy).rules, F::tuple(key), F::protocol(key));
    if let Some(plan) = bridge::plan(ctx.policy, meta, tuple.context()) {
        return plan;
    }
    let redirection = rules.match_destination(tuple, protocol, meta.interface);
    match way::<F>(ctx, meta, key, redirection, host) {
        Ok(way) => {
            let interface = way.outgoing();
            let sourcing = rules.match_source(tuple, protocol, interface).filter(|_| !way.settled);
            let plan = join::<F>(ctx, meta, key, &way, sourcing);
            let is_local = leads_to_host(&plan);
            let filter = ctx
                .policy
                .filter_of(tuple.context())
                .filter(|filter| is_local || asks(filter, &plan));
            let fate = filter.map(|filter| {
                let tuple = way.translated(tuple);
                let header = filter::first_header::<F>(ctx.policy, meta, protocol, &tuple, interface);
                let back = match &plan {
                    Plan::Session(translation) => translation.hops[1],
                    _ => Hop::UNROUTED,
                };
                let header = filter::with_macs(ctx.policy, header.with_mark(mark), || {
                    filter::macs_from(ctx.policy, ctx.paths, meta.interface, back)
                });
                match is_local {
                    true => filter::of_gateway::<F>(filter, header),
                    false => F::filter(filter).would_as(&header, known),
                }
            });
            match fate {
                Some(fate) if !filter::begins(fate) => Plan::Drop(sluice_filter::Reason::Denied.into()),
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
    ctx: &Ctx<'_, '_>,
    key: &F::Key,
    set: HostSetIndex,
    port: u16,
    kept: Option<F::Address>,
) -> Result<Target<F::Address>, Plan<F>> {
    let set = F::nat(ctx.policy).rules.set(set);
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
        None => Err(Plan::Drop(sluice_nat::Reason::NoHostUp.into())),
    }
}

/// Where a flow goes, of which destination rules have been asked.
fn way<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    redirection: Redirection<F>,
    host: Option<F::Address>,
) -> Result<Way<F>, Plan<F>> {
    let nat = F::nat(ctx.policy);
    let (tuple, interface, layers) = (F::tuple(key), meta.interface, &meta.layers);
    // Nothing of a link is forwarded (RFC 4291, 2.5.6): `forward` knows which of it is the gateway's own.
    let of_link = |address| F::SIX && F::address(address).is_link_local();
    if of_link(tuple.source()) || of_link(tuple.destination()) {
        return Err(Plan::Plain);
    }
    let came = ctx.policy.interface(interface);
    let router = ctx.policy.router_of(interface);
    let lookup = ctx.policy.lookup::<F>(router, tuple.source());
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
            Inbound::Filtered => return Err(Plan::Drop(sluice_nat::Reason::Filtered.into())),
            Inbound::Unmapped => {}
        }
    }
    let public =
        target.is_some() || pooled || !exempt && subscriber::is_own::<F>(ctx.policy, context, tuple.destination());
    // What a rule sends from inside on to outside need not come back first.
    let leads_out = |target: &Target<F::Address>| {
        let interface = leaves(ctx.paths.find::<F>(lookup, target.address, flow));
        let interface = interface.and_then(|number| ctx.policy.interface(number));
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
        return Err(Plan::Drop(Own::Multicast.into()));
    }
    let destination = match inside.filter(|_| !comes_back) {
        None => ctx.paths.find::<F>(lookup, address, flow),
        // Nobody is asked for in a site.
        Some(context) => match subscriber::hop::<F>(ctx.policy, context, address) {
            Some(hop) => Destination::Hop(hop),
            None => return Err(Plan::Drop(Own::SiteAddressLost.into())),
        },
    };
    if target.is_none() && public {
        // An interface's own address may be a pool's too: what asks for the gateway itself is answered by it, and what
        // no inside host expects is its host's.
        let asks = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
        let has_host = || ctx.policy.host(interface).is_some();
        let answers = layers.flags.has(Flags::ICMP_REPLY) && ctx.policy.probes.expects(tuple.destination_port());
        if matches!(destination, Destination::Local) && (asks || answers || has_host()) {
            return Err(Plan::Gateway);
        }
        if outside {
            return Err(Plan::Drop(sluice_nat::Reason::Unsolicited.into()));
        }
    }
    // A source that only a packet between inside hosts can have.
    if outside && !turned && is_outside_address::<F>(ctx.policy, context, tuple.source()) {
        return Err(Plan::Drop(sluice_nat::Reason::ForgedSource.into()));
    }
    // Of a site's terminals the lease says more than routes do.
    if (destination != Destination::Local || comes_back || target.is_some())
        && !turned
        && !is_site(tuple.context())
        && let Err(reason) = ctx
            .paths
            .validate_source::<F>(validation, router, interface, tuple.source())
    {
        return Err(Plan::Drop(reason.into()));
    }
    if comes_back {
        return Err(hairpin::<F>(ctx, router, key, destination));
    }
    let there = match destination {
        Destination::Hop(_) | Destination::Unknown(_) => destination,
        // A rule leads it to the host of the router.
        Destination::Local if target.is_some() && mapped.is_none() && ctx.policy.host(interface).is_some() => {
            destination
        }
        Destination::Local => return Err(Plan::Gateway),
        Destination::Refused(reason) => return Err(refused(reason)),
    };
    Ok(Way {
        target,
        mapped,
        there,
        // The source of what comes back has been translated before, and a mapping leads to where it was made from.
        settled: there == Destination::Local
            || exempt
            || mapped.is_some()
            || turned && target.is_some()
            || is_site(tuple.context()),
        inside,
    })
}

/// What becomes of what routes lead nowhere.
pub fn refused<F: Family>(reason: sluice_route::Reason) -> Plan<F> {
    match Complaint::of(reason) {
        Some(complaint) => Plan::Complain(complaint, reason.into()),
        None => Plan::Drop(reason.into()),
    }
}

/// What becomes of a flow whose way is known, and of which source rules have been asked.
fn join<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key, way: &Way<F>, sourcing: Sourcing<F>) -> Plan<F> {
    let (mut pool, mut outside) = (None, None);
    let tuple = F::tuple(key);
    match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        Some(SourceAction::Exempt) | None if is_site(tuple.context()) => {
            match subscriber::source::<F>(ctx.policy, tuple.context()) {
                Some(SourceAction::Pool(index)) => pool = Some(index),
                Some(SourceAction::Static(address)) => outside = Some(address),
                _ => return Plan::Drop(Own::SiteAddressMissing.into()),
            }
        }
        Some(SourceAction::Exempt) | None => {}
    }
    let there = match way.there {
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return Plan::Wait(wanted),
        Destination::Local if way.target.is_some() => Hop::LOCAL,
        Destination::Local | Destination::Refused(_) => return Plan::Gateway,
    };
    // An error about a flow that nobody knows has none of its own.
    let kept = (ctx.policy.filters_sessions(tuple.context()) || is_examined(ctx.policy, meta, F::protocol(key), there))
        && !meta.layers.flags.has(Flags::ICMP_ERROR);
    if way.target.is_none() && pool.is_none() && outside.is_none() && !kept {
        let keeps_address = keeps_address::<F>(ctx.policy, meta.interface, tuple, F::protocol(key));
        if !keeps_address || meta.origin != Origin::Received || meta.layers.flags.has(Flags::ICMP_ERROR) {
            return Plan::Plain;
        }
        if !ctx.policy.passes_untranslated {
            return Plan::Drop(sluice_nat::Reason::UntranslatedInbound.into());
        }
        if !may_begin(&meta.layers) {
            return Plan::Plain;
        }
    }
    if is_site(tuple.context()) {
        let Some(back) = subscriber::hop::<F>(ctx.policy, tuple.context(), tuple.source()) else {
            return Plan::Drop(Own::TerminalUnknown.into());
        };
        return Plan::Session(Translation {
            target: way.target,
            pool,
            outside,
            mapped: way.mapped,
            hops: [there, back],
            answers: Some(way.inside.unwrap_or(outer(tuple.context()))),
        });
    }
    let turned = meta.origin == Origin::Hairpinned;
    let router = ctx.policy.router_of(meta.interface);
    let answers = ctx.policy.lookup::<F>(router, way.translated(tuple).destination());
    let by_uplink = by_uplink::<F>(ctx, meta, way, (answers, tuple.source()));
    let back = match by_uplink.unwrap_or_else(|| {
        let flow = || F::hash_one(ctx.hasher, key);
        ctx.paths.find::<F>(answers, tuple.source(), flow)
    }) {
        _ if turned && is_outside_address::<F>(ctx.policy, tuple.context(), tuple.source()) => Hop::HAIRPIN,
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return Plan::Wait(wanted),
        Destination::Local => return Plan::Drop(Own::Loop.into()),
        Destination::Refused(reason) => return Plan::Drop(reason.into()),
    };
    Plan::Session(Translation {
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
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    way: &Way<F>,
    (answers, sender): (Lookup<'_>, F::Address),
) -> Option<Destination> {
    let is_uplink = ctx
        .policy
        .interface(meta.interface)
        .is_some_and(|interface| interface.outside);
    if way.target.is_none() || !is_uplink || meta.origin != Origin::Received {
        return None;
    }
    ctx.paths.find_by::<F>(answers, sender, meta.interface).or_else(|| {
        let address = ctx.policy.uplink(meta.interface, F::SIX)?;
        Some(ctx.paths.neighbour(Wanted {
            interface: meta.interface,
            address,
        }))
    })
}

/// Whether the answers to what comes in by an interface would get an outside address, though nobody has asked that: what began
/// outside, to an inside host's own address, is answered from there.
pub fn keeps_address<F: Family>(policy: &Policy, interface: u16, tuple: &F::Tuple, protocol: u8) -> bool {
    if !policy.interface(interface).is_some_and(|interface| interface.outside) {
        return false;
    }
    let answer = F::Tuple::new(
        tuple.destination(),
        tuple.source(),
        tuple.destination_port(),
        tuple.source_port(),
        tuple.context(),
    );
    let rules = &F::nat(policy).rules;
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
        TCP => opening::begins(layers),
        _ => !layers.flags.has(Flags::ICMP_REPLY),
    }
}

/// Whether a flow has a session as inspection, or the search for its application, needs one.
fn is_examined(policy: &Policy, meta: &Meta, protocol: u8, there: Hop) -> bool {
    let inspection = policy.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(meta.interface) || on.is_on(there.interface() as u16))
        || is_sought(policy, meta, protocol, there)
}

/// What becomes of a packet that a rule lets pass without a session: what needs one has it all the same, as translation does.
fn untracked<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key, way: &Way<F>, plan: Plan<F>) -> Plan<F> {
    let Plan::Session(Translation {
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
        || is_examined(ctx.policy, meta, protocol, hops[0])
        || keeps_address::<F>(ctx.policy, meta.interface, tuple, protocol) && may_begin(&meta.layers);
    match needs {
        true => plan,
        false => Plan::Plain,
    }
}

/// Whether a flow has a session for the sake of its application: not a connection whose beginning was not seen, nor what its
/// protocol says.
fn is_sought(policy: &Policy, meta: &Meta, protocol: u8, there: Hop) -> bool {
    policy.seeks([meta.interface, there.interface() as u16])
        && !is_icmp(protocol)
        && (protocol != TCP || meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN)
}

/// Who is behind an outside address and port.
fn inbound<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key) -> Inbound<F::Address> {
    // Queries are answered to whom the inside host asked, and nobody asks it by an identifier.
    let class = PortClass::of(F::protocol(key), <F::Address as Address>::BITS);
    let class = class.filter(|&class| class != PortClass::Query);
    let (Some(class), Some(shard)) = (class, ctx.shard_of(meta)) else {
        return Inbound::Unmapped;
    };
    let is_known = || {
        meta.layers.tcp_flags != 0
            && opening::reopens::<F>(shard, F::hash_one(ctx.hasher, key), key, &meta.layers).is_some()
    };
    F::bindings_ref(shard).inbound(F::tuple(key), class, is_known)
}

/// The interface that leads to a destination.
fn leaves(destination: Destination) -> Option<u16> {
    match destination {
        Destination::Hop(hop) => Some(hop.interface() as u16),
        Destination::Unknown(wanted) => Some(wanted.interface),
        Destination::Local | Destination::Refused(_) => None,
    }
}

/// A packet from inside to an outside address that is translated: its source is translated as if it left, and then it
/// comes back (RFC 4787, REQ-9).
#[cold]
fn hairpin<F: Family>(ctx: &Ctx<'_, '_>, router: RouterIndex, key: &F::Key, destination: Destination) -> Plan<F> {
    let (nat, tuple) = (F::nat(ctx.policy), F::tuple(key));
    let interfaces = (0u16..).zip(&ctx.policy.interfaces);
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
        true => subscriber::source::<F>(ctx.policy, tuple.context()),
        false => sourcing.map(|decided| decided.action),
    };
    match action {
        Some(SourceAction::Pool(index)) => pool = Some(index),
        Some(SourceAction::Static(address)) => outside = Some(address),
        _ if of_site => return Plan::Drop(Own::SiteAddressMissing.into()),
        Some(SourceAction::Exempt) | None => return Plan::Hairpin,
    }
    let session = |back| {
        Plan::Session(Translation {
            target: None,
            pool,
            outside,
            mapped: None,
            hops: [Hop::HAIRPIN, back],
            answers: of_site.then(|| outer(tuple.context())),
        })
    };
    if of_site {
        let back = subscriber::hop::<F>(ctx.policy, tuple.context(), tuple.source());
        return back.map_or(Plan::Drop(Own::TerminalUnknown.into()), session);
    }
    let answers = ctx.policy.lookup::<F>(router, tuple.destination());
    match ctx
        .paths
        .find::<F>(answers, tuple.source(), || F::hash_one(ctx.hasher, key))
    {
        Destination::Hop(back) => session(back),
        Destination::Unknown(wanted) => Plan::Wait(wanted),
        Destination::Local => Plan::Drop(Own::Loop.into()),
        Destination::Refused(reason) => Plan::Drop(reason.into()),
    }
}

/// A SYN from outside that nobody expects waits before it is answered.
fn unsolicited<F: Family>(
    ctx: &Ctx<'_, '_>,
    slot: Slot,
    meta: &Meta,
    key: &F::Key,
    reason: Reason,
) -> Option<Unsolicited> {
    use sluice_nat::Reason::{Filtered, Unsolicited as Unexpected};
    let waits = matches!(reason, Reason::Nat(Unexpected | Filtered))
        && !is_site(F::tuple(key).context())
        && ctx.policy.answers_syns
        && ctx.setup.unsolicited_syns > 0
        && meta.origin == Origin::Received
        && F::protocol(key) == TCP
        && meta.layers.fragment == Fragment::Whole
        && meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
    let pools = &F::nat(ctx.policy).pools;
    let pool = pools.owner(F::tuple(key).context(), F::tuple(key).destination());
    let timeouts = pool
        .and_then(|pool| pools.get(pool))
        .map_or(&ctx.policy.timeouts, |pool| pool.timeouts());
    let seconds = u64::from(timeouts.seconds(TimeoutClass::TCP_INCOMING_SYN));
    waits.then(|| Unsolicited {
        slot,
        hash: F::hash_one(ctx.hasher, key),
        due: ctx.now.nanoseconds + seconds * 1_000_000_000,
        reason,
    })
}

/// A later fragment shares what became of its first one: it has too little for rules to be asked, and what it would open
/// would let everything of its flow pass.
#[inline(always)]
fn followed<F: Family>(policy: &Policy, meta: &Meta, plan: Plan<F>) -> Plan<F> {
    let opens = matches!(plan, Plan::Session(_)) && meta.layers.fragment == Fragment::Later;
    let context = policy
        .interface(meta.interface)
        .map_or(0, |interface| interface.context);
    match opens && policy.filter_of(context).is_some() {
        true => Plan::Drop(sluice_filter::Reason::Fragment.into()),
        false => plan,
    }
}

/// Whether a later fragment passes by itself, as rules let it pass without a session.
#[inline(always)]
fn is_untracked_fragment<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &Way<F>,
    plan: &Plan<F>,
) -> bool {
    meta.layers.fragment == Fragment::Later
        && screen::<F>(ctx, meta, frame, key, way, plan).is_some_and(|header| {
            let filter = ctx.policy.filter_of(F::tuple(key).context());
            let fate = filter.map(|filter| F::filter(filter).would(&header));
            fate.is_some_and(|fate| fate.verdict == Verdict::AcceptUntracked)
                && matches!(untracked::<F>(ctx, meta, key, way, *plan), Plan::Plain)
        })
}

/// Whether a later fragment, which may open nothing itself, came together with what opens its session.
#[cold]
fn is_led<F: Family>(place: usize, keys: &[F::Key], plans: &[(Plan<F>, Option<RuleId>)]) -> bool {
    let before = keys.iter().zip(plans).take(place);
    let key = keys.get(place);
    before
        .filter(|(_, (plan, _))| matches!(plan, Plan::Session(_)))
        .any(|(other, _)| Some(other) == key)
}

/// What the filter is asked about a packet, if it is to be asked.
#[inline(always)]
fn screen<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    way: &Way<F>,
    plan: &Plan<F>,
) -> Option<Header<F::Number>> {
    let filter = ctx.policy.filter_of(F::tuple(key).context())?;
    let error = meta.layers.flags.has(Flags::ICMP_ERROR);
    if !asks(filter, plan) || error && matches!(plan, Plan::Session(_)) {
        return None;
    }
    let header = filter::header::<F>(ctx.policy, meta, frame, &way.translated(F::tuple(key)), way.outgoing());
    // What waits for a neighbour comes again, and counts then; what won't pass need not wait.
    let waits = matches!(plan, Plan::Wait(_)) && filter::would_pass::<F>(F::filter(filter), &header);
    (!waits).then_some(header)
}

/// What becomes of a packet that does not pass the filter.
#[inline(always)]
fn turned_away<F: Family>((complaint, reason): Refused) -> Plan<F> {
    match complaint {
        Some(complaint) => Plan::Complain(complaint, reason),
        None => Plan::Drop(reason),
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
struct Tally {
    rule: Option<RuleId>,
    flows: u64,
}

impl Tally {
    #[inline(always)]
    fn note(&mut self, rule: Option<RuleId>, count: impl FnOnce(RuleId, u64)) {
        if rule == self.rule {
            self.flows += 1;
        } else {
            let before = std::mem::replace(self, Self { rule, flows: 1 });
            before.settle(count);
        }
    }

    #[inline(always)]
    fn settle(self, count: impl FnOnce(RuleId, u64)) {
        if let Some(rule) = self.rule {
            count(rule, self.flows);
        }
    }
}

/// Decide about packets of no known session. Rules are asked about all of them together.
#[inline(never)]
pub fn decide<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let mut slots = std::mem::take(F::decides(lists));
    let policy = ctx.policy;
    if policy.bridges {
        slots = bridge::open::<F>(slots, batch, lists, ctx);
    }
    let mut openings = Openings::<F>::default();
    if policy.hosted {
        host::open::<F>(&mut slots, batch, lists, &mut openings, ctx);
    }
    let rules = &F::nat(policy).rules;
    let mut keys = ArrayVec::<F::Key, HAND>::new();
    let mut flows = ArrayVec::<_, HAND>::new();
    for &slot in &slots {
        let meta = batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.policy.context(meta, frame);
        let key = F::key(&meta.layers, frame, context);
        put(&mut keys, key);
        put(&mut flows, (*F::tuple(&key), F::protocol(&key), meta.interface));
    }
    let mut redirections = [None; HAND];
    rules.match_destinations(&flows, &mut redirections);
    let mut ways = ArrayVec::<_, HAND>::new();
    let mut leaving = ArrayVec::<_, HAND>::new();
    for (((&slot, key), &(tuple, protocol, _)), &redirection) in slots.iter().zip(&keys).zip(&flows).zip(&redirections)
    {
        let way = match subscriber::nobodys::<F>(ctx.policy, batch.meta(slot), key) {
            Some(reason) => Err(Plan::Drop(reason.into())),
            None => way::<F>(ctx, batch.meta(slot), key, redirection, None),
        };
        if let Ok(Way {
            there, settled: false, ..
        }) = way
        {
            put(&mut leaving, (tuple, protocol, leaves(there).unwrap_or(u16::MAX)));
        }
        put(&mut ways, way);
    }
    let mut sourcings = [None; HAND];
    rules.match_sources(&leaving, &mut sourcings);
    let mut sourcings = sourcings.iter();
    let (mut plans, mut asked) = (ArrayVec::<_, HAND>::new(), Asked::<F>::default());
    for (place, ((&slot, key), &way)) in slots.iter().zip(&keys).zip(&ways).enumerate() {
        let meta = batch.meta(slot);
        let mut sourcing = None;
        let plan = match way {
            Ok(way) => {
                if !way.settled {
                    sourcing = sourcings.next().copied().flatten();
                }
                let frame = batch.packets[slot as usize].bytes();
                let plan = join::<F>(ctx, meta, key, &way, sourcing);
                let plan = match is_untracked_fragment::<F>(ctx, meta, frame, key, &way, &plan) {
                    true => plan,
                    false => followed::<F>(policy, meta, plan),
                };
                let plan = subscriber::unless_forged::<F>(policy, meta, frame, key, plan);
                if let Some(header) = screen::<F>(ctx, meta, frame, key, &way, &plan) {
                    asked.ask(place, header);
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
    let mut led = ArrayVec::<Slot, HAND>::new();
    if let Some(filter) = policy.filter.as_deref() {
        let marked = |place: usize, marking: Marking| {
            openings.mark(slots[place], marking);
            if !marking.class.is_any() {
                let slot = slots[place] as usize % HAND;
                set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
            }
        };
        for (place, exception) in asked.exceptions(filter, ctx, marked) {
            plans[place].0 = match (exception, &ways[place]) {
                (Exception::Refused(refused), _) => turned_away(refused),
                (Exception::Untracked, Ok(way)) => {
                    untracked::<F>(ctx, batch.meta(slots[place]), &keys[place], way, plans[place].0)
                }
                (Exception::Untracked, Err(_)) => continue,
            };
        }
    }
    let (mut sources, mut destinations) = (Tally::default(), Tally::default());
    let tools = ctx.tools();
    let decided = slots.iter().zip(&keys).zip(&plans).zip(&redirections);
    for (place, (((&slot, key), &(plan, source)), redirection)) in decided.enumerate() {
        let meta = &mut batch.meta[slot as usize % HAND];
        if matches!(plan, Plan::Session(_) | Plan::Plain) {
            sources.note(source, |rule, flows| rules.count_source(rule, flows));
            let rule = redirection.map(|decided| decided.rule);
            destinations.note(rule, |rule, flows| rules.count_destination(rule, flows));
        }
        let error = meta.layers.flags.has(Flags::ICMP_ERROR);
        match plan {
            // What would have to be translated is about a session that does not exist (RFC 5508, REQ-4 and REQ-5).
            Plan::Session(_) | Plan::Drop(Reason::Nat(sluice_nat::Reason::Unsolicited)) if error => {
                lists.discard(slot, sluice_nat::Reason::IcmpErrorWithoutSession);
            }
            Plan::Session(translation) => {
                count_host::<F>(rules, redirection, translation.target);
                openings.ask(slot, *key, translation);
            }
            Plan::Plain => {
                let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
                if let Some(shard) = shard.filter(|_| opening::begins(&meta.layers)) {
                    let hash = F::hash_one(ctx.hasher, key);
                    if let Some(index) = opening::reopens::<F>(shard, hash, key, &meta.layers) {
                        end::<F>(shard, index, &tools);
                    }
                }
                put(F::forwards(lists), slot);
            }
            Plan::Gateway => put(&mut lists.gateway, slot),
            Plan::Hairpin => {
                meta.origin = Origin::Hairpinned;
                put(F::lookups(lists), slot);
            }
            Plan::Wait(wanted) => lists.wait(slot, Some(wanted)),
            Plan::Complain(complaint, reason) => lists.complain(slot, complaint, reason),
            Plan::Drop(Reason::Filter(sluice_filter::Reason::Fragment)) if is_led::<F>(place, &keys, &plans) => {
                put(&mut led, slot);
            }
            Plan::Drop(reason) => match unsolicited::<F>(ctx, slot, meta, key, reason) {
                Some(syn) => put(&mut lists.park_syn, syn),
                None => lists.discard(slot, reason),
            },
        }
    }
    sources.settle(|rule, flows| rules.count_source(rule, flows));
    destinations.settle(|rule, flows| rules.count_destination(rule, flows));
    openings.open(batch, lists, ctx);
    led.into_iter().for_each(|slot| put(F::lookups(lists), slot));
}
