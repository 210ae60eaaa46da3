//! How much terminals and sites may send: one that sends too much takes nothing from the others.

use std::collections::HashMap;

use sluice_wire::Mac;

use super::Refused;
use crate::subscribers::Site;

/// Messages a second, and how many may come together after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// A second.
    pub per_second: u32,
    /// Together.
    pub burst: u32,
}

/// What one may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// A terminal.
    pub terminal: Rate,
    /// All terminals of a site.
    pub site: Rate,
}

/// Times in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Admits messages.
#[derive(Debug)]
pub struct Gate {
    rates: Rates,
    /// When each site has used up nothing.
    sites: Vec<u64>,
    /// The same of terminals that have used up something.
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

/// When nothing is used up, one message later. None where it comes too early.
fn charge(rate: Rate, due: u64, now: u64) -> Option<u64> {
    let between = SECOND / u64::from(rate.per_second.max(1));
    let slack = between * u64::from(rate.burst.max(1) - 1);
    (due <= now.saturating_add(slack)).then(|| due.max(now).saturating_add(between))
}
