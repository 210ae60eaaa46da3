//! The configuration of Sluice, from one TOML file to a [`Valid`] [`Config`], and the types of its control API.
//!
//! ```text
//! text ── read ──► Document ── check ──► Valid<Config>
//!          │                     │
//!          └──► Diagnosis ◄──────┘    what is wrong, where it stands, what to write instead
//! ```
//!
//! [`schema`] is the file as it is written, [`config`] the same with every reference resolved and every default filled
//! in. Behind [`check`] nothing is checked again. [`difference`] says what a running process can take over.

#![forbid(unsafe_code)]

pub mod api;
pub mod config;
mod diagnosis;
mod difference;
#[doc(hidden)]
pub mod hostile;
pub mod memory;
mod problem;
mod read;
pub mod schema;
mod validate;
pub mod value;

pub use config::{Config, Valid};
pub use diagnosis::{Complaint, Diagnosis, Located};
pub use difference::{Change, Difference, Kind, difference};
pub use problem::Problem;
pub use validate::{Checked, Machine, check};

/// Read a text without asking what its values mean.
///
/// # Errors
/// Every mistake of form: syntax, unknown and missing keys, values that can't be read.
pub fn parse(name: &str, text: &str) -> Result<schema::Document, Diagnosis> {
    read::read(text)
        .map(|(document, _)| document)
        .map_err(|found| Diagnosis::new(name, text, found))
}

/// A fault that showed only when the configuration was used, such as a device that would not open, at the place of its
/// key: `["interfaces", "outside", "device"]`.
pub fn fault(name: &str, text: &str, key: &[&str], what: String, hint: Option<String>) -> Diagnosis {
    let steps: Vec<_> = key.iter().map(|step| read::Step::Key(step)).collect();
    let span = read::read(text).map_or(0..0, |(_, places)| places.value(&steps));
    Diagnosis::new(
        name,
        text,
        vec![Located {
            problem: Problem::Form { what, hint },
            span,
            advice: false,
        }],
    )
}
