//! The configuration of Sluice, from one TOML file to a [`Valid`] [`Config`], and the types of its control API.
//!
//! ```text
//! text ── read ──► Document ── check ──► Valid<Config>
//!          │                     │
//!          └──► Diagnosis ◄──────┘    what is wrong, where, and what to write instead
//! ```
//!
//! [`schema`] is the file as written. [`config`] is the content of the file with all references resolved and all
//! defaults filled in. Other crates need not validate the configuration again. [`difference()`] determines which
//! changes a running process can apply.

#![forbid(unsafe_code)]

pub mod api;
pub mod chain;
pub mod config;
mod diagnosis;
mod difference;
mod field;
pub mod file;
pub mod filter;
pub mod host_share;
#[doc(hidden)]
pub mod hostile;
pub mod import;
pub mod limits;
pub mod memory;
mod numbering;
mod problem;
mod read;
pub mod schema;
mod snippet;
mod subscribers;
pub mod text;
mod validate;
pub mod value;

pub use config::{Config, Valid};
pub use diagnosis::{Diagnosis, Finding, Located};
pub use difference::{Change, Difference, Kind, difference};
pub use limits::{MAX_ROUTERS, MAX_SITES, MAX_TERMINALS};
pub use numbering::{Number, Numbering, Numbers};
pub use problem::{FilterProblem, Problem, nearest};
pub use schema::EXCEPTIONS;
pub use validate::{Checked, Inserted, Machine, Weight, check, check_numbered, check_rules};

/// Parse a text without validating its values.
///
/// # Errors
/// Returns all syntax errors, unknown and missing keys, and values of the wrong type.
pub fn parse(name: &str, text: &str) -> Result<schema::Document, Diagnosis> {
    read::read(text)
        .map(|(document, _)| document)
        .map_err(|found| Diagnosis::new(name, text, found))
}

/// A fault that is found only when the configuration is used, such as a device that can't be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Key to which the fault refers: `["interfaces", "outside", "device"]`, `["filter", "rules", "[3]", "to"]`.
    pub key: Vec<String>,
    /// Description of the fault.
    pub description: String,
    /// What to do about the fault.
    pub hint: Option<String>,
}

/// Converts faults to a diagnosis with the positions of their keys in the text.
pub fn place(name: &str, text: &str, faults: Vec<Fault>) -> Diagnosis {
    let places = read::read(text).ok().map(|(_, places)| places);
    let located = |fault: Fault| {
        let steps: Vec<_> = fault.key.iter().map(read::Step::from).collect();
        let span = places.as_ref().map_or(0..0, |places| places.value(&steps));
        Located {
            problem: Problem::Form {
                description: fault.description,
                hint: fault.hint,
            },
            span,
            advice: false,
        }
    };
    Diagnosis::new(name, text, faults.into_iter().map(located).collect())
}
