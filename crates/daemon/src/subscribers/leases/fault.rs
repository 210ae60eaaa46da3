//! Faults in parts of a lease file.

/// Why a line or a block is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// The line exceeds [`super::lines::MAX_LINE_LENGTH`] bytes.
    #[error("the line is longer than 64 KiB")]
    TooLong,
    /// The header of a Kea file has unknown columns.
    #[error("the header is not the header of Kea's kea-leases4.csv: does the file contain IPv4 leases?")]
    Header,
    /// The number of fields differs from the number of columns in the header.
    #[error("the line has another number of fields than the header")]
    Fields,
    /// The IPv4 address is invalid.
    #[error("the lease has no IPv4 address")]
    Address,
    /// The Ethernet address is missing.
    #[error("the lease has no Ethernet address, which is needed to identify the terminal")]
    Hardware,
    /// The client identifier is invalid.
    #[error("the client identifier of the lease is not valid")]
    Client,
    /// A time is missing or invalid.
    #[error("the start or end of the lease is not a valid time")]
    Time,
    /// The state is missing or unknown.
    #[error("the state of the lease is missing or unknown")]
    State,
    /// The user context is not valid JSON.
    #[error("the user context of the lease is not the JSON that Kea writes")]
    Context,
    /// The relay information is malformed.
    #[error("the relay information of the lease is malformed")]
    Relay,
    /// The statement is unknown.
    #[error("unknown statement")]
    Statement,
    /// A closing quotation mark is missing.
    #[error("the closing quotation mark of a string is missing")]
    Quote,
    /// A closing brace has no opening brace.
    #[error("a closing brace without an opening brace")]
    Brace,
    /// The entry is incomplete, because another entry begins or the file ends.
    #[error("the lease entry is truncated")]
    Unfinished,
    /// The maximum number of leases is reached.
    #[error(
        "the table of leases is full: raise `terminals` under [subscribers], or check which sites have many \
         leases"
    )]
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

    /// Name of the reason in lists and for its counter.
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

/// A faulty part of a lease file, which is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is skipped: {reason}")]
pub struct Fault {
    /// First line of the part, counted from 1.
    pub line: u64,
    /// The reason.
    pub reason: Reason,
}
