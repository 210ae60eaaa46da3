//! `paper`: what the figures of a paper need, measured, and rendered beside what the paper says.

mod p0;
mod p2;
mod p3;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::filter::{self, FilterArguments};
use crate::frames;
use crate::inspect::Written;
use crate::result::Measured;
use crate::rows::{Row, Run};

type Failure = Box<dyn std::error::Error>;

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
    /// All of them, one after the other; P3 where rules are named.
    All,
}

impl Paper {
    const EACH: [Self; 5] = [Self::P0, Self::P1, Self::P2, Self::P3, Self::P4];

    /// Its name in rows.
    fn name(self) -> &'static str {
        match self {
            Self::P0 => "P0",
            Self::P1 => "P1",
            Self::P2 => "P2",
            Self::P3 => "P3",
            Self::P4 => "P4",
            Self::All => "all",
        }
    }
}

/// Which paper.
#[derive(Clone, Debug, clap::Args)]
pub struct PaperArguments {
    /// The paper.
    paper: Paper,
    /// Rules to compare with, for P3.
    #[arg(long, value_name = "FILE", required_if_eq("paper", "P3"))]
    signatures: Option<PathBuf>,
    /// Their language.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    dialect: Written,
}

/// Measure, and print the paper's figures beside ours.
pub fn run(run: &mut Run<'_>, arguments: &PaperArguments) -> Result<(), Failure> {
    if arguments.paper != Paper::All {
        print!("{}", one(run, arguments.paper, arguments)?);
        return Ok(());
    }
    let mut text = String::new();
    for paper in Paper::EACH {
        if paper == Paper::P3 && arguments.signatures.is_none() {
            eprintln!("sluice-bench: P3 is left out: --signatures FILE names the rules that it compares with");
            continue;
        }
        text += &one(run, paper, arguments)?;
    }
    print!("{text}");
    Ok(())
}

/// Measure what one paper needs; its figures beside ours.
fn one(run: &mut Run<'_>, paper: Paper, arguments: &PaperArguments) -> Result<String, Failure> {
    let mut rows = Vec::new();
    let mut keep = |row: Row| {
        let row = row.key("paper", paper.name());
        rows.push(row.clone());
        (run.row)(row);
    };
    let mut kept = Run {
        quick: run.quick,
        row: &mut keep,
    };
    let rules: Vec<OsString> = match &arguments.signatures {
        Some(file) if paper == Paper::P3 => vec![
            "--signatures".into(),
            file.into(),
            "--dialect".into(),
            arguments.dialect.name().into(),
        ],
        _ => Vec::new(),
    };
    let benches: &[&[&str]] = match paper {
        Paper::P0 => &p0::P0,
        Paper::P2 => &[p2::P2],
        Paper::P3 => &[p3::P3],
        Paper::P4 => &P4,
        Paper::P1 | Paper::All => &[],
    };
    if paper == Paper::P1 {
        filter::run(&mut kept, &FilterArguments::default())?;
    }
    for words in benches {
        let rows = elsewhere(words, &rules, kept.quick)?;
        rows.into_iter().for_each(&mut *kept.row);
    }
    Ok(match paper {
        Paper::P0 => p0::p0(&rows),
        Paper::P1 => p1(&rows),
        Paper::P2 => p2::p2(&rows),
        Paper::P3 => p3::p3(&rows),
        Paper::P4 => p4(&rows),
        Paper::All => String::new(),
    })
}

/// What P4's table and figures need.
const P4: [&[&str]; 3] = [
    &["nat-lookup", "--rules", "100,1000,3000,5000,10000"],
    &["cores"],
    &["frames", "--only", "theory,iptables,throughput", "--direction", "up"],
];

