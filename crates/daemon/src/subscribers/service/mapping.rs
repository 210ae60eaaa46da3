//! What becomes of sites and terminals: entries that workers read.

use sluice_nat::sites::{OtherSite, SiteWriter, Terminal, TerminalsFull};
use sluice_wire::{Context, Mac};

/// Who writes the entries that workers translate by.
pub trait Mapping: Send {
    /// Say by what a site is seen upstream, or which pool its ports come from, before it has terminals.
    ///
    /// # Errors
    /// Another site has the MAC.
    fn set_site(&mut self, site: u32, mac: Option<Mac>, pool: Option<u16>) -> Result<(), OtherSite>;

    /// A site goes, with its terminals and its public address.
    fn clear_site(&mut self, site: u32);

    /// A site's public address has come, gone, or is another, in its virtual router.
    ///
    /// # Errors
    /// Another site has the address: this one has none then.
    fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite>;

    /// A terminal has an address. One that is known stays as it is.
    ///
    /// # Errors
    /// There is no room; nobody has the address in the site then.
    fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull>;

    /// A terminal has its address no more. False where that was known.
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
