//! Counters of a worker for inspection and for application identification.

use sluice_inspect::protocols::Anomaly;
use sluice_inspect::{Limit, Reason, Skipped};
use sluice_wire::named;

use super::declaration::{CounterKind, Label, LabelValues, NamedCounter, Unit, counters};
use super::{Counter, WorkerCounters};

counters! {
    /// Counters of one worker for inspection. `received = inspected + bypassed + dropped + waiting`.
    InspectionCounters of WorkerCounters.inspection labels ["worker"] names InspectionNames {}

    Total Packets received = "received", "packets for inspection: packets that were inspected, bypassed inspection, were dropped by \
         inspection, or wait for inspection; a parked packet counts once";
    Total Packets inspected = "inspected", "packets that were inspected and passed";
    Total Packets all_bypassed = "bypassed", "packets forwarded without inspection", WorkerCounters::all_bypassed;
    Total Packets bypassed by reason: Skipped = "bypassed-by-reason", "packets forwarded without inspection, by reason";
    Total Packets all_dropped = "dropped", "packets dropped by inspection", WorkerCounters::all_dropped_by_inspection;
    Total Packets dropped by reason: Reason = "dropped-by-reason", "packets dropped by inspection, by reason", |worker: &WorkerCounters, number| worker.dropped_by_inspection(number);
    Gauge Packets waiting = "waiting", "fragments that wait for the other fragments of their datagram";
    Total Bytes searched = "searched", "bytes searched for signatures";
    Total Packets urgent_cleared = "urgent-cleared", "TCP segments in which inspection cleared the urgent pointer";
    Total Flows bypassed_flows = "bypassed-flows", "flows that are no longer inspected, because they were clean or because of a \
         policy";
    Total Flows reopened = "reopened", "flows that switched to a newer generation of rules";
    Total Anomalies anomalies by anomaly: Anomaly = "anomalies", "protocol anomalies";
    Total Times limits by limit: Limit = "limits", "times that a limit was reached";
    Gauge Workers overloaded = "overloaded", "workers that are overloaded now";
    Total Times overloads = "overloads", "times that workers have been overloaded";
    Total Alerts alerts = "alerts", "alerts";
    Total Alerts alerts_lost = "alerts-lost", "alerts lost because the queue was full";
    Total Records records_queued = "records-queued", "records of inspected flows that workers have queued";
    Total Records records_lost = "records-lost", "records lost because a queue was full, too many transactions were unfinished, or writing failed";
}

counters! {
    /// Counters of one worker for application identification.
    IdentificationCounters of WorkerCounters.identification labels ["worker"] names IdentificationNames {
        /// Sessions by the number of their application; 0 for unknown applications.
        pub sessions: Box<[Counter]>,
    }

    Gauge Sessions identifying = "identifying", "sessions that are being identified";
    Total Sessions results by result: IdentificationOutcome = "results", "sessions by the result of the identification";
    Total Sessions sessions by application: Applications = "applications", "sessions by application", |worker: &WorkerCounters, number| worker.identification.sessions(number);
}

named! {
    /// Results of application identification.
    pub enum IdentificationOutcome {
        Opened "opened" "sessions for which identification started";
        Found "found" "sessions with an application identified from their packets";
        Guessed "guessed" "sessions with an application guessed from addresses and ports";
        Unknown "unknown" "sessions with an application that identification did not find";
        Refused "refused" "sessions without identification, because too many other sessions were being identified";
        ShortOfMemory "short-of-memory" "sessions of which identification stopped, because the memory of nDPI was used up";
        Moved "moved" "sessions of which identification ended, because their shard moved to another worker";
    }
}

/// Applications by nDPI's number. The library knows their names.
#[derive(Clone, Copy, Debug)]
pub enum Applications {}

impl super::declaration::LabelValues for Applications {
    /// Number of applications that can be counted. nDPI has fewer.
    const COUNT: usize = 512;

    fn describe(_: usize) -> Option<(&'static str, &'static str)> {
        None
    }
}

impl IdentificationCounters {
    /// Creates counters for all applications.
    pub fn new() -> Self {
        Self {
            sessions: (0..Applications::COUNT).map(|_| Counter::default()).collect(),
            ..Self::default()
        }
    }

    /// Number of sessions of an application.
    pub fn sessions(&self, number: usize) -> u64 {
        self.sessions.get(number).map_or(0, Counter::get)
    }

    /// Copies the counters of nDPI.
    pub fn copy(&self, counters: sluice_inspect::applications::ApplicationCounters) {
        for (result, value) in [
            (IdentificationOutcome::Opened, counters.opened),
            (IdentificationOutcome::Found, counters.found),
            (IdentificationOutcome::Guessed, counters.guessed),
            (IdentificationOutcome::Unknown, counters.unknown),
            (IdentificationOutcome::Refused, counters.refused),
            (IdentificationOutcome::ShortOfMemory, counters.out_of_memory),
        ] {
            self.results.set(result as usize, value);
        }
    }

    /// Counts a session by its application, or as a session of an unknown application.
    pub fn count_session(&self, number: u16) {
        let counter = self.sessions.get(usize::from(number)).or(self.sessions.first());
        counter.into_iter().for_each(|counter| counter.add(1));
    }
}

impl WorkerCounters {
    /// Counts packets that bypass inspection.
    #[inline(always)]
    pub fn bypass(&self, reason: Skipped, count: u64) {
        self.inspection.bypassed.add(reason as usize, count);
    }

    /// Counts a packet that bypasses inspection before it reaches the node `inspect`.
    pub fn bypass_before(&self, reason: Skipped) {
        self.inspection.received.add(1);
        self.bypass(reason, 1);
    }

    /// Number of packets that bypassed inspection, for all causes.
    pub fn all_bypassed(&self) -> u64 {
        self.inspection.bypassed.iter().map(Counter::get).sum()
    }

    /// Number of packets that inspection dropped for the reason with this number.
    fn dropped_by_inspection(&self, number: usize) -> u64 {
        let reason = Reason::ALL.get(number);
        reason.map_or(0, |&reason| self.drops(reason.into()))
    }

    /// Number of packets that inspection dropped.
    pub fn all_dropped_by_inspection(&self) -> u64 {
        (0..Reason::ALL.len())
            .map(|number| self.dropped_by_inspection(number))
            .sum()
    }
}
