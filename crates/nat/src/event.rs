//! What happens to bindings, for those who log it (RFC 6888, REQ-12; RFC 8158): kept until the worker passes it on.

use crate::ports::PortClass;
use crate::{Address, PoolIndex};
use sluice_wire::Context;

/// What happened, in the words of RFC 8158.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A subscriber is paired with an outside address.
    AddressBindingCreate,
    /// A subscriber is not paired any more.
    AddressBindingDelete,
    /// A subscriber got a block of ports.
    PortBlockAllocation,
    /// A block of ports is the pool's again.
    PortBlockDeallocation,
    /// An inside address and port got an outside one.
    BibCreate,
    /// A mapping is gone.
    BibDelete,
    /// No port was free for a subscriber.
    PortsExhausted,
    /// A subscriber wanted more than it may have.
    QuotaExceeded,
}

/// Which kinds are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// None: nothing is kept.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self(u16::MAX);

    /// These and one more.
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Is a kind wanted?
    #[inline(always)]
    pub fn has(self, kind: EventKind) -> bool {
        self.0 >> kind as u8 & 1 != 0
    }

    /// Is none wanted?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// An event. IPv4 addresses are in the low 32 bits of the second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The moment in nanoseconds.
    pub at: u64,
    /// Inside address, or the first of the subscriber's prefix.
    pub inside: [u64; 2],
    /// Outside address.
    pub outside: [u64; 2],
    /// Context of the inside.
    pub context: Context,
    /// Inside port of a mapping.
    pub inside_port: u16,
    /// First and last outside port; of a mapping its port twice.
    pub ports: (u16, u16),
    /// The pool.
    pub pool: PoolIndex,
    /// What the ports are of; a block serves all.
    pub class: Option<PortClass>,
    /// What happened.
    pub kind: EventKind,
    /// IPv6.
    pub six: bool,
}

impl Event {
    /// An event of a subscriber.
    pub(crate) fn new<A: Address>(kind: EventKind, at: u64, context: Context, inside: A, pool: PoolIndex) -> Self {
        Self {
            at,
            inside: inside.words(),
            outside: [0; 2],
            context,
            inside_port: 0,
            ports: (0, 0),
            pool,
            class: None,
            kind,
            six: A::BITS == 128,
        }
    }

    /// The same with an outside address and ports.
    pub(crate) fn outside<A: Address>(self, address: A, ports: (u16, u16)) -> Self {
        Self {
            outside: address.words(),
            ports,
            ..self
        }
    }
}

/// Events of a shard that wait for the worker: a fixed number, what is more is counted and lost.
#[derive(Debug)]
pub struct Outbox {
    wanted: EventKinds,
    waiting: Vec<Event>,
    lost: u64,
}

/// Events that wait at most: more than one burst causes.
const WAITING: usize = 512;

impl Outbox {
    /// An empty one.
    pub fn new(wanted: EventKinds) -> Self {
        let most = if wanted.is_empty() { 0 } else { WAITING };
        Self {
            wanted,
            waiting: Vec::with_capacity(most),
            lost: 0,
        }
    }

    /// Keep an event, if its kind is wanted. Allocates nothing.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: EventKind, event: impl FnOnce() -> Event) {
        if self.wanted.has(kind) {
            self.keep(event());
        }
    }

    #[inline(never)]
    fn keep(&mut self, event: Event) {
        if self.waiting.len() < self.waiting.capacity() {
            self.waiting.push(event);
        } else {
            self.lost += 1;
        }
    }

    /// Pass on what waits. Returns how many events were lost since the last time.
    #[inline]
    pub fn drain(&mut self, take: impl FnMut(Event)) -> u64 {
        self.waiting.drain(..).for_each(take);
        core::mem::take(&mut self.lost)
    }

    /// Whether nothing waits and nothing was lost.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost == 0
    }
}
