//! Binding events for logging (RFC 6888, REQ-12; RFC 8158). A shard queues events for its worker.

use crate::ports::PortClass;
use crate::{Address, PoolIndex};
use sluice_wire::{Context, events, named};

named! {
    /// Field of a binding event.
    pub enum EventField {
        Time "time" "Time of the event.";
        Context "context" "Context of the inside address.";
        Inside "inside" "Inside address, or the first address of the subscriber's prefix.";
        InsidePort "inside-port" "Inside port of a mapping.";
        Outside "outside" "Outside address.";
        Ports "ports" "First and last outside port.";
        Pool "pool" "Pool of the outside address.";
        Class "class" "Port class.";
    }
}

events! {
    /// Kind of a binding event. The names are taken from RFC 8158.
    pub enum EventKind of EventField {
        AddressBindingCreate "address-binding-create" "A subscriber was paired with an outside address."
            [Time Context Inside Outside Ports Pool];
        AddressBindingDelete "address-binding-delete" "The pairing of a subscriber was removed."
            [Time Context Inside Outside Ports Pool];
        PortBlockAllocation "port-block-allocation" "A port block was allocated to a subscriber."
            [Time Context Inside Outside Ports Pool];
        PortBlockDeallocation "port-block-deallocation" "A port block was released."
            [Time Context Inside Outside Ports Pool];
        BibCreate "bib-create" "A mapping was created."
            [Time Context Inside InsidePort Outside Ports Pool Class];
        BibDelete "bib-delete" "A mapping was removed."
            [Time Context Inside InsidePort Outside Ports Pool Class];
        PortsExhausted "ports-exhausted" "A subscriber needed a port, but no port was free."
            [Time Context Inside Pool Class];
        QuotaExceeded "quota-exceeded" "A subscriber exceeded a limit."
            [Time Context Inside Pool Class];
    }
}

/// Set of event kinds that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// The empty set: no event is recorded.
    pub const NONE: Self = Self(0);
    /// Set of all event kinds.
    pub const ALL: Self = {
        assert!(EventKind::ALL.len() <= u16::BITS as usize, "each kind has a bit");
        let (mut all, mut kind) = (Self::NONE, 0);
        while kind < EventKind::ALL.len() {
            all = all.with(EventKind::ALL[kind]);
            kind += 1;
        }
        all
    };

    /// Returns this set with one more kind.
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Whether the set contains an event kind.
    #[inline(always)]
    pub fn has(self, kind: EventKind) -> bool {
        self.0 >> kind as u8 & 1 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The kinds of the set, in the order of their declaration.
    pub fn iter(self) -> impl Iterator<Item = EventKind> {
        EventKind::ALL.iter().copied().filter(move |&kind| self.has(kind))
    }
}

/// A binding event. An address consists of two words; an IPv4 address is stored in the low 32 bits of the second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event in nanoseconds.
    pub at: u64,
    /// Inside address, or first address of the subscriber's prefix.
    pub inside: [u64; 2],
    /// Outside address.
    pub outside: [u64; 2],
    /// Context of the inside address.
    pub context: Context,
    /// Inside port of a mapping.
    pub inside_port: u16,
    /// First and last outside port. For a mapping, first and last port are equal.
    pub ports: (u16, u16),
    /// Pool of the outside address.
    pub pool: PoolIndex,
    /// Port class; `None` for blocks, because all classes use the ports of a block.
    pub class: Option<PortClass>,
    /// Kind of event.
    pub kind: EventKind,
    /// Whether the addresses are IPv6.
    pub v6: bool,
}

impl Event {
    /// Creates an event of a subscriber.
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
            v6: A::BITS == 128,
        }
    }

    /// Returns this event with an outside address and ports.
    pub(crate) fn outside<A: Address>(self, address: A, ports: (u16, u16)) -> Self {
        Self {
            outside: address.words(),
            ports,
            ..self
        }
    }
}

/// Queue of a shard's events for its worker. If the queue is full, further events are dropped and counted.
#[derive(Debug)]
pub struct Outbox {
    wanted: EventKinds,
    waiting: Vec<Event>,
    lost: u64,
}

/// Maximum number of queued events. The maximum exceeds the number of events that one burst of packets causes.
const WAITING: usize = 512;

impl Outbox {
    /// Creates an empty queue for events of these kinds.
    pub fn new(wanted: EventKinds) -> Self {
        let max = if wanted.is_empty() { 0 } else { WAITING };
        Self {
            wanted,
            waiting: Vec::with_capacity(max),
            lost: 0,
        }
    }

    /// Queues an event if events of its kind are recorded. Allocates no memory.
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

    /// Passes all queued events to `take`. Returns the number of events that were lost since the last call.
    #[inline]
    pub fn drain(&mut self, take: impl FnMut(Event)) -> u64 {
        self.waiting.drain(..).for_each(take);
        core::mem::take(&mut self.lost)
    }

    /// Whether the queue is empty and no event was lost.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_of_all_kinds_has_each_declared_kind() {
        assert!(EventKinds::ALL.iter().eq(EventKind::ALL.iter().copied()));
        assert_eq!(0, EventKinds::NONE.iter().count());
        let some = EventKinds::NONE
            .with(EventKind::BibDelete)
            .with(EventKind::AddressBindingCreate);
        assert!(some.iter().eq([EventKind::AddressBindingCreate, EventKind::BibDelete]));
    }

    #[test]
    fn fields_of_a_kind_are_declared_once_each() {
        for kind in EventKind::ALL {
            let fields = kind.fields();
            let times = |field| fields.iter().filter(|&&other| other == field).count();
            assert!(fields.iter().all(|&field| times(field) == 1), "{kind:?}");
            assert!(fields.contains(&EventField::Time), "{kind:?}");
        }
    }
}
