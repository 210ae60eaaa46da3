//! How much terminals and sites may send: one that sends too much takes nothing from the others.

use std::collections::HashMap;

use sluice_table::token_bucket::TokenRate;
use sluice_wire::Mac;

use super::Refused;
use crate::subscribers::Site;

/// Rates of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// A terminal.
    pub terminal: TokenRate,
    /// All terminals of a site.
    pub site: TokenRate,
}

/// Times in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Admits messages.
#[derive(Debug)]
pub struct Gate {
    rates: Rates,
    /// Word of each site's token bucket.
    sites: Vec<u64>,
    /// Those of terminals that have used up something.
    terminals: HashMap<(Site, Mac), u64>,
    most: usize,
    /// When idle terminals may be looked for again.
    sweep: u64,
}

impl Gate {
    /// For so many sites, and so many terminals that are busy at a time.
    pub fn new(rates: Rates, sites: u32, most: usize) -> Self {
        Self {
            rates,
            sites: vec![0; sites as usize],
            terminals: HashMap::new(),
            most,
            sweep: 0,
        }
    }

    /// Whether a terminal may send a message at a time in nanoseconds; then whether the terminal's own rate counted:
    /// where too many are busy, only its site's does.
    ///
    /// # Errors
    /// It sends too much, or its site; there is no such site.
    pub fn admit(&mut self, site: Site, hardware: Mac, now: u64) -> Result<bool, Refused> {
        let of_site = self.sites.get_mut(site.0 as usize).ok_or(Refused::Site)?;
        let key = (site, hardware);
        let before = self.terminals.get(&key).copied();
        // A terminal that sends too much takes nothing of its site's.
        let terminal = (self.rates.terminal.take(before.unwrap_or(0), now)).ok_or(Refused::TerminalRate)?;
        *of_site = (self.rates.site.take(*of_site, now)).ok_or(Refused::SiteRate)?;
        if before.is_none() && self.terminals.len() >= self.most && now >= self.sweep {
            let rate = self.rates.terminal;
            self.terminals.retain(|_, full_at| !rate.is_full(*full_at, now));
            self.sweep = now.saturating_add(SECOND);
        }
        let room = before.is_some() || self.terminals.len() < self.most;
        if room {
            self.terminals.insert(key, terminal);
        }
        Ok(room)
    }
}
