//! Subscriber sites and their terminals by number: tags, addresses, and a gateway that serves them. Each terminal has
//! one flow, which has the terminal's number.

use sluice_engine::snapshot::Snapshot;
use sluice_engine::snapshot::sites::{SiteClassifier, SiteKey, SiteSettings, TagRange};
use sluice_nat::sites::{SiteWriter, Terminal, context};
use sluice_wire::vlan::Tag;
use sluice_wire::{FlowKey4, Tuple4};

use super::frames::{Hosts, Tagged, Written, ends};
use crate::rows::Failure;

/// Number of C-tags for each S-tag.
pub const OF_SERVICE: u32 = 1_000;

const PUBLIC: u32 = 0xc613_0000;

/// Length of an S-tag and a C-tag in bytes.
pub const TAGS: usize = 8;

pub fn tags(site: u32) -> (u16, u16) {
    ((100 + site / OF_SERVICE) as u16, (1 + site % OF_SERVICE) as u16)
}

/// VLAN tags of a site as bytes in a frame.
#[inline(always)]
pub fn tag_bytes(site: u32) -> [u8; TAGS] {
    let (service, customer) = tags(site);
    let word = 0x88a8_0000_8100_0000 | u64::from(service) << 32 | u64::from(customer);
    word.to_be_bytes()
}

/// MAC address of a terminal.
#[inline(always)]
pub fn terminal_mac(terminal: u32) -> [u8; 6] {
    let [a, b, c, d] = terminal.to_be_bytes();
    [0x06, 0, a, b, c, d]
}

/// A terminal with an address and with the tags of its site.
pub fn terminal(site: u32, number: u32, address: u32) -> Terminal {
    let (service, customer) = tags(site);
    Terminal {
        context: context(site, 0, false),
        address,
        mac: terminal_mac(number),
        interface: 0,
        tags: [Some(Tag::service(service)), Some(Tag::vlan(customer))],
    }
}

/// Virtual MAC address of a site on the outside.
#[inline(always)]
fn virtual_mac(site: u32) -> [u8; 6] {
    let [a, b, c, d] = site.to_be_bytes();
    [0x02, 9, a, b, c, d]
}

/// A number of sites, and the number of terminals in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    pub sites: u32,
    pub terminals: u32,
}

impl Homes {
    /// Default numbers of sites and terminals, for 8,000 flows.
    pub const USUAL: Self = Self {
        sites: 2_000,
        terminals: 4,
    };

    pub fn flows(self) -> u32 {
        self.sites * self.terminals
    }

    /// Distribution of the flows over inside hosts.
    pub fn hosts(self) -> Hosts {
        Hosts::InTurn(self.flows())
    }

    /// Serves the sites of all terminals, which are behind the first interface; the second interface is the outside.
    /// Interfaces and translation rules must already exist.
    pub fn serve(self, policy: &mut Snapshot) -> Result<SiteWriter, Failure> {
        let networks = [(0, PUBLIC, PUBLIC + self.sites - 1)];
        let (mut writer, table) = SiteWriter::new(self.sites, self.flows(), &networks, [0x1234, 0x5678]);
        for site in 0..self.sites {
            writer.set_site(site, Some(virtual_mac(site)), None)?;
            writer.set_public(site, 0, Some(PUBLIC + site))?;
            for number in site * self.terminals..(site + 1) * self.terminals {
                writer.add_terminal(&terminal(site, number, ends(self.hosts(), number).inside.0))?;
            }
        }
        let row = |first: u32| TagRange {
            outer: tags(first).0,
            first: tags(first).1,
            count: OF_SERVICE.min(self.sites - first) as u16,
            context: context(first, 0, false),
        };
        let rows = (0..self.sites).step_by(OF_SERVICE as usize).map(row).collect();
        let settings = SiteSettings {
            access_interfaces: vec![(0, SiteKey::Tags(rows))],
            publics: vec![1],
            relays: Vec::new(),
        };
        policy.serve_sites(SiteClassifier::new(table, settings));
        Ok(writer)
    }

    /// The packet of a flow with the address of its terminal, or with the public address of its site if the packet
    /// comes from outside.
    #[inline(always)]
    pub fn address(self, mut written: Written, from_inside: bool) -> Written {
        match from_inside {
            true => written.macs.1 = terminal_mac(written.mark),
            false => written.macs.0 = virtual_mac(written.mark / self.terminals),
        }
        written
    }

    /// VLAN tags of a flow's frames on the inside.
    #[inline(always)]
    pub fn tags(self, flow: u32) -> [u8; TAGS] {
        tag_bytes(flow / self.terminals)
    }

    /// Key of a flow's session in the direction from inside.
    pub fn key(self, flow: u32) -> FlowKey4 {
        let ends = ends(self.hosts(), flow);
        FlowKey4::new(
            Tuple4 {
                source: ends.inside.0,
                destination: ends.remote.0,
                source_port: ends.inside.1,
                destination_port: ends.remote.1,
                context: context(flow / self.terminals, 0, false),
            },
            if ends.tcp { 6 } else { 17 },
        )
    }

    /// MAC address of a flow's terminal, and virtual MAC address of its site.
    pub fn macs(self, flow: u32) -> [[u8; 6]; 2] {
        [terminal_mac(flow), virtual_mac(flow / self.terminals)]
    }

    pub fn public(self, flow: u32) -> u32 {
        PUBLIC + flow / self.terminals
    }
}

/// The frame that `frame` creates from a packet; if sites are served and the packet comes from inside, the frame is
/// tagged.
#[inline(always)]
pub fn dressed<F>(
    homes: Option<Homes>,
    written: Written,
    inside: bool,
    frame: impl FnOnce(Written) -> F,
) -> Tagged<F, TAGS> {
    match homes {
        None => Tagged {
            frame: frame(written),
            tags: None,
        },
        Some(homes) => Tagged {
            frame: frame(homes.address(written, inside)),
            tags: inside.then(|| homes.tags(written.mark)),
        },
    }
}
