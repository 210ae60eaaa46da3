//! `paper`: runs the benchmarks that reproduce the figures of a paper, and compares the results with the paper's values
//! (`data/papers.toml`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::inspect::Written;
use crate::result::Measured;
use crate::rows::{Failure, Named, Row, Run};

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Paper {
    /// Carrier-grade NAT (KT, 2016).
    #[value(name = "P0")]
    P0,
    /// The cached trie for packet filters (Soongsil, 2014).
    #[value(name = "P1")]
    P1,
    /// Virtual routers on a PC (Handong, 2009).
    #[value(name = "P2")]
    P2,
    /// Inspection by cores that are split by role (Yonsei, 2009).
    #[value(name = "P3")]
    P3,
    /// Quick NAT (Tsinghua, 2020).
    #[value(name = "P4")]
    P4,
    /// All papers in sequence; P3 only if rules are given.
    All,
}

/// Selects a paper.
#[derive(Clone, Debug, clap::Args)]
pub struct PaperArguments {
    /// Paper to compare with.
    paper: Paper,
    /// Inspection rules, for P3.
    #[arg(long, value_name = "FILE", required_if_eq("paper", "P3"))]
    signatures: Option<PathBuf>,
    /// Dialect of the rules.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    dialect: Written,
}

#[derive(Deserialize)]
struct Papers {
    paper: Vec<Description>,
}

#[derive(Deserialize)]
struct Description {
    name: String,
    title: String,
    note: String,
    /// Command lines of the benchmarks that this figure needs.
    benches: Vec<String>,
    /// Whether the rows are selected without the name of their benchmark.
    #[serde(default)]
    unnamed: bool,
    group: Vec<Group>,
}

type Variables = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    each: Vec<Vec<Variables>>,
    rows: Option<String>,
    #[serde(default)]
    values: Variables,
    needs: Option<String>,
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    what: String,
    #[serde(default)]
    paper: Said,
    ours: String,
    /// Whether the line is omitted if a value is missing.
    #[serde(default)]
    optional: bool,
    /// Text to print in that case.
    missing: Option<String>,
}

/// A value stated by the paper: either one value, or one value for each combination of variables.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Always(String),
    Where(Vec<(String, String)>),
}

impl Default for Said {
    fn default() -> Self {
        Self::Always(String::new())
    }
}

fn papers() -> Result<Vec<Description>, Failure> {
    Ok(toml::from_str::<Papers>(include_str!("../data/papers.toml"))?.paper)
}

/// Runs the benchmarks, and prints the paper's values beside the measured values.
pub fn run(run: &mut Run<'_>, arguments: &PaperArguments) -> Result<(), Failure> {
    let all = arguments.paper == Paper::All;
    let mut text = String::new();
    for paper in papers()? {
        if all && paper.name == "P3" && arguments.signatures.is_none() {
            eprintln!("sluice-bench: P3 is left out: --signatures FILE names the rules that it compares with");
        } else if all || paper.name == arguments.paper.name() {
            text += &one(run, &paper, arguments)?;
        }
    }
    print!("{text}");
    Ok(())
}

/// Runs the benchmarks of one paper; returns the paper's values beside the measured values.
fn one(run: &mut Run<'_>, paper: &Description, arguments: &PaperArguments) -> Result<String, Failure> {
    let more: Vec<OsString> = match &arguments.signatures {
        Some(file) if paper.name == "P3" => {
            let dialect = arguments.dialect.name();
            ["--signatures".into(), file.into(), "--dialect".into(), dialect.into()].to_vec()
        }
        _ => Vec::new(),
    };
    let mut rows = Vec::new();
    for line in &paper.benches {
        let bench = line.split(' ').next().filter(|_| !paper.unnamed);
        for row in elsewhere(line, &more, run.quick)? {
            let row = bench.into_iter().fold(row, |row, bench| row.key("bench", bench));
            let row = row.key("paper", paper.name.as_str());
            rows.push(row.clone());
            (run.row)(row);
        }
    }
    Ok(render(paper, &rows))
}

