//! Echo requests for health checks of uplinks. The requests are sent to the gateway of an uplink, independently of
//! routes.
//!
//! The control plane numbers the requests, and a worker records the times of the request and of its answer. An answer
//! is accepted only if it contains the random number of the request.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use sluice_route::{Address, InterfaceIndex};
use sluice_wire::echo::Echo;

/// Maximum number of pending requests.
pub const PROBES: usize = 512;

/// An echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Index of the request among the pending requests.
    pub number: usize,
    /// The interface through which the request is sent. The interface determines the source address.
    pub interface: InterfaceIndex,
    /// The gateway to which the request is sent.
    pub gateway: Address,
    /// Destination of the request.
    pub target: Address,
    /// Identifier and data of the request, which the answer returns.
    pub echo: Echo,
}

/// A pending request.
#[derive(Debug, Default)]
struct Slot {
    /// The identifier of the request plus 1; 0 if the entry is free.
    identifier: AtomicU32,
    data: AtomicU64,
    /// Time of the request, and time of the answer, in nanoseconds; 0 if the event has not occurred.
    sent: AtomicU64,
    answered: AtomicU64,
}

/// Pending requests.
#[derive(Debug)]
pub struct Probes {
    slots: Box<[Slot]>,
    /// Number of entries that have ever been used.
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
    /// Registers a request before it is sent, so that its answer is accepted. Replaces the previous request with this
    /// index.
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

    /// Cancels a pending request.
    pub fn forget(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            slot.identifier.store(0, Ordering::Relaxed);
            slot.answered.store(0, Ordering::Relaxed);
        }
    }

    /// Round-trip time of an answer in nanoseconds; `None` if the answer has not arrived.
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

    /// Whether a request with this identifier is pending.
    #[inline]
    pub fn expects(&self, identifier: u16) -> bool {
        self.waiting(identifier).next().is_some()
    }

    /// Records the time at which a request was sent.
    pub fn sent(&self, number: usize, now: u64) {
        if let Some(slot) = self.slots.get(number) {
            slot.sent.store(now, Ordering::Relaxed);
        }
    }

    /// Records the time of an answer. Returns `false` if no request for this answer is pending.
    pub fn answered(&self, echo: &Echo, now: u64) -> bool {
        let is_match = |slot: &&Slot| slot.data.load(Ordering::Relaxed) == echo.data;
        let found = self.waiting(echo.identifier).find(is_match);
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
        let queried = probe(3, 7, 99);
        probes.expect(&queried);
        probes.sent(3, 1_000);
        assert!(probes.expects(7) && !probes.expects(8));
        assert!(!probes.answered(
            &Echo {
                data: 98,
                ..queried.echo
            },
            1_500
        ));
        assert_eq!(None, probes.answer(3));
        assert!(probes.answered(&queried.echo, 1_700));
        assert_eq!(Some(700), probes.answer(3));
        assert!(!probes.answered(&queried.echo, 1_800) && !probes.expects(7));
        // A new request has no answer yet.
        probes.expect(&probe(3, 8, 100));
        assert_eq!(None, probes.answer(3));
        probes.forget(3);
        assert!(!probes.expects(8));
    }
}
