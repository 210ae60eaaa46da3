//! Element sets that filter rules refer to.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped, or_dash};

use crate::schema::SetType;
use crate::value::{Period, SetElement};

/// Selection of a set.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SetFilter {
    /// Name of the set; without it, all sets are listed without their elements.
    #[arg(value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A list of sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sets {
    /// Sets in the order of their names.
    pub sets: Vec<Set>,
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Set {
    /// Name. For routers other than the default router, the router's name and a slash precede the set's name.
    pub name: String,
    /// Type of the elements.
    #[serde(rename = "type")]
    pub kind: SetType,
    /// Number of elements.
    pub count: u64,
    /// Maximum number of elements.
    pub size: u64,
    /// Default timeout of added elements. If absent, added elements have no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// Packets whose source address could not be added, because the set was full or another change was in progress.
    pub not_added: u64,
    /// Elements of the set, if the request names the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<Element>,
}

impl Row for Set {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("NAME", |row| row.name.clone()),
        Column::text("TYPE", |row| {
            match row.kind {
                SetType::Addresses => "addresses",
                SetType::Networks => "networks",
                SetType::Ports => "ports",
            }
            .into()
        }),
        Column::number("ELEMENTS", |row| grouped(row.count)),
        Column::number("SIZE", |row| grouped(row.size)),
        Column::number("TIMEOUT", |row| or_dash(row.timeout.as_ref())),
        Column::number("NOT ADDED", |row| grouped(row.not_added)),
    ];
}

/// An element of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Element {
    /// An address, a prefix, or ports.
    pub element: SetElement,
    /// Seconds until the element expires. Absent if the element has no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// A change of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetRequest {
    /// Name of the set.
    pub name: String,
    /// Elements to add or remove. Empty in a request that removes all elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<SetElement>,
    /// Timeout of the added elements. If absent, the `timeout` of the set applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetAnswer {
    /// Number of elements added or removed.
    pub changed: u64,
    /// Number of elements after the change.
    pub count: u64,
}
