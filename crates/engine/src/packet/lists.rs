//! The lists by which nodes pass packets on. A slot is on one list at a time.

mod fast_forward;

use arrayvec::ArrayVec;
use sluice_route::neighbour::NeighbourIndex;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{BufferIndices, put};
use crate::packet::copies::Copies;
use crate::packet::counters::HandOffCause;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, NoteWords, PortIndex, WorkerIndex};
use crate::packet::reason::{Own, Reason};
use crate::packet::task::{Task, UnresolvedNeighbour, UnsolicitedSyn};

pub use fast_forward::FastForwardList;

const _: () = assert!(BURST_BUFFERS == u128::BITS as usize);

/// Packets of sessions: which session, and which of its directions.
pub type SessionPackets = ArrayVec<(BufferIndex, RecordIndex, Direction), BURST_BUFFERS>;

/// Packets whose next hop is not resolved, and who it is.
pub type UnresolvedPackets = ArrayVec<(BufferIndex, UnresolvedNeighbour), BURST_BUFFERS>;

/// Packets that earned an ICMP error, and why they are dropped.
pub type IcmpErrors = ArrayVec<(BufferIndex, IcmpError, Reason), BURST_BUFFERS>;

/// The packets that wait for a node.
pub trait SlotList {
    /// How many they are.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether one of them is in a slot.
    fn holds(&self, slot: BufferIndex) -> bool;
    /// Move all of them.
    fn drain_into(&mut self, other: &mut BufferIndices);
}

/// That of a node for which no packet waits: others do its part on the way.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoList;

impl SlotList for NoList {
    fn len(&self) -> usize {
        0
    }
    fn holds(&self, _slot: BufferIndex) -> bool {
        false
    }
    fn drain_into(&mut self, _other: &mut BufferIndices) {}
}

/// What stands on a list for a packet.
trait Waiting {
    fn slot(&self) -> BufferIndex;
}

impl Waiting for BufferIndex {
    #[inline(always)]
    fn slot(&self) -> BufferIndex {
        *self
    }
}

impl<A> Waiting for (BufferIndex, A) {
    fn slot(&self) -> BufferIndex {
        self.0
    }
}

impl<A, B> Waiting for (BufferIndex, A, B) {
    fn slot(&self) -> BufferIndex {
        self.0
    }
}

impl<T: Waiting> SlotList for ArrayVec<T, BURST_BUFFERS> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.as_slice().len()
    }
    fn holds(&self, slot: BufferIndex) -> bool {
        self.iter().any(|packet| packet.slot() == slot)
    }
    fn drain_into(&mut self, other: &mut BufferIndices) {
        self.drain(..).for_each(|packet| put(other, packet.slot()));
    }
}

/// A list of each family, for a node that works on one family after the other.
#[derive(Clone, Debug, Default)]
pub struct ByFamily<T> {
    /// Packets of IPv4.
    pub v4: T,
    /// Packets of IPv6.
    pub v6: T,
}

impl<T: SlotList> SlotList for ByFamily<T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
    fn holds(&self, slot: BufferIndex) -> bool {
        self.v4.holds(slot) || self.v6.holds(slot)
    }
    fn drain_into(&mut self, other: &mut BufferIndices) {
        self.v4.drain_into(other);
        self.v6.drain_into(other);
    }
}

/// How a packet leaves the graph, other than sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Dropped, for a reason that is counted.
    Drop,
    /// Taken in by the router itself, or by its host.
    TakenIn,
    /// Put aside until something comes, or time is over.
    Park,
    /// Given to another worker.
    HandOver,
    /// Held until its shard has come to this worker.
    Hold,
    /// Queued behind what there is to receive.
    Queue,
}

impl Leave {
    /// All of them.
    pub const ALL: [Leave; 6] = [
        Self::Drop,
        Self::TakenIn,
        Self::Park,
        Self::HandOver,
        Self::Hold,
        Self::Queue,
    ];

    /// Its name, as in traces, where drops have those of their reasons.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::TakenIn => "taken-in",
            Self::Park => "park",
            Self::HandOver => "hand-over",
            Self::Hold => "hold",
            Self::Queue => "queue",
        }
    }
}

/// Where a packet is in the middle of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// It waits for a node.
    Node(NodeIndex),
    /// It has left the graph.
    Left(Leave),
    /// It is dropped.
    Dropped(Reason),
}

