//! Log messages of the subscriber service. Each message is a single line.

use std::fmt;
use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::Count;
use crate::subscribers::Site;
use crate::subscribers::virtual_mac::text;

/// An event of interest to the operator. The event contains the numbers of sites; the names of sites are inserted when
/// the message is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A lease that belongs to no known site.
    Outside {
        /// Address of the lease.
        address: Ipv4Addr,
        /// Circuit ID in the relay information.
        circuit: Option<Box<[u8]>>,
    },
    /// A lease whose address is not in the site's network.
    Network {
        /// The site.
        site: Site,
        /// Address of the lease.
        address: Ipv4Addr,
    },
    /// The table of terminals is full.
    Full {
        /// Site of the terminal.
        site: Site,
        /// Address of the terminal.
        address: Ipv4Addr,
    },
    /// The lease file and the observed reply indicate different sites.
    Mismatch {
        /// Address of the terminal.
        address: Ipv4Addr,
        /// MAC of the terminal.
        hardware: Mac,
        /// Site according to the lease file.
        file: Site,
        /// Site according to the reply.
        answer: Site,
    },
    /// A MAC was found in an additional site.
    MacInTwoSites {
        /// The MAC.
        hardware: Mac,
        /// The additional site.
        site: Site,
    },
    /// Two sites have the same upstream MAC.
    MacTwice {
        /// The site that was added.
        site: Site,
        /// The site that already has the MAC.
        other: Site,
    },
    /// A site can't request a public address.
    Refused(crate::subscribers::agent::WantError),
    /// Another site has the public address.
    Taken {
        /// The site that should get the address.
        site: Site,
        /// The site that already has the address.
        other: Site,
        /// The address.
        address: Ipv4Addr,
    },
    /// Another host claims a public address.
    Conflict {
        /// The site that had the address.
        site: Site,
        /// The address.
        address: Ipv4Addr,
        /// MAC of the other host.
        hardware: Mac,
    },
    /// A terminal or a site exceeds its rate.
    Flood {
        /// The site.
        site: Site,
        /// MAC of the terminal.
        hardware: Mac,
        /// Whether the site also exceeds its rate.
        of_site: bool,
    },
}

impl Note {
    /// Format the message as a log line. `name` returns the names of sites.
    pub fn text(&self, name: impl Fn(Site) -> String) -> String {
        struct Circuit<'a>(&'a Option<Box<[u8]>>);
        impl fmt::Display for Circuit<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Some(circuit) => write!(f, "its circuit ID is \"{}\"", circuit.escape_ascii()),
                    None => f.write_str("the lease has no relay agent information"),
                }
            }
        }
        match self {
            Self::Outside { address, circuit } => {
                format!(
                    "the lease of {address} belongs to no configured site: {}",
                    Circuit(circuit)
                )
            }
            Self::Network { site, address } => format!(
                "site {}: a terminal has a lease for {address}, which is not in the networks of the site: check the \
                 server's subnet",
                name(*site)
            ),
            Self::Full { site, address } => format!(
                "site {}: the table has no space for the terminal {address}: raise `terminals` under [subscribers]",
                name(*site)
            ),
            Self::Mismatch {
                address,
                hardware,
                file,
                answer,
            } => format!(
                "{address} of {}: the lease file contains site {}, but the server's reply was for site {}; the newer \
                 information is used",
                text(*hardware),
                name(*file),
                name(*answer)
            ),
            Self::MacInTwoSites { hardware, site } => {
                format!(
                    "the terminal MAC address {} is used in site {} and in another site",
                    text(*hardware),
                    name(*site)
                )
            }
            Self::MacTwice { site, other } => {
                format!("sites {} and {} have the same virtual MAC", name(*other), name(*site))
            }
            Self::Refused(error) => error.to_string(),
            Self::Taken { site, other, address } => {
                format!(
                    "site {}: the leased public address {address} already belongs to site {}",
                    name(*site),
                    name(*other)
                )
            }
            Self::Conflict {
                site,
                address,
                hardware,
            } => format!(
                "site {}: the host {} also uses the public address {address}: the site requests another address",
                name(*site),
                text(*hardware)
            ),
            Self::Flood {
                site,
                hardware,
                of_site,
            } => format!(
                "site {}: {} of {} sends more DHCP messages than its rate allows",
                name(*site),
                if *of_site { "the site" } else { "the terminal" },
                text(*hardware)
            ),
        }
    }
}

/// Time of the last message of each kind.
#[derive(Clone, Debug)]
pub struct LastNotes {
    counts: [Option<u64>; Count::ALL.len()],
    flood: Option<u64>,
}

impl Default for LastNotes {
    fn default() -> Self {
        Self {
            counts: [None; Count::ALL.len()],
            flood: None,
        }
    }
}

impl LastNotes {
    const PAUSE: u64 = 1_000_000_000;

    /// Whether a counted event must be logged. `now` is the time in nanoseconds.
    pub fn should_report(&mut self, count: Count, now: u64) -> bool {
        let last = self.counts.get_mut(count as usize);
        last.is_some_and(|last| Self::pass(last, now))
    }

    /// Whether an exceeded rate must be logged. `now` is the time in nanoseconds.
    pub fn should_report_flood(&mut self, now: u64) -> bool {
        Self::pass(&mut self.flood, now)
    }

    fn pass(last: &mut Option<u64>, now: u64) -> bool {
        let news = last.is_none_or(|last| now.saturating_sub(last) >= Self::PAUSE);
        if news {
            *last = Some(now);
        }
        news
    }
}
