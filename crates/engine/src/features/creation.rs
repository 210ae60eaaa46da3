//! Session creation: the packets of a batch that belong to no session take five steps together, over one array of new flows. Each
//! pass asks memory for what the next one reads.
//!
//! 1. classify: their keys, and what destination rules say;
//! 2. route: where they go, and what source rules say;
//! 3. filter: which may begin;
//! 4. allocate: their ports, in the order of the packets;
//! 5. insert: their records.
//!
//! Hairpinning ([`hairpin`]) and subscribers' sites ([`super::sites`]) are variants beside the steps. [`decide()`] takes a single flow
//! through the first three, for sessions of an older snapshot.
//!
//! The outcome is that of opening one after the other in the order of the packets: of several packets of one flow the
//! first opens the session, and ports are lent in that order, so that how packets fall into batches does not show.

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
    SendIcmpError(IcmpError, Reason),
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
pub struct RoutedFlow<F: Family> {
    /// Where a destination rule or a mapping leads.
    pub target: Option<Target<F::Address>>,
    /// Pool whose mapping leads there.
    pub mapped: Option<PoolIndex>,
    /// A hop, or a neighbour that has to be found first.
    pub there: ForwardingDecision,
    /// Source rules have nothing to say about it.
    pub settled: bool,
    /// Context of the inside host that it leads to, where that is another than of its own.
    pub inside: Option<Context>,
}

impl<F: Family> RoutedFlow<F> {
    /// The interface that it leaves by.
    #[inline(always)]
    pub fn outgoing(&self) -> u16 {
        route::egress(self.there).unwrap_or(u16::MAX)
    }

    /// A flow's tuple with its destination as translated.
    #[inline(always)]
    pub fn translated(&self, tuple: &F::Tuple) -> F::Tuple {
        let Some(Target { address, port }) = self.target else {
            return *tuple;
        };
        F::Tuple::new(tuple.source(), address, tuple.source_port(), port, tuple.context())
    }
}

/// What a destination rule says of a flow.
pub type DestinationMatch<F> = Option<RuleMatch<rule::Destination<<F as Family>::Address>>>;
/// What a source rule says of it.
type SourceMatch<F> = Option<RuleMatch<SourceAction<<F as Family>::Address>>>;

/// Why no session is opened, and what the sender is told.
pub type Refusal = (Option<IcmpError>, Reason);

/// How far a flow's session has come.
#[derive(Clone, Copy)]
pub enum CreationState<F: Family> {
    /// It may have one.
    Asked,
    /// It has none, and its packet has gone on.
    Decided,
    /// It has one already.
    Known,
    /// It belongs to the flow of an earlier packet of the batch, and shares what becomes of that.
    Follows(u8),
    /// It may have none.
    Refused(Refusal),
    /// Everything but the record is there; whether another session may have the same outside port.
    Made(decision::Translation<F::Tuple>, bool),
    /// The neighbour that it leads to went away meanwhile: to be decided again.
    Stale,
}

/// A packet that belongs to no session, and what the steps have found out of its flow.
#[derive(Clone, Copy)]
pub struct NewFlow<F: Family> {
    /// The packet.
    pub slot: BufferIndex,
    /// What a destination rule says.
    pub destination: DestinationMatch<F>,
    /// Where it goes; none where that has decided already.
    route: Option<RoutedFlow<F>>,
    /// The source rule that decided.
    pub source_rule: Option<RuleId>,
    /// What is to become of it.
    pub decision: FlowDecision<F>,
    /// Where its outside port shall come from, if it needs one.
    request: Option<PortRequest<F::Address>>,
    /// How far its session has come.
    pub state: CreationState<F>,
    /// It takes the place of a session whose connection has ended.
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
            state: CreationState::Asked,
            replaces: false,
        }
    }
}

/// The packets of a batch that belong to no session, in order.
pub struct NewFlows<F: Family> {
    /// The flows.
    pub flows: ArrayVec<NewFlow<F>, BURST_BUFFERS>,
    /// Their keys, by the same place: they are hashed together.
    pub keys: ArrayVec<F::Key, BURST_BUFFERS>,
    /// The flows before this place came with their decision.
    pub classified: usize,
    /// What rules of the filter have set.
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
    /// A packet of which others have decided that it gets a session: it takes the last two steps alone.
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

/// End the session whose place another one takes.
#[cold]
fn replace<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, key: &F::Key, hash: u64) {
    let tools = ctx.tools();
    if let Some(shard) = shard_of(ctx, meta)
        && let Some(old) = reusable_session::<F>(shard, hash, key, &meta.layers)
    {
        end::<F>(shard, old, &tools);
    }
}

/// The session of a connection that has ended between the ends of a packet that begins another one, which takes its place. Its key
/// may be of either direction.
pub fn reusable_session<F: Family>(shard: &Shard<'_>, hash: u64, key: &F::Key, layers: &Layers) -> Option<RecordIndex> {
    let (index, _) = F::table_ref(shard).find(hash, key)?;
    let session = F::table_ref(shard).get(index)?;
    (is_first_segment(layers) && session.track().tracking.has_ended()).then_some(index)
}
