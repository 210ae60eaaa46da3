//! Public addresses by DHCP: one client (RFC 2131) for many sites, each with its own virtual MAC.
//!
//! The agent is a pure state machine: it reads no clock and opens no socket. The caller passes received messages to
//! [`Agent::receive`], and calls [`Agent::poll`] to get messages to send and events. [`Agent::poll`] returns the time
//! at which it must be called again. The caller also calls it after each received message. Times are nanoseconds of any
//! monotonic clock. Equal input produces equal output.
//!
//! A site is in at most one send queue and has at most one timer. The cost of a reply does not depend on the number of
//! sites, since its transaction ID identifies the site.

mod answer;
mod entry;
mod event;
mod exchange;
mod hostile;
mod limit;
mod schedule;
mod send;
mod settings;
pub mod store;
mod wants;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use sluice_table::token_bucket::TokenBucket;
use sluice_wire::Mac;

use super::{MAX_SITES, Site};
use entry::Entry;
pub use entry::{PublicLease, State};
use event::LastReports;
pub use event::{Counters, Event, Fault, LeaseChange, LossReason, Servers};
use exchange::Exchanges;
pub use hostile::hostile;
use limit::{Health, full_bucket};
use schedule::Schedule;
pub use send::{Destination, Transmit};
use settings::nanoseconds;
pub use settings::{AgentSettings, Identifier};
pub use wants::WantError;

/// Time in nanoseconds since an arbitrary start.
pub type Nanoseconds = u64;

/// A time that is never reached.
const NEVER: Nanoseconds = u64::MAX;

const SECOND: Nanoseconds = 1_000_000_000;

/// Output of [`Agent::poll`].
#[derive(Debug, Default)]
pub struct AgentOutput {
    /// Messages to send, in this order.
    pub transmits: Vec<Transmit>,
    /// Events, in this order.
    pub events: Vec<Event>,
}

/// The DHCP client of all sites.
#[derive(Debug)]
pub struct Agent {
    settings: AgentSettings,
    exchanges: Exchanges,
    /// State of sites, by index.
    entries: Vec<Entry>,
    macs: HashMap<Mac, u32>,
    /// Site of each address in use. Offered addresses that are not yet acknowledged are not included.
    addresses: HashMap<Ipv4Addr, u32>,
    /// Leases from before a restart. The sites of the kept leases have not requested an address yet.
    restored: HashMap<Mac, PublicLease>,
    schedule: Schedule,
    bucket: TokenBucket,
    probes: TokenBucket,
    health: Health,
    counters: Counters,
    last_reports: LastReports,
    events: Vec<Event>,
}

impl Agent {
    /// Creates an agent without sites.
    pub fn new(settings: AgentSettings, now: Nanoseconds) -> Self {
        Self {
            exchanges: Exchanges::new(settings.secret),
            entries: Vec::new(),
            macs: HashMap::new(),
            addresses: HashMap::new(),
            restored: HashMap::new(),
            schedule: Schedule::default(),
            bucket: full_bucket(settings.rate, now),
            probes: full_bucket(settings.probes, now),
            health: Health::new(2 * nanoseconds(settings.retransmission)),
            counters: Counters::default(),
            last_reports: LastReports::default(),
            events: Vec::new(),
            settings,
        }
    }

    /// Handle due timers, and send as many queued messages as the rate limit allows. Returns the latest time of the
    /// next call. `None` if no timer is pending.
    pub fn poll(&mut self, now: Nanoseconds, out: &mut AgentOutput) -> Option<Nanoseconds> {
        while let Some(site) = self.schedule.take_due(now) {
            self.entry_mut(site).due = NEVER;
            self.elapse(site, now);
        }
        self.judge_servers(now);
        let mut answering = self.health.servers(now) == Servers::Answering;
        while self.bucket.has_token(now) {
            let probes = (!answering).then_some(&mut self.probes);
            let Some(site) = self.schedule.next(now, probes) else {
                break;
            };
            self.bucket.take(now);
            self.send(site, now, &mut out.transmits);
            answering = answering && self.health.servers(now) == Servers::Answering;
        }
        out.events.append(&mut self.events);
        self.next(now)
    }

    /// Time of the next work for [`Self::poll`].
    fn next(&self, now: Nanoseconds) -> Option<Nanoseconds> {
        let (unlimited, any) = self.schedule.waiting();
        let probing = self.health.servers(now) != Servers::Answering;
        let next_send = match (unlimited, any) {
            (true, _) => Some(self.bucket.next_token(now)),
            (false, true) if probing => Some(self.bucket.next_token(now).max(self.probes.next_token(now))),
            (false, true) => Some(self.bucket.next_token(now)),
            (false, false) => None,
        };
        [self.schedule.first_due(), next_send].into_iter().flatten().min()
    }

