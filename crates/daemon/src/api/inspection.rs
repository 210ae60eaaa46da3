//! Alerts, records and statistics of inspection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sluice_config::api::{
    AlertRequest, CounterValue, CounterValues, InspectionStatus, Page, RefusedSignature, SearchMade, operation,
};
use sluice_engine::packet::counters::{Counter, InspectionCounters, WorkerCounters};
use sluice_engine::packet::reason::Reason;

use super::{Refusal, Serve};
use crate::control::Control;
use crate::counters::{self, InspectionServiceCounters};
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
        let signatures = control.signatures();
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
            counters: counts(&control),
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

/// The counters of the workers, and those of the control plane. `records-lost` includes lines that the writer of EVE lost.
fn counts(control: &Control) -> CounterValues {
    let running = control.plane().snapshot().inspection.clone();
    let [uncounted, unrecorded] = running.map_or([0; 2], |running| {
        let rates = &running.rates;
        let notes = rates.xbits_full.load(Relaxed) + running.rules.values_lost();
        [rates.full.load(Relaxed), notes]
    });
    let alerts = control.alerts.as_ref();
    let [records, lost] = alerts.map(|alerts| alerts.counts()).unwrap_or_default();
    let own = InspectionServiceCounters {
        uncounted,
        unrecorded,
        records,
        records_failed: alerts.map(|alerts| alerts.failures()).unwrap_or_default(),
    };
    let mut counts = counters::summed(InspectionCounters::NAMED, &control.counters);
    for (name, count) in &mut counts.0 {
        if let CounterValue::Single(count) = count
            && *name == InspectionCounters::NAMES.records_lost
        {
            *count += lost;
        }
    }
    let own = InspectionServiceCounters::NAMED
        .iter()
        .map(|counter| (counter.name.into(), CounterValue::Single((counter.read)(&own, 0))));
    counts.0.extend(own);
    counts
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
            pkts: sum(|worker| &worker.inspection.inspected),
            bytes: sum(|worker| &worker.inspection.searched),
        },
        detect: Detect {
            alert: sum(|worker| &worker.inspection.alerts),
            alert_queue_overflow: sum(|worker| &worker.inspection.alerts_lost),
        },
        ips: Ips {
            blocked: drop_reason.values().sum(),
            drop_reason,
        },
        inspection: Own {
            uninspected: counters.iter().map(|worker| worker.all_bypassed()).sum(),
            left: sum(|worker| &worker.inspection.bypassed_flows),
            records: written,
            records_lost: lost + sum(|worker| &worker.inspection.records_lost),
        },
    }
}

fn drops(counters: &[Arc<WorkerCounters>], reason: Reason) -> u64 {
    let interfaces = counters.iter().flat_map(|worker| worker.interfaces.iter());
    interfaces.map(|interface| interface.drops(reason)).sum()
}

fn nothing() -> Refusal {
    Refusal::Wrong("nothing is inspected: the configuration has no [inspection]".into())
}
