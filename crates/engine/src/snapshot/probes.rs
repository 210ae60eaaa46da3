//! Echo requests by which the health of uplinks is checked: they leave by the gateway of an uplink, whatever routes say.
//!
//! Control numbers what it asks, and a worker notes when it was sent and when the answer came. An answer is told from
//! others by a number that nobody else knows.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use sluice_route::{Address, InterfaceIndex};
use sluice_wire::echo::Echo;

/// Most requests that wait for an answer.
pub const PROBES: usize = 512;

/// An echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its place among those that wait for an answer.
    pub number: usize,
    /// The interface that it leaves by, an address of which is its source.
    pub interface: InterfaceIndex,
    /// The gateway that it leaves by.
    pub gateway: Address,
    /// Who is asked.
    pub target: Address,
    /// What comes back with the answer.
    pub echo: Echo,
}

/// What waits for an answer.
#[derive(Debug, Default)]
struct Slot {
    /// The identifier of the request, plus 1; 0 where none was made.
    identifier: AtomicU32,
    data: AtomicU64,
    /// Nanoseconds of the request and of the answer; 0 where there is none.
    sent: AtomicU64,
    answered: AtomicU64,
}

/// Requests that wait for answers.
#[derive(Debug)]
pub struct Probes {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            slots: (0..PROBES).map(|_| Slot::default()).collect(),
            used: AtomicUsize::new(0),
        }
    }
}

impl Probes {
    /// A request is about to be sent: its answer is waited for from now on, and no longer that of the one before.
    pub fn expect(&self, probe: &Probe) {
        let Some(slot) = self.slots.get(probe.number) else {
            return;
        };
        slot.identifier.store(0, Ordering::Relaxed);
        slot.sent.store(0, Ordering::Relaxed);
        slot.answered.store(0, Ordering::Relaxed);
        slot.data.store(probe.echo.data, Ordering::Relaxed);
        slot.identifier
            .store(u32::from(probe.echo.identifier) + 1, Ordering::Release);
        self.used.fetch_max(probe.number + 1, Ordering::Relaxed);
    }

    /// No answer is waited for any more.
    pub fn forget(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            slot.identifier.store(0, Ordering::Relaxed);
            slot.answered.store(0, Ordering::Relaxed);
        }
    }

    /// How many nanoseconds an answer took; none where it has not come.
    pub fn answer(&self, number: usize) -> Option<u64> {
        let slot = self.slots.get(number)?;
        let answered = slot.answered.load(Ordering::Relaxed);
        (answered > 0).then(|| answered.saturating_sub(slot.sent.load(Ordering::Relaxed)))
    }

    fn waiting(&self, identifier: u16) -> impl Iterator<Item = &Slot> {
        let used = self.used.load(Ordering::Relaxed).min(self.slots.len());
        let wanted = u32::from(identifier) + 1;
        let all = self.slots[..used].iter();
        all.filter(move |slot| slot.identifier.load(Ordering::Acquire) == wanted)
    }

    /// Whether an answer with an identifier is waited for.
    #[inline]
    pub fn expects(&self, identifier: u16) -> bool {
        self.waiting(identifier).next().is_some()
    }

    /// A request was sent.
    pub fn sent(&self, number: usize, now: u64) {
        if let Some(slot) = self.slots.get(number) {
            slot.sent.store(now, Ordering::Relaxed);
        }
    }

    /// An answer came. False where it is not waited for.
    pub fn answered(&self, echo: &Echo, now: u64) -> bool {
        let is_it = |slot: &&Slot| slot.data.load(Ordering::Relaxed) == echo.data;
        let found = self.waiting(echo.identifier).find(is_it);
        if let Some(slot) = found {
            slot.identifier.store(0, Ordering::Relaxed);
            slot.answered.store(now.max(1), Ordering::Relaxed);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(number: usize, identifier: u16, data: u64) -> Probe {
        Probe {
            number,
            interface: 0,
            gateway: Address::V4(1),
            target: Address::V4(2),
            echo: Echo {
                identifier,
                sequence: 1,
                data,
            },
        }
    }

    #[test]
    fn answer_is_heard_once_and_by_its_data_alone() {
        let probes = Probes::default();
        let asked = probe(3, 7, 99);
        probes.expect(&asked);
        probes.sent(3, 1_000);
        assert!(probes.expects(7) && !probes.expects(8));
        assert!(!probes.answered(&Echo { data: 98, ..asked.echo }, 1_500));
        assert_eq!(None, probes.answer(3));
        assert!(probes.answered(&asked.echo, 1_700));
        assert_eq!(Some(700), probes.answer(3));
        assert!(!probes.answered(&asked.echo, 1_800) && !probes.expects(7));
        // The next one begins without an answer.
        probes.expect(&probe(3, 8, 100));
        assert_eq!(None, probes.answer(3));
        probes.forget(3);
        assert!(!probes.expects(8));
    }
}
