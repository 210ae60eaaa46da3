//! What is wrong with a piece of a lease file.

/// Why a line, or a block, is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// More than [`super::lines::MOST`] bytes.
    #[error("it is longer than 64 KiB")]
    TooLong,
    /// The first line of a Kea file names other columns.
    #[error("the header is not that of Kea's kea-leases4.csv: is it a file of IPv4 leases?")]
    Header,
    /// A line of a Kea file has more or fewer fields than its header.
    #[error("the number of fields is not that of the header")]
    Fields,
    /// An address that is none.
    #[error("it has no IPv4 address")]
    Address,
    /// A lease for nobody.
    #[error("it has no Ethernet address, and leases are told apart by theirs")]
    Hardware,
    /// An identifier that can't be read.
    #[error("its client identifier can't be read")]
    Client,
    /// A time that is none, or none at all.
    #[error("its end, or its beginning, is no time")]
    Time,
    /// A state that nobody knows.
    #[error("it has no state, or one that is not known")]
    State,
    /// A user context that is no JSON.
    #[error("its user context is no JSON that Kea writes")]
    Context,
    /// The relay's information does not add up.
    #[error("what it has of the relay can't be read")]
    Relay,
    /// A statement that dhcpd does not write.
    #[error("no such statement is known")]
    Statement,
    /// A quotation mark is missing.
    #[error("a text does not end")]
    Quote,
    /// A brace too many.
    #[error("a closing brace closes nothing")]
    Brace,
    /// Another block begins, or the file ends, in the middle of it.
    #[error("it breaks off")]
    Unfinished,
    /// There are as many leases as may be.
    #[error("there is no room for more leases: raise their number, or look who takes so many")]
    Full,
}

impl Reason {
    /// All of them, in the order of their numbers.
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

    /// Its name, for lists and counters.
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

/// A piece of a lease file that is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is skipped: {reason}")]
pub struct Fault {
    /// Where it begins, from 1.
    pub line: u64,
    /// Why.
    pub reason: Reason,
}