/// Rows of a bench in a process of its own, each with its `bench`: DPDK gets its memory once in a process.
fn elsewhere(words: &[&str], more: &[OsString], quick: bool) -> Result<Vec<Row>, Failure> {
    let bench = words.first().copied().unwrap_or_default();
    let file = std::env::temp_dir().join(format!("sluice-paper-{}-{bench}.json", std::process::id()));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).args(more).args(quick.then_some("--quick"));
    let output = command.arg("--json").arg(&file).stdin(Stdio::null()).output()?;
    // The rows are told here once more.
    let said = String::from_utf8_lossy(&output.stderr);
    let notes = said.lines().filter(|line| line.starts_with("sluice-bench: "));
    notes.for_each(|note| eprintln!("{note}"));
    if !output.status.success() {
        return Err(format!("{bench}: {}", output.status).into());
    }
    let measured = Measured::read(&file)?;
    std::fs::remove_file(&file)?;
    Ok(measured.rows.into_iter().map(|row| row.key("bench", bench)).collect())
}

/// The first row with these keys.
fn find<'r>(rows: &'r [Row], keys: &[(&str, &str)]) -> Option<&'r Row> {
    rows.iter()
        .find(|row| keys.iter().all(|(name, value)| row.text_of(name) == *value))
}

fn figure(rows: &[Row], keys: &[(&str, &str)], name: &str) -> f64 {
    let row = find(rows, keys);
    row.and_then(|row| row.median(name)).unwrap_or(f64::NAN)
}

/// Sizes of P1's lists.
const SIZES: [&str; 13] = ["0", "1", "3", "5", "7", "9", "11", "13", "15", "21", "27", "35", "43"];

/// P1's figures: the paper's values are from its text, machines are decades apart, so that gains are compared, not rates.
fn p1(rows: &[Row]) -> String {
    let local = [
        ("set", "web-filter"),
        ("rules", "20000"),
        ("trace", "local"),
        ("case", "lookup"),
    ];
    let with = |more: &[(&'static str, &'static str)]| [&local[..], more].concat();
    let rate = |keys: &[(&str, &str)]| figure(rows, keys, "lookups_per_s");
    let trie = rate(&with(&[("matcher", "trie")]));
    let mut text = String::from("\nP1, on 20,000 rules and requests of 50 clients to 30 servers\n\n");
    let mut line = |what: &str, paper: &str, ours: String| {
        let _ = writeln!(text, "{what:<58} {paper:>16} {ours:>22}");
    };
    line("", "paper", "here".into());
    let linear = rate(&with(&[("matcher", "linear")]));
    line(
        "Fig. 4: trie over linear",
        "rises with rules",
        format!("{:.0} times", trie / linear),
    );
    line("Fig. 12: trie", "3.90 M/s", format!("{:.2} M/s", trie / 1e6));
    for size in SIZES {
        let paper = match size {
            "1" => "below the trie",
            "11" => "+18.08 %",
            "43" => "+20.21 %",
            _ => "",
        };
        let of = |search: &'static str| {
            rate(&with(&[
                ("matcher", "cached-trie"),
                ("list_size", size),
                ("list_search", search),
            ])) / trie
                - 1.0
        };
        let ours = format!("{:+.1} % ({:+.1} %)", of("in-order") * 100.0, of("bisection") * 100.0);
        line(
            &format!("Fig. 12: lists of {size}, in order (by bisection)"),
            paper,
            ours,
        );
    }
    let kilobytes = |size| {
        figure(
            rows,
            &with(&[
                ("matcher", "cached-trie"),
                ("list_size", size),
                ("list_search", "in-order"),
            ]),
            "memory_kb",
        )
    };
    let memory = figure(rows, &with(&[("matcher", "trie")]), "memory_kb");
    line("Fig. 13: memory of the trie", "32,356 KB", format!("{memory:.0} KB"));
    line(
        "Fig. 13: lists of 11 add",
        "+7.75 %",
        format!("{:+.2} %", (kilobytes("11") / memory - 1.0) * 100.0),
    );
    for size in ["1", "11", "43"] {
        let keys = with(&[
            ("matcher", "cached-trie"),
            ("list_size", size),
            ("list_search", "in-order"),
        ]);
        let [hits, misses, binary] =
            ["searches_hit", "searches_miss", "searches_binary"].map(|name| figure(rows, &keys, name));
        let ours = format!("{hits:.2} + {misses:.2} + {binary:.2}");
        line(
            &format!("Fig. 15: hits, misses and bisections a packet, lists of {size}"),
            "",
            ours,
        );
    }
    line(
        "best, in place of a trie",
        "",
        format!("{:+.0} %", (rate(&with(&[("matcher", "best")])) / trie - 1.0) * 100.0),
    );
    text
}

