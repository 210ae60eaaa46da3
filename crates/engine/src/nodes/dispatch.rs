//! Every node with work, once: in the order of the table.

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

/// Who watches packets on their way: traces and captures.
pub trait Observer {
    /// A node has run.
    fn after(&mut self, node: NodeIndex, lists: &Lists);
    /// Packets leave by virtual links, as they are.
    fn crosses(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>);
    /// Packets have come out of tunnels.
    fn arrives(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>);
}

/// What nodes work with beside the batch, the lists and the context: few need any of it.
pub struct NodeTools<'t> {
    /// What the passes of session lookup leave for each other.
    pub lookups: &'t mut LookupScratch,
    /// What inspects, where anything is inspected.
    pub inspector: Option<&'t mut Inspector>,
    /// Takes packets whose datagram is known by now.
    pub ready: &'t mut Ready<'t>,
    /// Who watches.
    pub observer: Option<&'t mut dyn Observer>,
    /// A clock of cycles.
    pub cycles: fn() -> u64,
    /// When the last node was done, by that clock.
    pub mark: u64,
}

impl NodeTools<'_> {
    /// A node has run, and `packets` had waited for it.
    #[inline(always)]
    fn ran(&mut self, index: NodeIndex, node: &Node, packets: usize, lists: &Lists, ctx: &NodeContext<'_, '_>) {
        let now = (self.cycles)();
        let cycles = now.wrapping_sub(self.mark);
        self.mark = now;
        if let Some(counters) = ctx.counters.nodes.get(index as usize) {
            counters.runs.add(1);
            counters.packets.add(packets as u64);
            counters.cycles.add(cycles);
        }
        let stage = match node.stage {
            // Who has no sessions, or leaves them for later, only finds out who has.
            Some(CycleStage::Session) if finds_only(ctx) => Some(CycleStage::Parse),
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
fn finds_only(ctx: &NodeContext<'_, '_>) -> bool {
    !ctx.role.sessions.is_empty() && (ctx.defers || ctx.start.assist.is_none())
}

macro_rules! dispatch {
    ($($(#[$only:meta])* $kind:ident $node:ident: $list:ty;)+) => {
        /// Every node, the ends included, in the order of the table.
        pub const NODES: &[Node] = &[$($(#[$only])* super::$node::NODE),+];

        /// Whether packets wait for a node on a list of its own; others do its part on the way where not.
        pub const HAS_LIST: &[bool] = &[$($(#[$only])* dispatch!(@has $kind)),+];

        /// Every node with work, once.
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
            $tools.ran(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
    }};
    (@by_family $node:ident $batch:ident $lists:ident $ctx:ident $tools:ident) => {{
        let waiting = SlotList::len(&$lists.$node.v4);
        if waiting != 0 {
            super::$node::$node::<V4>($batch, $lists, $ctx, $tools);
            $tools.ran(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
        let waiting = SlotList::len(&$lists.$node.v6);
        if waiting != 0 {
            super::$node::$node::<V6>($batch, $lists, $ctx, $tools);
            $tools.ran(NodeIndex::$node, &super::$node::NODE, waiting, $lists, $ctx);
        }
    }};
}

node_table!(dispatch);

impl NodeIndex {
    /// What the node declares.
    pub fn node(self) -> &'static Node {
        &NODES[self as usize]
    }
}
