//! Receive-side steering: which fields of a packet, which key and which table choose the queue that it comes to.
//!
//! What is wished is asked of the device, and what the device then does is read back from it: [`Steered`] says what
//! it hashes, with which key, and where its table leads, and names all that is not as wished. Where a device can't
//! steer as wished, it is asked for addresses and ports, then for whatever it hashes; in the end its frames come to
//! one queue, and workers hand them over.

mod device;
mod functions;
mod negotiation;
#[cfg(test)]
mod tests;

use std::fmt;

use sluice_table::toeplitz;

pub use functions::{Fields, Flow, Functions};

pub(crate) use device::PortHash;
pub(crate) use negotiation::{Attempt, Configured, HashDevice, Refusal, configure, set_table, steer};

/// Bytes of a key that cover the longest input, and of every key where the device names no other size.
pub const KEY_BYTES: usize = 40;

/// Which fields of a packet choose its queue, where the card can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// Addresses and ports.
    #[default]
    FiveTuple,
    /// The source address alone: for inside interfaces.
    Source,
    /// Destination address and port: for outside interfaces.
    Destination,
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Steering::FiveTuple => "addresses and ports",
            Steering::Source => "the source address alone",
            Steering::Destination => "destination address and port",
        })
    }
}

/// A key of the hash: [`KEY_BYTES`] or more.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Vec<u8>);

impl fmt::Debug for HashKey {
    /// Without the key: who knows it can steer packets at will.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({} bytes)", self.0.len())
    }
}

impl HashKey {
    /// A key of its bytes; fewer than [`KEY_BYTES`] are refused, for some fields would have no part in the hash.
    pub fn new(bytes: &[u8]) -> Result<Self, SteeringError> {
        if bytes.len() < KEY_BYTES {
            return Err(SteeringError::ShortKey { bytes: bytes.len() });
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a device takes it: cut to so many bytes, or begun again where it has fewer.
    fn fitted(&self, bytes: usize) -> Self {
        Self(self.0.iter().copied().cycle().take(bytes).collect())
    }
}

impl From<&toeplitz::Key> for HashKey {
    fn from(key: &toeplitz::Key) -> Self {
        Self(key.bytes().to_vec())
    }
}

/// What a device offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Hash functions.
    pub functions: Functions,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Entries of the table from hash to queue; 0 where it has none that can be set.
    pub table_entries: u16,
    /// Most receive queues.
    pub queues: u16,
    /// The hash can come with the frame.
    pub delivers_hash: bool,
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.queues == 1 { "" } else { "s" };
        write!(f, "{} queue{plural}, ", self.queues)?;
        if self.functions.is_empty() {
            return f.write_str("no hash");
        }
        let (bytes, entries) = (self.key_bytes, self.table_entries);
        write!(
            f,
            "hashes {}, key of {bytes} bytes, table of {entries} entries",
            self.functions
        )
    }
}

/// What a device is to do.
#[derive(Clone, Debug)]
pub(crate) struct SteeringRequest {
    pub(crate) steering: Steering,
    pub(crate) key: Option<HashKey>,
    /// The key where the fields are not as wished; `None`: the same.
    pub(crate) fallback_key: Option<HashKey>,
    /// Queues of the table's entries, begun again until the table is full, or cut to it; empty: each queue in turn.
    pub(crate) table: Vec<u16>,
    pub(crate) queues: u16,
}

impl SteeringRequest {
    /// The device may not be asked for queues that are not there.
    pub(crate) fn check(&self) -> Result<(), SteeringError> {
        check_queues(&self.table, self.queues)
    }

    /// The same with fewer queues: entries that lead to others begin again.
    pub(crate) fn with_queues(&self, queues: u16) -> Self {
        Self {
            queues,
            table: self.table.iter().map(|queue| queue % queues.max(1)).collect(),
            ..self.clone()
        }
    }
}

fn check_queues(table: &[u16], queues: u16) -> Result<(), SteeringError> {
    match table.iter().position(|&queue| queue >= queues) {
        Some(entry) => Err(SteeringError::NoSuchQueue {
            entry,
            queue: table[entry],
            queues,
        }),
        None => Ok(()),
    }
}

/// Why steering can't be so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// A key that is too short.
    #[error("a key of {bytes} bytes is too short: it takes {KEY_BYTES}")]
    ShortKey {
        /// Its bytes.
        bytes: usize,
    },
    /// A table that names a queue beyond the last.
    #[error("entry {entry} of the table names queue {queue}, and there are {queues}, counted from 0")]
    NoSuchQueue {
        /// The first such entry.
        entry: usize,
        /// The queue that it names.
        queue: u16,
        /// Queues.
        queues: u16,
    },
    /// A table that is empty, or neither fills the device's evenly nor is filled by it.
    #[error(
        "a table of {given} entries does not fill the device's {entries}: give as many, a divisor of it or a multiple"
    )]
    TableLength {
        /// Entries given.
        given: usize,
        /// Entries of the device.
        entries: usize,
    },
    /// There is no table to change: one queue, no hash, or a device without.
    #[error("the device steers by no table that can be set")]
    NoTable,
    /// The device did not take the table, or does not tell which it has.
    #[error("the table is not as wished: {0}")]
    NotAsWished(Shortfall),
}