/// P4's Table 1: rules, ns of QNS, ns of the linear list.
const TABLE_1: [(&str, &str, &str); 5] = [
    ("100", "43", "420"),
    ("1000", "45", "3,256"),
    ("3000", "42", "9,373"),
    ("5000", "45", "15,078"),
    ("10000", "45", "30,120"),
];

/// P4's figures. There they are of packets on wires of 10 Gb/s, here of packets in memory beside what such a wire carries;
/// Netfilter's here are on veth.
fn p4(rows: &[Row]) -> String {
    let mut text = String::from("\nP4, 1,000 rules and 8,000 flows in Fig. 5 and 6\n\n");
    let mut line = |what: &str, paper: &str, ours: &str| {
        let _ = writeln!(text, "{what:<44} {paper:>22} {ours:>44}");
    };
    line("", "paper", "here");
    for (rules, qns, linear) in TABLE_1 {
        let ns = |case, batch| {
            let keys = [
                ("bench", "nat-lookup"),
                ("case", case),
                ("rules", rules),
                ("batch", batch),
            ];
            figure(rows, &keys, "ns_per_lookup")
        };
        let ours = format!("{:.0} ns ({:.0} ns)", ns("qns", "1"), ns("qns", "64"));
        line(
            &format!("Table 1: {rules} rules, QNS (in batches)"),
            &format!("{qns} ns"),
            &ours,
        );
        let ours = format!("{:.0} ns", ns("linear", "1"));
        line(
            &format!("Table 1: {rules} rules, linear"),
            &format!("{linear} ns"),
            &ours,
        );
    }
    let iptables = |bytes: &str, name| {
        let keys = [("bench", "frames"), ("case", "iptables"), ("bytes", bytes)];
        figure(rows, &keys, name)
    };
    let netfilter = |cores: &str, source| {
        let keys = [
            ("bench", "cores"),
            ("case", "iptables"),
            ("cores", cores),
            ("source", source),
        ];
        figure(rows, &keys, "mpps")
    };
    let wire = |bytes: &str, name| {
        let keys = [("case", "theory"), ("bytes", bytes), ("line_gbps", "10")];
        figure(rows, &keys, name)
    };
    let scaled = |row: &&Row| {
        let keys = [
            ("bench", "cores"),
            ("case", "sluice"),
            ("steering", "ideal"),
            ("mapping", "address-and-port-dependent"),
        ];
        keys.iter().all(|(name, value)| row.text_of(name) == *value)
    };
    for row in rows.iter().filter(scaled) {
        let (cores, mpps) = (row.text_of("cores"), row.median("mpps").unwrap_or(f64::NAN));
        let paper = match cores.as_str() {
            "1" | "2" => "below line rate",
            _ => "line rate, 14.88 M/s",
        };
        let share = mpps / wire("64", "mpps");
        let ours = format!("{mpps:.1} M/s, {share:.2} of the line");
        line(
            &format!("Fig. 5: 64 bytes, cores: {cores}, source included"),
            paper,
            &ours,
        );
        let linux = netfilter(&cores, "included");
        line(
            &format!("Fig. 5: Netfilter, cores: {cores}, source included"),
            "",
            &format!("{linux:.2} M/s, on veth"),
        );
        line(
            &format!("Fig. 5: over Netfilter, cores: {cores}"),
            "more than 8 times",
            &format!("{:.1} times, memory over veth", mpps / linux),
        );
        if cores == "1" {
            let linux = netfilter(&cores, "beside");
            line(
                "Fig. 5: Netfilter, cores: 1, source beside",
                "",
                &format!("{linux:.2} M/s, on veth: {:.1} times", mpps / linux),
            );
        }
    }
    for bytes in frames::SIZES.map(|bytes| bytes.to_string()) {
        let keys = [
            ("bench", "frames"),
            ("case", "sluice"),
            ("bytes", &bytes),
            ("checksums", "vouched"),
            ("payload", "written"),
        ];
        let Some(row) = find(rows, &keys) else {
            continue;
        };
        let gbps = row.median("gbps").unwrap_or(f64::NAN);
        let share = gbps / wire(&bytes, "gbps");
        let ours = format!("{gbps:.2} Gb/s on one, {share:.2} of the line");
        line(&format!("Fig. 6: {bytes} bytes"), "line rate on 5 cores", &ours);
        let paper = match bytes.as_str() {
            "800" => "9.4 Gb/s",
            _ => "",
        };
        let ours = format!("{:.2} Gb/s on one", iptables(&bytes, "gbps"));
        line(&format!("Fig. 6: {bytes} bytes, Netfilter"), paper, &ours);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_p4_stand_beside_the_rows_that_they_are_of() {
        let lookup = |case: &str, batch, ns| {
            let row = Row::new(case).key("bench", "nat-lookup").key("rules", 1_000);
            row.key("batch", batch).figure("ns_per_lookup", &[ns])
        };
        let frames = |case: &str| Row::new(case).key("bench", "frames").key("bytes", 64);
        let netfilter = |source, mpps| {
            let row = Row::new("iptables").key("bench", "cores").key("cores", 1);
            row.key("source", source).figure("mpps", &[mpps])
        };
        let rows = [
            lookup("qns", 1, 41.0),
            lookup("qns", 64, 19.0),
            lookup("linear", 1, 536.0),
            frames("theory")
                .key("line_gbps", 10)
                .figure("mpps", &[14.0])
                .figure("gbps", &[7.0]),
            frames("iptables").figure("mpps", &[0.5]).figure("gbps", &[0.25]),
            frames("sluice")
                .key("checksums", "vouched")
                .key("payload", "written")
                .figure("gbps", &[3.5]),
            Row::new("sluice")
                .key("bench", "cores")
                .key("cores", 1)
                .key("steering", "ideal")
                .key("mapping", "address-and-port-dependent")
                .figure("mpps", &[7.0]),
            netfilter("included", 0.35),
            netfilter("beside", 0.7),
        ];
        let text = p4(&rows);
        for (what, paper, ours) in [
            ("Table 1: 1000 rules, QNS (in batches)", "45 ns", "41 ns (19 ns)"),
            ("Table 1: 1000 rules, linear", "3,256 ns", "536 ns"),
            (
                "Fig. 5: 64 bytes, cores: 1",
                "below line rate",
                "7.0 M/s, 0.50 of the line",
            ),
            ("Fig. 5: Netfilter, cores: 1, source included", "", "0.35 M/s, on veth"),
            (
                "Fig. 5: over Netfilter, cores: 1",
                "more than 8 times",
                "20.0 times, memory over veth",
            ),
            (
                "Fig. 5: Netfilter, cores: 1, source beside",
                "",
                "0.70 M/s, on veth: 10.0 times",
            ),
            (
                "Fig. 6: 64 bytes  ",
                "line rate on 5 cores",
                "3.50 Gb/s on one, 0.50 of the line",
            ),
            ("Fig. 6: 64 bytes, Netfilter", "", "0.25 Gb/s on one"),
        ] {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_default();
            assert!(line.contains(paper) && line.ends_with(ours), "{what}: {line}");
        }
    }

    #[test]
    fn command_lines_of_p4_are_understood() {
        for words in P4 {
            let line = ["sluice-bench"].iter().chain(words);
            assert!(crate::understands(line), "{words:?}");
        }
    }

    #[test]
    fn command_line_of_p2_is_understood() {
        let line = ["sluice-bench"].iter().chain(p2::P2);
        assert!(crate::understands(line));
    }

    #[test]
    fn command_lines_of_p3_are_understood_and_rules_are_asked_for() {
        let rules = ["--signatures", "rules", "--dialect", Written::Snort2.name()];
        let line = ["sluice-bench"].iter().chain(p3::P3).chain(&rules);
        assert!(crate::understands(line));
        let line = ["sluice-bench", "paper", "P3"];
        assert!(!crate::understands(line.iter()));
        assert!(crate::understands(line.iter().chain(&rules)));
        let line = ["sluice-bench", "paper", "all"];
        assert!(crate::understands(line.iter()), "it is left out then");
        assert!(crate::understands(line.iter().chain(&rules)));
    }
}