macro_rules! lists {
    ($($(#[$only:meta])* $kind:ident $node:ident: $list:ty;)+) => {
        /// The place of a node in the table, by the name of its file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "the names of the nodes' files")]
        #[repr(usize)]
        pub enum NodeIndex {
            $($(#[$only])* #[doc = concat!("The node of `nodes/", stringify!($node), ".rs`.")] $node,)+
        }

        impl NodeIndex {
            /// All of them, in the order of the table.
            pub const ALL: &'static [NodeIndex] = &[$($(#[$only])* NodeIndex::$node,)+];
        }

        /// The lists that nodes fill: one of each node, then those of the ends.
        #[derive(Debug, Default)]
        pub struct Lists {
            $($(#[$only])* #[doc = concat!("What waits for the node of `nodes/", stringify!($node), ".rs`.")] pub $node: $list,)+
            /// To be parked until a neighbour is known.
            pub park: ArrayVec<(BufferIndex, NeighbourIndex), BURST_BUFFERS>,
            /// To be parked until the first fragment of its datagram comes: place in the table of fragments.
            pub park_fragment: ArrayVec<(BufferIndex, u32), BURST_BUFFERS>,
            /// To be parked until somebody expects them, or nobody has for long enough.
            pub park_syn: ArrayVec<UnsolicitedSyn, BURST_BUFFERS>,
            /// To be held until their shard has come.
            pub hold: BufferIndices,
            /// Of a shard that is here, to wait until its turn comes.
            pub queue: BufferIndices,
            /// Taken in by the gateway itself.
            pub taken: BufferIndices,
            /// Used up by a node that accounts for it: only its buffer is left to free.
            pub used: BufferIndices,
            /// Work that needs new buffers.
            pub tasks: ArrayVec<Task, BURST_BUFFERS>,
            /// Copies that are to be sent.
            pub copies: Copies,
            /// To other workers.
            pub hand_over: ArrayVec<(BufferIndex, WorkerIndex, HandOffCause, NoteWords), BURST_BUFFERS>,
            /// Dropped.
            pub drop: ArrayVec<(BufferIndex, Reason), BURST_BUFFERS>,
            /// To be sent, by port.
            pub to_send: Vec<BufferIndices>,
            /// Slots that inspection has let go on in this burst, a bit each.
            pub passed: u128,
            /// Slots that have been shown to application identification in this burst, a bit each.
            pub identified: u128,
            /// Slots of what hosts have sent that no session knows, a bit each.
            pub sessionless: u128,
            /// Slots whose packets have come over a virtual link, and have not been asked whether they are to, a bit each.
            pub fresh: u128,
        }

        impl Lists {
            /// Whether no node has anything left to do.
            #[inline(always)]
            pub fn is_done(&self) -> bool {
                $($(#[$only])* if !SlotList::is_empty(&self.$node) { return false; })+
                true
            }

            /// Drop what nodes have left to do.
            pub fn drop_remaining(&mut self, reason: Own) {
                let mut left = BufferIndices::new();
                $($(#[$only])* self.$node.drain_into(&mut left);)+
                left.into_iter().for_each(|slot| self.drop_packet(slot, reason));
            }

            /// The node that a slot waits for.
            fn node_of(&self, slot: BufferIndex) -> Option<NodeIndex> {
                $($(#[$only])* if self.$node.holds(slot) { return Some(NodeIndex::$node); })+
                None
            }
        }
    };
}

node_table!(lists);

impl Lists {
    /// Lists for `ports` ports, empty.
    pub fn new(ports: usize) -> Self {
        Self {
            to_send: vec![BufferIndices::new(); ports],
            ..Self::default()
        }
    }

    /// Whether there is something to be done that needs new buffers.
    #[inline(always)]
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.copies.is_empty()
    }

    /// Whether inspection has let a packet go on in this burst.
    #[inline(always)]
    pub fn was_inspected(&self, slot: BufferIndex) -> bool {
        self.passed >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether a packet has been looked at for its session's application in this burst.
    #[inline(always)]
    pub fn was_identified(&self, slot: BufferIndex) -> bool {
        self.identified >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether no session knows what a host has sent.
    #[inline(always)]
    pub fn is_sessionless(&self, slot: BufferIndex) -> bool {
        self.sessionless >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// A packet is looked at anew, as one of another session.
    pub fn remove_verdict(&mut self, slot: BufferIndex) {
        let others = !(1u128 << (slot as usize % BURST_BUFFERS));
        (self.passed, self.identified) = (self.passed & others, self.identified & others);
    }

    /// Nothing is known of the slots of the next burst.
    pub fn forget_slots(&mut self) {
        (self.passed, self.identified, self.sessionless, self.fresh) = (0, 0, 0, 0);
    }

    /// Drop a packet.
    #[inline(always)]
    pub fn drop_packet(&mut self, slot: BufferIndex, reason: impl Into<Reason>) {
        put(&mut self.drop, (slot, reason.into()));
    }

    /// Send a packet; one without a port goes over a virtual link, or into a tunnel.
    #[inline(always)]
    pub fn send(&mut self, port: PortIndex, slot: BufferIndex) {
        match self.to_send.get_mut(port as usize) {
            Some(list) => put(list, slot),
            None => put(&mut self.inter_router_link, slot),
        }
    }

    /// Wait for a neighbour.
    pub fn wait_for_neighbour(&mut self, slot: BufferIndex, wanted: Option<UnresolvedNeighbour>) {
        match wanted {
            Some(wanted) => put(&mut self.neighbour_resolution, (slot, wanted)),
            None => self.drop_packet(slot, sluice_route::Reason::NeighbourUnresolved),
        }
    }

    /// Cut a packet, translated already, for a hop.
    pub fn fragment(&mut self, slot: BufferIndex, hop: AdjacencyIndex) {
        put(&mut self.tasks, Task::Cut(slot, hop));
    }

    /// Give a packet to another worker.
    pub fn hand_over(&mut self, slot: BufferIndex, to: WorkerIndex, note: HandOffNote) {
        let cause = match note.stage {
            EntryPoint::Session => HandOffCause::Session,
            EntryPoint::Fragment => HandOffCause::Fragment,
            EntryPoint::Wait(_) | EntryPoint::Gateway => HandOffCause::Gateway,
            EntryPoint::SendIcmpError(..) => HandOffCause::SendIcmpError,
            EntryPoint::Finished(_) => HandOffCause::Transmit,
            EntryPoint::Received(_) | EntryPoint::Forward => HandOffCause::Stage,
        };
        self.hand_over_for(cause, slot, to, note);
    }

    /// The same where the cause is known better.
    #[inline(always)]
    pub fn hand_over_for(&mut self, cause: HandOffCause, slot: BufferIndex, to: WorkerIndex, note: HandOffNote) {
        put(&mut self.hand_over, (slot, to, cause, note.pack()));
    }

    /// Answer with an error and drop.
    #[inline(always)]
    pub fn icmp_error(&mut self, slot: BufferIndex, error: IcmpError, reason: impl Into<Reason>) {
        put(&mut self.icmp_error, (slot, error, reason.into()));
    }

    /// Drop a packet, and tell its sender if that is to be told something.
    pub fn reject(&mut self, slot: BufferIndex, (error, reason): (Option<IcmpError>, Reason)) {
        match error {
            Some(error) => self.icmp_error(slot, error, reason),
            None => self.drop_packet(slot, reason),
        }
    }

    /// Where a slot is: the node that has it next, how it leaves, or why it is dropped.
    pub fn location(&self, slot: BufferIndex) -> Option<Location> {
        let is_cut = |task: &Task| matches!(task, Task::Cut(cut, _) if *cut == slot);
        let is_parked =
            self.park.holds(slot) || self.park_fragment.holds(slot) || self.park_syn.iter().any(|syn| syn.slot == slot);
        if let Some(node) = self.node_of(slot) {
            Some(Location::Node(node))
        } else if self.to_send.iter().any(|list| list.holds(slot)) {
            Some(Location::Node(NodeIndex::transmit))
        } else if self.tasks.iter().any(is_cut) {
            Some(Location::Node(NodeIndex::fragmentation))
        } else if let Some((_, reason)) = self.drop.iter().find(|(place, _)| *place == slot) {
            Some(Location::Dropped(*reason))
        } else if is_parked {
            Some(Location::Left(Leave::Park))
        } else if self.hand_over.iter().any(|(place, ..)| *place == slot) {
            Some(Location::Left(Leave::HandOver))
        } else if self.taken.holds(slot) {
            Some(Location::Left(Leave::TakenIn))
        } else if self.hold.holds(slot) {
            Some(Location::Left(Leave::Hold))
        } else if self.queue.holds(slot) {
            Some(Location::Left(Leave::Queue))
        } else {
            None
        }
    }
}
