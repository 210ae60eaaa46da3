//! Applications of sessions: what a record keeps of its session's, what a commit says about them, and what a worker finds
//! them out with.
//!
//! A worker looks at the first packets of a session, in a pool of its own. What the record keeps meanwhile is where; what it
//! keeps then is the result, which goes along where its shard goes. Before a shard leaves its worker, all of it that is
//! being looked at is given up, so that no record says where in another worker's pool.

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

/// What a commit says.
#[derive(Clone, Debug)]
pub struct IdentificationSettings {
    /// By interface: the applications of sessions that come or go by it are looked for.
    pub interfaces: Vec<bool>,
    /// What they are called.
    pub names: Arc<ApplicationNames>,
    /// Numbers of ICMP and ICMPv6, which nobody has to look for.
    icmp: [u16; 2],
}

impl IdentificationSettings {
    /// By these interfaces.
    pub fn new(interfaces: Vec<bool>, names: Arc<ApplicationNames>) -> Self {
        Self {
            interfaces,
            icmp: ["ICMP", "ICMPV6"].map(|name| names.number(name).unwrap_or_default()),
            names,
        }
    }

    /// Whether the applications of an interface's sessions are looked for.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }

    /// What the protocol alone says.
    pub fn of_protocol(&self, protocol: u8) -> Option<ProtocolPair> {
        let application = match protocol {
            ICMP => self.icmp[0],
            ICMPV6 => self.icmp[1],
            _ => return None,
        };
        Some(ProtocolPair { master: 0, application })
    }
}

/// A session that is looked at: shard, family, record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifiedSession {
    /// Its shard.
    pub shard: u16,
    /// IPv6.
    pub six: bool,
    /// Its record.
    pub index: RecordIndex,
}

/// What a packet has said of its session's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentificationResult {
    /// What is known by now.
    pub pair: ProtocolPair,
    /// It was not known before.
    pub is_new: bool,
    /// It stays so: nothing is looked at any more.
    pub is_over: bool,
}

#[derive(Clone, Copy)]
struct PendingSession {
    flow: DetectionHandle,
    whose: IdentifiedSession,
    pair: ProtocolPair,
}

struct Pool {
    applications: ApplicationDetector,
    /// By slot of a flow's state.
    sought: Box<[Option<PendingSession>]>,
}

/// What a worker finds applications out with, where it does.
#[derive(Default)]
pub struct Identification(Option<RefCell<Box<Pool>>>);

impl std::fmt::Debug for Identification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recognition").finish_non_exhaustive()
    }
}

impl Identification {
    /// All that it takes is allocated here, on the control thread.
    pub fn new(capacity: ApplicationCapacity) -> Result<Self, Error> {
        let capacity = ApplicationCapacity {
            flows: capacity.flows.min(MAX_PENDING),
            ..capacity
        };
        Ok(Self(Some(RefCell::new(Box::new(Pool {
            applications: ApplicationDetector::new(capacity)?,
            sought: vec![None; capacity.flows as usize].into(),
        })))))
    }

    /// Begin to look at a session; none where there is no place left.
    pub fn open(&self, whose: IdentifiedSession, counters: &WorkerCounters) -> Option<PendingIndex> {
        let pool = &mut *self.0.as_ref()?.borrow_mut();
        let flow = pool.applications.allocate();
        counters.count_applications(pool.applications.counters());
        let flow = flow?;
        *pool.sought.get_mut(flow.slot() as usize)? = Some(PendingSession {
            flow,
            whose,
            pair: ProtocolPair::default(),
        });
        counters.applications_sought.add(1);
        Some(place(flow))
    }

