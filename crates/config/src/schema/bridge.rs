//! `[bridges.NAME]`: two interfaces that pass each other everything.

use serde::{Deserialize, Serialize};

/// `[bridges.NAME]`: what comes in by one interface leaves by the other as it came. Neither has an address, and nobody on the
/// link can tell that there is a bridge. Tags of an interface that is a VLAN are taken off, and put on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bridge {
    /// The two interfaces, each with a device, a bond or the tags of a VLAN.
    pub interfaces: Vec<String>,
    /// When the link of one goes down, the other is taken down, and comes back with it: whoever is behind the bridge sees what
    /// it would see of a cable.
    pub follow_link: bool,
    /// What happens to frames that are not valid.
    pub invalid: Invalid,
    /// What happens to packets that should be inspected when there is no room for their session.
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

/// What happens to frames that are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invalid {
    /// They pass, and are counted by reason.
    Pass,
    /// They are dropped, and counted by reason.
    Drop,
}

/// What happens to packets that should be inspected and can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fail {
    /// They pass.
    Open,
    /// They are dropped.
    Closed,
}