/// Runs a benchmark in a separate process and returns its rows, because DPDK allocates its memory only once per
/// process.
fn elsewhere(line: &str, more: &[OsString], quick: bool) -> Result<Vec<Row>, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    let bench = words[0];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rows.json");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(&words).args(more).args(quick.then_some("--quick"));
    let output = command.arg("--json").arg(&file).stdin(Stdio::null()).output()?;
    // The child process has printed its rows to standard error; print them again here.
    let printed = String::from_utf8_lossy(&output.stderr);
    let notes = printed.lines().filter(|line| line.starts_with("sluice-bench: "));
    notes.for_each(|note| eprintln!("{note}"));
    if !output.status.success() {
        return Err(format!("{bench}: {}", output.status).into());
    }
    Ok(Measured::read(&file)?.rows)
}

/// The paper's values and the measured ones, side by side.
fn render(paper: &Description, rows: &[Row]) -> String {
    let mut lines = vec![[String::new(), "paper".into(), "here".into()]];
    paper.group.iter().for_each(|group| group.render(rows, &mut lines));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2].map(width);
    let mut text = format!("\n{}, {}\n{}\n\n", paper.name, paper.title, paper.note);
    for [what, paper, ours] in &lines {
        text += &format!(
            "{what:<0$} {paper:>1$} {ours:>2$}\n",
            widths[0],
            widths[1] + 1,
            widths[2] + 1
        );
    }
    text
}

impl Group {
    fn render(&self, rows: &[Row], lines: &mut Vec<[String; 3]>) {
        let of_rows = self.rows.as_ref().map(|keys| {
            let own = rows.iter().filter(|row| matches(row, keys, &Variables::new()));
            own.map(|row| {
                (
                    row.keys().map(|(name, value)| (name.to_owned(), value)).collect(),
                    Some(row),
                )
            })
        });
        let all: Vec<(Variables, Option<&Row>)> = match of_rows {
            Some(of_rows) => of_rows.collect(),
            None => combinations(&self.each)
                .into_iter()
                .map(|variables| (variables, None))
                .collect(),
        };
        for (variables, row) in all {
            let scope = Scope {
                group: self,
                rows,
                row,
                variables,
            };
            if self.needs.as_ref().is_some_and(|name| scope.value(name).is_nan()) {
                continue;
            }
            lines.extend(self.lines.iter().filter_map(|line| scope.line(line)));
        }
    }
}

/// All combinations of the bindings of each axis; the last axis varies fastest.
fn combinations(axes: &[Vec<Variables>]) -> Vec<Variables> {
    axes.iter().fold(vec![Variables::new()], |all, axis| {
        let with = |variables: &Variables| {
            let variables = variables.clone();
            axis.iter()
                .map(move |more| variables.clone().into_iter().chain(more.clone()).collect())
        };
        all.iter().flat_map(with).collect()
    })
}

/// Replace `{name}` by variables; unknown names remain.
fn filled(text: &str, variables: &Variables) -> String {
    let each = variables.iter();
    each.fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// Whether a row has all given keys, written as `NAME=VALUE` or `NAME!=VALUE`; underscores in the text stand for
/// spaces.
fn matches(row: &Row, keys: &str, variables: &Variables) -> bool {
    keys.split_whitespace().map(|key| filled(key, variables)).all(|key| {
        let (name, value) = key.split_once('=').unwrap_or((&key, ""));
        let same = |name: &str| row.text_of(name).replace(' ', "_") == value.replace(' ', "_");
        match name.strip_suffix('!') {
            Some(name) => !same(name),
            None => same(name),
        }
    })
}

/// Source of the values of a group.
struct Scope<'a> {
    group: &'a Group,
    rows: &'a [Row],
    row: Option<&'a Row>,
    variables: Variables,
}

