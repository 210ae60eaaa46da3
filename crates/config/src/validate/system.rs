//! Validation of cores, table sizes and times.

use std::time::Duration;

use super::Check;
use crate::config::Timeouts;
use crate::diagnosis::Located;
use crate::limits::{MAX_NEIGHBOURS, MAX_SHARDS};
use crate::memory::{self, Bytes};
use crate::problem::Problem;
use crate::read::{Step, place};
use crate::schema;
use crate::value::{Period, Workers};

impl Check<'_> {
    /// Cores of the workers, and the workers of each part of packet processing.
    pub(super) fn cores(&mut self) -> (Vec<u16>, [Vec<u16>; 4]) {
        let (cores, stages) = match self.stages() {
            Some(staged) => staged,
            None => (self.workers(), Default::default()),
        };
        let [_, _, of_sessions, _] = &stages;
        self.shards(if of_sessions.is_empty() {
            cores.len()
        } else {
            of_sessions.len()
        });
        self.waiting();
        (cores, stages)
    }

    fn workers(&mut self) -> Vec<u16> {
        let at = place!["system", "workers"];
        let present = &self.machine.cores;
        let cores = match &self.document.system.workers {
            Workers::Count(count) => {
                let count = usize::from(*count);
                if count > present.len() {
                    self.report(
                        at,
                        Problem::TooManyWorkers {
                            workers: count,
                            cores: present.len(),
                        },
                    );
                }
                // If the machine has more cores than workers, the first core is reserved for the kernel and the control
                // plane.
                let spared = usize::from(count < present.len());
                present.iter().copied().skip(spared).take(count).collect()
            }
            Workers::Cores(cores) => {
                for (k, core) in cores.iter().enumerate() {
                    let at = place!["system", "workers", k];
                    if !present.contains(core) {
                        self.report(
                            at,
                            Problem::UnknownCore {
                                core: *core,
                                cores: present.clone(),
                            },
                        );
                    }
                    if cores.iter().take(k).any(|other| other == core) {
                        self.report(at, Problem::DuplicateCore(*core));
                    }
                }
                cores.clone()
            }
        };
        if cores.is_empty() && !present.is_empty() {
            self.report(at, Problem::NoWorkers);
        }
        cores
    }

    fn shards(&mut self, workers: usize) {
        let shards = self.document.system.shards();
        let at = place!["system", "shards"];
        if shards > MAX_SHARDS {
            self.in_range(at, "a number of shards", shards, 1..=MAX_SHARDS);
        } else if !shards.is_power_of_two() {
            self.report(at, Problem::ShardsNotPowerOfTwo(shards));
        } else if self.document.system.shards.is_some() && usize::from(shards) < workers {
            self.report(at, Problem::FewerShardsThanWorkers { shards, workers });
        }
    }

    /// Check the idle settings of workers, and the rings between workers.
    fn waiting(&mut self) {
        let system = &self.document.system;
        let (ring, idle) = (system.ring, system.idle.clone());
        self.in_range(place!["system", "ring"], "a number of packets", ring, 64..=65_536);
        let max = 1 << 30;
        self.in_range(
            place!["system", "idle", "spin"],
            "a number of rounds",
            idle.spin,
            0..=max,
        );
        self.in_range(
            place!["system", "idle", "pause"],
            "a number of rounds",
            idle.pause,
            0..=max,
        );
        let rebalance = &self.document.system.rebalance;
        let (busy, difference) = (rebalance.busy, rebalance.difference);
        let at = place!["system", "rebalance", "busy"];
        self.in_range(at, "a share in percent", busy, 0..=100);
        let at = place!["system", "rebalance", "difference"];
        self.in_range(at, "a share in percent", difference, 1..=100);
        let range = Period::microseconds(1)..=Period::milliseconds(10);
        self.in_range(place!["system", "idle", "sleep"], "a time", idle.sleep, range);
    }

    /// Check the capacities in relation to each other and to the available memory.
    pub(super) fn sizes(&mut self) {
        let document = self.document;
        let shards = u32::from(document.system.shards());
        // The index of a record together with its direction has 32 bits, which limits the number of records.
        let max = 1 << 30;
        for (family, capacity) in [("ipv4", document.sessions.ipv4), ("ipv6", document.sessions.ipv6)] {
            if capacity != 0 {
                self.in_range(
                    place!["sessions", family],
                    "a number of sessions",
                    capacity,
                    shards..=max,
                );
            }
        }
        self.neighbour_sizes();
        self.fragment_sizes();
        let control = &document.control;
        self.in_range(
            place!["control", "trace-limit"],
            "a number of packets",
            control.trace_limit,
            1..=1 << 20,
        );
        self.in_range(
            place!["control", "capture-limit"],
            "a number of packets",
            control.capture_limit,
            1..=1 << 22,
        );
        self.memory();
    }

    fn neighbour_sizes(&mut self) {
        let neighbours = &self.document.neighbours;
        self.in_range(
            place!["neighbours", "ipv4"],
            "a number of neighbours",
            neighbours.ipv4,
            1..=MAX_NEIGHBOURS,
        );
        self.in_range(
            place!["neighbours", "ipv6"],
            "a number of neighbours",
            neighbours.ipv6,
            1..=MAX_NEIGHBOURS,
        );
        let sum = neighbours.ipv4.saturating_add(neighbours.ipv6);
        if neighbours.ipv4.max(neighbours.ipv6) <= MAX_NEIGHBOURS {
            let description = "a sum of IPv4 and IPv6 neighbours";
            self.in_range(place!["neighbours"], description, sum, 0..=MAX_NEIGHBOURS);
        }
        self.in_range(
            place!["neighbours", "parked"],
            "a number of packets",
            neighbours.parked,
            0..=65_536,
        );
        self.in_range(
            place!["neighbours", "parked-each"],
            "a number of packets",
            neighbours.parked_each,
            0..=256,
        );
        self.in_range(
            place!["neighbours", "requests"],
            "a number of requests",
            neighbours.requests,
            1..=20,
        );
        let hour = Period::seconds(3_600);
        self.in_range(
            place!["neighbours", "reachable"],
            "a time",
            neighbours.reachable,
            Period::seconds(1)..=hour,
        );
        let tenth = Period::milliseconds(100);
        self.in_range(
            place!["neighbours", "retransmit"],
            "a time",
            neighbours.retransmit,
            tenth..=hour,
        );
    }

    fn fragment_sizes(&mut self) {
        let fragments = &self.document.fragments;
        self.in_range(
            place!["fragments", "packets"],
            "a number of packets",
            fragments.packets,
            1..=1 << 20,
        );
        self.in_range(
            place!["fragments", "parked"],
            "a number of fragments",
            fragments.parked,
            0..=65_536,
        );
        // The maximum is 60 s (RFC 8200, section 4.5).
        self.in_range(
            place!["fragments", "timeout"],
            "a time",
            fragments.timeout,
            Period::seconds(1)..=Period::seconds(60),
        );
    }

    fn memory(&mut self) {
        let mut tables = memory::tables(self.document, &self.machine.entry);
        // If there are more workers than cores, the size of the rings is not checked.
        let too_many = |located: &Located| matches!(located.problem, Problem::TooManyWorkers { .. });
        if self.found.iter().any(too_many) {
            tables.retain(|table| table.key != ["system", "ring"]);
        }
        let available = Bytes(self.machine.memory);
        let mut alone = false;
        let mut reported = Vec::new();
        for table in &tables {
            if table.bytes > available && !reported.contains(&table.key) {
                alone = true;
                reported.push(table.key);
                let each = (table.bytes.0 / table.entries.max(1)).max(1);
                self.report(
                    place![table.key[0], table.key[1]],
                    Problem::MemoryExceeded {
                        table: table.name,
                        entries: table.entries,
                        needed: table.bytes,
                        available,
                        fits: available.0 / each,
                    },
                );
            }
        }
        let needed = Bytes(
            tables
                .iter()
                .fold(0, |sum: u64, table| sum.saturating_add(table.bytes.0)),
        );
        if !alone && needed > available {
            self.report(
                place!["sessions"],
                Problem::MemoryExceededTogether { needed, available },
            );
        }
    }

    /// Check the limit of the watchdog.
    pub(super) fn watchdog(&mut self) {
        let range = Period::milliseconds(10)..=Period::seconds(60);
        let limit = self.document.system.watchdog.limit;
        self.in_range(place!["system", "watchdog", "limit"], "a limit", limit, range);
    }

    /// Timeouts with all defaults. Omitted timeouts have the values in `inherited`.
    pub(super) fn timeouts(
        &mut self,
        at: &[Step<'_>],
        written: &schema::Timeouts,
        inherited: Option<&Timeouts>,
    ) -> Timeouts {
        let mut timeouts = inherited.cloned().unwrap_or_default();
        let periods = [
            (
                "tcp-transitory-open",
                written.tcp_transitory_open,
                &mut timeouts.tcp_transitory_open,
                1,
                "a timer",
            ),
            (
                "tcp-transitory-close",
                written.tcp_transitory_close,
                &mut timeouts.tcp_transitory_close,
                1,
                "a timer",
            ),
            (
                "tcp-established",
                written.tcp_established,
                &mut timeouts.tcp_established,
                7_440,
                "RFC 5382, REQ-5",
            ),
            (
                "tcp-incoming-syn",
                written.tcp_incoming_syn,
                &mut timeouts.tcp_incoming_syn,
                6,
                "RFC 5382, REQ-4",
            ),
            ("udp", written.udp, &mut timeouts.udp, 120, "RFC 4787, REQ-5"),
            ("icmp", written.icmp, &mut timeouts.icmp, 60, "RFC 5508, REQ-2"),
            ("other", written.other, &mut timeouts.other, 1, "a timer"),
        ];
        for (key, period, timeout, min, standard) in periods {
            let Some(period) = period else { continue };
            self.timeout(&[at, place![key]].concat(), key, period, min, standard);
            *timeout = period.duration();
        }
        if let Some(ports) = &written.udp_ports {
            timeouts.udp_ports = ports
                .iter()
                .map(|(port, period)| (port.number(), period.duration()))
                .collect();
            if ports.len() > 8 {
                self.report(&[at, place!["udp-ports"]].concat(), Problem::TooManyPorts(ports.len()));
            }
            for (port, period) in ports {
                let key = port.to_string();
                // RFC 4787, REQ-5a: only well-known ports may have shorter timeouts.
                let min = if port.number() < 1024 { 1 } else { 120 };
                let at = [at, place!["udp-ports", &key]].concat();
                self.timeout(&at, "udp-ports", *period, min, "RFC 4787, REQ-5");
            }
        }
        if let Some(refresh) = written.inbound_refresh {
            timeouts.inbound_refresh = refresh;
        }
        timeouts
    }

    fn timeout(&mut self, at: &[Step<'_>], key: &'static str, period: Period, min: u64, standard: &'static str) {
        if period.duration() < Duration::from_secs(min) && min > 1 {
            let minimum = Period::seconds(min);
            self.report(
                at,
                Problem::TimeoutBelowMinimum {
                    description: key,
                    value: period,
                    minimum,
                    standard,
                },
            );
        } else {
            self.whole_seconds(at, key, period);
        }
    }
}
