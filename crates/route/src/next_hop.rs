//! Next hops of routes, in a table that workers read while routes change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_table::prefix::{NO_ROUTE, Quiescence};

use crate::hop_set::{Balance, HopSet, HopSets, MAX_SETS};
use crate::neighbour::{NeighbourIndex, Neighbours};
use crate::{Address, InterfaceIndex, Reason};

/// Maximum number of next hops in the process.
pub const MAX_NEXT_HOPS: usize = 65_536;

/// How a route drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropKind {
    /// Drop, because there is no route.
    NoRoute,
    /// Drop without an ICMP error.
    Blackhole,
    /// Drop, and send an ICMP error to the sender: unreachable.
    Unreachable,
    /// Drop, and send an ICMP error to the sender: prohibited.
    Prohibit,
    /// Drop, because the destination is the broadcast or network address of an attached network.
    DirectedBroadcast,
    /// Drop, because the destination is link-local.
    LinkLocal,
}

impl DropKind {
    const ALL: [DropKind; 6] = [
        DropKind::NoRoute,
        DropKind::Blackhole,
        DropKind::Unreachable,
        DropKind::Prohibit,
        DropKind::DirectedBroadcast,
        DropKind::LinkLocal,
    ];

    /// Reason under which the dropped packet is counted.
    pub fn reason(self) -> Reason {
        match self {
            DropKind::NoRoute => Reason::NoRoute,
            DropKind::Blackhole => Reason::Blackhole,
            DropKind::Unreachable => Reason::Unreachable,
            DropKind::Prohibit => Reason::Prohibited,
            DropKind::DirectedBroadcast => Reason::DirectedBroadcast,
            DropKind::LinkLocal => Reason::LinkLocal,
        }
    }
}

/// Destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// Drop packets with this drop kind.
    Drop(DropKind),
    /// Deliver packets to the gateway itself: the destination is an address of this interface.
    Local(InterfaceIndex),
    /// Send packets directly to the destination, which is on the link of this interface.
    Attached(InterfaceIndex),
    /// A gateway on the link of an interface.
    Gateway {
        /// Output interface.
        interface: InterfaceIndex,
        /// Address of the gateway.
        address: Address,
    },
}

impl NextHop {
    /// Interface of the next hop, if any.
    #[inline(always)]
    pub fn interface(self) -> Option<InterfaceIndex> {
        match self {
            NextHop::Drop(_) => None,
            NextHop::Local(interface) | NextHop::Attached(interface) => Some(interface),
            NextHop::Gateway { interface, .. } => Some(interface),
        }
    }
}

const DROP: u32 = 0;
const LOCAL: u32 = 1;
const ATTACHED: u32 = 2;
const GATEWAY4: u32 = 3;
const GATEWAY6: u32 = 4;

/// One next hop. The writer fills a slot before a route refers to the slot, and does not reuse the slot until no reader
/// can hold it.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Slot {
    /// Low 16 bits: kind of next hop. High 16 bits: interface or drop kind.
    head: AtomicU32,
    /// Index plus 1 of the gateway's neighbour, if a worker has bound the neighbour; otherwise 0.
    neighbour: AtomicU32,
    address: [AtomicU32; 4],
}

/// The next-hop table, for workers.
#[derive(Debug)]
pub struct NextHops {
    slots: Box<[Slot]>,
    sets: HopSets,
}

/// First index that refers to a set of next hops.
const SETS_FROM: u32 = MAX_NEXT_HOPS as u32;

impl NextHops {
    /// Whether any of these indexes refers to a set, so that a member must be selected.
    #[inline(always)]
    pub fn have_sets(indexes: &[u32]) -> bool {
        let is_set = |index: &u32| *index >= SETS_FROM && *index != NO_ROUTE;
        indexes.iter().fold(false, |any, index| any | is_set(index))
    }

    /// Selects the next hop of a packet: a member if `index` refers to a set, otherwise `index` itself. `hash` returns
    /// the hash of the packet's flow or source host.
    #[inline(always)]
    pub fn choose(&self, index: u32, hash: impl FnOnce(Balance) -> u64) -> u32 {
        if index < SETS_FROM || index == NO_ROUTE {
            return index;
        }
        let set = (index - SETS_FROM) as usize;
        self.sets.choose(set, hash).unwrap_or(NO_ROUTE)
    }

    /// Indexes of the next hops that flows may use. If `index` refers to a set, each member occurs in proportion to its
    /// weight. Otherwise the only item is `index` itself.
    pub fn members(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let set = index.checked_sub(SETS_FROM).map(|set| set as usize);
        let single = set.is_none().then_some(index);
        let members = set.into_iter().flat_map(|set| self.sets.buckets(set));
        single.into_iter().chain(members)
    }

