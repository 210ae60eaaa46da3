//! Why a message goes no further.

/// Why a message is not relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// It has no room for what every message has.
    #[error("it is shorter than a DHCP message")]
    Short,
    /// It is longer than the network allows.
    #[error("it is longer than a message may be")]
    Long,
    /// A terminal's comes from the server, or the other way.
    #[error("it goes the wrong way")]
    Direction,
    /// Not Ethernet, or no station's address.
    #[error("its hardware address is not that of an Ethernet station")]
    Hardware,
    /// No magic cookie: a message of BOOTP, or none at all.
    #[error("it is no DHCP message")]
    Cookie,
    /// Its options don't add up, or have no end.
    #[error("its options can't be read")]
    Malformed,
    /// It has no message type, or one that does not go this way.
    #[error("its message type is not one that goes this way")]
    Kind,
    /// It came by too many relays (RFC 1542 section 4.1.1).
    #[error("it has passed too many relays")]
    Hops,
    /// A terminal says that it is a relay, or a server answers to another one.
    #[error("the relay's address in it is not this relay's")]
    Gateway,
    /// A terminal brings option 82 itself (RFC 3046 section 2.1.1).
    #[error("the terminal says itself where it is")]
    OptionForged,
    /// The server does not give option 82 back (RFC 3046 section 2.2), so nobody knows whose answer it is.
    #[error("the server did not return option 82: nobody knows whose answer it is")]
    OptionMissing,
    /// An answer to what no terminal of its site has asked lately.
    #[error("no terminal of the site has asked for it")]
    Unasked,
    /// The server's option 82 names nobody.
    #[error("no site has the circuit that the server returned")]
    Circuit,
    /// There is no such site.
    #[error("there is no such site")]
    Site,
    /// A site's circuit, remote end and link don't fit into an option.
    #[error("what names the site does not fit into option 82")]
    Information,
    /// A terminal sends too much.
    #[error("the terminal sends more than it may")]
    TerminalRate,
    /// A site sends too much.
    #[error("the site sends more than it may")]
    SiteRate,
}

impl Refused {
    /// All of them, in the order of their numbers.
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
        Refused::Unasked,
        Refused::Circuit,
        Refused::Site,
        Refused::Information,
        Refused::TerminalRate,
        Refused::SiteRate,
    ];

    /// Its name, for lists and counters.
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
            Refused::Unasked => "relay-unasked",
            Refused::Circuit => "relay-circuit",
            Refused::Site => "relay-site",
            Refused::Information => "relay-information",
            Refused::TerminalRate => "relay-terminal-rate",
            Refused::SiteRate => "relay-site-rate",
        }
    }
}

/// What is counted of a message that is relayed all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Option 82 did not fit into it.
    OptionLeftOut,
    /// It had an option 82 of somebody who is trusted, which went.
    OptionReplaced,
    /// There are more busy terminals than are told apart: only its site's rate counted.
    Unmetered,
}

impl Noted {
    /// All of them, in the order of their numbers.
    pub const ALL: [Noted; 3] = [Noted::OptionLeftOut, Noted::OptionReplaced, Noted::Unmetered];

    /// Its name, for lists and counters.
    pub fn name(self) -> &'static str {
        match self {
            Noted::OptionLeftOut => "relay-option-left-out",
            Noted::OptionReplaced => "relay-option-replaced",
            Noted::Unmetered => "relay-terminal-unmetered",
        }
    }
}
