//! Alerts, records and statistics of inspection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sluice_config::api::{
    AlertRequest, InspectionReason, InspectionStatus, Page, RefusedSignature, SearchMade, operation,
};
use sluice_engine::packet::counters::{Counter, WorkerCounters};
use sluice_engine::packet::reason::Reason;
use sluice_inspect::protocols::Anomaly;
use sluice_inspect::{Limit, Skipped};

use super::{Refusal, Serve};
use crate::control::Control;
use crate::eve::{Decoder, Detect, Ips, Own, Statistics};
use crate::lowering::RefusedRule;

impl Serve for operation::Alerts {
    async fn serve(control: Arc<Control>, request: AlertRequest) -> Result<Self::Answer, Refusal> {
        match &control.alerts {
            Some(alerts) => {
                control.collect_alerts();
                Ok(Page::whole(alerts.last(request.last as usize)))
            }
            None => Err(nothing()),
        }
    }
}

impl Serve for operation::Inspection {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        if control.alerts.is_none() {
            return Err(nothing());
        }
        let sum = |of| sum(&control, of);
        let [written, lost] = control
            .alerts
            .as_ref()
            .map(|alerts| alerts.counts())
            .unwrap_or_default();
        let signatures = control.signatures();
        let dropped_by_reason = by_reason(Reason::all().filter_map(|reason| match reason {
            Reason::Inspect(why) => Some((why.name(), why.help(), crate::run::drops(&control, reason))),
            _ => None,
        }));
        let bypassed_by_reason = by_reason(Skipped::ALL.iter().map(|&why| {
            let counters = control.counters.iter();
            let packets = counters.map(|worker| worker.bypassed[why as usize].get()).sum();
            (why.name(), why.help(), packets)
        }));
        let running = control.plane().snapshot().inspection.clone();
        let [uncounted, unnoted] = running.map_or([0; 2], |running| {
            let rates = &running.rates;
            let notes = rates.xbits_full.load(Relaxed) + running.rules.values_lost();
            [rates.full.load(Relaxed), notes]
        });
        let all = |reasons: &[InspectionReason]| reasons.iter().map(|reason| reason.packets).sum();
        Ok(InspectionStatus {
            signatures: signatures.loaded as u64,
            refused: signatures.refused.iter().map(refused_signature).collect(),
            search_bytes: signatures.search_bytes as u64,
            search: SearchMade {
                loaded: signatures.made.compiled.is_none(),
                why: signatures.made.compiled.clone(),
                milliseconds: signatures.made.took.as_millis() as u64,
                compiling: control.compiler.progress().get().map(|(done, total)| [done, total]),
            },
            // The counter of a single worker may fall below zero: one worker counts a packet as waiting, and another
            // worker inspects it. Wrapping addition still yields the correct sum.
            received: (control.counters.iter()).fold(0, |all, worker| all.wrapping_add(worker.to_inspect.get())),
            inspected: sum(|worker| &worker.inspected),
            bypassed: all(&bypassed_by_reason),
            bypassed_by_reason,
            dropped: all(&dropped_by_reason),
            dropped_by_reason,
            waiting: sum(|worker| &worker.inspection_waiting),
            searched: sum(|worker| &worker.searched),
            urgent_cleared: sum(|worker| &worker.urgent_cleared),
            bypassed_flows: sum(|worker| &worker.left),
            reopened: sum(|worker| &worker.reopened),
            anomalies: by_reason(Anomaly::ALL.iter().map(|&anomaly| {
                let counters = control.counters.iter();
                let count = counters.map(|worker| worker.anomalies.get(anomaly as usize)).sum();
                (anomaly.name(), anomaly.help(), count)
            })),
            limits: by_reason(Limit::ALL.iter().map(|&limit| {
                let counters = control.counters.iter();
                let count = counters.map(|worker| worker.limits.get(limit as usize)).sum();
                (limit.name(), limit.help(), count)
            })),
            overloaded: sum(|worker| &worker.overloaded),
            overloads: sum(|worker| &worker.overloads),
            uncounted,
            unrecorded: unnoted,
            alerts: sum(|worker| &worker.alerts),
            alerts_lost: sum(|worker| &worker.alerts_lost),
            records: written,
            records_lost: lost + sum(|worker| &worker.records_lost),
            records_failed: control
                .alerts
                .as_ref()
                .map(|alerts| alerts.failures())
                .unwrap_or_default(),
        })
    }
}

/// A rejected rule as the API shows it.
pub(super) fn refused_signature(refused: &RefusedRule) -> RefusedSignature {
    RefusedSignature {
        file: refused.file.display().to_string(),
        line: refused.line,
        signature: refused.id.map(|id| id.signature),
        why: refused.why.clone(),
    }
}

fn sum(control: &Control, of: fn(&WorkerCounters) -> &Counter) -> u64 {
    control.counters.iter().map(|worker| of(worker).get()).sum()
}

/// Statistics of inspection, with the number of log lines written and lost.
pub(crate) fn statistics(counters: &[Arc<WorkerCounters>], uptime: Duration, [written, lost]: [u64; 2]) -> Statistics {
    let sum = |of: fn(&WorkerCounters) -> &Counter| -> u64 { counters.iter().map(|worker| of(worker).get()).sum() };
    let reasons = Reason::all().filter(|reason| matches!(reason, Reason::Inspect(_)));
    let reasons = reasons.map(|reason| (reason.name(), drops(counters, reason)));
    let drop_reason: BTreeMap<_, _> = reasons.filter(|(_, count)| *count > 0).collect();
    Statistics {
        uptime: uptime.as_secs(),
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
            uninspected: counters.iter().map(|worker| worker.all_bypassed()).sum(),
            left: sum(|worker| &worker.left),
            records: written,
            records_lost: lost + sum(|worker| &worker.records_lost),
        },
    }
}

fn drops(counters: &[Arc<WorkerCounters>], reason: Reason) -> u64 {
    let interfaces = counters.iter().flat_map(|worker| worker.interfaces.iter());
    interfaces.map(|interface| interface.drops(reason)).sum()
}

/// Reasons with a nonzero count.
fn by_reason(reasons: impl Iterator<Item = (&'static str, &'static str, u64)>) -> Vec<InspectionReason> {
    reasons
        .filter(|(.., packets)| *packets > 0)
        .map(|(reason, help, packets)| InspectionReason {
            reason: reason.into(),
            help: help.into(),
            packets,
        })
        .collect()
}

fn nothing() -> Refusal {
    Refusal::Wrong("nothing is inspected: the configuration has no [inspection]".into())
}
