//! Reasons for which the relay drops a message.

/// Why a message is not relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// The message is shorter than the fixed part.
    #[error("the message is shorter than the fixed part of a DHCP message")]
    Short,
    /// The message exceeds the maximum length.
    #[error("the message exceeds the maximum length")]
    Long,
    /// The operation code does not match the direction.
    #[error("the operation code (op) does not match the direction of the message")]
    Direction,
    /// The hardware address is not that of an Ethernet station.
    #[error("the hardware address in the message is not a unicast Ethernet address")]
    Hardware,
    /// The magic cookie is missing, so the message is not a DHCP message.
    #[error("the message has no magic cookie, so it is not a DHCP message")]
    Cookie,
    /// The options are malformed or not terminated.
    #[error("the options of the message are malformed")]
    Malformed,
    /// The message type is missing, or not valid in this direction.
    #[error("the message type is missing or not valid in this direction")]
    Kind,
    /// The message has passed too many relays (RFC 1542, section 4.1.1).
    #[error("the hop count of the message is too high")]
    Hops,
    /// A terminal claims to be a relay, or a server replies to a different relay.
    #[error("giaddr in the message is not the address of this relay")]
    Gateway,
    /// A terminal's message contains option 82 (RFC 3046, section 2.1.1).
    #[error("the terminal sent option 82, which only a relay may add")]
    OptionForged,
    /// The server does not echo option 82 (RFC 3046, section 2.2), so the site is unknown.
    #[error("the server did not return option 82, so the site is unknown")]
    OptionMissing,
    /// The reply matches no recent request of the site's terminals.
    #[error("the reply matches no recent request of the site's terminals")]
    Unsolicited,
    /// The circuit ID in the server's option 82 is unknown.
    #[error("the returned circuit ID belongs to no site")]
    Circuit,
    /// The site does not exist.
    #[error("the site of the message does not exist")]
    Site,
    /// Circuit ID, remote ID and link selection of a site exceed the length of an option.
    #[error("the name of the site does not fit into option 82")]
    Information,
    /// The terminal exceeds its rate.
    #[error("the terminal sends more DHCP messages than its rate allows")]
    TerminalRate,
    /// The site exceeds its rate.
    #[error("the site sends more DHCP messages than its rate allows")]
    SiteRate,
}

impl Refused {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Refused; 17] = [
        Refused::Short,
        Refused::Long,
        Refused::Direction,
        Refused::Hardware,
        Refused::Cookie,
        Refused::Malformed,
        Refused::Kind,
        Refused::Hops,
        Refused::Gateway,
        Refused::OptionForged,
        Refused::OptionMissing,
        Refused::Unsolicited,
        Refused::Circuit,
        Refused::Site,
        Refused::Information,
        Refused::TerminalRate,
        Refused::SiteRate,
    ];

    /// Name of the reason in lists and for its counter.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Short => "relay-short",
            Refused::Long => "relay-long",
            Refused::Direction => "relay-direction",
            Refused::Hardware => "relay-hardware",
            Refused::Cookie => "relay-cookie",
            Refused::Malformed => "relay-malformed",
            Refused::Kind => "relay-kind",
            Refused::Hops => "relay-hops",
            Refused::Gateway => "relay-gateway",
            Refused::OptionForged => "relay-option-forged",
            Refused::OptionMissing => "relay-option-missing",
            Refused::Unsolicited => "relay-unasked",
            Refused::Circuit => "relay-circuit",
            Refused::Site => "relay-site",
            Refused::Information => "relay-information",
            Refused::TerminalRate => "relay-terminal-rate",
            Refused::SiteRate => "relay-site-rate",
        }
    }
}

/// A condition that is counted although the message is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Option 82 did not fit into the message.
    OptionLeftOut,
    /// An option 82 from a trusted relay was removed from the message.
    OptionReplaced,
    /// Too many terminals are active to meter each of them, so only the site's rate limit was applied.
    Unmetered,
}

impl Noted {
    /// All conditions, in the order of their numbers.
    pub const ALL: [Noted; 3] = [Noted::OptionLeftOut, Noted::OptionReplaced, Noted::Unmetered];

    /// Name of the condition in lists and for its counter.
    pub fn name(self) -> &'static str {
        match self {
            Noted::OptionLeftOut => "relay-option-left-out",
            Noted::OptionReplaced => "relay-option-replaced",
            Noted::Unmetered => "relay-terminal-unmetered",
        }
    }
}
