//! Statistics of application identification.

use std::cmp::Reverse;
use std::sync::Arc;

use sluice_config::api::{ApplicationResults, ApplicationSessions, ApplicationsStatus, operation};
use sluice_engine::packet::counters::{Counter, OUTCOMES, WorkerCounters};

use super::{Refusal, Serve};
use crate::control::Control;

impl Serve for operation::Applications {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let Some(seeking) = control.plane().snapshot().applications.clone() else {
            return Err(not_enabled());
        };
        let sum = |of: &dyn Fn(&WorkerCounters) -> Option<&Counter>| -> u64 {
            let counters = control.counters.iter().filter_map(|worker| of(worker));
            counters.map(Counter::get).sum()
        };
        let results = OUTCOMES
            .iter()
            .enumerate()
            .map(|(place, (result, help))| ApplicationResults {
                result: (*result).into(),
                help: (*help).into(),
                sessions: sum(&|worker| worker.applications.get(place)),
            });
        let moved = ApplicationResults {
            result: "moved".into(),
            help: "sessions of which identification ended, because their shard moved to another worker".into(),
            sessions: sum(&|worker| Some(&worker.applications_moved)),
        };
        let mut applications: Vec<_> = (seeking.names.iter())
            .filter(|(_, name)| !name.is_empty())
            .map(|(number, name)| ApplicationSessions {
                application: name.into(),
                sessions: sum(&|worker| worker.recognised.get(usize::from(number))),
            })
            .collect();
        applications.sort_by_key(|application| Reverse(application.sessions));
        Ok(ApplicationsStatus {
            identifying: sum(&|worker| Some(&worker.applications_sought)),
            results: results.chain([moved]).collect(),
            applications,
        })
    }
}

/// Error of a request for applications while application identification is not configured.
pub(super) fn not_enabled() -> Refusal {
    Refusal::Wrong("application identification is not enabled: the configuration has no [applications]".into())
}