    /// Report a change in how the servers respond. When the servers respond again, all sites without an offer send a
    /// discover message immediately.
    fn judge_servers(&mut self, now: Nanoseconds) {
        let Some((before, servers)) = self.health.change(now) else {
            return;
        };
        self.events.push(Event::Servers(servers));
        if before != Servers::Silent {
            return;
        }
        for (site, entry) in (0..).zip(&mut self.entries) {
            if entry.state == State::Selecting && entry.queued.is_none() && entry.server.is_unspecified() {
                self.schedule.arm(site, entry, NEVER);
                self.schedule.queue(site, entry, schedule::Class::Discover, now);
            }
        }
    }

    /// Handle the expired timer of a site.
    fn elapse(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry(site);
        if entry.release <= now {
            return self.part(site, now);
        }
        match entry.state {
            State::Idle | State::Declining | State::Releasing => {}
            State::Waiting => self.start(site, now),
            // The collection of offers has ended, so the agent requests the best offer.
            State::Selecting if !entry.server.is_unspecified() => self.request(site, now),
            State::Selecting => self.queue(site, now),
            State::Requesting if entry.tries >= send::REQUEST_TRIES => {
                self.counters.unanswered += 1;
                self.fail(site, now);
            }
            State::Requesting => self.queue(site, now),
            _ if entry.expires <= now => self.lose(site, LossReason::Expired, now),
            _ if entry.rebind <= now => self.ask(site, State::Rebinding, now),
            _ if entry.renew <= now => self.ask(site, State::Renewing, now),
            State::Rebooting if entry.tries >= send::REBOOT_TRIES || self.is_silent(now) => self.settle(site),
            State::Rebooting => {
                if entry.queued.is_none() {
                    self.queue(site, now);
                }
                self.limit_wait(site, now);
            }
            State::Bound | State::Renewing | State::Rebinding => {
                let due = self.boundary(site);
                self.arm(site, due);
            }
        }
    }

    /// INIT: start to acquire an address.
    fn start(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        (entry.state, entry.server) = (State::Selecting, Ipv4Addr::UNSPECIFIED);
        (entry.started_at, entry.tries) = (now, 0);
        self.renumber(site);
        self.arm(site, NEVER);
        self.queue(site, now);
    }

    /// Request the offered address.
    fn request(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        (entry.state, entry.tries) = (State::Requesting, 0);
        self.arm(site, NEVER);
        self.queue(site, now);
    }

    /// Request an extension, first from the server of the lease, later from any server.
    fn ask(&mut self, site: u32, state: State, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        if entry.state != state {
            (entry.state, entry.tries, entry.started_at) = (state, 0, now);
        }
        let (rebind, expires) = (entry.rebind, entry.expires);
        // A lease from before a restart is used if it was neither confirmed nor rejected.
        self.announce_once(site);
        let end = if state == State::Renewing { rebind } else { expires };
        self.arm(site, end);
        // Leases that end earlier are extended first.
        self.queue(site, end);
    }

    /// A site with a lease from before a restart waits in the queue to confirm the lease. Limit the waiting time, since
    /// no server may be responding.
    fn limit_wait(&mut self, site: u32, now: Nanoseconds) {
        let patience = nanoseconds(self.settings.retransmission) << send::REBOOT_TRIES;
        let due = self.boundary(site).min(now.saturating_add(patience));
        self.arm(site, due);
    }

    fn is_silent(&self, now: Nanoseconds) -> bool {
        self.health.servers(now) == Servers::Silent
    }

    /// Use an unconfirmed lease from before a restart until it ends.
    fn settle(&mut self, site: u32) {
        self.withdraw(site);
        let entry = self.entry_mut(site);
        (entry.state, entry.xid) = (State::Bound, 0);
        self.announce_once(site);
        let due = self.boundary(site);
        self.arm(site, due);
    }

    /// Retry after a failed attempt, with exponential back-off.
    fn fail(&mut self, site: u32, now: Nanoseconds) {
        let entry = self.entry_mut(site);
        let failures = entry.failures;
        entry.failures = failures.saturating_add(1);
        entry.address = Ipv4Addr::UNSPECIFIED;
        let wait = if failures == 0 { 0 } else { self.wait(site, failures) };
        self.pause(site, wait, now);
    }

    /// Retry after a pause.
    fn pause(&mut self, site: u32, wait: Nanoseconds, now: Nanoseconds) {
        self.withdraw(site);
        let entry = self.entry_mut(site);
        (entry.state, entry.xid) = (State::Waiting, 0);
        if entry.leaving || entry.release != NEVER {
            self.clear(site, now);
        } else if wait == 0 {
            self.start(site, now);
        } else {
            self.arm(site, now.saturating_add(wait));
        }
    }

    /// Handle the end of a lease.
    fn lose(&mut self, site: u32, reason: LossReason, now: Nanoseconds) {
        self.withdraw_lease(site, reason);
        match reason {
            LossReason::Expired => {
                self.counters.expired += 1;
                // The server may grant the same address again.
                self.pause(site, 0, now);
            }
            _ => self.fail(site, now),
        }
    }

