//! `[bridges.NAME]`: a bridge between two interfaces.

use serde::{Deserialize, Serialize};

/// `[bridges.NAME]`: frames received on one interface are sent unchanged on the other interface. The interfaces have no
/// addresses, and hosts can't detect the bridge. The tags of a VLAN interface are removed on reception and added on
/// transmission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bridge {
    /// The two interfaces, each with a device, a bond or VLAN tags.
    pub interfaces: Vec<String>,
    /// Whether the link of each side follows the link of the other side. If one link goes down, Sluice takes the other
    /// link down until the first link is up again. Hosts then see the link states that they would see with a cable.
    pub follow_link: bool,
    /// What happens to invalid frames.
    pub invalid: Invalid,
    /// What happens to packets that should be inspected while the session table is full.
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

/// What happens to invalid frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invalid {
    /// Forward invalid frames, and count them for each reason.
    Pass,
    /// Drop invalid frames, and count them for each reason.
    Drop,
}

/// What happens to packets that should be inspected but can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fail {
    /// Forward the packets.
    Open,
    /// Drop the packets.
    Closed,
}
