//! Runs each node that has packets once, in the order of the table of nodes.

use super::declaration::Node;
use super::session_lookup::LookupScratch;
use crate::features::context::NodeContext;
use crate::features::inspection::Inspector;
use crate::features::virtual_reassembly::Ready;
use crate::packet::batch::Batch;
use crate::packet::counters::CycleStage;
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Lists, NodeIndex, SlotList};
use crate::session::family::{V4, V6};

/// Observer of packets in the graph, for traces and captures.
pub trait Observer {
    /// Called after a node has run.
    fn after(&mut self, node: NodeIndex, lists: &Lists);
    /// Called before packets leave through inter-router links, while their frames are still unchanged.
    fn crosses(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>);
    /// Called after packets have been decapsulated.
    fn arrives(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>);
}

/// State that only a few nodes need.
pub struct NodeTools<'t> {
    /// Temporary memory of session lookup.
    pub lookups: &'t mut LookupScratch,
    /// Inspection state, if any interface is inspected.
    pub inspector: Option<&'t mut Inspector>,
    /// Receiver of parked fragments that can be processed because the first fragment of their datagram has arrived.
    pub ready: &'t mut Ready<'t>,
    /// Observer of packets.
    pub observer: Option<&'t mut dyn Observer>,
    /// Function that reads the cycle counter.
    pub cycles: fn() -> u64,
    /// Value of the cycle counter at the end of the previous node.
    pub mark: u64,
}

impl NodeTools<'_> {
    /// Records that a node has run and has processed `packets` packets.
    #[inline(always)]
    fn record_run(&mut self, index: NodeIndex, node: &Node, packets: usize, lists: &Lists, ctx: &NodeContext<'_, '_>) {
        let now = (self.cycles)();
        let cycles = now.wrapping_sub(self.mark);
        self.mark = now;
        if let Some(counters) = ctx.counters.nodes.get(index as usize) {
            counters.runs.add(1);
            counters.packets.add(packets as u64);
            counters.cycles.add(cycles);
        }
        let stage = match node.stage {
            // A worker that has no sessions, or that defers its packets, only distributes packets here. The cycles for
            // distributing packets count as parsing.
            Some(CycleStage::Session) if only_looks_up(ctx) => Some(CycleStage::Parse),
            stage => stage,
        };
        if let Some(stage) = stage {
            ctx.counters.cycles[stage as usize].add(cycles);
        }
        if let Some(observer) = &mut self.observer {
            observer.after(index, lists);
        }
    }
}

#[inline(always)]
fn only_looks_up(ctx: &NodeContext<'_, '_>) -> bool {
    !ctx.role.sessions.is_empty() && (ctx.defers || ctx.start.assist.is_none())
}

macro_rules! dispatch {
    ($($(#[$only:meta])* $kind:ident $node:ident: $list:ty;)+) => {
        /// All nodes, including inline nodes, in the order of the table.
        pub const NODES: &[Node] = &[$($(#[$only])* super::$node::NODE),+];

        /// For each node: whether it has its own list of packets. Inline nodes have no list.
        pub const HAS_LIST: &[bool] = &[$($(#[$only])* dispatch!(@has $kind)),+];

        /// Runs each node that has packets once.
        #[inline(always)]
        pub fn run_nodes(
            batch: &mut Batch<'_, '_>,
            lists: &mut Lists,
            ctx: &mut NodeContext<'_, '_>,
            tools: &mut NodeTools<'_>,
        ) {
            $($(#[$only])* dispatch!(@$kind $node batch lists ctx tools);)+
        }
    };
    (@has inline) => { false };
    (@has $kind:ident) => { true };
    (@inline $($of:ident)+) => {};
    (@list $node:ident $batch:ident $lists:ident $ctx:ident $tools:ident) => {{
        let waiting = SlotList::len(&$lists.$node);
        if waiting != 0 {
            super::$node::$node($batch, $lists, $ctx, $tools);
            $tools.record_run(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
    }};
    (@by_family $node:ident $batch:ident $lists:ident $ctx:ident $tools:ident) => {{
        let waiting = SlotList::len(&$lists.$node.v4);
        if waiting != 0 {
            super::$node::$node::<V4>($batch, $lists, $ctx, $tools);
            $tools.record_run(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
        let waiting = SlotList::len(&$lists.$node.v6);
        if waiting != 0 {
            super::$node::$node::<V6>($batch, $lists, $ctx, $tools);
            $tools.record_run(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
    }};
}

node_table!(dispatch);

impl NodeIndex {
    /// The declaration of the node.
    pub fn node(self) -> &'static Node {
        &NODES[self as usize]
    }
}