    /// The next hop with this index, or the first member of a set. An unused index, such as
    /// [`sluice_table::prefix::NO_ROUTE`], results in a drop with the kind "no route".
    #[inline]
    pub fn get(&self, index: u32) -> NextHop {
        let index = self.choose(index, |_| 0);
        let Some(slot) = self.slots.get(index as usize) else {
            return NextHop::Drop(DropKind::NoRoute);
        };
        let head = slot.head.load(Ordering::Relaxed);
        let interface = (head >> 16) as InterfaceIndex;
        match head & 0xffff {
            LOCAL => NextHop::Local(interface),
            ATTACHED => NextHop::Attached(interface),
            GATEWAY4 => NextHop::Gateway {
                interface,
                address: Address::V4(slot.address[3].load(Ordering::Relaxed)),
            },
            GATEWAY6 => {
                let number = slot
                    .address
                    .iter()
                    .fold(0, |n, word| n << 32 | word.load(Ordering::Relaxed) as u128);
                NextHop::Gateway {
                    interface,
                    address: Address::V6(number),
                }
            }
            _ => NextHop::Drop(
                DropKind::ALL
                    .get((head >> 16) as usize)
                    .copied()
                    .unwrap_or(DropKind::NoRoute),
            ),
        }
    }

    /// Interface and neighbour of a gateway with a bound neighbour. `None` for every other next hop. Takes two loads.
    #[inline(always)]
    pub fn adjacency(&self, index: u32) -> Option<(InterfaceIndex, NeighbourIndex)> {
        let slot = self.slots.get(index as usize)?;
        let neighbour = slot.neighbour.load(Ordering::Acquire).checked_sub(1)?;
        Some((
            (slot.head.load(Ordering::Relaxed) >> 16) as InterfaceIndex,
            NeighbourIndex(neighbour),
        ))
    }

    /// Binds a gateway to its neighbour, so that later packets need no neighbour lookup. Holds the neighbour. Any
    /// worker may call this function. Returns false if the gateway is already bound, or if the next hop is not a
    /// gateway with this neighbour.
    pub fn bind(&self, index: u32, neighbour: NeighbourIndex, neighbours: &Neighbours) -> bool {
        let NextHop::Gateway { interface, address } = self.get(index) else {
            return false;
        };
        let Some(slot) = self.slots.get(index as usize) else {
            return false;
        };
        if slot.neighbour.load(Ordering::Relaxed) != 0 || !neighbours.hold(neighbour, interface, address) {
            return false;
        }
        let exchanged = slot
            .neighbour
            .compare_exchange(0, neighbour.0 + 1, Ordering::AcqRel, Ordering::Relaxed);
        if exchanged.is_err() {
            neighbours.release(neighbour);
        }
        exchanged.is_ok()
    }
}

/// Why a next hop can't be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// The table is full.
    #[error("there are more than {0} next hops")]
    Full(usize),
    /// The number of different sets exceeds the maximum.
    #[error("there are more than {MAX_SETS} different sets of next hops")]
    Sets,
}

/// The single writer of the next-hop table. Equal next hops share a slot, and the writer counts the routes of each
/// slot.
#[derive(Debug)]
pub struct NextHopWriter {
    table: Arc<NextHops>,
    neighbours: Arc<Neighbours>,
    quiescence: Arc<Quiescence>,
    known: HashMap<NextHop, u32>,
    uses: Vec<u32>,
    free: Vec<u32>,
    retired: Vec<(u64, u32)>,
    known_sets: HashMap<HopSet, u32>,
    /// Sets by number, each with the number of routes that use it.
    sets: Vec<Option<(HopSet, u32)>>,
    retired_sets: Vec<(u64, u32)>,
}

impl NextHopWriter {
    /// Creates a table of `capacity` next hops, at most [`MAX_NEXT_HOPS`].
    pub fn new(capacity: usize, neighbours: Arc<Neighbours>, quiescence: Arc<Quiescence>) -> Self {
        let capacity = capacity.min(MAX_NEXT_HOPS);
        Self {
            table: Arc::new(NextHops {
                slots: (0..capacity).map(|_| Slot::default()).collect(),
                sets: HopSets::new(),
            }),
            neighbours,
            quiescence,
            known: HashMap::new(),
            uses: vec![0; capacity],
            free: (0..capacity as u32).rev().collect(),
            retired: Vec::new(),
            known_sets: HashMap::new(),
            sets: Vec::new(),
            retired_sets: Vec::new(),
        }
    }

    /// The table, for workers.
    pub fn table(&self) -> Arc<NextHops> {
        self.table.clone()
    }

