//! When something happens to a site, and who sends next.

use std::collections::BTreeSet;

use sluice_table::token_bucket::TokenBucket;

use super::NEVER;
use super::Nanoseconds;
use super::entry::Entry;

/// What is waiting to be sent, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Rebind,
    Renew,
    Request,
    Farewell,
    Reboot,
    Discover,
}

const CLASSES: usize = 6;
const ALL: [Class; CLASSES] = [
    Class::Rebind,
    Class::Renew,
    Class::Request,
    Class::Farewell,
    Class::Reboot,
    Class::Discover,
];

/// Every so many messages another class than the most urgent is looked at first, each in its turn.
const FAIRNESS: usize = 8;

impl Class {
    /// Whether it is held back while servers do not answer anybody.
    fn is_probe(self) -> bool {
        matches!(self, Self::Reboot | Self::Discover)
    }
}

/// Timers and queues of all sites.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    timers: BTreeSet<(Nanoseconds, u32)>,
    queues: [BTreeSet<(Nanoseconds, u32)>; CLASSES],
    turn: usize,
}

impl Schedule {
    /// Something happens to a site then, not when it was to before.
    pub fn arm(&mut self, site: u32, entry: &mut Entry, due: Nanoseconds) {
        let due = due.min(entry.release);
        if due == entry.due {
            return;
        }
        if entry.due != NEVER {
            self.timers.remove(&(entry.due, site));
        }
        if due != NEVER {
            self.timers.insert((due, site));
        }
        entry.due = due;
    }

    /// A site that is due, taken off its timer.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<u32> {
        let first = self.timers.first().filter(|first| first.0 <= now)?.1;
        self.timers.pop_first();
        Some(first)
    }

    /// A site sends when it is its turn: the lower `order`, the sooner.
    pub fn queue(&mut self, site: u32, entry: &mut Entry, class: Class, order: Nanoseconds) {
        self.withdraw(site, entry);
        self.queues[class as usize].insert((order, site));
        (entry.queued, entry.order) = (Some(class), order);
    }

    /// It does not send.
    pub fn withdraw(&mut self, site: u32, entry: &mut Entry) {
        if let Some(class) = entry.queued.take() {
            self.queues[class as usize].remove(&(entry.order, site));
        }
    }

    /// Who sends next. `probes` limits those who may well ask in vain; none where they are as the others.
    pub fn next(&mut self, now: Nanoseconds, probes: Option<&mut TokenBucket>) -> Option<u32> {
        let may_probe = probes.as_ref().is_none_or(|bucket| bucket.has_token(now));
        let sends = |class: &Class| !self.queues[*class as usize].is_empty() && (may_probe || !class.is_probe());
        let first = match self.turn % FAIRNESS {
            0 => self.turn / FAIRNESS % CLASSES,
            _ => 0,
        };
        let class = (0..CLASSES).map(|step| ALL[(first + step) % CLASSES]).find(sends)?;
        self.turn = self.turn.wrapping_add(1);
        if let Some(bucket) = probes.filter(|_| class.is_probe()) {
            bucket.take(now);
        }
        self.queues[class as usize].first().map(|first| first.1)
    }

    /// Whether somebody waits to send: who need not be a probe, anybody.
    pub fn waiting(&self) -> (bool, bool) {
        let waits = |class: &Class| !self.queues[*class as usize].is_empty();
        let certain = ALL
            .into_iter()
            .filter(|class| !class.is_probe())
            .any(|class| waits(&class));
        (certain, certain || ALL.iter().any(waits))
    }

    /// When the first timer is due.
    pub fn first_due(&self) -> Option<Nanoseconds> {
        self.timers.first().map(|first| first.0)
    }

    #[cfg(test)]
    pub fn has(&self, site: u32, entry: &Entry) -> (bool, bool) {
        let queued = entry
            .queued
            .map(|class| self.queues[class as usize].contains(&(entry.order, site)));
        (self.timers.contains(&(entry.due, site)), queued.unwrap_or(false))
    }

    #[cfg(test)]
    pub fn lengths(&self) -> (usize, usize) {
        (self.timers.len(), self.queues.iter().map(BTreeSet::len).sum())
    }
}
