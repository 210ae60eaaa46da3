//! The batch: what nodes see of the hand, and the lists by which they pass packets on.

mod hand_off_lists;

use arrayvec::ArrayVec;
use sluice_route::Address;
use sluice_route::neighbour::NeighbourIndex;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::layers::Layers;

use crate::features::announcements::AddressPosition;
use crate::features::pending_syns::UnsolicitedSyn;
use crate::packet::counters::HandOffCause;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, NoteWords, Packets, PortIndex, WorkerIndex};
use crate::packet::reason::{Own, Reason};
use crate::session::family::Family;
use crate::snapshot::chains::Copies;
use crate::snapshot::forwarding::UnresolvedNeighbour;

pub use hand_off_lists::HandOffLists;

/// Packets of inspected sessions.
pub type Inspected = ArrayVec<(BufferIndex, RecordIndex, Direction), BURST_BUFFERS>;

const _: () = assert!(BURST_BUFFERS == u128::BITS as usize);

/// A list of slots.
pub type BufferIndices = ArrayVec<BufferIndex, BURST_BUFFERS>;

/// Where a packet goes on: egress interface and neighbour in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyIndex(pub u32);

impl AdjacencyIndex {
    /// No hop.
    pub const NONE: AdjacencyIndex = AdjacencyIndex(u32::MAX);
    /// Back to where translation begins: the packet leads to an inside host by its outside address (RFC 4787, REQ-9).
    pub const HAIRPIN: AdjacencyIndex = AdjacencyIndex(u32::MAX - 1);
    /// A session's, where routes lead nowhere for the moment, or nobody knows yet who is there: each packet asks again.
    pub const UNRESOLVED: AdjacencyIndex = AdjacencyIndex(u32::MAX - 2);
    /// To the router's own host: a rule has led the packet there.
    pub const LOCAL: AdjacencyIndex = AdjacencyIndex(u32::MAX - 3);
    /// Most interfaces that a hop can name.
    pub const MAX_INTERFACES: usize = (1 << 11) - 1;
    /// Most neighbours that a hop can name.
    pub const MAX_NEIGHBOURS: usize = Self::TERMINAL as usize;
    /// The neighbour of whoever is behind a bridge: nobody knows who it is, and the frame says it.
    const BRIDGED: u32 = (1 << 21) - 1;
    /// From here on terminals of subscribers' sites.
    const TERMINAL: u32 = 1 << 20;

    /// The neighbour `neighbour` behind `interface`.
    #[inline(always)]
    pub fn new(interface: u16, neighbour: u32) -> Self {
        Self((interface as u32) << 21 | neighbour & Self::BRIDGED)
    }
    /// Out by `interface`, as it came.
    #[inline(always)]
    pub fn bridge(interface: u16) -> Self {
        Self::new(interface, Self::BRIDGED)
    }
    /// The terminal `terminal` of a site behind `interface`.
    #[inline(always)]
    pub fn terminal(interface: u16, terminal: u32) -> Self {
        Self::new(interface, Self::TERMINAL | terminal)
    }
    /// The terminal that it leads to, where it leads to one.
    #[inline(always)]
    pub fn as_terminal(self) -> Option<u32> {
        let is_one = self.neighbour() & Self::TERMINAL != 0 && self.neighbour() != Self::BRIDGED;
        (is_one && self.interface() < Self::MAX_INTERFACES).then_some(self.neighbour() & !Self::TERMINAL)
    }
    /// The terminal that it names if it leads to one: most that name one do.
    #[inline(always)]
    pub fn terminal_bits(self) -> Option<u32> {
        (self.0 & Self::TERMINAL != 0).then_some(self.0 & (Self::TERMINAL - 1))
    }
    /// The same by the interface alone, where it leads to a terminal: what a terminal's frames look like is not the hop's to say.
    #[inline(always)]
    pub fn without_terminal(self) -> Self {
        match self.0 & Self::TERMINAL != 0 && self.interface() < Self::MAX_INTERFACES {
            true => Self(self.0 | Self::BRIDGED),
            false => self,
        }
    }
    /// Whether it leads over a bridge.
    #[inline(always)]
    pub fn is_bridge(self) -> bool {
        self.neighbour() == Self::BRIDGED && self.interface() < Self::MAX_INTERFACES
    }
    /// Whether routes say where it leads: neither a bridge nor a site does.
    #[inline(always)]
    pub fn is_routed(self) -> bool {
        !self.is_bridge() && self.as_terminal().is_none()
    }
    /// Whether there is a neighbour behind it, which sessions hold.
    #[inline(always)]
    pub fn has_neighbour(self) -> bool {
        self != Self::HAIRPIN && self.neighbour() & Self::TERMINAL == 0
    }
    /// The egress interface.
    #[inline(always)]
    pub fn interface(self) -> usize {
        (self.0 >> 21) as usize
    }
    /// The neighbour.
    #[inline(always)]
    pub fn neighbour(self) -> u32 {
        self.0 & Self::BRIDGED
    }
}

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Received.
    #[default]
    Received,
    /// Made by the gateway itself: not counted down, not validated, not translated.
    Own,
    /// Received from inside and addressed to the outside address of an inside host: it goes on as if it came from
    /// outside (RFC 4787, REQ-9).
    Hairpinned,
    /// Received, and a chain of its router has led it past the sessions.
    Routed,
}

