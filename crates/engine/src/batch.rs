//! The batch: what nodes see of the hand, and the lists by which they pass packets on.

use arrayvec::ArrayVec;
use sluice_wire::layers::Layers;

use crate::io::{HAND, Lent, PortIndex, Slot, WorkerIndex};
use crate::reason::Reason;

/// A list of slots.
pub type Slots = ArrayVec<Slot, HAND>;

/// Where a packet goes on: egress interface and neighbour in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(pub u32);

impl Hop {
    /// No hop.
    pub const NONE: Hop = Hop(u32::MAX);
    /// Most interfaces that a hop can name.
    pub const INTERFACES: usize = 1 << 11;
    /// Most neighbours that a hop can name.
    pub const NEIGHBOURS: usize = 1 << 21;

    /// The neighbour `neighbour` behind `interface`.
    #[inline(always)]
    pub fn new(interface: u16, neighbour: u32) -> Self {
        Self((interface as u32) << 21 | neighbour & (Self::NEIGHBOURS as u32 - 1))
    }
    /// The egress interface.
    #[inline(always)]
    pub fn interface(self) -> usize {
        (self.0 >> 21) as usize
    }
    /// The neighbour.
    #[inline(always)]
    pub fn neighbour(self) -> u32 {
        self.0 & (Self::NEIGHBOURS as u32 - 1)
    }
}

/// What later nodes need to know of a packet: found out once, by `parse`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Where the headers are.
    pub layers: Layers,
    /// Interface that the packet came in by.
    pub interface: u16,
    /// Shard that its session belongs to.
    pub shard: u16,
    /// Made by the gateway itself: not counted down, not validated, not translated.
    pub own: bool,
}

/// What to do with a packet in the end. Every slot gets exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send by a port.
    Transmit(PortIndex),
    /// Drop, counted.
    Drop(Reason),
    /// Give to another worker.
    HandOver(WorkerIndex),
    /// Put aside until a neighbour is known or a fragment has come.
    Park,
}

/// Why a packet is given to another worker, and what that worker starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// As if it had come in there.
    Arrived = 0,
    /// A fragment for the worker that collects its datagram's.
    Fragment = 1,
    /// For the owner of neighbours: its next hop is not resolved.
    Unresolved = 2,
    /// Addressed to the gateway.
    Gateway = 3,
    /// To be answered by an ICMP error.
    Error = 4,
    /// Finished, to be sent by the worker that has the port's queue.
    Finished = 5,
}

/// The ICMP error that a packet earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// TTL or hop limit ran out.
    TimeExceeded,
    /// Larger than the next link takes: its MTU.
    TooBig(u16),
    /// No route.
    NoRoute,
    /// The host does not answer.
    HostUnreachable,
    /// Refused by policy.
    Prohibited,
    /// No port to translate to, or table full (RFC 6888 REQ-11).
    NoResources,
    /// Nothing listens there.
    PortUnreachable,
}

/// The lists that nodes fill. A slot is in one list at a time.
#[derive(Debug, Default)]
pub struct Lists {
    /// IPv4 packets on a path with sessions.
    pub lookup4: Slots,
    /// IPv6 packets on a path with sessions.
    pub lookup6: Slots,
    /// No session yet.
    pub decide4: Slots,
    /// No session yet.
    pub decide6: Slots,
    /// Sessions of an older policy.
    pub revise4: Slots,
    /// Sessions of an older policy.
    pub revise6: Slots,
    /// To be routed without a session.
    pub forward4: Slots,
    /// To be routed without a session.
    pub forward6: Slots,
    /// Fragments on a path with sessions.
    pub fragments: Slots,
    /// ARP and neighbour discovery.
    pub neighbour: Slots,
    /// Addressed to the gateway.
    pub gateway: Slots,
    /// To be cut: translated already, with hop.
    pub cut: ArrayVec<(Slot, Hop), HAND>,
    /// Next hop not resolved: interface and place in `Meta`.
    pub unresolved: Slots,
    /// To be answered by an error, then dropped for the reason.
    pub complain: ArrayVec<(Slot, Complaint, Reason), HAND>,
    /// To other workers.
    pub hand_over: ArrayVec<(Slot, WorkerIndex, Stage, u32), HAND>,
    /// Dropped.
    pub drop: ArrayVec<(Slot, Reason), HAND>,
    /// To be sent, by port.
    pub transmit: Vec<Slots>,
}

impl Lists {
    /// Lists for `ports` ports, empty.
    pub fn new(ports: usize) -> Self {
        Self { transmit: vec![Slots::new(); ports], ..Self::default() }
    }

    /// Drop a packet.
    #[inline(always)]
    pub fn drop(&mut self, slot: Slot, reason: impl Into<Reason>) {
        put(&mut self.drop, (slot, reason.into()));
    }

    /// Send a packet.
    #[inline(always)]
    pub fn send(&mut self, port: PortIndex, slot: Slot) {
        if let Some(list) = self.transmit.get_mut(port as usize) {
            put(list, slot);
        }
    }

    /// Answer with an error and drop.
    #[inline(always)]
    pub fn complain(&mut self, slot: Slot, complaint: Complaint, reason: impl Into<Reason>) {
        put(&mut self.complain, (slot, complaint, reason.into()));
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
    pub packets: &'b mut Lent<'p>,
    /// What is known of them, by slot.
    pub meta: &'b mut [Meta; HAND],
}

impl<'b, 'p> Batch<'b, 'p> {
    /// What is known of a slot.
    #[inline(always)]
    pub fn meta(&self, slot: Slot) -> &Meta {
        &self.meta[slot as usize % HAND]
    }
}
