//! `sluice-bench`: measures what the documentation claims.
#![forbid(unsafe_code)]

mod nat_path;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rows::{Row, Run};
use serde_json::json;

/// Measure the data plane.
#[derive(Parser)]
#[command(name = "sluice-bench", version)]
struct Arguments {
    /// Fewer sizes and fewer runs.
    #[arg(long, global = true)]
    quick: bool,
    /// Write the rows as JSON to this file.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// One core's packets through translation and forwarding, in memory, beside the limit.
    NatPath {
        /// Only this many sessions, and nothing else.
        #[arg(long, value_name = "N")]
        sessions: Option<u32>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut rows: Vec<Row> = Vec::new();
    let mut take = |row: Row| {
        println!("{}", row.text());
        rows.push(row);
    };
    let mut run = Run {
        quick: arguments.quick,
        row: &mut take,
    };
    let (name, outcome) = match arguments.bench {
        Bench::NatPath { sessions } => ("nat-path", nat_path::run(&mut run, sessions)),
    };
    if let Err(error) = outcome {
        eprintln!("sluice-bench: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(file) = arguments.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let text = json!({"bench": name, "host": host(), "rows": rows}).to_string();
        if let Err(error) = std::fs::write(&file, text) {
            eprintln!("sluice-bench: {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The machine: processor, cores, frequency of its time stamp counter.
fn host() -> serde_json::Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({"cpu": model.unwrap_or("unknown"), "cores": cores, "tsc_hz": sluice_dpdk::tsc::frequency()})
}