impl Origin {
    fn pack(self) -> u64 {
        self as u64
    }
    fn unpack(word: u64) -> Self {
        match word & 3 {
            1 => Self::Own,
            2 => Self::Hairpinned,
            3 => Self::Routed,
            _ => Self::Received,
        }
    }
}

/// What later nodes need to know of a packet: found out once, by `parse`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Meta {
    /// Where the headers are.
    pub layers: Layers,
    /// Interface that the packet came in by.
    pub interface: u16,
    /// Shard that its session belongs to.
    pub shard: u16,
    /// Interface that it goes out by, once it is finished.
    pub egress: u16,
    /// Where it comes from.
    pub origin: Origin,
    /// Virtual links that it has crossed, tunnels that it has gone into and come out of.
    pub crossed: u8,
    /// Identification of the fragments of its datagram when they leave; 0 where it is none.
    pub identification: u16,
}

const _: () = assert!(size_of::<Meta>() == 32);

impl Meta {
    /// Whether the gateway itself made it.
    #[inline(always)]
    pub fn is_from_gateway(&self) -> bool {
        self.origin == Origin::Own
    }
}

/// Work that needs new buffers: done in the second half of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Cut a datagram that is too long for its hop.
    Cut(BufferIndex, AdjacencyIndex),
    /// Ask a link for a neighbour, or the neighbour itself whether it is still there.
    Ask {
        /// Whom.
        neighbour: NeighbourIndex,
        /// Its MAC is known.
        probe: bool,
    },
    /// Send a router advertisement to all hosts of an interface.
    Advertise(u16),
    /// Tell all of a link that an address is here.
    Announce {
        /// The link's interface.
        interface: u16,
        /// Which address.
        place: AddressPosition,
    },
    /// Send the echo request that the owner has.
    Probe,
}

/// Why a packet is given to another worker: what that worker starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// Its session's shard is there. Fragments come with the ports of their datagram.
    Session,
    /// Fragments are collected there.
    Fragment,
    /// Neighbours are asked for there.
    Wait(UnresolvedNeighbour),
    /// The gateway's own addresses are served there, neighbour discovery included.
    Gateway,
    /// Errors are made there.
    Complain(IcmpError, Reason),
    /// Finished: the port's queue is there.
    Finished(u16),
    /// As it came from a port: it is parsed there.
    Received(PortIndex),
    /// To be routed without a session.
    Forward,
}

/// What travels with a packet to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOffNote {
    /// What to start with.
    pub stage: EntryPoint,
    /// Interface that it came in by.
    pub interface: u16,
    /// Where it comes from.
    pub origin: Origin,
    /// Ports of the datagram, for fragments.
    pub ports: (u16, u16),
    /// Identification that fragments leave with.
    pub identification: u16,
    /// Virtual links and ends of tunnels that it has crossed.
    pub crossed: u8,
}

impl HandOffNote {
    /// The note of a packet for a stage.
    pub fn new(stage: EntryPoint, meta: &Meta) -> Self {
        let ports = (meta.layers.source_port, meta.layers.destination_port);
        Self {
            stage,
            interface: meta.interface,
            origin: meta.origin,
            ports,
            identification: meta.identification,
            crossed: meta.crossed,
        }
    }

