//! Session creation: the packets of a batch without a session take five steps together, over one array of new flows. Each step
//! prefetches what the next one reads.
//!
//! 1. classify: builds the keys and matches destination rules;
//! 2. route: looks up routes and matches source rules;
//! 3. filter: evaluates the filter rules;
//! 4. allocate: allocates ports, in the order of the packets;
//! 5. insert: writes the records.
//!
//! Hairpinning ([`hairpin`]) and subscribers' sites ([`super::sites`]) are variants of the steps. [`decide()`] takes a single
//! flow through the first three, to revalidate sessions of an older snapshot.
//!
//! The outcome equals that of creating one session after the other in the order of the packets: the first of several packets of
//! a flow creates the session, and ports are allocated in that order. How packets are divided into batches makes no difference.

mod allocate;
mod classify;
mod decide;
mod filter;
mod hairpin;
mod insert;
mod other_port;
mod route;

use arrayvec::ArrayVec;
use sluice_filter::SessionMarking;
use sluice_nat::bindings::PortRequest;
use sluice_nat::rule::{self, RuleMatch, SourceAction};
use sluice_nat::{PoolIndex, RuleId, Target, Tuple, decision};
use sluice_table::flow::RecordIndex;
use sluice_wire::Context;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::features::context::NodeContext;
use crate::features::session_end::end;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::reason::Reason;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingDecision;

pub use decide::decide;
pub use insert::KeyHashes;
pub use route::{choose_host, keeps_address, refused};

/// The decision about a flow.
#[derive(Clone, Copy)]
pub enum FlowDecision<F: Family> {
    /// Create a session with this translation.
    Session(FlowTranslation<F>),
    /// Forward without a session.
    Plain,
    /// Deliver to the gateway itself.
    Gateway,
    /// Forward to an inside host by its outside address, from a source that is not translated, as if it came from outside.
    Hairpin,
    /// Resolve the neighbour before the flow gets a session.
    Wait(UnresolvedNeighbour),
    /// Reject with an ICMP error.
    SendIcmpError(IcmpError, Reason),
    /// Drop the packet silently.
    Drop(Reason),
}

/// The translation and the adjacencies of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowTranslation<F: Family> {
    /// Target of a destination rule.
    pub target: Option<Target<F::Address>>,
    /// Pool of a source rule.
    pub pool: Option<PoolIndex>,
    /// Outside address of the source for a static one-to-one translation.
    pub outside: Option<F::Address>,
    /// Pool with the mapping that translates the destination to the target.
    pub mapped: Option<PoolIndex>,
    /// Adjacencies of both directions.
    pub hops: [AdjacencyIndex; 2],
    /// Context of the reverse direction, if it differs from that of the forward direction.
    pub answers: Option<Context>,
}

impl<F: Family> FlowTranslation<F> {
    /// The context of the reverse direction of a flow in `context`.
    #[inline(always)]
    pub fn answers(&self, context: Context) -> Context {
        self.answers.unwrap_or(context)
    }
}

/// A flow after the route lookup, before source rules are matched.
#[derive(Clone, Copy, Debug)]
pub struct RoutedFlow<F: Family> {
    /// Target of a destination rule or mapping.
    pub target: Option<Target<F::Address>>,
    /// Pool with the mapping that translates the destination to the target.
    pub mapped: Option<PoolIndex>,
    /// An adjacency, or a neighbour to be resolved first.
    pub there: ForwardingDecision,
    /// No source rule applies.
    pub settled: bool,
    /// Context of the inside host that the flow is translated to, if it differs from the flow's own.
    pub inside: Option<Context>,
}

impl<F: Family> RoutedFlow<F> {
    /// The egress interface.
    #[inline(always)]
    pub fn outgoing(&self) -> u16 {
        route::egress(self.there).unwrap_or(u16::MAX)
    }

    /// A flow's tuple with its translated destination.
    #[inline(always)]
    pub fn translated(&self, tuple: &F::Tuple) -> F::Tuple {
        let Some(Target { address, port }) = self.target else {
            return *tuple;
        };
        F::Tuple::new(tuple.source(), address, tuple.source_port(), port, tuple.context())
    }
}

/// The destination rule that matches a flow.
pub type DestinationMatch<F> = Option<RuleMatch<rule::Destination<<F as Family>::Address>>>;
/// The source rule that matches a flow.
type SourceMatch<F> = Option<RuleMatch<SourceAction<<F as Family>::Address>>>;

