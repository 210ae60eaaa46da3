//! What is found out of applications.

use serde::{Deserialize, Serialize};

/// How looking for applications goes.
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

/// What became of some sessions.
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
    /// Its name by nDPI; `Unknown` where it was looked for in vain.
    pub application: String,
    /// Sessions.
    pub sessions: u64,
}