    /// The note as it travels.
    pub fn pack(self) -> NoteWords {
        let (stage, more, address) = match self.stage {
            EntryPoint::Session => (0, 0, 0),
            EntryPoint::Fragment => (1, 0, 0),
            EntryPoint::Wait(wanted) => {
                let six = u64::from(matches!(wanted.address, Address::V6(_)));
                (2, u64::from(wanted.interface) | six << 16, wanted.address.number())
            }
            EntryPoint::Gateway => (3, 0, 0),
            EntryPoint::Complain(complaint, reason) => (4, complaint.pack() | (reason.number() as u64) << 32, 0),
            EntryPoint::Finished(interface) => (5, u64::from(interface), 0),
            EntryPoint::Received(port) => (6, u64::from(port), 0),
            EntryPoint::Forward => (7, 0, 0),
        };
        let from = u64::from(self.interface) << 8 | self.origin.pack() << 24 | u64::from(self.crossed & 7) << 26;
        let ports = u64::from(self.ports.0) << 16 | u64::from(self.ports.1);
        [
            stage | from | ports << 32,
            u64::from(self.identification) << 48 | more,
            (address >> 64) as u64,
            address as u64,
        ]
    }

    /// The note that was packed; none where the words were not packed by a worker.
    pub fn unpack(words: &NoteWords) -> Option<Self> {
        let [first, second, high, low] = *words;
        let more = second & 0xffff_ffff_ffff;
        let stage = match first as u8 {
            0 => EntryPoint::Session,
            1 => EntryPoint::Fragment,
            2 => {
                let address = match more >> 16 & 1 {
                    0 => Address::V4(low as u32),
                    _ => Address::V6(u128::from(high) << 64 | u128::from(low)),
                };
                EntryPoint::Wait(UnresolvedNeighbour {
                    interface: more as u16,
                    address,
                })
            }
            3 => EntryPoint::Gateway,
            4 => EntryPoint::Complain(
                IcmpError::unpack(more & 0xffff_ffff),
                Reason::numbered((more >> 32) as usize)?,
            ),
            5 => EntryPoint::Finished(more as u16),
            6 => EntryPoint::Received(more as PortIndex),
            7 => EntryPoint::Forward,
            _ => return None,
        };
        Some(Self {
            stage,
            interface: (first >> 8) as u16,
            origin: Origin::unpack(first >> 24),
            crossed: (first >> 26) as u8 & 7,
            ports: ((first >> 48) as u16, (first >> 32) as u16),
            identification: (second >> 48) as u16,
        })
    }
}

/// The ICMP error that a packet earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// TTL or hop limit ran out.
    TimeExceeded,
    /// Larger than the next link takes: its MTU.
    TooBig(u16),
    /// No route.
    NoRoute,
    /// The host does not answer.
    HostUnreachable,
    /// Prohibited by policy.
    Prohibited,
    /// No port to translate to, or table full (RFC 6888 REQ-11).
    NoResources,
    /// Nothing listens there.
    PortUnreachable,
    /// The connection is refused: a TCP reset in the place of an error.
    Reset,
}

impl IcmpError {
    fn pack(self) -> u64 {
        match self {
            Self::TimeExceeded => 0,
            Self::TooBig(mtu) => 1 | u64::from(mtu) << 8,
            Self::NoRoute => 2,
            Self::HostUnreachable => 3,
            Self::Prohibited => 4,
            Self::NoResources => 5,
            Self::PortUnreachable => 6,
            Self::Reset => 7,
        }
    }
    fn unpack(word: u64) -> Self {
        match word as u8 {
            0 => Self::TimeExceeded,
            1 => Self::TooBig((word >> 8) as u16),
            3 => Self::HostUnreachable,
            4 => Self::Prohibited,
            5 => Self::NoResources,
            6 => Self::PortUnreachable,
            7 => Self::Reset,
            _ => Self::NoRoute,
        }
    }
}

