//! The half inside the namespaces: tries the cases one after the other and tells the rows.

use std::collections::BTreeMap;
use std::io::{BufRead, StdinLock, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::KernelArguments;
use super::command::{CommandError, run as command};
use super::gateway::Case;
use super::traffic::{Direction, Flows, Hits, OPENED, Site};
use super::trial::{Sample, Trial, TrialError};
use crate::rows::{Figure, Row};

/// The half outside, as this one sees it: one line of JSON each way.
#[derive(Debug)]
pub struct Outside<'a> {
    answers: StdinLock<'a>,
}

impl Outside<'_> {
    /// The one that started this process.
    pub fn of_this() -> Self {
        Self {
            answers: std::io::stdin().lock(),
        }
    }

    /// Tell a row.
    pub fn row(&self, row: &Row) {
        self.tell(&json!({ "row": row.json() }));
    }

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
    for &together in &arguments.together {
        arguments.cores(together)?;
    }
    furnish()?;
    let mut outside = Outside::of_this();
    let mut bench = Bench {
        arguments,
        forward: BTreeMap::new(),
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

/// A private /run with place for the names of namespaces, and a loopback.
pub fn furnish() -> Result<(), CommandError> {
    command("mount -t tmpfs -o mode=755 sluice-bench /run")?;
    command("mkdir -p /run/netns")?;
    command("ip link set lo up").map(drop)
}

fn describe(trial: &Trial) -> String {
    format!(
        "{} with {} rules, hits {}, {} flows {}, site {}, {} bytes",
        trial.case.name(),
        trial.rules,
        trial.hits.name(),
        trial.flows.name(),
        trial.direction.name(),
        trial.site.name(),
        trial.bytes
    )
}

/// All trials, the ones that others are compared with first.
fn trials(arguments: &KernelArguments, quick: bool) -> Vec<Trial> {
    let wanted = |case: &Case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name());
    let mut trials = Vec::new();
    let places = arguments.together.iter();
    let sizes = places.flat_map(|&together| arguments.bytes.iter().map(move |&bytes| (together, bytes)));
    for (together, bytes) in sizes {
        // A worker of Sluice polls: it wants its core for itself.
        let able = |case: &Case| together == 0 || !case.is_sluice();
        for case in Case::ALL.into_iter().filter(wanted).filter(able) {
            let rules: &[u32] = if case.translates() { &arguments.rules } else { &[0] };
            for &rules in rules {
                let hits: &[Hits] = if rules > 1 { &arguments.hits } else { &[Hits::Last] };
                let established = hits
                    .contains(&Hits::Last)
                    .then_some((Flows::Established(OPENED), Hits::Last));
                let new = hits.iter().map(|&hits| (Flows::New, hits));
                let both: Vec<_> = established.into_iter().chain(new).collect();
                let all = arguments.directions.iter().flat_map(|&direction| {
                    let flows = both.iter().map(move |&(flows, hits)| (flows, hits, direction));
                    // What comes from outside opens nothing, and has one generator.
                    flows.filter(move |&(flows, _, direction)| {
                        direction == Direction::Up || flows != Flows::New && together == 0
                    })
                });
                for (flows, hits, direction) in
                    all.filter(|(flows, ..)| arguments.flows.iter().any(|name| name == flows.name()))
                {
                    // Who knows sites is Sluice; terminals are of one network.
                    let knows = case == Case::Sluice && flows != Flows::New && hits == Hits::Last;
                    let sites = arguments.sites.iter().filter(|&&site| site == Site::None || knows);
                    trials.extend(sites.map(|&site| Trial {
                        case,
                        rules,
                        hits,
                        flows,
                        direction,
                        site,
                        bytes,
                        together,
                        rate: arguments.rate,
                        windows: arguments.runs(quick),
                        window: arguments.window(quick),
                        xdp: arguments.xdp_generator,
                        napi_thread: arguments.napi_thread,
                    }));
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
    /// Median time of the core per packet when Linux forwards, by traffic.
    forward: BTreeMap<Kind, f64>,
    /// Median packets per second of iptables, and time of translation per packet, 0 where not known, by rules, hits and
    /// traffic.
    iptables: BTreeMap<(u32, Hits, Kind), (f64, f64)>,
}

/// What traffic and on which cores, where rows are held against one another.
type Kind = (usize, usize, &'static str, Direction);

fn kind(trial: &Trial) -> Kind {
    (trial.together, trial.bytes, trial.flows.name(), trial.direction)
}

impl Bench<'_> {
    /// Established flows are measured in one topology, window after window. New flows get a topology per window,
    /// because the tables of sessions only fill.
    fn samples(&mut self, trial: &Trial, outside: &mut Outside<'_>) -> Result<Samples, TrialError> {
        let (program, cores) = (self.arguments.program(), self.arguments.cores(trial.together)?);
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
        let limit = limits.get(limits.len() / 2).map_or("", |limit| limit.name());
        let key = kind(trial);
        if trial.case == Case::LinuxForward {
            self.forward.insert(key, Figure::of(&cpu).median);
        }
        let rates = figures(|sample| sample.packets_per_s);
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
        match trial.case.translates() {
            true => self.beside_iptables(row, trial, &rates, &nat),
            false => row,
        }
    }

    /// How many times the packets of iptables those are, and how many times its time of translation is theirs, which
    /// says more where the wires are what limits.
    fn beside_iptables(&mut self, row: Row, trial: &Trial, rates: &[f64], nat: &[f64]) -> Row {
        let key = (trial.rules, trial.hits, kind(trial));
        if trial.case == Case::Iptables {
            let figures = (Figure::of(rates).median, Figure::of(nat).median);
            self.iptables.insert(key, figures);
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
    fn trials_cover_cases_rules_and_flows() {
        let line = Line::parse_from(["kernel"]);
        let trials = trials(&line.arguments, true);
        assert_eq!(
            (4 + 4 * 3) * 3 + 4 * 2 + 3 * 2,
            trials.len(),
            "established flows go two ways, at Sluice those of sites too, new ones match rules in two ways where there are several"
        );
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
        assert_eq!(20, trials.len());
        assert!(trials.iter().all(|trial| trial.rules == 7));
        let of_sites = trials.iter().filter(|trial| trial.site == Site::TagsAndMac);
        assert!(of_sites.clone().all(|trial| trial.case == Case::Sluice));
        assert_eq!(4, of_sites.count());
    }

    #[test]
    fn trials_on_cores_that_have_everything_are_of_linux_alone() {
        let words = [
            "kernel",
            "--cases",
            "iptables,sluice",
            "--rules",
            "9",
            "--together",
            "0,1,2",
        ];
        let line = Line::parse_from(
            [
                &words[..],
                &["--flows", "established", "--direction", "up", "--site", "none"],
            ]
            .concat(),
        );
        let trials = trials(&line.arguments, true);
        let told: Vec<_> = trials.iter().map(|trial| (trial.case, trial.together)).collect();
        let expected = [
            (Case::Iptables, 0),
            (Case::Sluice, 0),
            (Case::Iptables, 1),
            (Case::Iptables, 2),
        ];
        assert_eq!(expected.to_vec(), told);
    }

    #[test]
    fn trials_of_established_flows_alone_are_one_of_each_size() {
        let line = Line::parse_from([
            "kernel",
            "--cases",
            "iptables",
            "--rules",
            "9",
            "--flows",
            "established",
            "--direction",
            "up",
            "--bytes",
            "64,512",
        ]);
        let trials = trials(&line.arguments, true);
        let told: Vec<_> = trials
            .iter()
            .map(|trial| (trial.bytes, trial.flows.name(), trial.hits.name()))
            .collect();
        assert_eq!(vec![(64, "established", "last"), (512, "established", "last")], told);
    }

    #[test]
    fn trials_from_outside_are_of_established_flows() {
        let line = Line::parse_from([
            "kernel",
            "--cases",
            "linux-forward,iptables",
            "--rules",
            "9",
            "--direction",
            "up,down",
            "--together",
            "0,1",
        ]);
        let trials = trials(&line.arguments, true);
        let down = trials.iter().filter(|trial| trial.direction == Direction::Down);
        let told: Vec<_> = down
            .map(|trial| (trial.case, trial.flows.name(), trial.together))
            .collect();
        let expected = [
            (Case::LinuxForward, "established", 0),
            (Case::Iptables, "established", 0),
        ];
        assert_eq!(expected.to_vec(), told);
        assert_eq!("down", {
            let down = trials.iter().find(|trial| trial.direction == Direction::Down);
            let mut bench = bench(&line.arguments);
            bench
                .row(down.expect("one"), &vec![sample(1_000.0, None)])
                .text_of("direction")
        });
    }

    #[test]
    fn trials_of_uniform_hits_are_of_new_flows_beside_the_one_forwarding() {
        let line = Line::parse_from([
            "kernel",
            "--cases",
            "linux-forward,sluice",
            "--hits",
            "uniform",
            "--rules",
            "1,9",
            "--direction",
            "up",
            "--site",
            "none",
        ]);
        let trials = trials(&line.arguments, true);
        let told = trials
            .iter()
            .map(|trial| (trial.case.name(), trial.rules, trial.hits.name(), trial.flows.name()));
        let expected = [
            ("linux-forward", 0, "last", "established"),
            ("linux-forward", 0, "last", "new"),
            ("sluice", 1, "last", "established"),
            ("sluice", 1, "last", "new"),
            ("sluice", 9, "uniform", "new"),
        ];
        assert_eq!(expected.to_vec(), told.collect::<Vec<_>>());
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
