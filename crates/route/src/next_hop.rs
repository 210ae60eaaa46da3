//! Next hops: what a route leads to, in a table that workers read while routes change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_table::prefix::Quiescence;

use crate::neighbour::{NeighbourIndex, Neighbours};
use crate::{Address, InterfaceIndex, Reason};

/// Most next hops of a process.
pub const MAX_NEXT_HOPS: usize = 65_536;

/// What a route that does not forward does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// There is no route.
    NoRoute,
    /// Drop in silence.
    Blackhole,
    /// Drop, and tell the sender that the destination is unreachable.
    Unreachable,
    /// Drop, and tell the sender that it is prohibited.
    Prohibit,
    /// Drop: broadcast or network address of an attached network.
    DirectedBroadcast,
    /// Drop: an address that is good on its link alone.
    LinkLocal,
}

impl Refusal {
    const ALL: [Refusal; 6] = [
        Refusal::NoRoute,
        Refusal::Blackhole,
        Refusal::Unreachable,
        Refusal::Prohibit,
        Refusal::DirectedBroadcast,
        Refusal::LinkLocal,
    ];

    /// The reason under which such a packet is counted.
    pub fn reason(self) -> Reason {
        match self {
            Refusal::NoRoute => Reason::NoRoute,
            Refusal::Blackhole => Reason::Blackhole,
            Refusal::Unreachable => Reason::Unreachable,
            Refusal::Prohibit => Reason::Prohibited,
            Refusal::DirectedBroadcast => Reason::DirectedBroadcast,
            Refusal::LinkLocal => Reason::LinkLocal,
        }
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// Nowhere.
    Drop(Refusal),
    /// To the gateway itself: an address of this interface.
    Local(InterfaceIndex),
    /// To the destination itself, on the link of this interface.
    Attached(InterfaceIndex),
    /// To a gateway on the link of an interface.
    Gateway {
        /// The interface.
        interface: InterfaceIndex,
        /// The gateway's address.
        address: Address,
    },
}

impl NextHop {
    /// The interface that it leads to.
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

/// One next hop. Its words are written before a route leads to it and stay until no reader can hold it.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Slot {
    /// Kind in the low half; interface, or refusal, in the upper.
    head: AtomicU32,
    /// Neighbour of a gateway plus 1, once a worker has bound it; 0 before.
    neighbour: AtomicU32,
    address: [AtomicU32; 4],
}

/// The table, as workers see it.
#[derive(Debug)]
pub struct NextHops {
    slots: Box<[Slot]>,
}

impl NextHops {
    /// The next hop that a lookup led to; no route where there is no such slot (as for
    /// [`sluice_table::prefix::NO_ROUTE`]).
    #[inline]
    pub fn get(&self, index: u32) -> NextHop {
        let Some(slot) = self.slots.get(index as usize) else {
            return NextHop::Drop(Refusal::NoRoute);
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
                Refusal::ALL
                    .get((head >> 16) as usize)
                    .copied()
                    .unwrap_or(Refusal::NoRoute),
            ),
        }
    }

    /// The way of a gateway whose neighbour is bound: interface and neighbour, by two loads. `None` for every
    /// other next hop.
    #[inline(always)]
    pub fn bound(&self, index: u32) -> Option<(InterfaceIndex, NeighbourIndex)> {
        let slot = self.slots.get(index as usize)?;
        let neighbour = slot.neighbour.load(Ordering::Acquire).checked_sub(1)?;
        Some((
            (slot.head.load(Ordering::Relaxed) >> 16) as InterfaceIndex,
            NeighbourIndex(neighbour),
        ))
    }

    /// Bind the neighbour of a gateway, so that later packets need no search. Takes a use of it; any worker may.
    /// False where it is bound already, is no gateway, or the neighbour is not the gateway's.
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

/// Why a next hop can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// The table is full.
    #[error("more than {0} next hops")]
    Full(usize),
}

/// The table's one writer: equal next hops share a slot, counted by the routes that use it.
#[derive(Debug)]
pub struct NextHopKeeper {
    table: Arc<NextHops>,
    neighbours: Arc<Neighbours>,
    quiescence: Arc<Quiescence>,
    known: HashMap<NextHop, u32>,
    uses: Vec<u32>,
    free: Vec<u32>,
    retired: Vec<(u64, u32)>,
}

impl NextHopKeeper {
    /// A table of `capacity` next hops, at most [`MAX_NEXT_HOPS`].
    pub fn new(capacity: usize, neighbours: Arc<Neighbours>, quiescence: Arc<Quiescence>) -> Self {
        let capacity = capacity.min(MAX_NEXT_HOPS);
        Self {
            table: Arc::new(NextHops {
                slots: (0..capacity).map(|_| Slot::default()).collect(),
            }),
            neighbours,
            quiescence,
            known: HashMap::new(),
            uses: vec![0; capacity],
            free: (0..capacity as u32).rev().collect(),
            retired: Vec::new(),
        }
    }

    /// The table for workers.
    pub fn table(&self) -> Arc<NextHops> {
        self.table.clone()
    }

    /// Index of a next hop, one use taken.
    pub fn take(&mut self, next_hop: NextHop) -> Result<u32, NextHopError> {
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

    /// Give a use back, after the last route that had it is gone from the table.
    pub fn give(&mut self, index: u32) {
        let uses = &mut self.uses[index as usize];
        *uses -= 1;
        if *uses == 0 {
            self.known.remove(&self.table.get(index));
            self.retired.push((self.quiescence.advance(), index));
        }
    }

    /// Free what no reader can hold.
    pub fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let settled = self.quiescence.settled();
        for (_, index) in self.retired.extract_if(.., |(epoch, _)| *epoch <= settled) {
            let bound = self.table.slots[index as usize].neighbour.swap(0, Ordering::AcqRel);
            if let Some(neighbour) = bound.checked_sub(1) {
                self.neighbours.release(NeighbourIndex(neighbour));
            }
            self.free.push(index);
        }
    }

    /// Next hops in use.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
