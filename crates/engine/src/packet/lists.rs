//! The lists on which nodes pass packets to other nodes. A slot is on one list at a time.

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
use crate::packet::reason::{EngineReason, Reason};
use crate::packet::task::{Task, UnresolvedNeighbour, UnsolicitedSyn};

pub use fast_forward::FastForwardList;

const _: () = assert!(BURST_BUFFERS == u128::BITS as usize);

/// Packets of sessions, each with its session and direction.
pub type SessionPackets = ArrayVec<(BufferIndex, RecordIndex, Direction), BURST_BUFFERS>;

/// Packets with an unresolved next hop, each with the neighbour to resolve.
pub type UnresolvedPackets = ArrayVec<(BufferIndex, UnresolvedNeighbour), BURST_BUFFERS>;

/// Packets that will be answered with an ICMP error, each with the error and the drop reason.
pub type IcmpErrors = ArrayVec<(BufferIndex, IcmpError, Reason), BURST_BUFFERS>;

/// A list of packets that wait for a node.
pub trait SlotList {
    /// Number of packets.
    fn len(&self) -> usize;
    /// Whether no packet waits for the node.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether a slot is on the list.
    fn holds(&self, slot: BufferIndex) -> bool;
    /// Moves all packets to another list.
    fn drain_into(&mut self, other: &mut BufferIndices);
}

/// The list of an inline node, which is always empty.
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

/// An entry of a list.
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

/// One list for each address family, for nodes that process the families separately.
#[derive(Clone, Debug, Default)]
pub struct ByFamily<T> {
    /// IPv4 packets.
    pub v4: T,
    /// IPv6 packets.
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

/// Exit of a packet that leaves the graph without transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Dropped, with a counted reason.
    Drop,
    /// Delivered to the router itself, or to its host.
    LocalDelivery,
    /// Parked until an event or a timeout.
    Park,
    /// Handed to another worker.
    HandOver,
    /// Held until its shard has moved to this worker.
    Hold,
    /// Queued for later processing, because receiving takes precedence.
    Queue,
}

impl Leave {
    /// All exits other than transmission.
    pub const ALL: [Leave; 6] = [
        Self::Drop,
        Self::LocalDelivery,
        Self::Park,
        Self::HandOver,
        Self::Hold,
        Self::Queue,
    ];

    /// Name in traces. Drops are shown with the name of their reason instead.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::LocalDelivery => "taken-in",
            Self::Park => "park",
            Self::HandOver => "hand-over",
            Self::Hold => "hold",
            Self::Queue => "queue",
        }
    }
}

/// Position of a packet during a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The packet waits for this node.
    Node(NodeIndex),
    /// The packet has left the graph.
    Exited(Leave),
    /// The packet is dropped for this reason.
    Dropped(Reason),
}

