//! What inspection found, and how it goes.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use sluice_config::api::{Alert, AlertRequest, InspectionStatus, Page, RefusedSignature};
use sluice_engine::counters::{Counter, WorkerCounters};
use sluice_engine::reason::Reason;

use super::{Refusal, Shared};
use crate::control::Control;
use crate::eve::{Decoder, Detect, Ips, Own, Statistics};

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
    let sum = |of| sum(&control, of);
    let [written, lost] = control
        .alerts
        .as_ref()
        .map(|alerts| alerts.counts())
        .unwrap_or_default();
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
        records: written,
        records_lost: lost + sum(|worker| &worker.records_lost),
    }))
}

fn sum(control: &Control, of: fn(&WorkerCounters) -> &Counter) -> u64 {
    control.counters.iter().map(|worker| of(worker).get()).sum()
}

/// How inspection goes, for a log of which so many lines were written and lost.
pub(crate) fn statistics(control: &Control, [written, lost]: [u64; 2]) -> Statistics {
    let sum = |of| sum(control, of);
    let reasons = Reason::all().filter(|reason| matches!(reason, Reason::Inspect(_)));
    let reasons = reasons.map(|reason| (reason.name(), crate::run::drops(control, reason)));
    let drop_reason: BTreeMap<_, _> = reasons.filter(|(_, count)| *count > 0).collect();
    Statistics {
        uptime: control.began.elapsed().as_secs(),
        decoder: Decoder {
            pkts: sum(|worker| &worker.inspected),
            bytes: sum(|worker| &worker.searched),
        },
        detect: Detect {
            alert: sum(|worker| &worker.alerts),
            alert_queue_overflow: sum(|worker| &worker.alerts_lost),
        },
        ips: Ips {
            blocked: drop_reason.values().sum(),
            drop_reason,
        },
        inspection: Own {
            uninspected: sum(|worker| &worker.uninspected),
            left: sum(|worker| &worker.left),
            records: written,
            records_lost: lost + sum(|worker| &worker.records_lost),
        },
    }
}

fn nothing() -> Refusal {
    Refusal::Wrong("nothing is inspected: the configuration has no [inspection]".into())
}