/// The lists that nodes fill. A slot is in one list at a time.
#[derive(Debug, Default)]
pub struct Lists {
    /// IPv4 packets on a path with sessions.
    pub lookup4: BufferIndices,
    /// IPv6 packets on a path with sessions.
    pub lookup6: BufferIndices,
    /// No session yet.
    pub decide4: BufferIndices,
    /// No session yet.
    pub decide6: BufferIndices,
    /// Sessions of an older snapshot.
    pub revise4: BufferIndices,
    /// Sessions of an older snapshot.
    pub revise6: BufferIndices,
    /// Of sessions that are inspected: where those are, and the direction.
    pub inspect4: Inspected,
    /// Of sessions that are inspected: where those are, and the direction.
    pub inspect6: Inspected,
    /// Slots that inspection has let go on in this burst, a bit each.
    pub passed: u128,
    /// Of sessions whose application is looked for, as `inspect4`.
    pub recognise4: Inspected,
    /// Of sessions whose application is looked for, as `inspect6`.
    pub recognise6: Inspected,
    /// Slots that have been looked at for it in this burst, a bit each.
    pub recognised: u128,
    /// Slots of what hosts have sent that no session knows, a bit each.
    pub sessionless: u128,
    /// Plain IPv4 packets that need a route and nothing else. Of their meta only the interface is known.
    pub transit: HandOffLists,
    /// To take the steps of its router's chains.
    pub chain: BufferIndices,
    /// Slots whose packets have come over a virtual link, and have not been asked whether they are to, a bit each.
    pub fresh: u128,
    /// Copies that are to be sent.
    pub copies: Copies,
    /// To be routed without a session.
    pub forward4: BufferIndices,
    /// To be routed without a session.
    pub forward6: BufferIndices,
    /// Fragments on a path with sessions.
    pub fragments: BufferIndices,
    /// ARP and neighbour discovery.
    pub neighbour: BufferIndices,
    /// Addressed to the gateway.
    pub gateway: BufferIndices,
    /// Between two interfaces of a bridge that differ in tags.
    pub bridge: BufferIndices,
    /// For the host of a router.
    pub punt: BufferIndices,
    /// For who serves subscribers' sites.
    pub subscriber: BufferIndices,
    /// From the host of a router.
    pub host: BufferIndices,
    /// Next hop not resolved.
    pub unresolved: ArrayVec<(BufferIndex, UnresolvedNeighbour), BURST_BUFFERS>,
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
    /// To be answered by an error, then dropped for the reason.
    pub complain: ArrayVec<(BufferIndex, IcmpError, Reason), BURST_BUFFERS>,
    /// To other workers.
    pub hand_over: ArrayVec<(BufferIndex, WorkerIndex, HandOffCause, NoteWords), BURST_BUFFERS>,
    /// Dropped.
    pub drop: ArrayVec<(BufferIndex, Reason), BURST_BUFFERS>,
    /// Out by an end of a virtual link, or by a tunnel.
    pub cross: BufferIndices,
    /// Out by a tunnel.
    pub encapsulate: BufferIndices,
    /// For an end of a tunnel, or about what it has sent.
    pub decapsulate: BufferIndices,
    /// To be sent, by port.
    pub transmit: Vec<BufferIndices>,
}

impl Lists {
    /// Packets whose session is looked up, of a family.
    #[inline(always)]
    pub fn lookups<F: Family>(&mut self) -> &mut BufferIndices {
        match F::IS_V6 {
            true => &mut self.lookup6,
            false => &mut self.lookup4,
        }
    }

    /// Packets without a session, of a family.
    #[inline(always)]
    pub fn slow_path<F: Family>(&mut self) -> &mut BufferIndices {
        match F::IS_V6 {
            true => &mut self.decide6,
            false => &mut self.decide4,
        }
    }

    /// Packets of sessions of an older snapshot, of a family.
    #[inline(always)]
    pub fn revalidations<F: Family>(&mut self) -> &mut BufferIndices {
        match F::IS_V6 {
            true => &mut self.revise6,
            false => &mut self.revise4,
        }
    }

    /// Packets of inspected sessions, of a family.
    #[inline(always)]
    pub fn inspections<F: Family>(&mut self) -> &mut Inspected {
        match F::IS_V6 {
            true => &mut self.inspect6,
            false => &mut self.inspect4,
        }
    }

    /// Packets of sessions whose application is not identified yet, of a family.
    #[inline(always)]
    pub fn identifications<F: Family>(&mut self) -> &mut Inspected {
        match F::IS_V6 {
            true => &mut self.recognise6,
            false => &mut self.recognise4,
        }
    }

    /// Packets to be routed without a session, of a family.
    #[inline(always)]
    pub fn forwards<F: Family>(&mut self) -> &mut BufferIndices {
        match F::IS_V6 {
            true => &mut self.forward6,
            false => &mut self.forward4,
        }
    }

