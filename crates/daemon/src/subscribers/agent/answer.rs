//! Processes replies of servers. The work per reply is bounded for any content of the reply.

use std::net::Ipv4Addr;

use sluice_wire::Mac;
use sluice_wire::ethernet::BROADCAST;

use super::{Agent, Fault, LossReason, NEVER, Nanoseconds, SECOND, State, nanoseconds};
use crate::subscribers::message::{Answer, INFINITE, Reply};

/// Server and lease time of a valid reply.
#[derive(Clone, Copy)]
struct LeaseTerms {
    server: Ipv4Addr,
    /// Lease time in seconds.
    lease: u32,
}

impl Agent {
    /// Process a datagram received at UDP port 68: its payload, and the destination MAC of its frame.
    pub fn receive(&mut self, payload: &[u8], destination: Mac, now: Nanoseconds) {
        let Ok(reply) = Reply::read(payload) else {
            return self.fault(Fault::Malformed, None, None, None, now);
        };
        let site = self.exchanges.site(reply.xid);
        let known = self
            .entries
            .get(site as usize)
            .filter(|entry| entry.xid == reply.xid && entry.xid != 0);
        let Some(entry) = known else {
            return self.fault(Fault::UnknownExchange, None, None, Some(reply.address), now);
        };
        let own = self.settings.identifier.bytes(entry.mac);
        let fault = if reply.mac != entry.mac {
            Fault::OtherHardware
        } else if destination != entry.mac && destination != BROADCAST {
            Fault::OtherDestination
        } else if reply.identifier.is_some() && reply.identifier.as_deref() != own.as_deref() {
            Fault::OtherIdentifier
        } else {
            match reply.server {
                None => Fault::ServerMissing,
                Some(server) if !self.settings.trusts(server) => Fault::ServerNotAllowed,
                Some(server) => {
                    let taken = match reply.answer {
                        Answer::Offer => self.offer(site, &reply, server, now),
                        Answer::Acknowledge => self.acknowledge(site, &reply, server, now),
                        Answer::Refuse => self.refuse(site, server, now),
                    };
                    match taken {
                        Ok(()) => return self.judge_servers(now),
                        Err(fault) => fault,
                    }
                }
            }
        };
        self.fault(fault, Some(site), None, Some(reply.address), now);
    }

    /// Process a DHCPOFFER.
    fn offer(&mut self, site: u32, reply: &Reply, server: Ipv4Addr, now: Nanoseconds) -> Result<(), Fault> {
        let entry = self.entry(site);
        if entry.state != State::Selecting || entry.tries == 0 {
            return Err(Fault::Untimely);
        }
        self.counters.offers += 1;
        self.health.answer();
        let terms = self.terms(reply, server)?;
        let window = nanoseconds(self.settings.window);
        let entry = self.entry_mut(site);
        let first = entry.server.is_unspecified();
        // An offer of the site's previous address is preferred. Among other offers, the offer with the longest lease
        // time is preferred.
        let worth = |address, lease| (address == entry.was, lease);
        if first || worth(reply.address, terms.lease) > worth(entry.address, entry.offered) {
            (entry.address, entry.server, entry.offered) = (reply.address, server, terms.lease);
        }
        if window == 0 {
            self.request(site, now);
        } else if first {
            self.withdraw(site);
            self.arm(site, now.saturating_add(window));
        }
        Ok(())
    }

    /// Process a DHCPACK.
    fn acknowledge(&mut self, site: u32, reply: &Reply, server: Ipv4Addr, now: Nanoseconds) -> Result<(), Fault> {
        let entry = self.entry(site);
        self.expects(site, server)?;
        if reply.address != entry.address {
            return Err(Fault::OtherAddress);
        }
        let terms = self.terms(reply, server)?;
        if let Some(&other) = self.addresses.get(&reply.address).filter(|other| **other != site) {
            self.fault(Fault::AddressTwice, Some(site), Some(other), Some(reply.address), now);
            self.health.acknowledge();
            self.report_loss(site, LossReason::Declined);
            self.decline(site, now);
            return Ok(());
        }
        if reply.prefix_length.is_none() {
            self.fault(Fault::MaskMissing, Some(site), None, Some(reply.address), now);
        }
        self.counters.acknowledgements += 1;
        self.health.acknowledge();
        self.bind(site, reply, terms, now);
        Ok(())
    }

