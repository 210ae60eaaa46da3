//! The part of the benchmark inside the namespaces: runs the trials in sequence and reports the rows.

use std::collections::BTreeMap;
use std::io::{BufRead, StdinLock};

use serde_json::{Value, json};

use super::KernelArguments;
use super::command::run as command;
use super::gateway::Case;
use super::traffic::{Direction, Flows, Hits, Receiver};
use super::trial::{Sample, Trial};
use super::trials::{describe, trials};
use crate::daemon::program;
use crate::rows::{Failure, Figure, Named, Row};

/// Connection to the process outside the namespaces: one JSON message per line.
#[derive(Debug)]
pub struct Outside<'a> {
    answers: StdinLock<'a>,
}

impl Outside<'_> {
    /// Connection to the parent process.
    pub fn of_this() -> Self {
        Self {
            answers: std::io::stdin().lock(),
        }
    }

    pub fn row(&self, row: &Row) {
        self.tell(&json!({ "row": row.json() }));
    }

    fn tell(&self, message: &Value) {
        crate::process::answer(message);
    }

    /// Sends a message, which the process outside prints for the user.
    pub fn note(&self, text: &str) {
        self.tell(&json!({ "note": text }));
    }

    /// Pins kernel threads whose names start with `thread` to a core.
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

type Samples = Vec<Sample>;

/// Run all trials that the arguments select.
pub fn run(arguments: &KernelArguments, quick: bool) -> Result<(), Box<dyn std::error::Error>> {
    for &together in &arguments.together {
        arguments.cores(together)?;
    }
    furnish()?;
    let mut outside = Outside::of_this();
    let mut bench = Bench {
        arguments,
        forward: BTreeMap::new(),
        forwarded: BTreeMap::new(),
        iptables: BTreeMap::new(),
    };
    for trial in trials(arguments, quick) {
        match bench.samples(&trial, &mut outside) {
            Ok(samples) => {
                outside.row(&bench.row(&trial, &samples));
            }
            Err(error) => outside.note(&format!("{}: {error}", describe(&trial))),
        }
    }
    Ok(())
}

/// Mounts a private /run, where the names of namespaces are stored, and sets the loopback interface up.
pub fn furnish() -> Result<(), Failure> {
    command("mount -t tmpfs -o mode=755 sluice-bench /run")?;
    command("mkdir -p /run/netns")?;
    command("ip link set lo up").map(drop)
}
struct Bench<'a> {
    arguments: &'a KernelArguments,
    /// Median CPU time per packet of plain forwarding by Linux, by traffic and receiver.
    forward: BTreeMap<(Kind, Receiver), f64>,
    /// Median packet rate of plain forwarding by Linux, by traffic, with the faster receiver.
    forwarded: BTreeMap<Kind, f64>,
    /// Median packet rate of iptables, and translation time per packet (0 if unknown), by number of rules, hits and
    /// traffic, with the faster receiver.
    iptables: BTreeMap<(u32, Hits, Kind), (f64, f64)>,
}

