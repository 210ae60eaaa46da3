//! Rate limits of terminals and sites, so that one that floods does not affect the others.

use std::collections::HashMap;

use sluice_wire::Mac;

use super::Refused;
use crate::subscribers::Site;

/// Message rate with burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages per second.
    pub per_second: u32,
    /// Maximum burst.
    pub burst: u32,
}

/// Rates of terminals and sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Rate of each terminal.
    pub terminal: Rate,
    /// Rate of all terminals of a site together.
    pub site: Rate,
}

/// Times are in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Rate limiter of messages.
#[derive(Debug)]
pub struct Gate {
    rates: Rates,
    /// Time at which each site's burst is fully available again.
    sites: Vec<u64>,
    /// Time at which each terminal's burst is fully available again, for recently active terminals.
    terminals: HashMap<(Site, Mac), u64>,
    most: usize,
    /// Earliest time of the next removal of idle terminals.
    sweep: u64,
}

impl Gate {
    /// Create a limiter for a number of sites, which meters at most `most` active terminals.
    pub fn new(rates: Rates, sites: u32, most: usize) -> Self {
        Self {
            rates,
            sites: vec![0; sites as usize],
            terminals: HashMap::new(),
            most,
            sweep: 0,
        }
    }

    /// Admit a message of a terminal at a time in nanoseconds. Returns whether the terminal's own rate was applied: if
    /// too many terminals are active, only the site's rate is.
    ///
    /// # Errors
    /// The terminal or the site exceeds its rate, or the site does not exist.
    pub fn admit(&mut self, site: Site, hardware: Mac, now: u64) -> Result<bool, Refused> {
        let of_site = self.sites.get_mut(site.0 as usize).ok_or(Refused::Site)?;
        let key = (site, hardware);
        let before = self.terminals.get(&key).copied();
        // A message beyond the terminal's rate does not count against the site's rate.
        let terminal = charge(self.rates.terminal, before.unwrap_or(0), now).ok_or(Refused::TerminalRate)?;
        *of_site = charge(self.rates.site, *of_site, now).ok_or(Refused::SiteRate)?;
        if before.is_none() && self.terminals.len() >= self.most && now >= self.sweep {
            self.terminals.retain(|_, due| *due > now);
            self.sweep = now.saturating_add(SECOND);
        }
        let room = before.is_some() || self.terminals.len() < self.most;
        if room {
            self.terminals.insert(key, terminal);
        }
        Ok(room)
    }
}

/// Time at which the burst is fully available again after one more message; `None` if the rate is exceeded.
fn charge(rate: Rate, due: u64, now: u64) -> Option<u64> {
    let between = SECOND / u64::from(rate.per_second.max(1));
    let slack = between * u64::from(rate.burst.max(1) - 1);
    (due <= now.saturating_add(slack)).then(|| due.max(now).saturating_add(between))
}
