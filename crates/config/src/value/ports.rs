//! Ports, ranges of ports, and the protocols that have them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ValueError, written_as_text};

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Protocol number of IANA.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl FromStr for Transport {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err(ValueError::Transport(text.into())),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// Ports from a first to a last one, both included. Written as one port or `first-last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// `None` where `last` lies before `first` or `first` is 0.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || last < first {
            None
        } else {
            Some(Self { first, last })
        }
    }

    /// One port.
    pub const fn one(port: u16) -> Option<Self> {
        Self::new(port, port)
    }

    /// The ports that are not well known: 1024 to 65535.
    pub const UNPRIVILEGED: Self = Self {
        first: 1024,
        last: u16::MAX,
    };

    /// The lowest port.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// The highest port.
    pub const fn last(&self) -> u16 {
        self.last
    }

    /// How many ports, 1 to 65,535.
    pub const fn count(&self) -> u16 {
        self.last - self.first + 1
    }

    /// The ports that both hold.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// The range of equal length that begins at `first`; `None` where it would end behind 65535.
    pub fn moved_to(&self, first: u16) -> Option<Self> {
        Self::new(first, first.checked_add(self.last - self.first)?)
    }
}

impl FromStr for PortRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |part: &str| part.trim().parse().ok().filter(|&port: &u16| port != 0);
        let (Some(first), Some(last)) = (port(first), port(last)) else {
            return Err(ValueError::Ports(text.into()));
        };
        Self::new(first, last).ok_or_else(|| ValueError::Reversed(text.into()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

written_as_text!(PortRange, "a port or a range such as \"1024-65535\"");

/// One port, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(u16);

impl Port {
    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl FromStr for Port {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .ok()
            .filter(|&port| port != 0)
            .map(Self)
            .ok_or_else(|| ValueError::Port(text.into()))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(Port, "a port");
