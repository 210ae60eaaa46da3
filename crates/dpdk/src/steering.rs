//! Receive-side steering (RSS): the packet fields, the key and the redirection table that determine the receive queue.
//!
//! The requested settings are applied to the device, and the actual settings are read back. [`Steered`] contains the
//! hashed fields, the key and the table in use, and every deviation from the request. For a device that can't steer as
//! requested, a hash over addresses and ports is requested next, then any hash that the device supports. Without any
//! hash, all frames arrive at one queue, and its worker hands frames over to other workers.

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

/// Key size in bytes that covers the longest hash input. Also the key size for devices that report no key size.
pub const KEY_BYTES: usize = 40;

/// Requested packet fields that determine the receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// Addresses and ports.
    #[default]
    FiveTuple,
    /// Only the source address, for inside interfaces.
    Source,
    /// Only the destination address and port, for outside interfaces.
    Destination,
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Steering::FiveTuple => "addresses and ports",
            Steering::Source => "only the source address",
            Steering::Destination => "destination address and port",
        })
    }
}

/// RSS key of at least [`KEY_BYTES`] bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Vec<u8>);

impl fmt::Debug for HashKey {
    /// Does not print the key, because anyone with the key can choose the queue of packets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({} bytes)", self.0.len())
    }
}

impl HashKey {
    /// Create a key from bytes. Keys shorter than [`KEY_BYTES`] are rejected, because some fields would not affect the
    /// hash.
    pub fn new(bytes: &[u8]) -> Result<Self, SteeringError> {
        if bytes.len() < KEY_BYTES {
            return Err(SteeringError::ShortKey { bytes: bytes.len() });
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key, truncated or repeated to the device's key size.
    fn resized(&self, bytes: usize) -> Self {
        Self(self.0.iter().copied().cycle().take(bytes).collect())
    }
}

impl From<&toeplitz::Key> for HashKey {
    fn from(key: &toeplitz::Key) -> Self {
        Self(key.bytes().to_vec())
    }
}

/// RSS capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Hash functions.
    pub functions: Functions,
    /// Key size in bytes.
    pub key_bytes: usize,
    /// Number of entries in the redirection table; 0 if the table can't be set.
    pub table_entries: u16,
    /// Maximum number of receive queues.
    pub queues: u16,
    /// Whether the device can deliver the hash together with the frame.
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

/// Steering requested from a device.
#[derive(Clone, Debug)]
pub(crate) struct SteeringRequest {
    pub(crate) steering: Steering,
    pub(crate) key: Option<HashKey>,
    /// Key for devices that do not support the requested fields. `None` means the requested key.
    pub(crate) fallback_key: Option<HashKey>,
    /// Queues for the entries of the table. The queues are repeated or truncated to the size of the table. An empty
    /// list assigns queues round-robin.
    pub(crate) table: Vec<u16>,
    pub(crate) queues: u16,
}

impl SteeringRequest {
    /// Check that the table refers only to existing queues.
    pub(crate) fn check(&self) -> Result<(), SteeringError> {
        check_queues(&self.table, self.queues)
    }

    /// Returns this request with fewer queues. Table entries beyond the last queue wrap around.
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

/// Why a steering request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// The key is too short.
    #[error("a key of {bytes} bytes is too short: {KEY_BYTES} bytes are needed")]
    ShortKey {
        /// Key size in bytes.
        bytes: usize,
    },
    /// The table contains the number of a missing queue.
    #[error("entry {entry} of the table refers to queue {queue}, but there are only {queues} queues, counted from 0")]
    NoSuchQueue {
        /// Index of the first invalid entry.
        entry: usize,
        /// Queue number in the invalid entry.
        queue: u16,
        /// Number of queues.
        queues: u16,
    },
    /// The table is empty, or its length is neither a divisor nor a multiple of the device's table length.
    #[error(
        "a table of {given} entries does not fit the device's table of {entries}: the number must be the same, a \
         divisor or a multiple"
    )]
    TableLength {
        /// Length of the requested table.
        given: usize,
        /// Length of the device's table.
        entries: usize,
    },
    /// The device has no table to change, because it has only one queue, no hash, or no table.
    #[error("the device has no RSS indirection table that can be set")]
    NoTable,
    /// The device did not accept the table, or does not report its table.
    #[error("the table differs from the requested table: {0}")]
    Mismatch(Shortfall),
}

