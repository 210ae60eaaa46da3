//! What is told in the log, a line for each.

use std::fmt;
use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::Count;
use crate::subscribers::Site;
use crate::subscribers::virtual_mac::text;

/// Something that an operator may want to look at. Sites are told by number here; who writes the log knows their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A lease of no site that is known.
    Outside {
        /// Its address.
        address: Ipv4Addr,
        /// What the relay's information says.
        circuit: Option<Box<[u8]>>,
    },
    /// A lease of an address that the site can't have.
    Network {
        /// The site.
        site: Site,
        /// The address.
        address: Ipv4Addr,
    },
    /// There was no room for a terminal.
    Full {
        /// Its site.
        site: Site,
        /// Its address.
        address: Ipv4Addr,
    },
    /// The lease file and the answer that was seen disagree.
    Mismatch {
        /// The terminal's address.
        address: Ipv4Addr,
        /// The terminal.
        hardware: Mac,
        /// The site by the file.
        file: Site,
        /// The site by the answer.
        answer: Site,
    },
    /// A MAC came to be in one more site.
    MacInTwoSites {
        /// The MAC.
        hardware: Mac,
        /// The site that it came to.
        site: Site,
    },
    /// Two sites have a MAC upstream.
    MacTwice {
        /// The site that comes.
        site: Site,
        /// The site that has it.
        other: Site,
    },
    /// A site can't ask for a public address.
    Refused(crate::subscribers::agent::WantError),
    /// Another site has the public address.
    Taken {
        /// The site that was given it.
        site: Site,
        /// The site that has it.
        other: Site,
        /// The address.
        address: Ipv4Addr,
    },
    /// Somebody else claims a public address.
    Conflict {
        /// The site that had it.
        site: Site,
        /// The address.
        address: Ipv4Addr,
        /// Who claims it.
        hardware: Mac,
    },
    /// A terminal or a site sends more than it may.
    Flood {
        /// The site.
        site: Site,
        /// The terminal.
        hardware: Mac,
        /// Whether its site does, too.
        of_site: bool,
    },
}

impl Note {
    /// As a line of the log, with the names of sites.
    pub fn text(&self, name: impl Fn(Site) -> String) -> String {
        struct Circuit<'a>(&'a Option<Box<[u8]>>);
        impl fmt::Display for Circuit<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Some(circuit) => write!(f, "its circuit is \"{}\"", circuit.escape_ascii()),
                    None => f.write_str("the server has written down no relay's information"),
                }
            }
        }
        match self {
            Self::Outside { address, circuit } => {
                format!(
                    "the lease of {address} is of no site that is known: {}",
                    Circuit(circuit)
                )
            }
            Self::Network { site, address } => format!(
                "site {}: a terminal was leased {address}, which is none of its addresses: is the server's subnet right?",
                name(*site)
            ),
            Self::Full { site, address } => format!(
                "site {}: there is no room for its terminal {address}: raise `terminals` under [subscribers]",
                name(*site)
            ),
            Self::Mismatch {
                address,
                hardware,
                file,
                answer,
            } => format!(
                "{address} of {}: the lease file says site {}, the server's answer went to site {}: the newer one counts",
                text(*hardware),
                name(*file),
                name(*answer)
            ),
            Self::MacInTwoSites { hardware, site } => {
                format!(
                    "{} is a terminal's MAC in site {}, and in another one",
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
                    "site {}: its public address {address} is site {}'s",
                    name(*site),
                    name(*other)
                )
            }
            Self::Conflict {
                site,
                address,
                hardware,
            } => format!(
                "site {}: {} says that the public address {address} is its own: another one is asked for",
                name(*site),
                text(*hardware)
            ),
            Self::Flood {
                site,
                hardware,
                of_site,
            } => format!(
                "site {}: {} of {} sends more DHCP than it may",
                name(*site),
                if *of_site { "the site" } else { "the terminal" },
                text(*hardware)
            ),
        }
    }
}

/// Which kinds were told lately.
#[derive(Clone, Debug)]
pub struct Told {
    counts: [Option<u64>; Count::ALL.len()],
    flood: Option<u64>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            counts: [None; Count::ALL.len()],
            flood: None,
        }
    }
}

impl Told {
    const PAUSE: u64 = 1_000_000_000;

    /// Whether to tell something that is counted, at a time in nanoseconds.
    pub fn is_news(&mut self, count: Count, now: u64) -> bool {
        let last = self.counts.get_mut(count as usize);
        last.is_some_and(|last| Self::pass(last, now))
    }

    /// Whether to tell who sends too much.
    pub fn is_flood_news(&mut self, now: u64) -> bool {
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