/// The ICMP error for the sender, if any, and the reason why no session is created.
pub type Refusal = (Option<IcmpError>, Reason);

/// Progress of the session of a flow.
#[derive(Clone, Copy)]
pub enum CreationState<F: Family> {
    /// The flow may get a session.
    Queried,
    /// The flow gets no session, and its packet has been sent on.
    Decided,
    /// The flow has a session already.
    Known,
    /// An earlier packet of the batch belongs to the same flow, and this one shares its result.
    Follows(u8),
    /// The flow gets no session, for this reason.
    Refused(Refusal),
    /// Everything but the record is complete. The flag tells whether another session may have the same outside port.
    Made(decision::Translation<F::Tuple>, bool),
    /// The next hop's neighbour was removed in the meantime, so that the flow must be decided again.
    Stale,
}

/// A packet without a session, and the results of the steps for its flow.
#[derive(Clone, Copy)]
pub struct NewFlow<F: Family> {
    /// The packet's slot.
    pub slot: BufferIndex,
    /// The destination rule that matches.
    pub destination: DestinationMatch<F>,
    /// The route. `None` if the decision is already made.
    route: Option<RoutedFlow<F>>,
    /// The source rule that matches the flow.
    pub source_rule: Option<RuleId>,
    /// The decision about the flow.
    pub decision: FlowDecision<F>,
    /// The port request, if the flow needs an outside port.
    request: Option<PortRequest<F::Address>>,
    /// Progress of the flow's session.
    pub state: CreationState<F>,
    /// The new session replaces that of a closed connection.
    replaces: bool,
}

impl<F: Family> NewFlow<F> {
    fn new(slot: BufferIndex, destination: DestinationMatch<F>, decision: FlowDecision<F>) -> Self {
        Self {
            slot,
            destination,
            route: None,
            source_rule: None,
            decision,
            request: None,
            state: CreationState::Queried,
            replaces: false,
        }
    }
}

/// The packets of a batch without a session, in order.
pub struct NewFlows<F: Family> {
    /// The new flows of the batch.
    pub flows: ArrayVec<NewFlow<F>, BURST_BUFFERS>,
    /// Their keys at the same places, contiguous so that they are hashed together.
    pub keys: ArrayVec<F::Key, BURST_BUFFERS>,
    /// The flows before this place were pushed with their decision.
    pub classified: usize,
    /// Marks and classes that filter rules have set.
    markings: ArrayVec<(BufferIndex, SessionMarking), BURST_BUFFERS>,
}

impl<F: Family> Default for NewFlows<F> {
    fn default() -> Self {
        Self {
            flows: ArrayVec::new(),
            keys: ArrayVec::new(),
            classified: 0,
            markings: ArrayVec::new(),
        }
    }
}

impl<F: Family> NewFlows<F> {
    /// Add a packet whose flow is already decided to get a session. It takes only the last two steps.
    #[inline(always)]
    pub fn push(&mut self, slot: BufferIndex, key: F::Key, translation: FlowTranslation<F>) {
        put(
            &mut self.flows,
            NewFlow::new(slot, None, FlowDecision::Session(translation)),
        );
        put(&mut self.keys, key);
        self.classified = self.flows.len();
    }
}

/// The shard of a packet.
#[inline(always)]
fn shard_of<'s, 'm>(ctx: &'s mut NodeContext<'_, 'm>, meta: &Meta) -> Option<&'s mut Shard<'m>> {
    ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut)
}

/// Whether a TCP segment is the first of its connection.
#[inline(always)]
pub fn is_first_segment(layers: &Layers) -> bool {
    layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN
}

/// End the session that a new one replaces.
#[cold]
fn replace<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, key: &F::Key, hash: u64) {
    let tools = ctx.tools();
    if let Some(shard) = shard_of(ctx, meta)
        && let Some(old) = reusable_session::<F>(shard, hash, key, &meta.layers)
    {
        end::<F>(shard, old, &tools);
    }
}

/// The session of a closed connection with the endpoints of a packet that starts a new connection, which replaces it. The
/// packet may have either direction.
pub fn reusable_session<F: Family>(shard: &Shard<'_>, hash: u64, key: &F::Key, layers: &Layers) -> Option<RecordIndex> {
    let (index, _) = F::table_ref(shard).find(hash, key)?;
    let session = F::table_ref(shard).get(index)?;
    (is_first_segment(layers) && session.track().tracking.has_ended()).then_some(index)
}
