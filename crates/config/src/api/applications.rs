//! Status of application identification.

use serde::{Deserialize, Serialize};

/// Status of application identification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationsStatus {
    /// Sessions that are looked at now.
    pub identifying: u64,
    /// What became of those that were.
    pub results: Vec<ApplicationResults>,
    /// All applications, those with the most sessions since the start first.
    pub applications: Vec<ApplicationSessions>,
}

/// Number of sessions with a result of the identification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationResults {
    /// Its name.
    pub result: String,
    /// What it means.
    pub help: String,
    /// Sessions.
    pub sessions: u64,
}

/// Sessions of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplicationSessions {
    /// Application by nDPI's name; `Unknown` if it could not be identified.
    pub application: String,
    /// Sessions.
    pub sessions: u64,
}