    /// A packet of a session, from its IP header on.
    pub fn inspect(
        &self,
        place: PendingIndex,
        packet: &[u8],
        direction: Direction,
        now: u64,
        counters: &WorkerCounters,
    ) -> Option<IdentificationResult> {
        let pool = &mut *self.0.as_ref()?.borrow_mut();
        let sought = pool.get(place)?;
        let before = sought.pair;
        let guess = pool
            .applications
            .packet(sought.flow, packet, direction, now / NANOSECONDS_PER_MILLISECOND);
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

    /// A session is looked at no longer: what it is by what was seen until now.
    pub fn give_up(&self, place: PendingIndex, counters: &WorkerCounters) -> ProtocolPair {
        let Some(pool) = &self.0 else {
            return ProtocolPair::default();
        };
        let pool = &mut *pool.borrow_mut();
        let Some(sought) = pool.get(place) else {
            return ProtocolPair::default();
        };
        let pair = match pool.applications.give_up(sought.flow) {
            DetectionResult::Application {
                master, application, ..
            } => ProtocolPair { master, application },
            DetectionResult::Unknown | DetectionResult::GivenUp => sought.pair,
        };
        pool.forget(place, pair, counters);
        pair
    }

    /// What is known of a session by now; none where nothing is, or nobody asks.
    pub fn known(&self, application: Application) -> Option<ProtocolPair> {
        match application {
            Application::Known(pair) => Some(pair),
            Application::Sought(place) => {
                let sought = self.0.as_ref()?.borrow().get(place)?;
                Some(sought.pair).filter(|pair| *pair != ProtocolPair::default())
            }
            Application::Nothing | Application::Wanted => None,
        }
    }

    /// Sessions of a shard that are looked at, from a slot on: the next one, and the slot behind it.
    pub fn next_of(&self, shard: u16, from: usize) -> Option<(IdentifiedSession, PendingIndex, usize)> {
        let pool = self.0.as_ref()?.borrow();
        let mut rest = pool.sought.iter().enumerate().skip(from);
        rest.find_map(|(slot, sought)| {
            let sought = sought.filter(|sought| sought.whose.shard == shard)?;
            Some((sought.whose, place(sought.flow), slot + 1))
        })
    }

    /// Whether there is anything to find applications out with.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

impl Pool {
    fn get(&self, PendingIndex(bits): PendingIndex) -> Option<PendingSession> {
        let sought = *self.sought.get((bits & (MAX_PENDING - 1)) as usize)?;
        sought.filter(|sought| place(sought.flow) == PendingIndex(bits))
    }

    fn keep(&mut self, PendingIndex(bits): PendingIndex, pair: ProtocolPair) {
        if let Some(Some(sought)) = self.sought.get_mut((bits & (MAX_PENDING - 1)) as usize) {
            sought.pair = pair;
        }
    }

    fn forget(&mut self, PendingIndex(bits): PendingIndex, pair: ProtocolPair, counters: &WorkerCounters) {
        if let Some(sought) = self.sought.get_mut((bits & (MAX_PENDING - 1)) as usize) {
            *sought = None;
        }
        counters.applications_sought.remove(1);
        counters.count_application(pair.application);
        counters.count_applications(self.applications.counters());
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
        let whose = |shard| IdentifiedSession {
            shard,
            six: false,
            index: RecordIndex(7),
        };
        let first = recognition.open(whose(1), &counters).unwrap();
        assert_eq!(None, recognition.open(whose(2), &counters));
        assert_eq!(Some((whose(1), first, 1)), recognition.next_of(1, 0));
        assert_eq!(None, recognition.next_of(2, 0));
        assert_eq!(ProtocolPair::default(), recognition.give_up(first, &counters));
        let second = recognition.open(whose(2), &counters).unwrap();
        assert_ne!(first, second);
        assert_eq!(None, recognition.inspect(first, &[], Direction::Forward, 0, &counters));
        assert_eq!(None, recognition.known(Application::Sought(first)));
        assert_eq!(
            [2, 0, 0, 1, 1, 0],
            counters.applications.each_ref().map(|counter| counter.get())
        );
        assert_eq!(1, counters.applications_sought.get());
    }
}
