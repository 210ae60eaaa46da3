//! Interface to the tables of sites and terminals. Workers read these tables.

use sluice_nat::sites::{OtherSite, SiteWriter, Terminal, TerminalsFull};
use sluice_wire::{Context, Mac};

/// Writer of the workers' tables.
pub trait Mapping: Send {
    /// Set the upstream MAC of a site, or the pool of its ports. Must be called before the site's terminals are added.
    ///
    /// # Errors
    /// Another site already has the MAC.
    fn set_site(&mut self, site: u32, mac: Option<Mac>, pool: Option<u16>) -> Result<(), OtherSite>;

    /// Remove a site with its terminals and its public address.
    fn clear_site(&mut self, site: u32);

    /// Set, change or remove a site's public address in its virtual router.
    ///
    /// # Errors
    /// Another site already has the address. The site `site` then has no public address.
    fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite>;

    /// Add a terminal. An existing terminal is not changed.
    ///
    /// # Errors
    /// The table is full. The site then has no terminal with this address.
    fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull>;

    /// Remove a terminal. Returns whether the terminal existed.
    fn remove_terminal(&mut self, context: Context, address: u32) -> bool;
}

impl Mapping for SiteWriter {
    fn set_site(&mut self, site: u32, mac: Option<Mac>, pool: Option<u16>) -> Result<(), OtherSite> {
        SiteWriter::set_site(self, site, mac, pool)
    }

    fn clear_site(&mut self, site: u32) {
        SiteWriter::clear_site(self, site);
    }

    fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite> {
        SiteWriter::set_public(self, site, router, address)
    }

    fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull> {
        SiteWriter::add_terminal(self, terminal)
    }

    fn remove_terminal(&mut self, context: Context, address: u32) -> bool {
        SiteWriter::remove_terminal(self, context, address)
    }
}
