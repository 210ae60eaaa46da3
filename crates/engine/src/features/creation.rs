//! Session creation: the packets of a batch that have no session pass through five steps together, as one array of new
//! flows. Each step prefetches the memory that the next step reads.
//!
//! 1. classify: builds the keys and matches destination rules;
//! 2. route: looks up routes and matches source rules;
//! 3. filter: evaluates the filter rules;
//! 4. allocate: allocates ports, in the order of the packets;
//! 5. insert: writes the records.
//!
//! Hairpinning ([`hairpin`]) and subscribers' sites ([`super::sites`]) have variants of these steps. [`decide()`]
//! executes the first three steps for a single flow, to revalidate a session of an older snapshot.
//!
//! The result equals the result of creating the sessions one by one in packet order: the first packet of a flow creates
//! the session, and ports are allocated in packet order. The division of packets into batches doesn't change the
//! result.

mod allocate;
mod classify;
mod decide;
mod destination;
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
pub use destination::choose_host;
pub use insert::KeyHashes;
pub use route::{needs_host_session, refused};

/// The decision for a new flow.
#[derive(Clone, Copy)]
pub enum FlowDecision<F: Family> {
    /// Create a session with this translation.
    Session(FlowTranslation<F>),
    /// Forward without a session.
    Plain,
    /// Deliver to the gateway itself.
    Gateway,
    /// Translate the destination, which is an outside address, to its inside host, as for a packet from outside. The
    /// source is not translated.
    Hairpin,
    /// Resolve a neighbour before a session is created.
    Wait(UnresolvedNeighbour),
    /// Reject with an ICMP error.
    SendIcmpError(IcmpError, Reason),
    /// Drop the packet without an ICMP error.
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
    /// Pool of the mapping that translated the destination to the target.
    pub mapped: Option<PoolIndex>,
    /// Adjacencies of the forward and the reverse direction.
    pub hops: [AdjacencyIndex; 2],
    /// Context of the reverse direction; `None` if it equals the context of the forward direction.
    pub answers: Option<Context>,
}

impl<F: Family> FlowTranslation<F> {
    /// Context of the reverse direction of a flow whose forward direction has the context `context`.
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
    /// Pool of the mapping that translated the destination to the target.
    pub mapped: Option<PoolIndex>,
    /// An adjacency, or a neighbour that must be resolved first.
    pub there: ForwardingDecision,
    /// Whether the decision is complete without source rules.
    pub settled: bool,
    /// Context of the inside host to which the flow is translated; `None` if the inside host has the context of the
    /// flow itself.
    pub inside: Option<Context>,
}

impl<F: Family> RoutedFlow<F> {
    /// The egress interface.
    #[inline(always)]
    pub fn outgoing(&self) -> u16 {
        route::egress(self.there).unwrap_or(u16::MAX)
    }

    /// The tuple of a flow, in which the destination is replaced by the translated destination.
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

/// The ICMP error to the sender, if any, and the drop reason.
pub type Refusal = (Option<IcmpError>, Reason);

/// State of the creation of a flow's session.
#[derive(Clone, Copy)]
pub enum CreationState<F: Family> {
    /// A session may be created for the flow.
    Queried,
    /// No session is created, and the packet was passed to another node.
    Decided,
    /// The flow already has a session.
    Known,
    /// An earlier packet of the batch already belongs to this flow. The value is the position of the earlier packet's
    /// flow, and the later packet gets the result of that flow.
    SameFlow(u8),
    /// No session is created, for this reason.
    Refused(Refusal),
    /// The session is complete except for its record. The flag is true if another session may have the same outside
    /// port.
    Made(decision::Translation<F::Tuple>, bool),
    /// The neighbour of the next hop was removed after the decision, so the decision must be repeated.
    Stale,
}

/// A packet without a session, with the results of the steps for its flow.
#[derive(Clone, Copy)]
pub struct NewFlow<F: Family> {
    /// Buffer index of the packet.
    pub slot: BufferIndex,
    /// The destination rule that matches the flow.
    pub destination: DestinationMatch<F>,
    /// The route of the flow; `None` if the decision is already made.
    route: Option<RoutedFlow<F>>,
    /// Rule number of the source rule that matches the flow.
    pub source_rule: Option<RuleId>,
    /// The decision for the flow.
    pub decision: FlowDecision<F>,
    /// Request for an outside port, if the flow needs one.
    request: Option<PortRequest<F::Address>>,
    /// State of the creation of the flow's session.
    pub state: CreationState<F>,
    /// Whether the new session replaces the session of a closed connection.
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

/// The packets of a batch that have no session, in order.
pub struct NewFlows<F: Family> {
    /// The new flows of the batch.
    pub flows: ArrayVec<NewFlow<F>, BURST_BUFFERS>,
    /// Keys of the flows, at the same positions as in `flows`. The keys are contiguous in memory, so that they are
    /// hashed together.
    pub keys: ArrayVec<F::Key, BURST_BUFFERS>,
    /// Number of flows that were added together with their decision. These flows are at the start of `flows`.
    pub classified: usize,
    /// Marks and traffic classes that filter rules have set.
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
    /// Adds a packet for whose flow the decision was already made: the flow gets a session with this translation. It
    /// passes only through the last two steps.
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

/// The shard to which a packet belongs.
#[inline(always)]
fn shard_of<'s, 'm>(ctx: &'s mut NodeContext<'_, 'm>, meta: &Meta) -> Option<&'s mut Shard<'m>> {
    ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut)
}

/// Whether a TCP segment may be the first of its connection.
#[inline(always)]
pub fn is_first_segment(layers: &Layers) -> bool {
    layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN
}

/// Ends a session that a new session replaces.
#[cold]
fn replace<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, key: &F::Key, hash: u64) {
    let tools = ctx.tools();
    if let Some(shard) = shard_of(ctx, meta)
        && let Some(old) = reusable_session::<F>(shard, hash, key, &meta.layers)
    {
        end::<F>(shard, old, &tools);
    }
}

/// The session of a closed connection whose endpoints a packet uses for a new connection. The packet may come from
/// either endpoint. The new connection gets a new session, which replaces the returned session.
pub fn reusable_session<F: Family>(shard: &Shard<'_>, hash: u64, key: &F::Key, layers: &Layers) -> Option<RecordIndex> {
    let (index, _) = F::table_ref(shard).find(hash, key)?;
    let session = F::table_ref(shard).get(index)?;
    (is_first_segment(layers) && session.track().tracking.has_ended()).then_some(index)
}