/// A deviation of the device from the request. The text of the deviation follows "hashes …: " in messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// The device has no hash function.
    #[error("the device has no RSS hash that can be set")]
    NoHash,
    /// The device does not support the hash function.
    #[error("the device can't hash {desired}")]
    NotOffered {
        /// Requested steering.
        desired: Steering,
    },
    /// The device reports support for the hash function but rejects it.
    #[error("the device reports that it can hash {requested}, but refuses this setting ({reason})")]
    Declined {
        /// Requested functions.
        requested: Functions,
        /// Text of the error number.
        reason: String,
    },
    /// The device accepted a hash function but uses a different hash function.
    #[error("the device was set to hash {requested}, but hashes {hashed}{}", more(.requested, .hashed))]
    OtherFunction {
        /// Requested functions.
        requested: Functions,
        /// Functions in use.
        hashed: Functions,
    },
    /// One address family is not hashed.
    #[error("{family} is not hashed, and its packets arrive on a single queue")]
    NotHashed {
        /// Name of the family.
        family: &'static str,
    },
    /// The device does not report the hashed fields.
    #[error("the device does not report which fields it hashes ({reason})")]
    UnreportedFields {
        /// Text of the error number.
        reason: String,
    },
    /// The device rejects the key.
    #[error("the device refuses the configured RSS key ({reason}) and keeps its own key")]
    KeyDeclined {
        /// Text of the error number.
        reason: String,
    },
    /// The device accepted the key but uses a different key.
    #[error("the device hashes with a key other than the configured key")]
    OtherKey,
    /// The device does not report its key.
    #[error("the device does not report its RSS key")]
    UnreportedKey,
    /// The device has no table that can be set.
    #[error("the RSS indirection table of the device can't be set")]
    NoTable,
    /// The length of the requested table is incompatible with the device's table. Queues are assigned round-robin
    /// instead.
    #[error(
        "the RSS indirection table of the device has {entries} entries, which the {given} requested entries do \
         not fill evenly"
    )]
    TableLength {
        /// Length of the requested table.
        given: usize,
        /// Length of the device's table.
        entries: usize,
    },
    /// The device's table is shorter than the requested table. Hash values beyond the table's length wrap around to the
    /// first entries.
    #[error(
        "the RSS indirection table of the device has {entries} entries, and {elsewhere} of the {given} requested \
         entries differ"
    )]
    TableFolded {
        /// Length of the requested table.
        given: usize,
        /// Length of the device's table.
        entries: usize,
        /// Number of requested entries for which the device uses a different queue.
        elsewhere: usize,
    },
    /// The device rejects the table.
    #[error("the device refuses the RSS indirection table ({reason})")]
    TableDeclined {
        /// Text of the error number.
        reason: String,
    },
    /// The device accepted the table but uses a different table.
    #[error(
        "the RSS indirection table of the device differs from the requested table in {entries} entries: entry \
         {first} is queue {found}, not {desired}"
    )]
    OtherTable {
        /// Number of different entries.
        entries: usize,
        /// Index of the first different entry.
        first: usize,
        /// Requested queue of the first different entry.
        desired: u16,
        /// Actual queue of the first different entry.
        found: u16,
    },
    /// The device does not report its table.
    #[error("the device does not report its RSS indirection table ({reason})")]
    UnreportedTable {
        /// Text of the error number.
        reason: String,
    },
}

impl Shortfall {
    /// Whether this deviation concerns the table. Setting a different table resolves such a deviation.
    fn is_of_table(&self) -> bool {
        matches!(
            self,
            Shortfall::TableLength { .. }
                | Shortfall::TableFolded { .. }
                | Shortfall::TableDeclined { .. }
                | Shortfall::OtherTable { .. }
                | Shortfall::UnreportedTable { .. }
        )
    }
}

/// Text for the difference between two sets of hash functions whose descriptions are equal.
fn more(requested: &Functions, hashed: &Functions) -> &'static str {
    if hashed.contains(Functions::BEYOND) {
        ", and more"
    } else if requested.to_string() == hashed.to_string() {
        " of other kinds of packets"
    } else {
        ""
    }
}

/// Receive steering of a started device, as read back from the device. The text form of this type is for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered {
    /// Requested steering.
    pub steering_request: Steering,
    /// Receive queues in use.
    pub queues: u16,
    /// Capabilities of the device. `None` if the capabilities were not queried.
    pub capabilities: Option<Capabilities>,
    /// Actual steering. `None` if the device does not steer, steers packet types differently, or steers in an unknown
    /// way. Packets are then distributed in software.
    pub steering: Option<Steering>,
    /// Hash functions that the device uses. `None` if the device does not report its functions.
    pub functions: Option<Functions>,
    /// Key in use. `None` if the device computes no hash or does not report the key.
    pub key: Option<HashKey>,
    /// Queue of each table entry. `None` if the device computes no hash, has no table, or does not report its table.
    pub table: Option<Vec<u16>>,
    /// Whether the device delivers the hash together with the frame.
    pub delivers_hash: bool,
    /// Deviations from the request.
    pub shortfalls: Vec<Shortfall>,
}

impl Steered {
    /// Create a state without steering, such as for a single queue.
    pub(crate) fn not(steering_request: Steering, queues: u16) -> Self {
        Self {
            steering_request,
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

    /// Queue for frames with a given hash. `None` if the table is unknown.
    pub fn queue_of(&self, hash: u32) -> Option<u16> {
        let table = self.table.as_ref()?;
        table.get(hash as usize % table.len().max(1)).copied()
    }
}

impl fmt::Display for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.steering, self.functions) {
            _ if self.queues < 2 => return f.write_str("a single queue, without steering"),
            (Some(steering), _) => write!(f, "hashes {steering}")?,
            (None, Some(functions)) if !functions.is_empty() => {
                write!(f, "hashes {functions}, so that software distributes packets to shards")?;
            }
            _ => f.write_str("software distributes")?,
        }
        for (place, shortfall) in self.shortfalls.iter().enumerate() {
            write!(f, "{} {shortfall}", if place == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}
