//! What others want of the agent: sites that come and go, and addresses that somebody else uses.

use std::net::Ipv4Addr;

use sluice_wire::ethernet::is_group;

use super::entry::Entry;
use super::limit::empty_bucket;
use super::{Agent, Lease, MOST_SITES, Mac, NEVER, Nanoseconds, Settings, Site, State, Why, nanoseconds};
use crate::subscribers::virtual_mac::text;

/// Why a site can't have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantError {
    /// Its index is out of range.
    #[error("site {} is one too many: there may be {MOST_SITES}", site.0)]
    TooMany {
        /// The site.
        site: Site,
    },
    /// No MAC that a client can have.
    #[error("site {}: {} is no host's MAC: give it a unicast address", site.0, text(*mac))]
    Mac {
        /// The site.
        site: Site,
        /// The address.
        mac: Mac,
    },
    /// Another site has it.
    #[error("sites {} and {} have the same MAC {}: give one of them another", other.0, site.0, text(*mac))]
    MacTwice {
        /// The site that comes.
        site: Site,
        /// The site that has it.
        other: Site,
        /// The address.
        mac: Mac,
    },
}

const NO_MAC: Mac = [0; 6];

/// Sites for which room is made at a time.
const MORE_ENTRIES: usize = 8_192;

impl Agent {
    /// Behave otherwise from now on. The secret stays what it was, and so do leases until they are renewed.
    pub fn configure(&mut self, settings: Settings, now: Nanoseconds) {
        self.bucket = empty_bucket(settings.rate, now);
        self.probes = empty_bucket(settings.probes, now);
        let secret = self.settings.secret;
        self.settings = Settings { secret, ..settings };
    }

    /// Leases of before a restart, by the MACs of their sites; each is taken up when its site is wanted.
    pub fn restore(&mut self, leases: impl IntoIterator<Item = (Mac, Lease)>) {
        self.kept.extend(leases);
    }

    /// Restored leases of sites that nobody has wanted.
    pub fn unclaimed(&self) -> usize {
        self.kept.len()
    }

    /// A site wants an address, as this MAC. One that was released, and whose hold is not over, keeps its lease. With
    /// another MAC than before, the lease is given back first.
    ///
    /// # Errors
    /// The index or the MAC can't be, or the MAC is another site's.
    pub fn want(&mut self, site: Site, mac: Mac, now: Nanoseconds) -> Result<(), WantError> {
        if site.0 >= MOST_SITES {
            return Err(WantError::TooMany { site });
        }
        if is_group(mac) || mac == NO_MAC {
            return Err(WantError::Mac { site, mac });
        }
        if let Some(&other) = self.macs.get(&mac).filter(|other| **other != site.0) {
            let other = Site(other);
            return Err(WantError::MacTwice { site, other, mac });
        }
        let index = site.0 as usize;
        if self.entries.len() <= index {
            // Not twice as many as there are: they are large.
            let more = index + 1 - self.entries.len();
            if self.entries.capacity() <= index {
                self.entries.reserve_exact(more.next_multiple_of(MORE_ENTRIES));
            }
            self.entries.resize_with(index + 1, Entry::default);
        }
        let site = site.0;
        let entry = self.entry_mut(site);
        if entry.state == State::Idle {
            self.enter(site, mac, now);
            return Ok(());
        }
        let former = std::mem::replace(&mut entry.next, NO_MAC);
        let own = entry.mac;
        if former != NO_MAC && former != own {
            self.macs.remove(&former);
        }
        if own == mac {
            self.resume(site, now);
        } else {
            self.macs.insert(mac, site);
            self.entry_mut(site).next = mac;
            self.part(site, now);
        }
        Ok(())
    }

    /// Nobody wants the site's address any more. It is given back when the hold is over.
    pub fn release(&mut self, site: Site, now: Nanoseconds) {
        self.release_after(site, nanoseconds(self.settings.hold), now);
    }

    /// Nobody will want the site's address again: it is given back at once.
    pub fn forget(&mut self, site: Site, now: Nanoseconds) {
        self.release_after(site, 0, now);
    }

    fn release_after(&mut self, site: Site, hold: Nanoseconds, now: Nanoseconds) {
        let Some(entry) = self.entries.get_mut(site.0 as usize) else {
            return;
        };
        let site = site.0;
        let former = std::mem::replace(&mut entry.next, NO_MAC);
        let (state, due) = (entry.state, entry.due);
        let end = now.saturating_add(hold);
        if former != NO_MAC {
            self.macs.remove(&former);
        }
        if state.has_lease() && hold > 0 {
            let entry = self.entry_mut(site);
            entry.release = entry.release.min(end);
            self.arm(site, due);
        } else if state != State::Idle {
            self.part(site, now);
        }
    }