    /// Lists for `ports` ports, empty.
    pub fn new(ports: usize) -> Self {
        Self {
            transmit: vec![BufferIndices::new(); ports],
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
        self.recognised >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether no session knows what a host has sent.
    #[inline(always)]
    pub fn is_sessionless(&self, slot: BufferIndex) -> bool {
        self.sessionless >> (slot as usize % BURST_BUFFERS) & 1 != 0
    }

    /// Whether packets of a session are about to be inspected, or looked at for its application. Those of another shard's session by
    /// the same number count, too.
    pub fn needs_session_pass<F: Family>(&mut self, index: RecordIndex) -> bool {
        let is_of = |(_, of, _): &(BufferIndex, RecordIndex, Direction)| *of == index;
        self.inspections::<F>().iter().any(is_of) || self.identifications::<F>().iter().any(is_of)
    }

    /// A packet is looked at anew, as one of another session.
    pub fn remove_verdict(&mut self, slot: BufferIndex) {
        let others = !(1u128 << (slot as usize % BURST_BUFFERS));
        (self.passed, self.recognised) = (self.passed & others, self.recognised & others);
    }

    /// Drop a packet.
    #[inline(always)]
    pub fn drop_packet(&mut self, slot: BufferIndex, reason: impl Into<Reason>) {
        put(&mut self.drop, (slot, reason.into()));
    }

    /// Send a packet; one without a port goes over a virtual link, or into a tunnel.
    #[inline(always)]
    pub fn send(&mut self, port: PortIndex, slot: BufferIndex) {
        match self.transmit.get_mut(port as usize) {
            Some(list) => put(list, slot),
            None => put(&mut self.cross, slot),
        }
    }

    /// Wait for a neighbour.
    pub fn wait_for_neighbour(&mut self, slot: BufferIndex, wanted: Option<UnresolvedNeighbour>) {
        match wanted {
            Some(wanted) => put(&mut self.unresolved, (slot, wanted)),
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
            EntryPoint::Complain(..) => HandOffCause::Complain,
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

    /// Where a slot is: the node that has it next, how it leaves, or why it is dropped.
    pub fn location(&self, slot: BufferIndex) -> Option<&'static str> {
        let nodes = [
            ("session-lookup", &self.lookup4),
            ("session-lookup", &self.lookup6),
            ("slow-path", &self.decide4),
            ("slow-path", &self.decide6),
            ("revalidate", &self.revise4),
            ("revalidate", &self.revise6),
            ("chain", &self.chain),
            ("forward", &self.forward4),
            ("forward", &self.forward6),
            ("virtual-reassembly", &self.fragments),
            ("discover", &self.neighbour),
            ("local-delivery", &self.gateway),
            ("inter-router-link", &self.cross),
            ("encapsulate", &self.encapsulate),
            ("decapsulate", &self.decapsulate),
            ("bridge", &self.bridge),
            ("punt", &self.punt),
            ("subscriber", &self.subscriber),
            ("host", &self.host),
            ("taken-in", &self.taken),
            ("hold", &self.hold),
            ("queue", &self.queue),
        ];
        let cut = |task: &Task| matches!(task, Task::Cut(cut, _) if *cut == slot);
        nodes
            .iter()
            .find(|(_, list)| list.contains(&slot))
            .map(|(name, _)| *name)
            .or_else(|| {
                self.transmit
                    .iter()
                    .any(|list| list.contains(&slot))
                    .then_some("transmit")
            })
            .or_else(|| self.transit.slots().contains(&slot).then_some("ip4-fast-forward"))
            .or_else(|| {
                self.drop
                    .iter()
                    .find(|(place, _)| *place == slot)
                    .map(|(_, reason)| reason.name())
            })
            .or_else(|| {
                self.complain
                    .iter()
                    .any(|(place, _, _)| *place == slot)
                    .then_some("icmp-error")
            })
            .or_else(|| {
                self.unresolved
                    .iter()
                    .any(|(place, _)| *place == slot)
                    .then_some("wait")
            })
            .or_else(|| self.park.iter().any(|(place, _)| *place == slot).then_some("park"))
            .or_else(|| {
                self.park_fragment
                    .iter()
                    .any(|(place, _)| *place == slot)
                    .then_some("park")
            })
            .or_else(|| self.park_syn.iter().any(|syn| syn.slot == slot).then_some("park"))
            .or_else(|| {
                self.hand_over
                    .iter()
                    .any(|(place, ..)| *place == slot)
                    .then_some("hand-over")
            })
            .or_else(|| self.tasks.iter().any(cut).then_some("fragmentation"))
            .or_else(|| {
                let mut inspected = self.inspect4.iter().chain(&self.inspect6);
                inspected.any(|(place, ..)| *place == slot).then_some("inspect")
            })
            .or_else(|| {
                let mut sought = self.recognise4.iter().chain(&self.recognise6);
                sought.any(|(place, ..)| *place == slot).then_some("identify")
            })
    }

    /// Whether no node has anything left to do.
    pub fn is_done(&self) -> bool {
        let lists = [
            &self.lookup4,
            &self.lookup6,
            &self.decide4,
            &self.decide6,
            &self.revise4,
            &self.revise6,
            &self.chain,
            &self.forward4,
            &self.forward6,
            &self.fragments,
            &self.neighbour,
            &self.gateway,
            &self.bridge,
            &self.punt,
            &self.subscriber,
            &self.host,
            &self.encapsulate,
            &self.decapsulate,
        ];
        lists.iter().all(|list| list.is_empty())
            && self.unresolved.is_empty()
            && self.complain.is_empty()
            && self.inspect4.is_empty()
            && self.inspect6.is_empty()
            && self.recognise4.is_empty()
            && self.recognise6.is_empty()
            && self.cross.is_empty()
            && self.transit.is_empty()
    }

    /// Drop what nodes have left to do.
    pub fn drop_remaining(&mut self, reason: Own) {
        let mut left = BufferIndices::new();
        let lists = [
            &mut self.lookup4,
            &mut self.lookup6,
            &mut self.decide4,
            &mut self.decide6,
            &mut self.revise4,
            &mut self.revise6,
            &mut self.chain,
            &mut self.forward4,
            &mut self.forward6,
            &mut self.fragments,
            &mut self.neighbour,
            &mut self.gateway,
            &mut self.cross,
            &mut self.bridge,
            &mut self.punt,
            &mut self.subscriber,
            &mut self.host,
            &mut self.encapsulate,
            &mut self.decapsulate,
        ];
        for list in lists {
            for slot in list.drain(..) {
                put(&mut left, slot);
            }
        }
        self.transit.slots().iter().for_each(|&slot| put(&mut left, slot));
        self.transit.clear();
        for (slot, _) in self.unresolved.drain(..) {
            put(&mut left, slot);
        }
        for (slot, _, _) in self.complain.drain(..) {
            put(&mut left, slot);
        }
        for list in [
            &mut self.inspect4,
            &mut self.inspect6,
            &mut self.recognise4,
            &mut self.recognise6,
        ] {
            list.drain(..).for_each(|(slot, ..)| put(&mut left, slot));
        }
        for slot in left {
            self.drop_packet(slot, reason);
        }
    }

    /// Answer with an error and drop.
    #[inline(always)]
    pub fn icmp_error(&mut self, slot: BufferIndex, complaint: IcmpError, reason: impl Into<Reason>) {
        put(&mut self.complain, (slot, complaint, reason.into()));
    }

    /// Drop a packet, and tell its sender if that is to be told something.
    pub fn reject(&mut self, slot: BufferIndex, (complaint, reason): (Option<IcmpError>, Reason)) {
        match complaint {
            Some(complaint) => self.icmp_error(slot, complaint, reason),
            None => self.drop_packet(slot, reason),
        }
    }
}

/// Put on a list. A list has room for the whole hand and a slot is on one list once, so it never overflows;
/// what a bug would put too much is found as forgotten at the end of the burst.
#[inline(always)]
pub fn put<T, const N: usize>(list: &mut ArrayVec<T, N>, item: T) {
    let _ = list.try_push(item);
}

/// The hand with what is known of it.
pub struct Batch<'b, 'p> {
    /// The packets, by slot.
    pub packets: &'b mut Packets<'p>,
    /// What is known of them, by slot.
    pub meta: &'b mut [Meta; BURST_BUFFERS],
}

impl<'b, 'p> Batch<'b, 'p> {
    /// What is known of a slot.
    #[inline(always)]
    pub fn meta(&self, slot: BufferIndex) -> &Meta {
        &self.meta[slot as usize % BURST_BUFFERS]
    }
}