    /// Adds a use of a next hop, and returns its index.
    pub fn acquire(&mut self, next_hop: NextHop) -> Result<u32, NextHopError> {
        self.reclaim();
        if let Some(&index) = self.known.get(&next_hop) {
            self.uses[index as usize] += 1;
            return Ok(index);
        }
        let index = self.free.pop().ok_or(NextHopError::Full(self.uses.len()))?;
        let slot = &self.table.slots[index as usize];
        let (kind, upper, number) = match next_hop {
            NextHop::Drop(refusal) => (DROP, refusal as u32, 0),
            NextHop::Local(interface) => (LOCAL, interface as u32, 0),
            NextHop::Attached(interface) => (ATTACHED, interface as u32, 0),
            NextHop::Gateway {
                interface,
                address: Address::V4(bits),
            } => (GATEWAY4, interface as u32, bits as u128),
            NextHop::Gateway {
                interface,
                address: Address::V6(bits),
            } => (GATEWAY6, interface as u32, bits),
        };
        for (word, shift) in slot.address.iter().zip([96, 64, 32, 0]) {
            word.store((number >> shift) as u32, Ordering::Relaxed);
        }
        slot.head.store(kind | upper << 16, Ordering::Relaxed);
        self.known.insert(next_hop, index);
        self.uses[index as usize] = 1;
        Ok(index)
    }

    /// Adds a use of a set, and returns its index. For a set with one next hop, the index is that of the next hop. A
    /// new set distributes flows like the most similar existing set as far as possible, so that the replacement of a
    /// set moves few flows.
    pub fn acquire_set(&mut self, set: &HopSet) -> Result<u32, NextHopError> {
        if let [(next_hop, _)] = set.members() {
            return self.acquire(*next_hop);
        }
        self.reclaim();
        if let Some(&number) = self.known_sets.get(set) {
            if let Some((_, uses)) = &mut self.sets[number as usize] {
                *uses += 1;
            }
            return Ok(SETS_FROM + number);
        }
        let free = self.sets.iter().position(Option::is_none);
        let number = free.unwrap_or(self.sets.len());
        if number >= MAX_SETS {
            return Err(NextHopError::Sets);
        }
        let mut members = Vec::with_capacity(set.members().len());
        for &(next_hop, weight) in set.members() {
            match self.acquire(next_hop) {
                Ok(index) => members.push((index, weight)),
                Err(error) => {
                    members.into_iter().for_each(|(index, _)| self.release(index));
                    return Err(error);
                }
            }
        }
        let like = self.find_most_similar(set);
        self.table.sets.assign(number, (&members, set.balance()), like);
        if number == self.sets.len() {
            self.sets.push(None);
        }
        self.sets[number] = Some((set.clone(), 1));
        self.known_sets.insert(set.clone(), number as u32);
        Ok(SETS_FROM + number as u32)
    }

    /// The set in use that has the most members in common with `set`.
    fn find_most_similar(&self, set: &HopSet) -> Option<usize> {
        let hops: HashSet<_> = set.members().iter().map(|(next_hop, _)| *next_hop).collect();
        let shared = |known: &HopSet| known.members().iter().filter(|(hop, _)| hops.contains(hop)).count();
        let known = self.sets.iter().enumerate();
        let known = known.filter_map(|(number, known)| Some((shared(&known.as_ref()?.0), number)));
        known.max().filter(|&(shared, _)| shared > 0).map(|(_, number)| number)
    }

    fn release_set(&mut self, number: u32) {
        let Some((set, uses)) = &mut self.sets[number as usize] else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.known_sets.remove(set);
            self.retired_sets.push((self.quiescence.advance(), number));
        }
    }

    /// Removes a use of a next hop or a set. Must be called after the route was removed from the FIB.
    pub fn release(&mut self, index: u32) {
        if let Some(number) = index.checked_sub(SETS_FROM) {
            return self.release_set(number);
        }
        let uses = &mut self.uses[index as usize];
        *uses -= 1;
        if *uses == 0 {
            self.known.remove(&self.table.get(index));
            self.retired.push((self.quiescence.advance(), index));
        }
    }

    /// Frees entries that no reader can hold any longer.
    pub fn reclaim(&mut self) {
        if self.retired.is_empty() && self.retired_sets.is_empty() {
            return;
        }
        let settled = self.quiescence.settled();
        // The members of a freed set are freed only after another grace period, because routes may also refer to these
        // next hops directly, without the set.
        let free: Vec<_> = self
            .retired_sets
            .extract_if(.., |(epoch, _)| *epoch <= settled)
            .collect();
        for (_, number) in free {
            let set = self.sets[number as usize].take();
            for (next_hop, _) in set.iter().flat_map(|(set, _)| set.members()) {
                if let Some(&index) = self.known.get(next_hop) {
                    self.release(index);
                }
            }
        }
        for (_, index) in self.retired.extract_if(.., |(epoch, _)| *epoch <= settled) {
            let bound = self.table.slots[index as usize].neighbour.swap(0, Ordering::AcqRel);
            if let Some(neighbour) = bound.checked_sub(1) {
                self.neighbours.release(NeighbourIndex(neighbour));
            }
            self.free.push(index);
        }
    }

    /// Number of next hops in use.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no next hop is in use.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