/// Traffic and number of cores that must be equal for two rows to be compared.
type Kind = (usize, usize, &'static str, Direction);

fn kind(trial: &Trial) -> Kind {
    (trial.together, trial.bytes, trial.flows.name(), trial.direction)
}

impl Bench<'_> {
    /// Established flows are measured in one topology, one window after another. New flows get a new topology for each
    /// window, because the session tables would otherwise fill up.
    fn samples(&mut self, trial: &Trial, outside: &mut Outside<'_>) -> Result<Samples, Failure> {
        let (program, cores) = (
            program(self.arguments.sluice.as_ref()),
            self.arguments.cores(trial.together)?,
        );
        if trial.flows != Flows::New {
            return trial.run(&cores, &program, outside);
        }
        let mut samples = Samples::new();
        for _ in 0..trial.windows {
            let one = Trial { windows: 1, ..*trial };
            samples.extend(one.run(&cores, &program, outside)?);
        }
        Ok(samples)
    }

    fn row(&mut self, trial: &Trial, samples: &Samples) -> Row {
        let figures = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
        let cpu = figures(|sample| sample.cpu_ns_per_packet);
        let mut limits: Vec<_> = samples.iter().map(|sample| sample.limit).collect();
        limits.sort();
        let limit = limits
            .get(limits.len() / 2)
            .map(|limit| limit.name())
            .unwrap_or_default();
        let key = (kind(trial), trial.receiver);
        let rates = figures(|sample| sample.packets_per_s);
        if trial.case == Case::LinuxForward {
            self.forward.insert(key, Figure::of(&cpu).median);
            let best = self.forwarded.entry(key.0).or_default();
            *best = best.max(Figure::of(&rates).median);
        }
        let nat: Vec<f64> = match (trial.case.is_sluice(), self.forward.get(&key)) {
            _ if !trial.case.translates() => Vec::new(),
            (true, _) => samples.iter().filter_map(|sample| sample.nat_ns_per_packet).collect(),
            (false, Some(forward)) => cpu.iter().map(|cpu| cpu - forward).collect(),
            (false, None) => Vec::new(),
        };
        let mut row = Row::new(trial.case.name())
            .key("rules", trial.rules)
            .key("hits", trial.hits.name())
            .key("flows", trial.flows.name())
            .key("bytes", trial.bytes)
            .key("direction", trial.direction.name())
            .key("site", trial.site.name())
            .key("receiver", trial.receiver.name())
            .key("limited_by", limit)
            .figure("packets_per_s", &rates)
            .figure("offered_per_s", &figures(|sample| sample.offered_per_s))
            .figure("busy_share", &figures(|sample| sample.busy_share))
            .figure("cpu_ns_per_packet", &cpu)
            .figure("both_ns_per_packet", &figures(|sample| sample.both_ns_per_packet));
        if self.arguments.together != [0] && !trial.case.is_sluice() {
            row = row
                .figure("least_core_share", &figures(|sample| sample.spread.least))
                .figure("other_cores_share", &figures(|sample| sample.spread.others));
        }
        if trial.together > 0 {
            row = row.key("together", trial.together);
        }
        if !nat.is_empty() {
            row = row.figure("nat_ns_per_packet", &nat);
        }
        match (trial.case.translates(), self.forwarded.get(&key.0)) {
            (true, _) => self.beside_iptables(row, trial, &rates, &nat),
            (false, Some(&forwarded)) if trial.case != Case::Generator => {
                let times: Vec<f64> = rates.iter().map(|ours| ours / forwarded).collect();
                row.figure("times_linux_forward", &times)
            }
            _ => row,
        }
    }

    /// Adds two ratios to a row: packet rate relative to iptables, and translation time of iptables relative to that of
    /// Sluice, which is more meaningful if the links are the bottleneck. Both ratios use the faster receiver of
    /// iptables.
    fn beside_iptables(&mut self, row: Row, trial: &Trial, rates: &[f64], nat: &[f64]) -> Row {
        let key = (trial.rules, trial.hits, kind(trial));
        if trial.case == Case::Iptables {
            let figures = (Figure::of(rates).median, Figure::of(nat).median);
            let best = self.iptables.entry(key).or_insert(figures);
            if figures.0 > best.0 {
                *best = figures;
            }
        }
        let Some(&(rate, time)) = self.iptables.get(&key) else {
            return row;
        };
        let times: Vec<f64> = rates.iter().map(|ours| ours / rate).collect();
        let row = row.figure("times_iptables", &times);
        if time <= 0.0 || nat.is_empty() {
            return row;
        }
        let times: Vec<f64> = nat.iter().map(|ours| time / ours).collect();
        row.figure("nat_times_iptables", &times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trial::{Limit, Spread};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KernelArguments,
    }

    fn bench(arguments: &KernelArguments) -> Bench<'_> {
        Bench {
            arguments,
            forward: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            iptables: BTreeMap::new(),
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
            spread: Spread::default(),
        }
    }
    #[test]
    fn sluice_is_compared_with_iptables_of_as_many_rules_and_the_same_hits() {
        let line = Line::parse_from(["kernel", "--rules", "9"]);
        let mut bench = bench(&line.arguments);
        let new = |case, hits| Trial {
            case,
            hits,
            rules: 9,
            flows: Flows::New,
            ..trials(&line.arguments, true)[0]
        };
        bench.row(&new(Case::LinuxForward, Hits::Last), &vec![sample(1_000.0, None)]);
        let iptables = bench.row(&new(Case::Iptables, Hits::Uniform), &vec![sample(20_000.0, None)]);
        assert_eq!(Some(1.0), iptables.median("times_iptables"));
        let sluice = bench.row(&new(Case::Sluice, Hits::Uniform), &vec![sample(2_000.0, Some(190.0))]);
        assert_eq!(Some(10.0), sluice.median("times_iptables"), "on the wires");
        assert_eq!(Some(100.0), sluice.median("nat_times_iptables"), "without them");
        let other = bench.row(&new(Case::Sluice, Hits::Last), &vec![sample(2_000.0, Some(190.0))]);
        assert_eq!(None, other.median("times_iptables"));
    }

    #[test]
    fn gateways_are_compared_with_linux_at_its_better_receiver() {
        let line = Line::parse_from(["kernel", "--rules", "9"]);
        let mut bench = bench(&line.arguments);
        let trial = |case, receiver| Trial {
            case,
            receiver,
            rules: 9,
            ..trials(&line.arguments, true)[0]
        };
        let mut times = |case, receiver, ns, name| {
            let row = bench.row(&trial(case, receiver), &vec![sample(ns, None)]);
            let keys = ["direction", "receiver"].map(|key| row.text_of(key));
            assert_eq!(["up".to_owned(), receiver.name()], keys);
            row.median(name)
        };
        for (linux, sluice, name) in [
            (Case::LinuxForward, Case::SluiceForward, "times_linux_forward"),
            (Case::Iptables, Case::Sluice, "times_iptables"),
        ] {
            assert_eq!(Some(1.0), times(linux, Receiver::Traffic, 1_000.0, name));
            assert_eq!(Some(0.5), times(linux, Receiver::Gateway, 2_000.0, name));
            assert_eq!(Some(2.0), times(sluice, Receiver::Gateway, 500.0, name));
        }
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
