//! Statistics of application identification.

use std::cmp::Reverse;
use std::sync::Arc;

use sluice_config::api::{ApplicationResults, ApplicationSessions, ApplicationsStatus, operation};
use sluice_engine::packet::counters::IdentificationCounters;

use super::{Refusal, Serve};
use crate::control::Control;
use crate::counters;

impl Serve for operation::Applications {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let Some(seeking) = control.plane().snapshot().applications.clone() else {
            return Err(not_enabled());
        };
        let workers = || control.counters.iter().map(Arc::as_ref);
        let named = IdentificationCounters::NAMED;
        let (by_label, single): (Vec<_>, Vec<_>) = named.iter().partition(|counter| counter.label.is_some());
        let results = by_label.iter().flat_map(|counter| counter.by_label(workers()));
        let results = results.map(|(result, help, sessions)| ApplicationResults {
            result: result.into(),
            help: help.into(),
            sessions,
        });
        let mut applications: Vec<_> = (seeking.names.iter())
            .filter(|(_, name)| !name.is_empty())
            .map(|(number, name)| ApplicationSessions {
                application: name.into(),
                sessions: workers()
                    .map(|worker| worker.identification.sessions(usize::from(number)))
                    .sum(),
            })
            .collect();
        applications.sort_by_key(|application| Reverse(application.sessions));
        Ok(ApplicationsStatus {
            counters: counters::summed(single, &control.counters),
            results: results.collect(),
            applications,
        })
    }
}

/// Error of a request for applications while application identification is not configured.
pub(super) fn not_enabled() -> Refusal {
    Refusal::Wrong("application identification is not enabled: the configuration has no [applications]".into())
}
