//! Sets that rules of the filter name.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped, or_dash};

use crate::schema::SetType;
use crate::value::{Period, SetElement};

/// Which set.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SetFilter {
    /// Name of the set; without it, all sets are listed without their elements.
    #[arg(value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sets {
    /// In order of their names.
    pub sets: Vec<Set>,
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Set {
    /// Its name, behind that of its router and a slash where that is not the default one.
    pub name: String,
    /// What they are.
    #[serde(rename = "type")]
    pub kind: SetType,
    /// How many elements it has.
    pub count: u64,
    /// How many it may have.
    pub size: u64,
    /// How long elements stay where nothing else is said; for ever where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// Packets whose source was not added, as there was no room or the set was being changed.
    pub not_added: u64,
    /// Its elements, where it was asked for by name.
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

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Element {
    /// An address, a prefix, or ports.
    pub element: SetElement,
    /// Seconds that it stays; for ever where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// A change of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetRequest {
    /// Its name.
    pub name: String,
    /// Elements to be added or removed; none to flush it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<SetElement>,
    /// How long added elements stay; the `timeout` of the set where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
}

/// What a change has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetAnswer {
    /// Elements that came or went.
    pub changed: u64,
    /// Elements in all now.
    pub count: u64,
}