    /// Process a DHCPNAK.
    fn refuse(&mut self, site: u32, server: Ipv4Addr, now: Nanoseconds) -> Result<(), Fault> {
        self.expects(site, server)?;
        self.counters.refusals += 1;
        self.health.refuse();
        match self.entry(site).state {
            State::Requesting => self.fail(site, now),
            _ => self.lose(site, LossReason::Refused, now),
        }
        Ok(())
    }

    /// Check that the site expects a reply from this server.
    fn expects(&self, site: u32, server: Ipv4Addr) -> Result<(), Fault> {
        let entry = self.entry(site);
        match entry.state {
            _ if entry.tries == 0 => Err(Fault::Untimely),
            State::Requesting | State::Renewing if server != entry.server => Err(Fault::OtherServer),
            State::Requesting | State::Renewing | State::Rebooting | State::Rebinding => Ok(()),
            _ => Err(Fault::Untimely),
        }
    }

    /// Check the address and the lease time of a reply.
    fn terms(&self, reply: &Reply, server: Ipv4Addr) -> Result<LeaseTerms, Fault> {
        let address = reply.address;
        let lease = reply.lease.ok_or(Fault::LeaseMissing)?;
        let reserved = address.octets()[0] >= 240 && (self.settings.refuses_reserved || address.is_broadcast());
        if address.octets()[0] == 0 || address.is_loopback() || address.is_multicast() || reserved {
            return Err(Fault::Unusable);
        }
        if !self.settings.allows(address) {
            return Err(Fault::OutsidePrefixes);
        }
        if lease < self.settings.shortest_lease.max(1) {
            return Err(Fault::LeaseTooShort);
        }
        Ok(LeaseTerms { server, lease })
    }

    /// Enter BOUND with a new or an extended lease.
    fn bind(&mut self, site: u32, reply: &Reply, terms: LeaseTerms, now: Nanoseconds) {
        let (renew, rebind) = self.times(site, reply, terms, now);
        self.withdraw(site);
        self.addresses.insert(reply.address, site);
        let entry = self.entry_mut(site);
        let after = |seconds: u32| match terms.lease {
            INFINITE => NEVER,
            _ => entry.sent.saturating_add(u64::from(seconds) * SECOND),
        };
        (entry.renew, entry.rebind, entry.expires) = (after(renew), after(rebind), after(terms.lease));
        entry.server = terms.server;
        entry.prefix_length = reply.prefix_length.unwrap_or(32);
        entry.router = reply.router.unwrap_or(Ipv4Addr::UNSPECIFIED);
        (entry.state, entry.xid, entry.failures) = (State::Bound, 0, 0);
        self.announce(site);
        let due = self.boundary(site);
        self.arm(site, due);
    }

    /// Renewal time T1 and rebinding time T2 in seconds. The server's values are used if the values are plausible. T1
    /// is reduced by up to a sixteenth, so that sites that started together do not renew at the same time.
    fn times(&mut self, site: u32, reply: &Reply, terms: LeaseTerms, now: Nanoseconds) -> (u32, u32) {
        let lease = terms.lease;
        let share = |eighths: u64| (u64::from(lease) * eighths / 8) as u32;
        let (mut renew, mut rebind) = (reply.renew.unwrap_or(share(4)), reply.rebind.unwrap_or(share(7)));
        if lease != INFINITE && !(0 < renew && renew < rebind && rebind < lease) {
            if reply.renew.is_some() || reply.rebind.is_some() {
                self.fault(Fault::OddTimes, Some(site), None, Some(reply.address), now);
            }
            (renew, rebind) = (share(4), share(7));
        }
        let random = self.settings.secret.hash(&[u64::from(site), u64::from(reply.xid)]);
        (renew - (random % u64::from(renew / 16 + 1)) as u32, rebind)
    }
}
