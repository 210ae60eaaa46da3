//! Sending of messages: the message for a site's state, and the time of its retransmission.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::entry::{Entry, specified};
use super::{Agent, Nanoseconds, SECOND, Site, State, nanoseconds};
use crate::subscribers::message::{Question, Request};

/// Number of requests for an offer. If no request is answered, the offer is abandoned (RFC 2131, section 3.1).
pub(super) const REQUEST_TRIES: u8 = 4;
/// Number of requests to confirm a lease from before a restart. If no request is answered, the lease is used without
/// confirmation (RFC 2131, section 3.2).
pub(super) const REBOOT_TRIES: u8 = 3;
/// Maximum number of times that the wait after a declined address is doubled.
const MAX_DECLINES: u8 = 5;
/// Maximum length in bytes of the configured part of a host name.
const HOST_NAME: usize = 200;

/// Destination of a message. The UDP port is always 67.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Broadcast on the link: 255.255.255.255, ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// Unicast to a server.
    Unicast {
        /// Address of the server.
        address: Ipv4Addr,
        /// Next hop: the server itself, or the router towards the server.
        via: Ipv4Addr,
    },
}

/// A datagram to be sent from UDP port 68.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The site.
    pub site: Site,
    /// Source MAC.
    pub source_mac: Mac,
    /// Source address. 0.0.0.0 if the site has no address yet.
    pub source: Ipv4Addr,
    /// Destination.
    pub destination: Destination,
    /// UDP payload.
    pub payload: Vec<u8>,
}

impl Agent {
    /// Send the message of a site that the schedule has selected.
    pub(super) fn send(&mut self, site: u32, now: Nanoseconds, transmits: &mut Vec<Transmit>) {
        self.withdraw(site);
        let state = self.entry(site).state;
        match state {
            State::Selecting => self.counters.discovers += 1,
            State::Requesting => self.counters.requests[0] += 1,
            State::Rebooting => self.counters.requests[1] += 1,
            State::Renewing => self.counters.requests[2] += 1,
            State::Rebinding => self.counters.requests[3] += 1,
            State::Declining => self.counters.declines += 1,
            State::Releasing => self.counters.releases += 1,
            State::Idle | State::Waiting | State::Bound => return,
        }
        // The lease time counts from the request (RFC 2131, section 4.4.1). Messages that may be repeated after a long
        // time get a new transaction ID each time, so that a reply identifies the request.
        match state {
            State::Requesting if self.entry(site).tries > 0 => {}
            State::Rebooting | State::Renewing | State::Rebinding => {
                self.renumber(site);
                self.entry_mut(site).sent = now;
            }
            _ => self.entry_mut(site).sent = now,
        }
        if matches!(state, State::Selecting | State::Rebooting) {
            self.health.ask(now);
        }
        let entry = self.entry_mut(site);
        entry.tries = entry.tries.saturating_add(1);
        let (tries, failures) = (entry.tries, entry.failures);
        transmits.push(self.transmit(site, now));
        match state {
            State::Selecting | State::Requesting | State::Rebooting => {
                let again = now.saturating_add(self.wait(site, tries));
                let boundary = self.boundary(site);
                self.arm(site, again.min(boundary));
            }
            State::Declining => {
                let entry = self.entry_mut(site);
                entry.failures = failures.saturating_add(1);
                entry.address = Ipv4Addr::UNSPECIFIED;
                let wait = nanoseconds(self.settings.decline_wait) << failures.min(MAX_DECLINES);
                self.pause(site, wait, now);
            }
            State::Releasing => self.clear(site, now),
            _ => {
                // Wait for half of the remaining time (RFC 2131, section 4.4.5).
                let boundary = self.boundary(site);
                let wait = (boundary.saturating_sub(now) / 2).max(self.renewal_wait(site));
                self.arm(site, boundary.min(now.saturating_add(wait)));
            }
        }
    }

    /// Minimum interval between two attempts to renew. RFC 2131 specifies one minute. If a quarter of the remaining
    /// time is shorter, this quarter is used. The interval is never shorter than the initial retransmission interval.
    pub(super) fn renewal_wait(&self, site: u32) -> Nanoseconds {
        let tries = self.boundary(site).saturating_sub(self.entry(site).started_at);
        let min_wait = (tries / 4).max(nanoseconds(self.settings.retransmission));
        min_wait.min(nanoseconds(self.settings.renewal_wait))
    }

    fn transmit(&self, site: u32, now: Nanoseconds) -> Transmit {
        let (settings, entry) = (&self.settings, self.entry(site));
        let identifier = settings.identifier.bytes(entry.mac);
        let question = match entry.state {
            State::Selecting => Question::Discover,
            State::Declining => Question::Decline,
            State::Releasing => Question::Release,
            _ => Question::Request,
        };
        let uses = matches!(entry.state, State::Renewing | State::Rebinding | State::Releasing);
        let names = matches!(entry.state, State::Requesting | State::Declining | State::Releasing);
        let acquires = matches!(question, Question::Discover | Question::Request);
        let client = if uses { entry.address } else { Ipv4Addr::UNSPECIFIED };
        let host_name = settings.host_name.as_deref().map(|name| host_name(name, entry.mac));
        let request = Request {
            question,
            xid: entry.xid,
            seconds: match acquires {
                true => u16::try_from(now.saturating_sub(entry.started_at) / SECOND).unwrap_or(u16::MAX),
                false => 0,
            },
            broadcast: settings.broadcast && acquires && !uses,
            client,
            mac: entry.mac,
            identifier: identifier.as_deref(),
            requested: specified(entry.address).filter(|_| !uses),
            server: specified(entry.server).filter(|_| names),
            host_name: host_name.as_deref(),
        };
        let to_server = matches!(entry.state, State::Renewing | State::Releasing);
        Transmit {
            site: Site(site),
            source_mac: entry.mac,
            source: client,
            destination: match to_server && !entry.server.is_unspecified() {
                true => destination_of(entry),
                false => Destination::Broadcast,
            },
            payload: request.bytes(),
        }
    }
}

/// Destination of messages to the server of a site's lease.
fn destination_of(entry: &Entry) -> Destination {
    let network = ipnet::Ipv4Net::new(entry.address, entry.prefix_length);
    let is_on_link = network.is_ok_and(|network| network.contains(&entry.server));
    Destination::Unicast {
        address: entry.server,
        via: specified(entry.router).filter(|_| !is_on_link).unwrap_or(entry.server),
    }
}

fn host_name(name: &str, mac: Mac) -> String {
    let digits = mac.map(|byte| format!("{byte:02x}")).concat();
    let mut end = name.len().min(HOST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{digits}", &name[..end])
}