impl Scope<'_> {
    /// Returns the value with this name, or parses a number; NaN if the value was not measured.
    fn value(&self, name: &str) -> f64 {
        let Some(text) = self.group.values.get(name) else {
            return name.parse().unwrap_or(f64::NAN);
        };
        if let Some(figure) = text.strip_prefix('.') {
            return self.row.and_then(|row| row.median(figure)).unwrap_or(f64::NAN);
        }
        if let Some((figure, keys)) = text.split_once(" @ ") {
            let figure = filled(figure, &self.variables);
            let of = self.rows.iter().filter(|row| matches(row, keys, &self.variables));
            return match figure.strip_prefix("max ") {
                Some(figure) => of.filter_map(|row| row.median(figure)).fold(f64::NAN, f64::max),
                None => of.filter_map(|row| row.median(&figure)).next().unwrap_or(f64::NAN),
            };
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        words[1..].chunks(2).fold(self.value(words[0]), |left, step| {
            let right = step.get(1).map_or(f64::NAN, |name| self.value(name));
            match step[0] {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                "/" => left / right,
                _ => f64::NAN,
            }
        })
    }

    fn line(&self, line: &Line) -> Option<[String; 3]> {
        let (mut ours, mut is_missing) = (String::new(), false);
        for part in line.ours.split_inclusive('}') {
            let Some((before, place)) = part.strip_suffix('}').and_then(|part| part.split_once('{')) else {
                ours += part;
                continue;
            };
            let (name, format) = place.split_once(':').unwrap_or((place, ".0"));
            let value = self.value(name);
            is_missing |= value.is_nan();
            let digits: usize = format.trim_start_matches(['+', '.']).parse().unwrap_or(0);
            ours += before;
            ours += &match format.starts_with('+') {
                true => format!("{value:+.digits$}"),
                false => format!("{value:.digits$}"),
            };
        }
        let ours = match (&line.missing, is_missing) {
            (_, true) if line.optional => return None,
            (Some(text), true) => text.clone(),
            _ => ours,
        };
        let holds = |keys: &str| {
            let mut keys = keys.split_whitespace().filter_map(|key| key.split_once('='));
            keys.all(|(name, value)| self.variables.get(name).is_some_and(|own| own == value))
        };
        let paper = match &line.paper {
            Said::Always(text) => text.as_str(),
            Said::Where(cases) => cases.iter().find(|(keys, _)| holds(keys)).map_or("", |(_, text)| text),
        };
        Some([&line.what, paper, &ours].map(|text| filled(text, &self.variables)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(keys: &str, figures: &[(&'static str, f64)]) -> Row {
        let keys = keys.split(' ').filter_map(|key| key.split_once('='));
        let row = keys.fold(Row::default(), |row, (name, value)| {
            row.key(name, value.replace('_', " "))
        });
        figures
            .iter()
            .fold(row, |row, (name, value)| row.figure(*name, &[*value]))
    }

    /// One sample row of each kind that the papers are compared with.
    fn measured() -> Vec<Row> {
        vec![
            row("case=theory bytes=64 line_gbps=10", &[("gbps", 7.62), ("mpps", 14.0)]),
            row("bench=frames case=iptables bytes=64 direction=up", &[("gbps", 0.25)]),
            row(
                "bench=frames case=sluice model=run-to-completion cores=1 bytes=64 direction=up site=none",
                &[("gbps", 99.0)],
            ),
            row(
                "bench=frames case=l2fwd model=run-to-completion cores=1 source=included bytes=64 direction=up site=none",
                &[("gbps", 9.0)],
            ),
            row(
                "bench=frames case=sluice model=run-to-completion cores=1 source=included bytes=64 direction=up site=none",
                &[("gbps", 4.0)],
            ),
            row(
                "bench=frames case=sluice model=pipeline cores=2 source=included bytes=64 direction=up site=none",
                &[("gbps", 3.0)],
            ),
            row(
                "bench=frames case=sluice model=pipeline cores=2 source=included bytes=64 direction=up site=none",
                &[("gbps", 5.0)],
            ),
            row(
                "bench=placement scenario=established_up direction=up flows=established kind=measured placement=receive_on_0_|_parse+session_on_1_|_transmit_on_0",
                &[("mpps", 10.0), ("line_cycles", 90.0)],
            ),
            row(
                "bench=placement scenario=P0_Val+NAT direction=up flows=new kind=predicted",
                &[("predicted_mpps", 4.0)],
            ),
            row(
                "graph=plain load_share=2.0",
                &[("offered_mbps", 20_000.0), ("forwarded_mbps", 10_000.0)],
            ),
            row("case=receive device=vhost wait=poll", &[("mbps", 3_000.0)]),
            row(
                "case=forward links=1000 routers=1000 routes=7",
                &[("cycles_per_packet", 210.0), ("over_one_router", 1.05)],
            ),
            row(
                "bytes=64 traffic=rfc2544 inspection=on model=rss cores=2",
                &[("work_cycles", 1_000.0)],
            ),
            row(
                "bytes=64 traffic=rfc2544 inspection=on model=role-split cores=2 senders=io assist_threshold=128 time_slice_us=20",
                &[
                    ("over_rss", 0.9),
                    ("handovers_per_packet", 0.5),
                    ("handover_cycles", 500.0),
                ],
            ),
            row(
                "set=web-filter rules=20000 trace=local case=lookup matcher=trie",
                &[("lookups_per_s", 2e6)],
            ),
            row(
                "set=web-filter rules=20000 trace=local case=lookup matcher=cached-trie list_size=11 list_search=in-order",
                &[("lookups_per_s", 2.5e6)],
            ),
            row(
                "bench=cores case=sluice cores=1 steering=ideal mapping=address-and-port-dependent",
                &[("mpps", 7.0)],
            ),
            row("bench=cores case=iptables cores=1 source=beside", &[("mpps", 0.7)]),
        ]
    }

    #[test]
    fn figures_stand_beside_what_the_papers_say_of_them() {
        let rows = measured();
        let papers = papers().expect("the data are right");
        let text: String = papers.iter().map(|paper| render(paper, &rows)).collect();
        for (what, paper, ours) in [
            ("Fig. 7: 64 bytes, a line", "7.61 Gb/s", "7.62 Gb/s"),
            ("Fig. 7: 64 bytes, L2FWD / uNAT", "", "9.00 / 4.00 / 5.00 / 0.25 Gb/s"),
            ("Fig. 7: 64 bytes, uNATp over Kernel", "15.5 times", "20.0 times"),
            (
                "Fig. 9: core sets 2 and 3",
                "better",
                "5.12 Gb/s, cores 90 cycles apart",
            ),
            (
                "Fig. 10: Val+NAT, new flows, one core",
                "4.3 Gb/s, best",
                "2.05 Gb/s expected",
            ),
            ("Fig. 12: lists of 11, in order", "+18.08 %", "+25.0 % (NaN %)"),
            (
                "Fig. 4: two inputs, plain, load 2.0",
                "about 450 Mb/s",
                "10000 of 20000 Mb/s",
            ),
            ("receive, vhost, poll ", "936 Mb/s", "3000 Mb/s"),
            ("transmit, vhost, poll", "714 Mb/s", "the driver can't"),
            (
                "a packet over 1000 routers with 7 routes",
                "",
                "210 cycles, 1.05 of one's",
            ),
            ("64 bytes, role-split over rss", "", "0.90 (0.80)"),
            (
                "Fig. 5: 64 bytes, cores: 1",
                "below line rate",
                "7.0 M/s, 0.50 of the line",
            ),
            (
                "Fig. 5: Netfilter, cores: 1, source beside",
                "",
                "0.70 M/s, on veth: 10.0 times",
            ),
        ] {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_default();
            assert!(line.contains(paper) && line.ends_with(ours), "{what}: {line}");
        }
        assert!(!text.contains("Fig. 7: 128 bytes"), "what was not measured is left out");
    }

    #[test]
    fn command_lines_of_the_papers_are_understood() {
        for paper in papers().expect("the data are right") {
            for line in &paper.benches {
                let rules = if paper.name == "P3" {
                    " --signatures x --dialect snort2"
                } else {
                    ""
                };
                let line = format!("sluice-bench {line}{rules}");
                assert!(crate::understands(line.split(' ')), "{line}");
            }
        }
        assert!(
            !crate::understands(["sluice-bench", "paper", "P3"]),
            "rules are required"
        );
        assert!(
            crate::understands(["sluice-bench", "paper", "all"]),
            "it is left out then"
        );
    }
}