    /// Somebody else answers for a site's address (RFC 5227): it is declined, and another one looked for.
    pub fn conflict(&mut self, site: Site, now: Nanoseconds) {
        if self.state(site).has_lease() {
            self.withdraw_lease(site.0, Why::Conflict);
            self.decline(site.0, now);
        }
    }

    /// Say that an address is not usable.
    pub(super) fn decline(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.leaving = entry.release != NEVER;
        (entry.state, entry.release) = (State::Declining, NEVER);
        self.renumber(site);
        self.arm(site, NEVER);
        self.queue(site, now);
    }

    /// A site that is new here.
    fn enter(&mut self, site: u32, mac: Mac, now: Nanoseconds) {
        self.macs.insert(mac, site);
        let entry = self.entry_mut(site);
        entry.mac = mac;
        let kept = self.kept.remove(&mac);
        let holds = |kept: &Lease| {
            kept.expires > now && self.settings.allows(kept.address) && !self.addresses.contains_key(&kept.address)
        };
        match kept.filter(holds) {
            Some(lease) => self.reboot(site, lease, now),
            None => self.begin(site, now),
        }
    }

    /// INIT-REBOOT: ask whether the lease of before holds.
    fn reboot(&mut self, site: u32, lease: Lease, now: Nanoseconds) {
        self.addresses.insert(lease.address, site);
        let entry = self.entry_mut(site);
        (entry.address, entry.prefix_length) = (lease.address, lease.prefix_length);
        (entry.server, entry.router) = (lease.server, lease.router.unwrap_or(Ipv4Addr::UNSPECIFIED));
        (entry.renew, entry.rebind, entry.expires) = (lease.renew, lease.rebind, lease.expires);
        (entry.state, entry.began, entry.tries) = (State::Rebooting, now, 0);
        self.renumber(site);
        if self.settings.use_while_confirming {
            self.announce(site);
        }
        self.queue(site, now);
        self.await_turn(site, now);
    }

    /// A site is wanted that is there already.
    fn resume(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.leaving = false;
        if entry.state == State::Releasing {
            self.withdraw(site);
            // Nobody was told yet that it goes.
            let entry = self.entry_mut(site);
            if entry.expires <= now {
                return self.lose(site, Why::Expired, now);
            }
            (entry.state, entry.xid) = (State::Bound, 0);
            self.announce(site);
            let due = self.boundary(site);
            return self.arm(site, due.max(now));
        }
        let release = std::mem::replace(&mut entry.release, NEVER);
        if release == NEVER || entry.due != release {
            return;
        }
        // Its timer was the hold's: the time of its next try is not known any more, and need not be.
        let boundary = self.boundary(site);
        let entry = self.entry(site);
        let retry = match (entry.state, entry.queued) {
            (State::Rebooting, None) => now.saturating_add(nanoseconds(self.settings.retransmission)),
            (State::Renewing | State::Rebinding, None) => now.saturating_add(self.renewal_wait(site)),
            _ => NEVER,
        };
        self.arm(site, boundary.min(retry));
    }

    /// A site goes: what it has is given back.
    pub(super) fn part(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.release = NEVER;
        match entry.state {
            // What is to be said is said first.
            State::Declining => entry.leaving = true,
            State::Releasing => {}
            state if state.has_lease() => {
                entry.state = State::Releasing;
                self.tell_loss(site, Why::Released);
                self.renumber(site);
                self.arm(site, NEVER);
                self.queue(site, now);
            }
            _ => self.clear(site, now),
        }
    }

    /// Nothing is left of a site, but what it is to be next.
    pub(super) fn clear(&mut self, site: u32, now: Nanoseconds) {
        self.withdraw(site);
        self.entry_mut(site).release = NEVER;
        self.arm(site, NEVER);
        let entry = std::mem::take(self.entry_mut(site));
        // Numbers go on, so that an answer to what was asked before finds nobody.
        self.entry_mut(site).exchange = entry.exchange;
        self.macs.remove(&entry.mac);
        if self.addresses.get(&entry.address) == Some(&site) {
            self.addresses.remove(&entry.address);
        }
        if entry.next != NO_MAC {
            self.enter(site, entry.next, now);
        }
    }
}
