//! API types of application identification.

use serde::{Deserialize, Serialize};

use super::CounterValues;

/// Status of application identification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationsStatus {
    /// Counters over all workers, except those by result or application.
    #[serde(flatten)]
    pub counters: CounterValues,
    /// Results for sessions that were examined.
    pub results: Vec<ApplicationResults>,
    /// All applications, ordered by the number of sessions since the start.
    pub applications: Vec<ApplicationSessions>,
}

/// Number of sessions with a result of the identification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationResults {
    /// Name of the result.
    pub result: String,
    /// Explanation of the result of an identification.
    pub help: String,
    /// Number of sessions with this result.
    pub sessions: u64,
}

/// Number of sessions of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationSessions {
    /// nDPI's name of the application. `Unknown` if the application could not be identified.
    pub application: String,
    /// Number of sessions.
    pub sessions: u64,
}
