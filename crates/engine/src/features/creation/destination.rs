//! Translation of the destinations of new flows, by rules and by mappings.

use sluice_nat::bindings::Inbound;
use sluice_nat::rule::{self, Balance, HostSetIndex, SetHost};
use sluice_nat::sites::{is_site, outer};
use sluice_nat::{Address, PoolIndex, PortClass, Target, Tuple};
use sluice_wire::Context;

use crate::features::context::NodeContext;
use crate::packet::batch::Meta;
use crate::session::family::Family;

use super::{DestinationMatch, FlowDecision, reusable_session};

/// The translation of a flow's destination.
pub(super) struct Destination<F: Family> {
    pub(super) target: Option<Target<F::Address>>,
    /// Pool of the mapping that determines the target.
    pub(super) mapped: Option<PoolIndex>,
    /// Whether a rule exempts the flow from translation.
    pub(super) exempt: bool,
    /// Context of the inside host of the mapping, if the host belongs to a site.
    pub(super) inside: Option<Context>,
    /// Whether the destination is a pool address for which no rule determines a target.
    pub(super) pooled: bool,
}

/// Translates the destination of a flow by the rule that matches the flow, or by a mapping. `outside` is true if the
/// packet came from outside.
#[inline(always)]
pub(super) fn translate_destination<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    (redirection, host): (DestinationMatch<F>, Option<F::Address>),
    outside: bool,
) -> Result<Destination<F>, FlowDecision<F>> {
    let (nat, tuple) = (ctx.snapshot.nat::<F>(), &F::tuple(key));
    let (mut target, mut mapped, mut exempt, mut inside) = (None, None, false, None);
    let context = outer(tuple.context());
    match redirection.map(|decided| decided.action) {
        Some(rule::Destination::To(to)) => target = Some(to),
        Some(rule::Destination::Among(set, port)) => target = Some(choose_host::<F>(ctx, key, set, port, host)?),
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
    Ok(Destination {
        target,
        mapped,
        exempt,
        inside,
        pooled,
    })
}

/// Selects a host for a flow that a rule distributes to several hosts. The host `kept` is selected if it is one of
/// these hosts.
#[cold]
pub fn choose_host<F: Family>(
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
                    let tuple = &F::tuple(key);
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

/// Looks up the inside host of an outside address and port.
fn inbound<F: Family>(ctx: &NodeContext<'_, '_>, meta: &Meta, key: &F::Key) -> Inbound<F::Address> {
    // Replies to ICMP queries belong to existing sessions, and the identifier of a query from outside can't select an inside host.
    let class = PortClass::of(F::protocol(key), <F::Address as Address>::BITS);
    let class = class.filter(|&class| class != PortClass::Query);
    let (Some(class), Some(shard)) = (class, ctx.shard_of(meta)) else {
        return Inbound::Unmapped;
    };
    let is_known = || {
        meta.layers.tcp_flags != 0
            && reusable_session::<F>(shard, F::hash_one(ctx.hasher, key), key, &meta.layers).is_some()
    };
    F::bindings_ref(shard).inbound(&F::tuple(key), class, is_known)
}
