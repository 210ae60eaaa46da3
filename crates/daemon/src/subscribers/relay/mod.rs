//! The relay of private DHCP (RFC 1542, 2131, 3046): terminals inside, an unmodified server elsewhere. Option 82 tells
//! the server the site, and the server's answer tells it back. Payloads of UDP in, payloads of UDP out.

mod asked;
mod gate;
mod message;
mod refused;
mod reply;
mod request;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use sluice_table::token_bucket::TokenRate;
use sluice_wire::Mac;

use super::Site;
use asked::Asked;
pub use gate::{Gate, Rates};
pub use refused::{Noted, Refused};
pub use reply::{Acknowledged, Destination, Trace, reply};
pub use request::{Limits, Origin, Relayed, request};

/// What a relay knows of a site when an answer for it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The site.
    pub site: Site,
    /// The relay's address in it, which the server was told.
    pub gateway: Ipv4Addr,
}

/// What a relay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages to the server.
    pub requests: u64,
    /// Messages to terminals.
    pub replies: u64,
    /// Messages that went no further, in the order of [`Refused::ALL`].
    pub refused: [u64; Refused::ALL.len()],
    /// What else was seen, in the order of [`Noted::ALL`].
    pub noted: [u64; Noted::ALL.len()],
    /// Who was the last one to send too much.
    pub flood: Option<(Site, Mac)>,
}

impl Tally {
    /// What was counted, by name.
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
    gate: Gate,
    asked: Asked,
    unmarked: HashMap<(u32, Mac), (Home, u64)>,
    tally: Tally,
}

/// How long an answer is waited for, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;

/// Most messages in that time that went without option 82.
const UNMARKED: usize = 1024;

/// Most of all messages in that time: 35,000 a second.
const ASKED: usize = 1 << 20;

impl Relay {
    /// Of so many sites. At most `terminals` of those that are busy are told apart.
    pub fn new(limits: Limits, rates: Rates, sites: u32, terminals: usize) -> Self {
        Self {
            limits,
            gate: Gate::new(rates, sites, terminals),
            asked: Asked::new(ASKED),
            unmarked: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// What it did so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// A terminal's message has come, at a time in nanoseconds; what the server is to get goes to `out`.
    ///
    /// # Errors
    /// Why it goes no further; it is counted.
    pub fn request(
        &mut self,
        payload: &[u8],
        origin: &Origin<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<Relayed, Refused> {
        let Self {
            limits, gate, tally, ..
        } = self;
        let admit = |hardware| {
            let admitted = gate.admit(origin.site, hardware, now);
            if let Err(Refused::TerminalRate | Refused::SiteRate) = admitted {
                tally.flood = Some((origin.site, hardware));
            }
            admitted
        };
        let relayed = request(payload, origin, limits, admit, out);
        match relayed {
            Ok(relayed) => {
                self.tally.requests += 1;
                self.asked.note(origin.site, relayed.transaction, relayed.hardware, now);
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

    /// The server's message has come, at a time in nanoseconds; what the terminal is to get goes to `out`. `home` knows
    /// sites by their circuits.
    ///
    /// # Errors
    /// Why it goes no further; it is counted.
    pub fn reply(
        &mut self,
        payload: &[u8],
        home: impl FnOnce(&[u8]) -> Option<Home>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<Acknowledged, Refused> {
        let (unmarked, asked) = (&self.unmarked, &mut self.asked);
        let find = |trace: Trace<'_>| match trace.circuit {
            Some(circuit) => {
                let home = home(circuit).ok_or(Refused::Circuit)?;
                let waits = asked.has(home.site, trace.transaction, trace.hardware, now);
                waits.then_some(home).ok_or(Refused::Unasked)
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

    /// The answer to a message without the option will name nobody.
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

/// Relay bytes as a message of a terminal and of a server; what is relayed is read again.
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
        assert!(out.len() <= Limits::default().most_bytes, "it fits");
        // A server that sends it back as it is.
        out[0] = 2;
        let _ = relay.reply(&out, home, 0, &mut back);
    }
    let asked_or_not = |trace: Trace<'_>| trace.circuit.and_then(home).ok_or(Refused::Circuit);
    if reply(bytes, asked_or_not, &mut back).is_ok() {
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
