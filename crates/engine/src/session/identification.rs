//! Application identification of sessions: settings in a snapshot, and the state of a worker.
//!
//! A worker passes the first packets of a session to nDPI, with a flow state from the worker's pool. During identification, the
//! record contains the index of the flow state. After identification, the record contains the result, which moves with the
//! shard. Before a shard leaves its worker, the worker ends all identifications in progress, so that no record refers to
//! another worker's pool.

use std::cell::RefCell;
use std::sync::Arc;

use sluice_inspect::applications::{
    ApplicationCapacity, ApplicationDetector, ApplicationNames, DetectionHandle, DetectionResult, Error, ProtocolPair,
};
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::{ICMP, ICMPV6};

use crate::packet::counters::WorkerCounters;
use crate::session::application::{SERIAL_BITS, SLOT_BITS};

pub use crate::session::application::{Application, MAX_PENDING, PendingIndex};

/// Settings of application identification, as configured by a commit.
#[derive(Clone, Debug)]
pub struct IdentificationSettings {
    /// For each interface: whether application identification applies to sessions whose packets arrive on the interface
    /// or leave through it.
    pub interfaces: Vec<bool>,
    /// Names of the applications, by number.
    pub names: Arc<ApplicationNames>,
    /// Application numbers of ICMP and ICMPv6, which are determined by the IP protocol.
    icmp: [u16; 2],
}

impl IdentificationSettings {
    /// Creates settings that enable identification on these interfaces.
    pub fn new(interfaces: Vec<bool>, names: Arc<ApplicationNames>) -> Self {
        Self {
            interfaces,
            icmp: ["ICMP", "ICMPV6"].map(|name| names.number(name).unwrap_or_default()),
            names,
        }
    }

    /// Whether applications are identified in sessions of an interface.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }

    /// The application, if the IP protocol alone determines it.
    pub fn of_protocol(&self, protocol: u8) -> Option<ProtocolPair> {
        let application = match protocol {
            ICMP => self.icmp[0],
            ICMPV6 => self.icmp[1],
            _ => return None,
        };
        Some(ProtocolPair { master: 0, application })
    }
}

/// A session that is being identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifiedSession {
    /// The session's shard.
    pub shard: u16,
    /// Whether the session is IPv6.
    pub v6: bool,
    /// The session's record.
    pub index: RecordIndex,
}

/// Result of identification after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentificationResult {
    /// The application as identified so far.
    pub pair: ProtocolPair,
    /// Whether this packet made the application known.
    pub is_new: bool,
    /// Whether the result is final, so that no further packets are needed.
    pub is_over: bool,
}

#[derive(Clone, Copy)]
struct PendingSession {
    flow: DetectionHandle,
    identified: IdentifiedSession,
    pair: ProtocolPair,
}

struct Pool {
    applications: ApplicationDetector,
    /// The sessions that are being identified, by index of the flow state.
    pending: Box<[Option<PendingSession>]>,
}

/// Identification state of a worker; `None` if the worker does not identify applications.
#[derive(Default)]
pub struct Identification(Option<RefCell<Box<Pool>>>);

impl std::fmt::Debug for Identification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recognition").finish_non_exhaustive()
    }
}

impl Identification {
    /// Creates the state. The control thread must call this function, because the function allocates all memory.
    pub fn new(capacity: ApplicationCapacity) -> Result<Self, Error> {
        let capacity = ApplicationCapacity {
            flows: capacity.flows.min(MAX_PENDING),
            ..capacity
        };
        Ok(Self(Some(RefCell::new(Box::new(Pool {
            applications: ApplicationDetector::new(capacity)?,
            pending: vec![None; capacity.flows as usize].into(),
        })))))
    }

    /// Starts the identification of a session. Returns `None` if no flow state is free.
    pub fn open(&self, identified: IdentifiedSession, counters: &WorkerCounters) -> Option<PendingIndex> {
        let pool = &mut *self.0.as_ref()?.borrow_mut();
        let flow = pool.applications.allocate();
        counters.identification.copy(pool.applications.counters());
        let flow = flow?;
        *pool.pending.get_mut(flow.slot() as usize)? = Some(PendingSession {
            flow,
            identified,
            pair: ProtocolPair::default(),
        });
        counters.identification.identifying.add(1);
        Some(place(flow))
    }