macro_rules! lists {
    ($($(#[$only:meta])* $kind:ident $node:ident: $list:ty;)+) => {
        /// Position of a node in the table of nodes, named after the file of the node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "the names of the nodes' files")]
        #[repr(usize)]
        pub enum NodeIndex {
            $($(#[$only])* #[doc = concat!("The node of `nodes/", stringify!($node), ".rs`.")] $node,)+
        }

        impl NodeIndex {
            /// All nodes, in the order of the table.
            pub const ALL: &'static [NodeIndex] = &[$($(#[$only])* NodeIndex::$node,)+];
        }

        /// The lists that nodes fill: one list for each node, and lists for packets that leave the graph.
        #[derive(Debug, Default)]
        pub struct Lists {
            $($(#[$only])* #[doc = concat!("Packets that wait for the node of `nodes/", stringify!($node), ".rs`.")] pub $node: $list,)+
            /// Packets to park until a neighbour is resolved.
            pub park: ArrayVec<(BufferIndex, NeighbourIndex), BURST_BUFFERS>,
            /// Packets to park until the first fragment of their datagram arrives, each with its entry of the fragment table.
            pub park_fragment: ArrayVec<(BufferIndex, u32), BURST_BUFFERS>,
            /// Unsolicited SYNs to park until an inside host opens the same connection, or until their waiting time is
            /// over.
            pub park_syn: ArrayVec<UnsolicitedSyn, BURST_BUFFERS>,
            /// Packets to hold until their shard arrives.
            pub hold: BufferIndices,
            /// Packets of a shard that has arrived, which are queued until the worker can process them.
            pub queue: BufferIndices,
            /// Packets received by the gateway itself.
            pub taken: BufferIndices,
            /// Packets that a node has processed and counted, so that only their buffers are freed.
            pub used: BufferIndices,
            /// Tasks that need new buffers.
            pub tasks: ArrayVec<Task, BURST_BUFFERS>,
            /// Copies to be sent.
            pub copies: Copies,
            /// Packets to hand to other workers.
            pub hand_over: ArrayVec<(BufferIndex, WorkerIndex, HandOffCause, NoteWords), BURST_BUFFERS>,
            /// Dropped packets, with their reasons.
            pub drop: ArrayVec<(BufferIndex, Reason), BURST_BUFFERS>,
            /// Packets to transmit, by port.
            pub to_send: Vec<BufferIndices>,
            /// Mask of the slots whose packets inspection has let pass in this burst.
            pub passed: u128,
            /// Mask of the slots that application identification has processed in this burst.
            pub identified: u128,
            /// Mask of the slots whose packets come from a router's host and match no session.
            pub sessionless: u128,
            /// Mask of the slots whose packets came over an inter-router link and must still pass the chain of the new
            /// router.
            pub fresh: u128,
        }

        impl Lists {
            /// Whether no node has packets on its list.
            #[inline(always)]
            pub fn is_done(&self) -> bool {
                $($(#[$only])* if !SlotList::is_empty(&self.$node) { return false; })+
                true
            }

            /// Drops all packets that still wait for a node.
            pub fn drop_remaining(&mut self, reason: EngineReason) {
                let mut remaining = BufferIndices::new();
                $($(#[$only])* self.$node.drain_into(&mut remaining);)+
                remaining.into_iter().for_each(|slot| self.drop_packet(slot, reason));
            }

            /// The node that will process a slot.
            fn node_of(&self, slot: BufferIndex) -> Option<NodeIndex> {
                $($(#[$only])* if self.$node.holds(slot) { return Some(NodeIndex::$node); })+
                None
            }
        }
    };
}

node_table!(lists);

impl Lists {
    /// Creates empty lists for `ports` ports.
    pub fn new(ports: usize) -> Self {
        Self {
            to_send: vec![BufferIndices::new(); ports],
            ..Self::default()
        }
    }

    /// Whether there are tasks or copies, which need new buffers.
    #[inline(always)]
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.copies.is_empty()
    }

    /// Whether inspection has let a packet pass in this burst.
    #[inline(always)]
    pub fn was_inspected(&self, slot: BufferIndex) -> bool {
        self.passed >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether application identification has processed a packet in this burst.
    #[inline(always)]
    pub fn was_identified(&self, slot: BufferIndex) -> bool {
        self.identified >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether a packet comes from a router's host and matches no session.
    #[inline(always)]
    pub fn is_sessionless(&self, slot: BufferIndex) -> bool {
        self.sessionless >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Clears the verdicts of a packet that is processed again in another session.
    pub fn remove_verdict(&mut self, slot: BufferIndex) {
        let others = !(1u128 << (slot as usize % BURST_BUFFERS));
        (self.passed, self.identified) = (self.passed & others, self.identified & others);
    }

    /// Clears the masks for the next burst.
    pub fn clear_slots(&mut self) {
        (self.passed, self.identified, self.sessionless, self.fresh) = (0, 0, 0, 0);
    }

    /// Drops a packet.
    #[inline(always)]
    pub fn drop_packet(&mut self, slot: BufferIndex, reason: impl Into<Reason>) {
        put(&mut self.drop, (slot, reason.into()));
    }

    /// The lists of packets for virtual reassembly, session lookup and routing.
    pub fn parsed(&mut self) -> [&mut BufferIndices; 5] {
        let (session_lookup, forward) = (&mut self.session_lookup, &mut self.forward);
        [
            &mut self.virtual_reassembly,
            &mut session_lookup.v4,
            &mut session_lookup.v6,
            &mut forward.v4,
            &mut forward.v6,
        ]
    }

    /// Sends a packet. If the interface has no port, the packet goes over an inter-router link or into a tunnel.
    #[inline(always)]
    pub fn send(&mut self, port: PortIndex, slot: BufferIndex) {
        match self.to_send.get_mut(port as usize) {
            Some(list) => put(list, slot),
            None => put(&mut self.inter_router_link, slot),
        }
    }

    /// Sends packets on a port of this worker.
    #[inline(always)]
    pub fn send_all(&mut self, port: PortIndex, slots: &[BufferIndex]) {
        if let Some(list) = self.to_send.get_mut(port as usize) {
            // A slot is sent at most once, so the list has room; see `put`.
            let _ = list.try_extend_from_slice(slots);
        }
    }

    /// If the express lane has taken packets, sorts the packets to transmit and to hand over in the order of their slots: the
    /// packets of a flow, of which the lane has taken a part, leave in the order in which they arrived.
    #[inline(always)]
    pub fn sort_sent(&mut self, taken: u128) {
        if taken == 0 {
            return;
        }
        if !self.hand_over.is_sorted_by_key(|(slot, ..)| *slot) {
            self.hand_over.sort_unstable_by_key(|(slot, ..)| *slot);
        }
        for list in &mut self.to_send {
            let mut slots = list
                .iter()
                .fold(0u128, |slots, slot| slots | 1 << (slot % BURST_BUFFERS as u8));
            for place in list {
                *place = slots.trailing_zeros() as BufferIndex;
                slots &= slots.wrapping_sub(1);
            }
        }
    }

    /// Puts a packet on the list of packets that wait for a neighbour.
    pub fn wait_for_neighbour(&mut self, slot: BufferIndex, wanted: Option<UnresolvedNeighbour>) {
        match wanted {
            Some(wanted) => put(&mut self.neighbour_resolution, (slot, wanted)),
            None => self.drop_packet(slot, sluice_route::Reason::NeighbourUnresolved),
        }
    }

    /// Requests the fragmentation of a translated packet for a hop.
    pub fn fragment(&mut self, slot: BufferIndex, hop: AdjacencyIndex) {
        put(&mut self.tasks, Task::Cut(slot, hop));
    }

    /// Hands a packet to another worker.
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

    /// Hands a packet to another worker, with an explicit cause.
    #[inline(always)]
    pub fn hand_over_for(&mut self, cause: HandOffCause, slot: BufferIndex, to: WorkerIndex, note: HandOffNote) {
        put(&mut self.hand_over, (slot, to, cause, note.pack()));
    }

    /// Answers a packet with an ICMP error and drops the packet.
    #[inline(always)]
    pub fn icmp_error(&mut self, slot: BufferIndex, error: IcmpError, reason: impl Into<Reason>) {
        put(&mut self.icmp_error, (slot, error, reason.into()));
    }

    /// Drops a packet. If an ICMP error is given, the gateway sends it to the packet's sender.
    pub fn reject(&mut self, slot: BufferIndex, (error, reason): (Option<IcmpError>, Reason)) {
        match error {
            Some(error) => self.icmp_error(slot, error, reason),
            None => self.drop_packet(slot, reason),
        }
    }

    /// The location of a packet: its next node, its exit, or its drop reason.
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
            Some(Location::Exited(Leave::Park))
        } else if self.hand_over.iter().any(|(place, ..)| *place == slot) {
            Some(Location::Exited(Leave::HandOver))
        } else if self.taken.holds(slot) {
            Some(Location::Exited(Leave::LocalDelivery))
        } else if self.hold.holds(slot) {
            Some(Location::Exited(Leave::Hold))
        } else if self.queue.holds(slot) {
            Some(Location::Exited(Leave::Queue))
        } else {
            None
        }
    }
}
