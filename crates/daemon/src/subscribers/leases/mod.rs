//! Private leases: converts the content of a DHCP server's lease file to a table, and reports the changes of the table.
//!
//! [`Reader`] converts bytes to entries, [`Table`] converts entries to current leases and their changes, [`Source`]
//! reads a file again after rotation or rewriting, and [`Watcher`] runs a thread that reads the file at every change.

mod chain;
mod date;
mod dhcpd;
mod fault;
mod fault_log;
mod full_read;
mod kea;
mod lines;
mod reader;
mod source;
mod table;
mod text;
mod watch;
mod watcher;
mod words;

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_wire::Mac;

pub use fault::{Fault, Reason};
pub use reader::{Format, Reader};
pub use source::{LeaseFileCounters, Now, Source, SourceError};
pub use table::Table;
pub use watcher::{Watcher, WatcherSettings, WatcherStatus};

/// A private address that is leased to a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// MAC of the terminal.
    pub hardware: Mac,
    /// Client identifier (RFC 2132, section 9.14).
    pub client_id: Option<Box<[u8]>>,
    /// Unix time in seconds of the last renewal.
    pub renewed: u64,
    /// End of the lease.
    pub expires: Expiry,
    /// Relay information. `None` if the terminal reached the server without a relay.
    pub relay: Option<Box<RelayInformation>>,
    /// Host name of the terminal.
    pub host_name: Option<Box<str>>,
}

impl Lease {
    /// Whether `other`, a lease of the same address, results in the same mapping as this lease.
    fn maps_like(&self, other: &Lease) -> bool {
        self.hardware == other.hardware && self.relay == other.relay
    }
}

/// End of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expiry {
    /// Unix time in seconds.
    At(u64),
    /// Infinite lease.
    Never,
}

impl Expiry {
    /// Whether the lease has expired at a Unix time in seconds.
    pub fn is_past(self, now: u64) -> bool {
        matches!(self, Self::At(end) if end <= now)
    }
}

/// Relay agent information (RFC 3046). A missing suboption is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayInformation {
    /// Circuit ID (section 3.1).
    pub circuit: Box<[u8]>,
    /// Remote ID (section 3.2).
    pub remote: Box<[u8]>,
}

impl RelayInformation {
    /// Parse the content of option 82. `None` if the content is malformed.
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

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// The lease expired.
    Expired,
    /// The terminal released the lease, or the server withdrew the lease.
    Released,
    /// The terminal found that another host uses its address.
    Declined,
    /// The lease file was rewritten without this lease.
    Vanished,
}

impl Lost {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Lost; 4] = [Lost::Expired, Lost::Released, Lost::Declined, Lost::Vanished];

    /// Name of the reason in lists and for its counter.
    pub fn name(self) -> &'static str {
        match self {
            Lost::Expired => "expired",
            Lost::Released => "released",
            Lost::Declined => "declined",
            Lost::Vanished => "vanished",
        }
    }
}

/// Entry of a lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The address is leased, or was leased until the lease expired.
    Leased(Lease),
    /// The address is free.
    Free {
        /// The address.
        address: Ipv4Addr,
        /// Unix time in seconds of the last renewal.
        renewed: u64,
        /// Why the address is free.
        why: Lost,
    },
}

impl Entry {
    /// Address of the entry.
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

/// Change of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A lease was added.
    Gained(Arc<Lease>),
    /// The address was leased to another terminal, or the location of the terminal has changed.
    Changed {
        /// Former lease.
        was: Arc<Lease>,
        /// New lease.
        now: Arc<Lease>,
    },
    /// The lease was extended, or its host name has changed. Terminal and location of the lease are unchanged.
    Renewed(Arc<Lease>),
    /// A lease was lost.
    Lost {
        /// Former lease.
        was: Arc<Lease>,
        /// Why the lease was lost.
        why: Lost,
    },
}

/// For the fuzzer: read arbitrary bytes as a lease file of each format, both as a whole and in two chunks. The table of
/// leases is small.
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
