//! Requests to the agent: adding, releasing and removing sites, and reporting address conflicts.

use std::net::Ipv4Addr;

use sluice_wire::ethernet::is_group;

use super::entry::Entry;
use super::limit::empty_bucket;
use super::{
    Agent, AgentSettings, LossReason, MAX_SITES, Mac, NEVER, Nanoseconds, PublicLease, Site, State, nanoseconds,
};
use crate::subscribers::virtual_mac::text;

/// Why a site can't get an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantError {
    /// The index is out of range.
    #[error("site {} exceeds the maximum of {MAX_SITES} sites", site.0)]
    TooMany {
        /// The site.
        site: Site,
    },
    /// The MAC is not valid for a client.
    #[error("site {}: {} is not a unicast MAC address", site.0, text(*mac))]
    Mac {
        /// The site.
        site: Site,
        /// The MAC.
        mac: Mac,
    },
    /// Another site has the same MAC.
    #[error("sites {} and {} have the same MAC address {}: change one of them", other.0, site.0, text(*mac))]
    MacTwice {
        /// The site that should be added.
        site: Site,
        /// The site that already has the MAC.
        other: Site,
        /// The MAC.
        mac: Mac,
    },
}

const NO_MAC: Mac = [0; 6];

/// Number of sites for which memory is allocated in one step.
const MORE_ENTRIES: usize = 8_192;

impl Agent {
    /// Replace the settings. The secret does not change, and existing leases remain valid until they are renewed.
    pub fn configure(&mut self, settings: AgentSettings, now: Nanoseconds) {
        self.bucket = empty_bucket(settings.rate, now);
        self.probes = empty_bucket(settings.probes, now);
        let secret = self.settings.secret;
        self.settings = AgentSettings { secret, ..settings };
    }

    /// Restore leases from before a restart, identified by the MACs of their sites. Each lease is confirmed when its
    /// site requests an address.
    pub fn restore(&mut self, leases: impl IntoIterator<Item = (Mac, PublicLease)>) {
        self.restored.extend(leases);
    }

    /// Number of restored leases of sites that have not requested an address yet.
    pub fn unclaimed(&self) -> usize {
        self.restored.len()
    }

    /// Acquire an address for a site that uses this MAC. During the hold time, a released site keeps its lease. If the
    /// MAC has changed, the old lease is released first.
    ///
    /// # Errors
    /// The index or the MAC is invalid, or another site has the MAC.
    pub fn want(&mut self, site: Site, mac: Mac, now: Nanoseconds) -> Result<(), WantError> {
        if site.0 >= MAX_SITES {
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
            // An exact reservation avoids doubling the memory, since entries are large.
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

    /// Release a site's address after the hold time, because the site no longer needs it.
    pub fn release(&mut self, site: Site, now: Nanoseconds) {
        self.release_after(site, nanoseconds(self.settings.hold), now);
    }

    /// Remove a site, and release its lease immediately.
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

    /// Handle a conflict: another host uses a site's address (RFC 5227). The agent declines the address and acquires
    /// another address.
    pub fn conflict(&mut self, site: Site, now: Nanoseconds) {
        if self.state(site).has_lease() {
            self.withdraw_lease(site.0, LossReason::Conflict);
            self.decline(site.0, now);
        }
    }

    /// Queue a DHCPDECLINE.
    pub(super) fn decline(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.leaving = entry.release != NEVER;
        (entry.state, entry.release) = (State::Declining, NEVER);
        self.renumber(site);
        self.arm(site, NEVER);
        self.queue(site, now);
    }

    /// Add a site.
    fn enter(&mut self, site: u32, mac: Mac, now: Nanoseconds) {
        self.macs.insert(mac, site);
        let entry = self.entry_mut(site);
        entry.mac = mac;
        let restored = self.restored.remove(&mac);
        let holds = |restored: &PublicLease| {
            restored.expires > now
                && self.settings.allows(restored.address)
                && !self.addresses.contains_key(&restored.address)
        };
        match restored.filter(holds) {
            Some(lease) => self.reboot(site, lease, now),
            None => self.start(site, now),
        }
    }

    /// INIT-REBOOT: request confirmation of a lease from before the restart.
    fn reboot(&mut self, site: u32, lease: PublicLease, now: Nanoseconds) {
        self.addresses.insert(lease.address, site);
        let entry = self.entry_mut(site);
        (entry.address, entry.prefix_length) = (lease.address, lease.prefix_length);
        (entry.server, entry.router) = (lease.server, lease.router.unwrap_or(Ipv4Addr::UNSPECIFIED));
        (entry.renew, entry.rebind, entry.expires) = (lease.renew, lease.rebind, lease.expires);
        (entry.state, entry.started_at, entry.tries) = (State::Rebooting, now, 0);
        self.renumber(site);
        if self.settings.use_while_confirming {
            self.announce(site);
        }
        self.queue(site, now);
        self.limit_wait(site, now);
    }

    /// Acquire an address again for an existing site.
    fn resume(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.leaving = false;
        if entry.state == State::Releasing {
            self.withdraw(site);
            // The release has not been sent yet, so the server still has the lease.
            let entry = self.entry_mut(site);
            if entry.expires <= now {
                return self.lose(site, LossReason::Expired, now);
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
        // The timer was set to the end of the hold time, so the time of the next retransmission must be computed again.
        let boundary = self.boundary(site);
        let entry = self.entry(site);
        let retry = match (entry.state, entry.queued) {
            (State::Rebooting, None) => now.saturating_add(nanoseconds(self.settings.retransmission)),
            (State::Renewing | State::Rebinding, None) => now.saturating_add(self.renewal_wait(site)),
            _ => NEVER,
        };
        self.arm(site, boundary.min(retry));
    }

    /// Remove a site and release its lease.
    pub(super) fn part(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        entry.release = NEVER;
        match entry.state {
            // The DHCPDECLINE is sent before the site is removed.
            State::Declining => entry.leaving = true,
            State::Releasing => {}
            state if state.has_lease() => {
                entry.state = State::Releasing;
                self.report_loss(site, LossReason::Released);
                self.renumber(site);
                self.arm(site, NEVER);
                self.queue(site, now);
            }
            _ => self.clear(site, now),
        }
    }

    /// Reset the state of a site. If the site has a next MAC, add the site again with this MAC.
    pub(super) fn clear(&mut self, site: u32, now: Nanoseconds) {
        self.withdraw(site);
        self.entry_mut(site).release = NEVER;
        self.arm(site, NEVER);
        let entry = std::mem::take(self.entry_mut(site));
        // The exchange counter is kept, so that a late reply does not match a new exchange.
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
