//! What inspection found, and how it goes.

use axum::Json;
use axum::extract::{Query, State};
use sluice_config::api::{Alert, AlertRequest, InspectionStatus, Page, RefusedSignature};
use sluice_engine::counters::{Counter, WorkerCounters};
use sluice_engine::reason::Reason;

use super::{Refusal, Shared};

/// `GET /v1/alerts`
pub(super) async fn alerts(
    State(control): Shared,
    Query(request): Query<AlertRequest>,
) -> Result<Json<Page<Alert>>, Refusal> {
    match &control.alerts {
        Some(alerts) => {
            control.collect_alerts();
            Ok(Json(Page::whole(alerts.last(request.last as usize))))
        }
        None => Err(nothing()),
    }
}

/// `GET /v1/inspection`
pub(super) async fn status(State(control): Shared) -> Result<Json<InspectionStatus>, Refusal> {
    if control.alerts.is_none() {
        return Err(nothing());
    }
    let sum = |of: fn(&WorkerCounters) -> &Counter| control.counters.iter().map(|worker| of(worker).get()).sum();
    let signatures = &control.signatures;
    let dropped = Reason::all().filter(|reason| matches!(reason, Reason::Inspect(_)));
    Ok(Json(InspectionStatus {
        signatures: signatures.loaded as u64,
        refused: signatures
            .refused
            .iter()
            .map(|refused| RefusedSignature {
                file: refused.file.display().to_string(),
                line: refused.line,
                signature: refused.id.map(|id| id.signature),
                why: refused.why.clone(),
            })
            .collect(),
        search_bytes: signatures.search_bytes as u64,
        inspected: sum(|worker| &worker.inspected),
        searched: sum(|worker| &worker.searched),
        uninspected: sum(|worker| &worker.uninspected),
        left: sum(|worker| &worker.left),
        dropped: dropped.map(|reason| crate::run::drops(&control, reason)).sum(),
        alerts: sum(|worker| &worker.alerts),
        alerts_lost: sum(|worker| &worker.alerts_lost),
    }))
}

fn nothing() -> Refusal {
    Refusal::Wrong("nothing is inspected: the configuration has no [inspection]".into())
}
