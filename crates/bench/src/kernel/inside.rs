//! The half inside the namespaces: tries the cases one after the other and tells the rows.

use std::collections::BTreeMap;
use std::io::{BufRead, StdinLock, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::KernelArguments;
use super::command::{CommandError, run as command};
use super::gateway::Case;
use super::machine::Cores;
use super::outside::KernelError;
use super::traffic::{Flows, OPENED};
use super::trial::{Sample, Trial, TrialError};
use crate::rows::{Figure, Row};

/// The half outside, as this one sees it: one line of JSON each way.
#[derive(Debug)]
pub struct Outside<'a> {
    answers: StdinLock<'a>,
}

impl Outside<'_> {
    fn tell(&self, message: &Value) {
        let mut output = std::io::stdout();
        // Nobody reads any more: the process outside is gone, and this one follows.
        let _ = writeln!(output, "{message}").and_then(|()| output.flush());
    }

    /// Say something to who started the bench.
    pub fn note(&self, text: &str) {
        self.tell(&json!({ "note": text }));
    }

    /// Pin the kernel threads whose names begin with `thread` to a core.
    pub fn pin(&mut self, thread: &str, core: usize) {
        self.tell(&json!({"pin": thread, "core": core}));
        let mut answer = String::new();
        let count = self
            .answers
            .read_line(&mut answer)
            .ok()
            .and_then(|_| answer.trim().parse().ok());
        if count.unwrap_or(0) == 0 {
            self.note(&format!(
                "no kernel thread {thread}… could be pinned: its time may fall on either core"
            ));
        }
    }
}

/// Samples of one row.
type Samples = Vec<Sample>;

/// Try everything that the arguments ask for.
pub fn run(arguments: &KernelArguments, quick: bool) -> Result<(), Box<dyn std::error::Error>> {
    let cores = Cores::choose().ok_or(KernelError::OneCore)?;
    furnish()?;
    let mut outside = Outside {
        answers: std::io::stdin().lock(),
    };
    let mut bench = Bench {
        arguments,
        cores,
        forward: BTreeMap::new(),
    };
    for trial in trials(arguments, quick) {
        match bench.samples(&trial, &mut outside) {
            Ok(samples) => {
                let row = bench.row(&trial, &samples);
                outside.tell(&json!({ "row": row.json() }));
            }
            Err(error) => outside.note(&format!("{}: {error}", describe(&trial))),
        }
    }
    Ok(())
}

/// A private /run with place for the names of namespaces, and a loopback.
fn furnish() -> Result<(), CommandError> {
    command("mount -t tmpfs -o mode=755 sluice-bench /run")?;
    command("mkdir -p /run/netns")?;
    command("ip link set lo up").map(drop)
}

fn describe(trial: &Trial) -> String {
    format!(
        "{} with {} rules, {} flows, {} bytes",
        trial.case.name(),
        trial.rules,
        trial.flows.name(),
        trial.bytes
    )
}

/// All trials, the ones that others are compared with first.
fn trials(arguments: &KernelArguments, quick: bool) -> Vec<Trial> {
    let wanted = |case: &Case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name());
    let mut trials = Vec::new();
    for &bytes in &arguments.bytes {
        for case in Case::ALL.into_iter().filter(wanted) {
            let rules: &[u32] = if case.translates() { &arguments.rules } else { &[0] };
            for &rules in rules {
                for flows in [Flows::Established(OPENED), Flows::New] {
                    trials.push(Trial {
                        case,
                        rules,
                        flows,
                        bytes,
                        rate: arguments.rate,
                        windows: arguments.runs(quick),
                        window: arguments.window(quick),
                        xdp: arguments.xdp_generator,
                        napi_thread: arguments.napi_thread,
                    });
                }
            }
        }
    }
    trials
}

/// About how long all trials take.
pub fn estimate(arguments: &KernelArguments, quick: bool) -> Duration {
    let trial = |trial: Trial| {
        let topologies = if trial.flows == Flows::New { trial.windows } else { 1 };
        SET_UP * topologies as u32 + trial.window * trial.windows as u32
    };
    trials(arguments, quick).into_iter().map(trial).sum()
}

/// About how long a topology takes to come and go.
const SET_UP: Duration = Duration::from_millis(2_500);

struct Bench<'a> {
    arguments: &'a KernelArguments,
    cores: Cores,
    /// Median time of the core per packet when Linux forwards, by bytes and flows.
    forward: BTreeMap<(usize, &'static str), f64>,
}