/// Something that a device does not do as wished; its text goes on after "hashes …: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// The device has no function at all.
    #[error("this device has no hash that can be set")]
    NoHash,
    /// The device has no such function.
    #[error("this device can't hash {wished}")]
    NotOffered {
        /// What was wished.
        wished: Steering,
    },
    /// The device offers a function and does not take it.
    #[error("this device offers to hash {asked} and refuses it ({reason})")]
    Declined {
        /// What was asked for.
        asked: Functions,
        /// Text of the error number.
        reason: String,
    },
    /// The device took a function and does another.
    #[error("asked to hash {asked}, it hashes {hashed}{}", more(.asked, .hashed))]
    Otherwise {
        /// What was asked for.
        asked: Functions,
        /// What it does.
        hashed: Functions,
    },
    /// One family of addresses is not hashed.
    #[error("{family} is not hashed and comes to one queue")]
    NotHashed {
        /// Its name.
        family: &'static str,
    },
    /// The device does not say what it hashes.
    #[error("this device does not tell what it hashes ({reason})")]
    Untold {
        /// Text of the error number.
        reason: String,
    },
    /// The device does not take the key.
    #[error("it refuses the key ({reason}) and keeps its own")]
    KeyDeclined {
        /// Text of the error number.
        reason: String,
    },
    /// The device took the key and uses another.
    #[error("it hashes with another key than the one given")]
    KeyOtherwise,
    /// The device does not say which key it uses.
    #[error("it does not tell its key")]
    KeyUntold,
    /// The device has no table that can be set.
    #[error("it has no table from hash to queue that can be set")]
    NoTable,
    /// The table wished for does not fill the device's evenly; each queue has its turn instead.
    #[error("its table has {entries} entries, which the {given} wished for do not fill")]
    TableLength {
        /// Entries wished for.
        given: usize,
        /// Entries of the device.
        entries: usize,
    },
    /// The device's table is a part of the one wished for, and what the rest of that leads elsewhere comes as its beginning says.
    #[error("its table has {entries} entries, and {elsewhere} of the {given} wished for lead elsewhere")]
    TableFolded {
        /// Entries wished for.
        given: usize,
        /// Entries of the device.
        entries: usize,
        /// Entries wished for that lead to another queue than the one that has their place.
        elsewhere: usize,
    },
    /// The device does not take the table.
    #[error("it refuses the table ({reason})")]
    TableDeclined {
        /// Text of the error number.
        reason: String,
    },
    /// The device took the table and has another.
    #[error("its table differs in {entries} entries: {first} leads to queue {found}, not {wished}")]
    TableOtherwise {
        /// How many entries differ.
        entries: usize,
        /// The first of them.
        first: usize,
        /// The queue wished for there.
        wished: u16,
        /// The queue that it has there.
        found: u16,
    },
    /// The device does not say which table it has.
    #[error("it does not tell its table ({reason})")]
    TableUntold {
        /// Text of the error number.
        reason: String,
    },
}

impl Shortfall {
    /// It is about the table, and goes with the next table.
    fn is_of_table(&self) -> bool {
        matches!(
            self,
            Shortfall::TableLength { .. }
                | Shortfall::TableFolded { .. }
                | Shortfall::TableDeclined { .. }
                | Shortfall::TableOtherwise { .. }
                | Shortfall::TableUntold { .. }
        )
    }
}

/// How two sets of functions differ where their phrases do not say it.
fn more(asked: &Functions, hashed: &Functions) -> &'static str {
    if hashed.contains(Functions::BEYOND) {
        ", and more"
    } else if asked.to_string() == hashed.to_string() {
        " of other kinds of packets"
    } else {
        ""
    }
}

/// How a started device chooses queues, as read back from it. Its text is for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered {
    /// What was wished.
    pub wish: Steering,
    /// Receive queues in use.
    pub queues: u16,
    /// What the device offers; `None` where it was not asked.
    pub capabilities: Option<Capabilities>,
    /// The way that packets are really steered; `None` where that is none, mixed or unknown: software distributes.
    pub steering: Option<Steering>,
    /// What the device hashes; `None` where it does not tell.
    pub functions: Option<Functions>,
    /// The key that it hashes with; `None` where it hashes nothing, or does not tell.
    pub key: Option<HashKey>,
    /// The queue of each entry of its table; `None` where it hashes nothing, has none, or does not tell.
    pub table: Option<Vec<u16>>,
    /// The hash comes with the frame.
    pub delivers_hash: bool,
    /// What is not as wished.
    pub shortfalls: Vec<Shortfall>,
}

impl Steered {
    /// Nothing is steered, as with one queue.
    pub(crate) fn not(wish: Steering, queues: u16) -> Self {
        Self {
            wish,
            queues,
            capabilities: None,
            steering: None,
            functions: None,
            key: None,
            table: None,
            delivers_hash: false,
            shortfalls: Vec::new(),
        }
    }

    /// The queue to which frames of a hash come; `None` where the table is not known.
    pub fn queue_of(&self, hash: u32) -> Option<u16> {
        let table = self.table.as_ref()?;
        table.get(hash as usize % table.len().max(1)).copied()
    }
}

impl fmt::Display for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.steering, self.functions) {
            _ if self.queues < 2 => return f.write_str("one queue: nothing to steer"),
            (Some(steering), _) => write!(f, "hashes {steering}")?,
            (None, Some(functions)) if !functions.is_empty() => {
                write!(f, "hashes {functions}, so software distributes")?;
            }
            _ => f.write_str("software distributes")?,
        }
        for (place, shortfall) in self.shortfalls.iter().enumerate() {
            write!(f, "{} {shortfall}", if place == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}
