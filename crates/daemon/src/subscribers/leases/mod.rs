//! Private leases: what a DHCP server writes into its lease file, as a table and the changes of it.
//!
//! Bytes become entries ([`Reader`]), entries become the leases that stand and changes ([`Table`]), a file is followed
//! through whatever its server does to it ([`Source`]), and a thread does that when the file changes ([`Watcher`]).

mod chain;
mod complaints;
mod date;
mod dhcpd;
mod fault;
mod kea;
mod lines;
mod reader;
mod source;
mod table;
mod text;
mod watch;
mod watcher;
mod whole;
mod words;

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_wire::Mac;

pub use fault::{Fault, Reason};
pub use reader::{Format, Reader};
pub use source::{Counts, Now, Source, SourceError};
pub use table::Table;
pub use watcher::{Settings, Standing, Watcher};

/// A private address that a terminal has for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The terminal's.
    pub hardware: Mac,
    /// What the terminal calls itself (RFC 2132 section 9.14).
    pub client_id: Option<Box<[u8]>>,
    /// When it was last asked for, in Unix seconds.
    pub renewed: u64,
    /// When it ends.
    pub expires: Expiry,
    /// Where the terminal is, as the relay said; none where it asked the server itself.
    pub relay: Option<Box<RelayInformation>>,
    /// The terminal's host name.
    pub host_name: Option<Box<str>>,
}

impl Lease {
    /// Whether a mapping that was made for this lease serves another one of its address.
    fn maps_like(&self, other: &Lease) -> bool {
        self.hardware == other.hardware && self.relay == other.relay
    }
}

/// The end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expiry {
    /// In Unix seconds.
    At(u64),
    /// It has none.
    Never,
}

impl Expiry {
    /// Whether it is over at a time in Unix seconds.
    pub fn is_past(self, now: u64) -> bool {
        matches!(self, Self::At(end) if end <= now)
    }
}

/// What a relay says of where a terminal is (RFC 3046). What it left out is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayInformation {
    /// The circuit (section 3.1).
    pub circuit: Box<[u8]>,
    /// The remote end of it (section 3.2).
    pub remote: Box<[u8]>,
}

impl RelayInformation {
    /// Of an option's content. None where its parts don't fill it.
    fn parse(mut content: &[u8]) -> Option<Self> {
        let mut information = Self::default();
        while let [code, length, rest @ ..] = content {
            let (part, behind) = rest.split_at_checked(usize::from(*length))?;
            match code {
                1 => information.circuit = part.into(),
                2 => information.remote = part.into(),
                _ => {}
            }
            content = behind;
        }
        content.is_empty().then_some(information)
    }
}

/// Why a lease is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// Its time was over.
    Expired,
    /// The terminal gave it back, or the server took it.
    Released,
    /// The terminal found another one with its address.
    Declined,
    /// A lease file that was written anew does not have it.
    Vanished,
}

impl Lost {
    /// All of them, in the order of their numbers.
    pub const ALL: [Lost; 4] = [Lost::Expired, Lost::Released, Lost::Declined, Lost::Vanished];

    /// Its name, for lists and counters.
    pub fn name(self) -> &'static str {
        match self {
            Lost::Expired => "expired",
            Lost::Released => "released",
            Lost::Declined => "declined",
            Lost::Vanished => "vanished",
        }
    }
}

/// What a lease file says of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A terminal has it, or had it if its time is over.
    Leased(Lease),
    /// Nobody has it.
    Free {
        /// The address.
        address: Ipv4Addr,
        /// When it was last asked for, in Unix seconds.
        renewed: u64,
        /// How that came.
        why: Lost,
    },
}

impl Entry {
    /// The address that it is about.
    pub fn address(&self) -> Ipv4Addr {
        match self {
            Self::Leased(lease) => lease.address,
            Self::Free { address, .. } => *address,
        }
    }

    fn renewed(&self) -> u64 {
        match self {
            Self::Leased(lease) => lease.renewed,
            Self::Free { renewed, .. } => *renewed,
        }
    }
}

/// What has become of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is one more.
    Gained(Arc<Lease>),
    /// The address went to another terminal, or the terminal to another place.
    Changed {
        /// As it was.
        was: Arc<Lease>,
        /// As it is.
        now: Arc<Lease>,
    },
    /// The same terminal has it at the same place, for longer, or by another name.
    Renewed(Arc<Lease>),
    /// It is no more.
    Lost {
        /// As it was.
        was: Arc<Lease>,
        /// How that came.
        why: Lost,
    },
}

/// Read bytes as lease files of both kinds, as they come and in two pieces, into small tables.
pub fn hostile(bytes: &[u8]) {
    let (cut, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*cut) / 255);
    for format in [Format::Kea, Format::Dhcpd] {
        let tables = [&[bytes][..], &[first, second]].map(|pieces| {
            let (mut reader, mut table) = (Reader::new(format), Table::new(8));
            let (mut read, mut changes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
            for piece in pieces {
                reader.read(piece, &mut read);
            }
            for entry in read {
                match entry {
                    Ok(entry) => drop(table.apply(entry, 1_700_000_000, &mut changes)),
                    Err(fault) => faults.push(fault),
                }
            }
            table.expire(u64::MAX, &mut changes);
            (changes, faults)
        });
        assert_eq!(tables[0], tables[1], "pieces don't matter");
    }
}

#[cfg(test)]
mod tests;
