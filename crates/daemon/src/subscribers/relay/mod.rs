//! The DHCP relay for private addresses (RFC 1542, RFC 2131, RFC 3046). Terminals are on the inside; the server is a
//! standard DHCP server in any network. Option 82 identifies the site to the server, and the server echoes the option.
//! Input and output are UDP payloads.

mod message;
mod pending_requests;
mod rate_limits;
mod refused;
mod reply;
mod request;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use sluice_table::token_bucket::TokenRate;
use sluice_wire::Mac;

use super::Site;
use pending_requests::PendingRequests;
pub use rate_limits::{RateLimits, Rates};
pub use refused::{Noted, Refused};
pub use reply::{RelayedReply, ReplyDestination, Trace, reply};
pub use request::{Limits, Origin, Relayed, request};

/// Site to which a reply belongs, found by its circuit ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The site.
    pub site: Site,
    /// Address of the relay in the site, as sent to the server.
    pub gateway: Ipv4Addr,
}

/// Counters of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages relayed to the server.
    pub requests: u64,
    /// Messages relayed to terminals.
    pub replies: u64,
    /// Dropped messages, in the order of [`Refused::ALL`].
    pub refused: [u64; Refused::ALL.len()],
    /// Other counted conditions, in the order of [`Noted::ALL`].
    pub noted: [u64; Noted::ALL.len()],
    /// Site and terminal that most recently exceeded a rate limit.
    pub flood: Option<(Site, Mac)>,
}

impl Tally {
    /// Counters by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let messages = [("relay-requests", self.requests), ("relay-replies", self.replies)];
        let refused = Refused::ALL.map(Refused::name).into_iter().zip(self.refused);
        let noted = Noted::ALL.map(Noted::name).into_iter().zip(self.noted);
        messages.into_iter().chain(refused).chain(noted).collect()
    }
}

/// A relay with its limits and counters.
#[derive(Debug)]
pub struct Relay {
    limits: Limits,
    rate_limits: RateLimits,
    pending_requests: PendingRequests,
    unmarked: HashMap<(u32, Mac), (Home, u64)>,
    tally: Tally,
}

/// Time to wait for a reply, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;

/// Maximum number of messages without option 82 within [`PATIENCE`].
const UNMARKED: usize = 1024;

/// Maximum number of messages within [`PATIENCE`]: 35,000 per second.
const MAX_PENDING_REQUESTS: usize = 1 << 20;

impl Relay {
    /// Create a relay for a number of sites. At most `terminals` active terminals are metered individually.
    pub fn new(limits: Limits, rates: Rates, sites: u32, terminals: usize) -> Self {
        Self {
            limits,
            rate_limits: RateLimits::new(rates, sites, terminals),
            pending_requests: PendingRequests::new(MAX_PENDING_REQUESTS),
            unmarked: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// Counters since the start.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Relay a terminal's message. `now` is the time in nanoseconds. The message for the server is written to `out`.
    ///
    /// # Errors
    /// Returns the reason for which the message is dropped. The dropped message has been counted under this reason.
    pub fn request(
        &mut self,
        payload: &[u8],
        origin: &Origin<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<Relayed, Refused> {
        let Self {
            limits,
            rate_limits,
            tally,
            ..
        } = self;
        let admit = |hardware| {
            let admitted = rate_limits.admit(origin.site, hardware, now);
            if let Err(Refused::TerminalRate | Refused::SiteRate) = admitted {
                tally.flood = Some((origin.site, hardware));
            }
            admitted
        };
        let relayed = request(payload, origin, limits, admit, out);
        match relayed {
            Ok(relayed) => {
                self.tally.requests += 1;
                self.pending_requests
                    .note(origin.site, relayed.transaction, relayed.hardware, now);
                for noted in relayed.noted() {
                    self.tally.noted[noted as usize] += 1;
                }
                if !relayed.marked {
                    self.remember(&relayed, origin, now);
                }
            }
            Err(refused) => self.tally.refused[refused as usize] += 1,
        }
        relayed
    }

    /// Relay a server's message. `now` is the time in nanoseconds. The message for the terminal is written to `out`.
    /// `home` finds a site by the site's circuit ID.
    ///
    /// # Errors
    /// Returns the reason for which the message is dropped. The dropped message has been counted under this reason.
    pub fn reply(
        &mut self,
        payload: &[u8],
        home: impl FnOnce(&[u8]) -> Option<Home>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<RelayedReply, Refused> {
        let (unmarked, pending_requests) = (&self.unmarked, &mut self.pending_requests);
        let find = |trace: Trace<'_>| match trace.circuit {
            Some(circuit) => {
                let home = home(circuit).ok_or(Refused::Circuit)?;
                let waits = pending_requests.has(home.site, trace.transaction, trace.hardware, now);
                waits.then_some(home).ok_or(Refused::Unsolicited)
            }
            None => {
                let known = unmarked.get(&(trace.transaction, trace.hardware));
                let known = known.filter(|(_, until)| *until > now);
                known.map(|(home, _)| *home).ok_or(Refused::OptionMissing)
            }
        };
        let replied = reply(payload, find, out);
        match replied {
            Ok(_) => self.tally.replies += 1,
            Err(refused) => self.tally.refused[refused as usize] += 1,
        }
        replied
    }

    /// Record the site of a message without option 82, because the reply will not contain the option either.
    fn remember(&mut self, relayed: &Relayed, origin: &Origin<'_>, now: u64) {
        if self.unmarked.len() >= UNMARKED {
            self.unmarked.retain(|_, (_, until)| *until > now);
        }
        if self.unmarked.len() < UNMARKED {
            let (site, gateway) = (origin.site, origin.gateway);
            let until = now.saturating_add(PATIENCE);
            self.unmarked
                .insert((relayed.transaction, relayed.hardware), (Home { site, gateway }, until));
        }
    }
}

/// For the fuzzer: relay arbitrary bytes as messages of a terminal and of a server. Relayed messages must be valid.
pub fn hostile(bytes: &[u8]) {
    let rate = TokenRate::new(1, 1);
    let mut relay = Relay::new(
        Limits::default(),
        Rates {
            terminal: rate,
            site: rate,
        },
        1,
        1,
    );
    let (site, gateway, mut out, mut back) = (Site(0), Ipv4Addr::new(10, 1, 0, 1), Vec::new(), Vec::new());
    let home = |circuit: &[u8]| (circuit == b"S100.C7").then_some(Home { site, gateway });
    let origin = Origin {
        site,
        gateway,
        circuit: b"S100.C7",
        remote: b"",
        link: None,
        trusted: bytes.first().is_some_and(|byte| *byte & 0x80 != 0),
    };
    let bytes = bytes.get(1..).unwrap_or_default();
    if relay.request(bytes, &origin, 0, &mut out).is_ok() {
        assert!(out.len() <= Limits::default().max_bytes, "it fits");
        // The server echoes the message, changing only its operation code.
        out[0] = 2;
        let _ = relay.reply(&out, home, 0, &mut back);
    }
    let any_home = |trace: Trace<'_>| trace.circuit.and_then(home).ok_or(Refused::Circuit);
    if reply(bytes, any_home, &mut back).is_ok() {
        let again = reply(
            &back,
            |trace| {
                if trace.circuit.is_none() {
                    Ok(Home { site, gateway })
                } else {
                    Err(Refused::Circuit)
                }
            },
            &mut out,
        );
        assert_eq!(Ok(&back), again.map(|_| &out), "the option is gone");
    }
}

#[cfg(test)]
mod tests;
