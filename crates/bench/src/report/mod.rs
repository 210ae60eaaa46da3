//! `report`: all measurements as one self-contained HTML page with plots.

mod plot;

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use crate::result::{FOLDER, Measured};
use crate::rows::{Failure, Figure, Row, grid};
use plot::{Bar, bars};

/// Locations of the results and of the report.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// Folder that contains the results, as written with --json.
    #[arg(default_value = FOLDER, value_name = "FOLDER")]
    from: PathBuf,
    /// File of the page; by default report.html in the folder of the results.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Deserialize)]
struct References {
    source: Vec<Source>,
}

/// Published figures from one source, which are shown beside a figure of a benchmark.
#[derive(Deserialize)]
struct Source {
    text: String,
    bench: String,
    figure: String,
    values: toml::Table,
}

/// Renders the page. Files that contain no result are reported and skipped.
pub fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let to = arguments
        .to
        .clone()
        .unwrap_or_else(|| arguments.from.join("report.html"));
    let failed = |file: &PathBuf| {
        let file = file.display().to_string();
        move |error| format!("{file}: {error}")
    };
    let entries = std::fs::read_dir(&arguments.from).map_err(failed(&arguments.from))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut results = Vec::new();
    for file in &files {
        match Measured::read(file) {
            Ok(measured) => results.push(measured),
            Err(error) => eprintln!("sluice-bench: {error}"),
        }
    }
    std::fs::write(&to, page(&results)?).map_err(failed(&to))?;
    println!("{}: {} of {} files", to.display(), results.len(), files.len());
    Ok(())
}

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Sluice: what was measured</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccd }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
td, th { padding: .15rem .7rem; border-bottom: 1px solid #dde; text-align: left; white-space: nowrap }
td.n { text-align: right; font-variant-numeric: tabular-nums }
code { background: #eef1f5; padding: .1rem .3rem }
svg { width: 100%; font: 12px system-ui, sans-serif; margin: .6rem 0 }
svg .t { font-weight: 600; font-size: 14px } svg .l { text-anchor: end }
svg .b { fill: #2a6fb0 } svg .r { fill: #b8bec8 } svg .w { stroke: #1b1f24; stroke-width: 2 }
</style>
</head>
<body>
<h1>Sluice: what was measured</h1>
<p>Bars are medians, the dark line on each is the range over its runs. <b>Blue</b> was measured in the run that
stands above it; <b>grey</b> comes from elsewhere and is labelled for what it is. Figures of different machines are
no comparison: ratios within one run are.</p>
"#;

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn page(results: &[Measured]) -> Result<String, Failure> {
    let sources = toml::from_str::<References>(include_str!("../../data/references.toml"))?.source;
    let mut page = String::from(HEAD);
    if results.is_empty() {
        page += "<p>Nothing is measured yet.</p>\n";
    }
    results
        .iter()
        .for_each(|measured| section(&mut page, measured, &sources));
    Ok(page + "</body>\n</html>\n")
}

fn section(page: &mut String, measured: &Measured, sources: &[Source]) {
    let [bench, command, began] = [&measured.bench, &measured.command, &measured.began].map(|text| escape(text));
    let _ = writeln!(page, "<h2>{bench}</h2>\n<p><code>{command}</code>, begun {began}</p>");
    let host = measured
        .host
        .iter()
        .map(|(name, value)| vec![(name.clone(), false), (value.clone(), false)]);
    table(page, &[], host);
    let sources: Vec<&Source> = sources.iter().filter(|source| source.bench == measured.bench).collect();
    let (head, cells) = grid(&measured.rows);
    for (place, (part, rows)) in parts(&measured.rows).into_iter().enumerate() {
        for (figure, _) in head
            .iter()
            .filter(|(name, is_figure)| *is_figure && rows.iter().any(|row| row.get(name).is_some()))
        {
            let mut drawn = drawn(&rows, figure);
            // Only in the first part, because published figures apply to the whole benchmark.
            for source in sources.iter().filter(|source| place == 0 && source.figure == *figure) {
                drawn.extend(source.values.iter().map(|(what, value)| Bar {
                    label: what.clone(),
                    figure: Figure::of(&[value.as_float().unwrap_or(0.0)]),
                    reference: true,
                }));
            }
            let flows = if part.is_empty() {
                String::new()
            } else {
                format!(", {part} flows")
            };
            *page += &bars(&format!("{figure}{flows}"), &drawn);
        }
    }
    let columns: Vec<&str> = head.iter().map(|(name, _)| name.as_str()).collect();
    let lines = cells.into_iter().map(|cells| {
        cells
            .into_iter()
            .zip(&head)
            .map(|(cell, (_, figure))| (cell, *figure))
            .collect()
    });
    table(page, &columns, lines);
    if !sources.is_empty() {
        *page += "<h3>From elsewhere</h3>\n";
        let of = |source: &&Source| {
            let [figure, text] = [&source.figure, &source.text].map(|text| (text.clone(), false));
            let values = source.values.clone().into_iter();
            values
                .map(move |(what, value)| vec![(what, false), figure.clone(), (value.to_string(), true), text.clone()])
        };
        table(page, &["what", "figure", "value", "where"], sources.iter().flat_map(of));
    }
}

/// Rows grouped by their key `flows`, in order; one group if rows have no such key.
fn parts(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut parts: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let flows = row.text_of("flows");
        match parts.iter_mut().find(|(name, _)| *name == flows) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((flows, vec![row])),
        }
    }
    parts
}

/// Creates a bar for each row that has the figure, labelled with its case and with the keys that differ between rows.
fn drawn(rows: &[&Row], figure: &str) -> Vec<Bar> {
    let differs = |name: &str| rows.iter().any(|row| row.text_of(name) != rows[0].text_of(name));
    let with = rows.iter().filter_map(|row| Some((row, row.get(figure)?)));
    let bar = |(row, figure): (&&Row, Figure)| {
        let keys = row
            .keys()
            .filter(|(name, _)| !matches!(*name, "case" | "limited_by") && differs(name));
        let keys: String = keys.map(|(name, value)| format!(" {name}={value}")).collect();
        let label = row.text_of("case") + &keys;
        Bar {
            label,
            figure,
            reference: false,
        }
    };
    with.map(bar).collect()
}

/// Writes a table of cells, each with a flag that marks numbers.
fn table(page: &mut String, head: &[&str], lines: impl Iterator<Item = Vec<(String, bool)>>) {
    let names: String = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let _ = writeln!(page, "<table>\n<tr>{names}</tr>");
    for line in lines {
        let cell = |(text, is_number): &(String, bool)| {
            let class = if *is_number { " class=\"n\"" } else { "" };
            format!("<td{class}>{}</td>", escape(text))
        };
        let _ = writeln!(page, "<tr>{}</tr>", line.iter().map(cell).collect::<String>());
    }
    *page += "</table>\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "bench": "kernel", "command": "sluice-bench kernel", "began": "2026-01-02T03:04:05Z",
        "load_average": {"before": "0.1 0.2 0.3", "after": "1.0 0.5 0.3"},
        "host": {"cpu": "A <fast> one", "cores": 2, "tsc_hz": 2100000000},
        "rows": [
            {"case": "iptables", "rules": 1, "flows": "established", "limited_by": "gateway",
            "packets_per_s": {"min": 480000, "median": 490000, "max": 500000}},
            {"case": "iptables", "rules": 1000, "flows": "established", "limited_by": "gateway",
            "packets_per_s": {"min": 470000, "median": 485000, "max": 500000}},
            {"case": "sluice", "rules": 1, "flows": "new", "limited_by": "generator",
            "packets_per_s": {"min": 880000, "median": 890000, "max": 900000},
            "nat_ns_per_packet": {"min": 30, "median": 31.5, "max": 33}}
        ]}"#;

    #[test]
    fn report_shows_results_of_a_folder_and_labels_what_comes_from_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            ("kernel.json", SAMPLE),
            ("broken.json", "{"),
            ("notes.txt", "no result"),
        ] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let from = folder.path().to_path_buf();
        run(&ReportArguments { from, to: None }).expect("a page");
        let page = std::fs::read_to_string(folder.path().join("report.html")).expect("the page");
        for part in [
            "A &lt;fast&gt; one",
            "<code>sluice-bench kernel</code>, begun 2026-01-02T03:04:05Z",
            "0.1 0.2 0.3; 1.0 0.5 0.3",
            "490000 (480000-500000)",
            "31.5 (30.0-33.0)",
            "packets_per_s, established flows",
            ">iptables rules=1000<",
            "Linux on veth, an earlier run",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert_eq!(
            (3, 5),
            (page.matches("<svg").count(), page.matches("class=\"r\"").count())
        );
    }
}
