//! `[bridges.NAME]`: a bridge between two interfaces.

use serde::{Deserialize, Serialize};

/// `[bridges.NAME]`: frames received on one interface are sent unchanged by the other. The interfaces have no
/// addresses, and the bridge is invisible to hosts. The tags of a VLAN interface are removed and added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bridge {
    /// The two interfaces, each with a device, a bond or VLAN tags.
    pub interfaces: Vec<String>,
    /// Whether the link of one side follows that of the other: when one goes down, the other is taken down until it is
    /// up again. Hosts thus see the same link states as with a cable.
    pub follow_link: bool,
    /// Handling of invalid frames.
    pub invalid: Invalid,
    /// Handling of packets to be inspected while the session table is full.
    pub fail: Fail,
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            follow_link: true,
            invalid: Invalid::Pass,
            fail: Fail::Closed,
        }
    }
}

/// Handling of invalid frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invalid {
    /// Forward them, and count them by reason.
    Pass,
    /// Drop them, and count them by reason.
    Drop,
}

/// Handling of packets to be inspected that can't be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fail {
    /// Forward them.
    Open,
    /// Drop them.
    Closed,
}
