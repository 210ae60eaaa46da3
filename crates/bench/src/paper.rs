//! `paper`: what the figures of a paper need, measured, and rendered beside what the paper says.

use std::fmt::Write;

use crate::filter::{self, FilterArguments};
use crate::rows::{Row, Run};

type Failure = Box<dyn std::error::Error>;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Paper {
    /// The cached trie for packet filters (Soongsil, 2014).
    #[value(name = "P1")]
    P1,
}

/// Which paper.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PaperArguments {
    /// The paper.
    paper: Paper,
}

/// Measure, and print the paper's figures beside ours.
pub fn run(run: &mut Run<'_>, arguments: &PaperArguments) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut keep = |row: Row| {
        rows.push(row.clone());
        (run.row)(row);
    };
    let mut kept = Run {
        quick: run.quick,
        row: &mut keep,
    };
    match arguments.paper {
        Paper::P1 => filter::run(&mut kept, &FilterArguments::default())?,
    }
    match arguments.paper {
        Paper::P1 => print!("{}", p1(&rows)),
    }
    Ok(())
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
