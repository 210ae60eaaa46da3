//! Timers of sites, and the order in which sites send their messages.

use std::collections::BTreeSet;

use sluice_table::token_bucket::TokenBucket;

use super::NEVER;
use super::Nanoseconds;
use super::entry::Entry;

/// Send queues in order of priority. The most urgent comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Rebind,
    Renew,
    Request,
    Release,
    Reboot,
    Discover,
}

const CLASSES: usize = 6;
const ALL: [Class; CLASSES] = [
    Class::Rebind,
    Class::Renew,
    Class::Request,
    Class::Release,
    Class::Reboot,
    Class::Discover,
];

/// The search for the next message starts at the most urgent class. Once per this number of messages, the search starts
/// at another class instead, and all classes take turns.
const ROTATION: usize = 8;

impl Class {
    /// Whether the message is rate-limited while no server responds.
    fn is_probe(self) -> bool {
        matches!(self, Self::Reboot | Self::Discover)
    }
}

/// Timers and send queues of all sites.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    timers: BTreeSet<(Nanoseconds, u32)>,
    queues: [BTreeSet<(Nanoseconds, u32)>; CLASSES],
    rotation: usize,
}

impl Schedule {
    /// Set the timer of a site. The previous time is replaced.
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

    /// Take a site whose timer has expired.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<u32> {
        let first = self.timers.first().filter(|first| first.0 <= now)?.1;
        self.timers.pop_first();
        Some(first)
    }

    /// Queue a site for sending. A site with a lower `order` sends earlier.
    pub fn queue(&mut self, site: u32, entry: &mut Entry, class: Class, order: Nanoseconds) {
        self.withdraw(site, entry);
        self.queues[class as usize].insert((order, site));
        (entry.queued, entry.order) = (Some(class), order);
    }

    /// Remove a site from its send queue.
    pub fn withdraw(&mut self, site: u32, entry: &mut Entry) {
        if let Some(class) = entry.queued.take() {
            self.queues[class as usize].remove(&(entry.order, site));
        }
    }

    /// The next site that may send. `probes` limits the messages that servers will probably not answer. `None` means no
    /// limit.
    pub fn next(&mut self, now: Nanoseconds, probes: Option<&mut TokenBucket>) -> Option<u32> {
        let may_probe = probes.as_ref().is_none_or(|bucket| bucket.has_token(now));
        let sends = |class: &Class| !self.queues[*class as usize].is_empty() && (may_probe || !class.is_probe());
        let first = match self.rotation % ROTATION {
            0 => self.rotation / ROTATION % CLASSES,
            _ => 0,
        };
        let class = (0..CLASSES).map(|step| ALL[(first + step) % CLASSES]).find(sends)?;
        self.rotation = self.rotation.wrapping_add(1);
        if let Some(bucket) = probes.filter(|_| class.is_probe()) {
            bucket.take(now);
        }
        self.queues[class as usize].first().map(|first| first.1)
    }

    /// Whether a message other than a probe is queued, and whether any message is queued.
    pub fn waiting(&self) -> (bool, bool) {
        let waits = |class: &Class| !self.queues[*class as usize].is_empty();
        let unlimited = ALL
            .into_iter()
            .filter(|class| !class.is_probe())
            .any(|class| waits(&class));
        (unlimited, unlimited || ALL.iter().any(waits))
    }

    /// Time of the first timer.
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
