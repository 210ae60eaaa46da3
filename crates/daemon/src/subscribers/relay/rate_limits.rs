//! Limits the rates of terminals and sites, so that a flooding terminal or site does not affect other terminals and
//! sites.

use std::collections::HashMap;

use sluice_table::token_bucket::TokenRate;
use sluice_wire::Mac;

use super::Refused;
use crate::subscribers::Site;

/// Rates of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Rate limit of each terminal.
    pub terminal: TokenRate,
    /// Rate limit of each site, for all of its terminals together.
    pub site: TokenRate,
}

/// Number of nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Rate limiter of messages.
#[derive(Debug)]
pub struct RateLimits {
    rates: Rates,
    /// For each site, the time at which its burst is fully available again.
    sites: Vec<u64>,
    /// For each recently active terminal, the time at which its burst is fully available again.
    terminals: HashMap<(Site, Mac), u64>,
    capacity: usize,
    /// Earliest time of the next removal of idle terminals.
    sweep: u64,
}

impl RateLimits {
    /// Create a limiter for a number of sites. The limiter meters at most `capacity` active terminals individually.
    pub fn new(rates: Rates, sites: u32, capacity: usize) -> Self {
        Self {
            rates,
            sites: vec![0; sites as usize],
            terminals: HashMap::new(),
            capacity,
            sweep: 0,
        }
    }

    /// Admit a message of a terminal. `now` is the time in nanoseconds. Returns whether the terminal's own rate limit
    /// was applied. If too many terminals are active, only the rate limit of the site is applied.
    ///
    /// # Errors
    /// The terminal or the site exceeds its rate, or the site does not exist.
    pub fn admit(&mut self, site: Site, hardware: Mac, now: u64) -> Result<bool, Refused> {
        let of_site = self.sites.get_mut(site.0 as usize).ok_or(Refused::Site)?;
        let key = (site, hardware);
        let before = self.terminals.get(&key).copied();
        // A message that exceeds the terminal's rate does not count towards the site's rate.
        let terminal = (self.rates.terminal.take(before.unwrap_or(0), now)).ok_or(Refused::TerminalRate)?;
        *of_site = (self.rates.site.take(*of_site, now)).ok_or(Refused::SiteRate)?;
        if before.is_none() && self.terminals.len() >= self.capacity && now >= self.sweep {
            let rate = self.rates.terminal;
            self.terminals.retain(|_, full_at| !rate.is_full(*full_at, now));
            self.sweep = now.saturating_add(SECOND);
        }
        let has_capacity = before.is_some() || self.terminals.len() < self.capacity;
        if has_capacity {
            self.terminals.insert(key, terminal);
        }
        Ok(has_capacity)
    }
}
