//! Reload of inspection rules: each `apply` reads the rule files, and compiles the rules if they have changed.

use std::sync::Arc;

use sluice_config::api::{AppliedRules, ApplyAnswer, ApplyRequest};
use sluice_config::{Change, Config, Kind, place};
use sluice_engine::features::inspection::InspectionPolicy;

use super::inspection::refused_signature;
use crate::control::Control;
use crate::lowering::{self, RefusedRule, SignatureError, SignatureReport};

/// Inspection policy of a new configuration, with the result of loading its rules.
pub(super) struct Renewed {
    pub inspection: Arc<InspectionPolicy>,
    pub report: SignatureReport,
}

/// Why the inspection rules can't be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenewalError {
    /// The rules can't be read or compiled.
    #[error(transparent)]
    Signatures(#[from] SignatureError),
    /// The thread that read the rules panicked.
    #[error("loading the rules failed because of a bug: {0}")]
    Fault(#[from] tokio::task::JoinError),
}

impl RenewalError {
    /// The response that rejects the configuration. The running rules stay active.
    pub fn answer(&self, request: &ApplyRequest) -> ApplyAnswer {
        tracing::warn!(
            "{} is refused, and the present inspection rules stay active: {self}",
            request.name
        );
        let fault = match self {
            Self::Signatures(error) => error.fault(),
            Self::Fault(_) => sluice_config::Fault {
                key: vec!["inspection".into()],
                description: self.to_string(),
                hint: None,
            },
        };
        ApplyAnswer::Refused {
            findings: place(&request.name, &request.text, vec![fault]).findings(),
        }
    }
}

impl Renewed {
    /// Read the rules of a configuration, and compile the rules if they differ from the running rules. Other requests
    /// are served during the compilation. Returns `None` if inspection is not configured.
    pub async fn of(control: &Control, config: &Config, is_dry: bool) -> Result<Option<Self>, RenewalError> {
        let running = control.plane().snapshot().inspection.clone();
        let Some(running) = running.filter(|_| config.inspection.is_some()) else {
            return Ok(None);
        };
        let _one_at_a_time = control.compiling.lock().await;
        let (config, before) = (config.clone(), control.signatures());
        let compiler = control.compiler.following(&config, !is_dry);
        let other = move || lowering::other_inspection(&config, (&running, &before), &compiler);
        let made = tokio::task::spawn_blocking(other).await??;
        Ok(made.map(|(inspection, report)| Self { inspection, report }))
    }

    /// Returns a report if the accepted or the rejected rules differ from those of the running configuration. If only
    /// the content of a rule file has changed, the change is added to `changes`.
    pub fn applied(&self, control: &Control, changes: &mut Vec<Change>) -> Option<AppliedRules> {
        let running = control.plane().snapshot().inspection.clone()?;
        let before = control.signatures();
        if Arc::ptr_eq(&running.rules, &self.inspection.rules) && before.refused == self.report.refused {
            return None;
        }
        if !changes.iter().any(|change| change.key.starts_with("inspection.")) {
            // The configuration is unchanged, but the content of a rule file has changed.
            changes.push(Change {
                key: "inspection.signatures".into(),
                kind: Kind::Changed,
                fixed: None,
            });
        }
        let is_new = |refused: &&RefusedRule| {
            let same = |known: &RefusedRule| (known.id, &known.why) == (refused.id, &refused.why);
            !before.refused.iter().any(same)
        };
        Some(AppliedRules {
            said: self.report.to_string(),
            refused: self
                .report
                .refused
                .iter()
                .filter(is_new)
                .map(refused_signature)
                .collect(),
        })
    }
}