impl Bench<'_> {
    /// Established flows are measured in one topology, window after window. New flows get a topology per window,
    /// because the tables of sessions only fill.
    fn samples(&mut self, trial: &Trial, outside: &mut Outside<'_>) -> Result<Samples, TrialError> {
        let program = self.arguments.program();
        if trial.flows != Flows::New {
            return trial.run(self.cores, &program, outside);
        }
        let mut samples = Samples::new();
        for _ in 0..trial.windows {
            let one = Trial { windows: 1, ..*trial };
            samples.extend(one.run(self.cores, &program, outside)?);
        }
        Ok(samples)
    }

    fn row(&mut self, trial: &Trial, samples: &Samples) -> Row {
        let figures = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
        let cpu = figures(|sample| sample.cpu_ns_per_packet);
        let mut limits: Vec<_> = samples.iter().map(|sample| sample.limit).collect();
        limits.sort();
        let limit = limits.get(limits.len() / 2).map_or("", |limit| limit.name());
        let key = (trial.bytes, trial.flows.name());
        if trial.case == Case::LinuxForward {
            self.forward.insert(key, Figure::of(&cpu).median);
        }
        let row = Row::new(trial.case.name())
            .key("rules", trial.rules)
            .key("flows", trial.flows.name())
            .key("bytes", trial.bytes)
            .key("direction", "up")
            .key("limited_by", limit)
            .figure("packets_per_s", &figures(|sample| sample.packets_per_s))
            .figure("offered_per_s", &figures(|sample| sample.offered_per_s))
            .figure("busy_share", &figures(|sample| sample.busy_share))
            .figure("cpu_ns_per_packet", &cpu)
            .figure("both_ns_per_packet", &figures(|sample| sample.both_ns_per_packet));
        let own: Vec<f64> = samples.iter().filter_map(|sample| sample.nat_ns_per_packet).collect();
        match (trial.case.is_sluice(), self.forward.get(&key)) {
            _ if !trial.case.translates() => row,
            (true, _) if own.is_empty() => row,
            (true, _) => row.figure("nat_ns_per_packet", &own),
            (false, Some(forward)) => {
                let beyond: Vec<f64> = cpu.iter().map(|cpu| cpu - forward).collect();
                row.figure("nat_ns_per_packet", &beyond)
            }
            (false, None) => row,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trial::Limit;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KernelArguments,
    }

    fn bench(arguments: &KernelArguments) -> Bench<'_> {
        Bench {
            arguments,
            cores: Cores { traffic: 0, gateway: 1 },
            forward: BTreeMap::new(),
        }
    }

    fn sample(cpu_ns_per_packet: f64, nat_ns_per_packet: Option<f64>) -> Sample {
        Sample {
            packets_per_s: 1e9 / cpu_ns_per_packet,
            offered_per_s: 1e6,
            busy_share: 1.0,
            cpu_ns_per_packet,
            both_ns_per_packet: 2.0 * cpu_ns_per_packet,
            nat_ns_per_packet,
            limit: Limit::Gateway,
        }
    }

    #[test]
    fn trials_cover_cases_rules_and_flows() {
        let line = Line::parse_from(["kernel"]);
        let trials = trials(&line.arguments, true);
        assert_eq!((3 + 4 * 3) * 2, trials.len());
        assert_eq!(Duration::from_millis(700), trials[0].window);
        assert!(estimate(&line.arguments, true) > trials[0].window * 90);
        let first = |case| trials.iter().position(|trial| trial.case == case);
        assert!(
            first(Case::LinuxForward) < first(Case::Iptables),
            "what others are compared with comes first"
        );
    }

    #[test]
    fn trials_are_those_that_are_asked_for() {
        let line = Line::parse_from([
            "kernel",
            "--cases",
            "sluice,iptables",
            "--rules",
            "7",
            "--bytes",
            "64,512",
        ]);
        let trials = trials(&line.arguments, true);
        assert_eq!(8, trials.len());
        assert!(trials.iter().all(|trial| trial.rules == 7));
    }

    #[test]
    fn translation_of_linux_is_what_it_takes_beyond_forwarding() {
        let line = Line::parse_from(["kernel"]);
        let mut bench = bench(&line.arguments);
        let mut trial = trials(&line.arguments, true)[0];
        trial.case = Case::LinuxForward;
        assert_eq!(
            None,
            bench
                .row(&trial, &vec![sample(1_000.0, None)])
                .median("nat_ns_per_packet")
        );
        trial.case = Case::Iptables;
        let row = bench.row(&trial, &vec![sample(1_500.0, None)]);
        assert_eq!(Some(500.0), row.median("nat_ns_per_packet"));
        trial.case = Case::Sluice;
        let row = bench.row(&trial, &vec![sample(900.0, Some(33.0)), sample(900.0, None)]);
        assert_eq!(Some(33.0), row.median("nat_ns_per_packet"));
        assert_eq!("gateway", row.text_of("limited_by"));
    }
}