    /// Processes a packet of a session. `packet` starts with the IP header.
    pub fn inspect(
        &self,
        place: PendingIndex,
        packet: &[u8],
        direction: Direction,
        now: u64,
        counters: &WorkerCounters,
    ) -> Option<IdentificationResult> {
        let pool = &mut *self.0.as_ref()?.borrow_mut();
        let pending = pool.get(place)?;
        let before = pending.pair;
        let guess = pool
            .applications
            .packet(pending.flow, packet, direction, now / NANOSECONDS_PER_MILLISECOND);
        let (pair, is_over) = match guess {
            DetectionResult::Unknown => (before, false),
            DetectionResult::Application {
                master,
                application,
                done,
            } => (ProtocolPair { master, application }, done),
            DetectionResult::GivenUp => (before, true),
        };
        match is_over {
            true => pool.forget(place, pair, counters),
            false => pool.keep(place, pair),
        }
        Some(IdentificationResult {
            pair,
            is_new: pair != before,
            is_over,
        })
    }

    /// Ends the identification of a session. Returns the application as identified so far.
    pub fn give_up(&self, place: PendingIndex, counters: &WorkerCounters) -> ProtocolPair {
        let Some(pool) = &self.0 else {
            return ProtocolPair::default();
        };
        let pool = &mut *pool.borrow_mut();
        let Some(pending) = pool.get(place) else {
            return ProtocolPair::default();
        };
        let pair = match pool.applications.give_up(pending.flow) {
            DetectionResult::Application {
                master, application, ..
            } => ProtocolPair { master, application },
            DetectionResult::Unknown | DetectionResult::GivenUp => pending.pair,
        };
        pool.forget(place, pair, counters);
        pair
    }

    /// The application of a session as identified so far; `None` if it is unknown, or if the session is not identified.
    pub fn known(&self, application: Application) -> Option<ProtocolPair> {
        match application {
            Application::Known(pair) => Some(pair),
            Application::Pending(place) => {
                let pending = self.0.as_ref()?.borrow().get(place)?;
                Some(pending.pair).filter(|pair| *pair != ProtocolPair::default())
            }
            Application::Nothing | Application::Enabled => None,
        }
    }

    /// Searches, from index `from` on, for the next session of a shard that is being identified. Also returns the index
    /// at which the search must be continued.
    pub fn next_of(&self, shard: u16, from: usize) -> Option<(IdentifiedSession, PendingIndex, usize)> {
        let pool = self.0.as_ref()?.borrow();
        let mut rest = pool.pending.iter().enumerate().skip(from);
        rest.find_map(|(slot, pending)| {
            let pending = pending.filter(|pending| pending.identified.shard == shard)?;
            Some((pending.identified, place(pending.flow), slot + 1))
        })
    }

    /// Whether the worker identifies applications.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

impl Pool {
    fn get(&self, PendingIndex(bits): PendingIndex) -> Option<PendingSession> {
        let pending = *self.pending.get((bits & (MAX_PENDING - 1)) as usize)?;
        pending.filter(|pending| place(pending.flow) == PendingIndex(bits))
    }

    fn keep(&mut self, PendingIndex(bits): PendingIndex, pair: ProtocolPair) {
        if let Some(Some(pending)) = self.pending.get_mut((bits & (MAX_PENDING - 1)) as usize) {
            pending.pair = pair;
        }
    }

    fn forget(&mut self, PendingIndex(bits): PendingIndex, pair: ProtocolPair, counters: &WorkerCounters) {
        if let Some(pending) = self.pending.get_mut((bits & (MAX_PENDING - 1)) as usize) {
            *pending = None;
        }
        counters.identification.identifying.remove(1);
        counters.identification.count_session(pair.application);
        counters.identification.copy(self.applications.counters());
    }
}

fn place(flow: DetectionHandle) -> PendingIndex {
    let serial = flow.serial() & ((1 << SERIAL_BITS) - 1);
    PendingIndex(serial << SLOT_BITS | flow.slot())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_a_session_that_was_given_up_is_nobodys() {
        let recognition = Identification::new(ApplicationCapacity {
            flows: 1,
            memory: 1 << 16,
            ..ApplicationCapacity::default()
        })
        .unwrap();
        let counters = WorkerCounters::new(0, 0);
        let identified = |shard| IdentifiedSession {
            shard,
            v6: false,
            index: RecordIndex(7),
        };
        let first = recognition.open(identified(1), &counters).unwrap();
        assert_eq!(None, recognition.open(identified(2), &counters));
        assert_eq!(Some((identified(1), first, 1)), recognition.next_of(1, 0));
        assert_eq!(None, recognition.next_of(2, 0));
        assert_eq!(ProtocolPair::default(), recognition.give_up(first, &counters));
        let second = recognition.open(identified(2), &counters).unwrap();
        assert_ne!(first, second);
        assert_eq!(None, recognition.inspect(first, &[], Direction::Forward, 0, &counters));
        assert_eq!(None, recognition.known(Application::Pending(first)));
        assert_eq!(
            [2, 0, 0, 1, 1, 0],
            std::array::from_fn::<_, 6, _>(|result| counters.identification.results.get(result))
        );
        assert_eq!(1, counters.identification.identifying.get());
    }
}