    /// Report the loss of the address, and make the address available to other sites.
    fn withdraw_lease(&mut self, site: u32, reason: LossReason) {
        let address = self.entry(site).address;
        if self.addresses.get(&address) == Some(&site) {
            self.addresses.remove(&address);
        }
        self.report_loss(site, reason);
    }

    fn report_loss(&mut self, site: u32, reason: LossReason) {
        let entry = self.entry_mut(site);
        let address = entry.address;
        if std::mem::take(&mut entry.announced) {
            let site = Site(site);
            self.events.push(Event::Lost { site, address, reason });
        }
    }

    /// Report a lease that has not been reported yet.
    fn announce_once(&mut self, site: u32) {
        if !self.entry(site).announced {
            self.announce(site);
        }
    }

    /// Report a lease or its extension.
    fn announce(&mut self, site: u32) {
        let entry = self.entry_mut(site);
        let lease = entry.lease();
        let was = std::mem::replace(&mut entry.was, lease.address);
        let event = match (std::mem::replace(&mut entry.announced, true), Site(site)) {
            (true, site) => Event::Renewed(site, lease),
            (false, site) if was.is_unspecified() || was == lease.address => Event::Bound(site, lease),
            (false, site) => Event::Changed { site, was, lease },
        };
        self.events.push(event);
    }

    /// Time at which the current phase of the lease ends.
    fn boundary(&self, site: u32) -> Nanoseconds {
        let entry = self.entry(site);
        match entry.state {
            State::Rebooting | State::Bound => entry.renew,
            State::Renewing => entry.rebind,
            State::Rebinding => entry.expires,
            _ => NEVER,
        }
    }

    /// Time to wait for a reply after this number of attempts. The time contains jitter, so that sites do not
    /// retransmit simultaneously.
    fn wait(&self, site: u32, tries: u8) -> Nanoseconds {
        let (wait, jitter) = self.settings.patience(tries);
        let exchange = u64::from(self.entry(site).exchange);
        let random = self
            .settings
            .secret
            .hash(&[u64::from(site), exchange, u64::from(tries)]);
        wait - jitter + random % (2 * jitter)
    }

    /// Start an exchange with a new transaction ID.
    fn renumber(&mut self, site: u32) {
        let entry = &mut self.entries[site as usize];
        entry.xid = 0;
        // Zero is reserved, because it means "no exchange".
        while entry.xid == 0 {
            entry.exchange = entry.exchange.wrapping_add(1);
            entry.xid = self.exchanges.number(site, entry.exchange);
        }
    }

    /// Count a fault. If the same fault was not reported recently, also report it.
    fn fault(
        &mut self,
        fault: Fault,
        site: Option<u32>,
        other: Option<u32>,
        address: Option<Ipv4Addr>,
        now: Nanoseconds,
    ) {
        self.counters.count(fault);
        if self.last_reports.should_report(fault, now) {
            let (site, other) = (site.map(Site), other.map(Site));
            self.events.push(Event::Fault {
                fault,
                site,
                other,
                address,
            });
        }
    }

    fn entry(&self, site: u32) -> &Entry {
        &self.entries[site as usize]
    }

    fn entry_mut(&mut self, site: u32) -> &mut Entry {
        &mut self.entries[site as usize]
    }

    fn arm(&mut self, site: u32, due: Nanoseconds) {
        self.schedule.arm(site, &mut self.entries[site as usize], due);
    }

    fn queue(&mut self, site: u32, order: Nanoseconds) {
        let entry = &mut self.entries[site as usize];
        if let Some(class) = entry.state.class() {
            self.schedule.queue(site, entry, class, order);
        }
    }

    fn withdraw(&mut self, site: u32) {
        self.schedule.withdraw(site, &mut self.entries[site as usize]);
    }

    /// Lease that a site may use. `None` if the site has no such lease.
    pub fn lease(&self, site: Site) -> Option<PublicLease> {
        let entry = self.entries.get(site.0 as usize)?;
        entry.announced.then(|| entry.lease())
    }

    /// Site to which an address belongs.
    pub fn owner(&self, address: Ipv4Addr) -> Option<Site> {
        self.addresses.get(&address).map(|site| Site(*site))
    }

    /// State of a site.
    pub fn state(&self, site: Site) -> State {
        self.entries
            .get(site.0 as usize)
            .map_or(State::Idle, |entry| entry.state)
    }

    /// All leases that sites may use.
    pub fn leases(&self) -> impl Iterator<Item = (Site, Mac, PublicLease)> + '_ {
        let announced = (0..).zip(&self.entries).filter(|(_, entry)| entry.announced);
        announced.map(|(site, entry)| (Site(site), entry.mac, entry.lease()))
    }

    /// How the servers respond.
    pub fn servers(&self, now: Nanoseconds) -> Servers {
        self.health.servers(now)
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
pub(crate) mod tests;
