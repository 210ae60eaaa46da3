//! Faults in parts of a lease file.

/// Why a line or a block is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// It exceeds [`super::lines::MOST`] bytes.
    #[error("it is longer than 64 KiB")]
    TooLong,
    /// The header of a Kea file has unknown columns.
    #[error("the header is not that of Kea's kea-leases4.csv: is it a file of IPv4 leases?")]
    Header,
    /// The number of fields differs from that of the header.
    #[error("the number of fields is not that of the header")]
    Fields,
    /// The IPv4 address is invalid.
    #[error("it has no IPv4 address")]
    Address,
    /// The Ethernet address is missing.
    #[error("it has no Ethernet address, and leases are told apart by theirs")]
    Hardware,
    /// The client identifier is invalid.
    #[error("its client identifier can't be read")]
    Client,
    /// A time is missing or invalid.
    #[error("its end, or its beginning, is no time")]
    Time,
    /// The state is missing or unknown.
    #[error("it has no state, or one that is not known")]
    State,
    /// The user context is not valid JSON.
    #[error("its user context is no JSON that Kea writes")]
    Context,
    /// The relay information is malformed.
    #[error("what it has of the relay can't be read")]
    Relay,
    /// The statement is unknown.
    #[error("no such statement is known")]
    Statement,
    /// A closing quotation mark is missing.
    #[error("a text does not end")]
    Quote,
    /// A closing brace has no opening one.
    #[error("a closing brace closes nothing")]
    Brace,
    /// The entry is incomplete: another one begins, or the file ends.
    #[error("it breaks off")]
    Unfinished,
    /// The maximum number of leases is reached.
    #[error("there is no room for more leases: raise their number, or look who takes so many")]
    Full,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Reason; 15] = [
        Reason::TooLong,
        Reason::Header,
        Reason::Fields,
        Reason::Address,
        Reason::Hardware,
        Reason::Client,
        Reason::Time,
        Reason::State,
        Reason::Context,
        Reason::Relay,
        Reason::Statement,
        Reason::Quote,
        Reason::Brace,
        Reason::Unfinished,
        Reason::Full,
    ];

    /// Name for lists and counters.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TooLong => "lease-too-long",
            Reason::Header => "lease-header",
            Reason::Fields => "lease-fields",
            Reason::Address => "lease-address",
            Reason::Hardware => "lease-hardware",
            Reason::Client => "lease-client",
            Reason::Time => "lease-time",
            Reason::State => "lease-state",
            Reason::Context => "lease-context",
            Reason::Relay => "lease-relay",
            Reason::Statement => "lease-statement",
            Reason::Quote => "lease-quote",
            Reason::Brace => "lease-brace",
            Reason::Unfinished => "lease-unfinished",
            Reason::Full => "lease-full",
        }
    }
}

/// A part of a lease file that is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is skipped: {reason}")]
pub struct Fault {
    /// First line of the part, from 1.
    pub line: u64,
    /// The reason.
    pub reason: Reason,
}
