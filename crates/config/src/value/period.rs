//! Durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{ValueError, written_as_text};

/// A duration with units: `90s`, `2h4m`, `100ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(Duration);

impl Period {
    /// A duration in seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A duration in milliseconds.
    pub const fn milliseconds(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    /// A duration in microseconds.
    pub const fn microseconds(microseconds: u64) -> Self {
        Self(Duration::from_micros(microseconds))
    }

    /// The duration in the type of the standard library.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|_| ValueError::Period(text.into()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spaced = humantime::format_duration(self.0).to_string();
        f.write_str(&spaced.replace(' ', ""))
    }
}

written_as_text!(Period, "a duration such as \"90s\" or \"2h4m\"");
