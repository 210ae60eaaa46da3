//! The page: one HTML file that needs nothing else.

use std::fmt::Write;

use super::plot::{Bar, bars};
use super::references::beside;
use crate::result::Measured;
use crate::rows::{Figure, Row, cell};

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

/// Text as HTML shows it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The page of all results.
pub fn page(results: &[Measured]) -> String {
    let mut page = String::from(HEAD);
    if results.is_empty() {
        page += "<p>Nothing is measured yet.</p>\n";
    }
    results.iter().for_each(|measured| section(&mut page, measured));
    page + "</body>\n</html>\n"
}

fn section(page: &mut String, measured: &Measured) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&measured.bench));
    let _ = writeln!(
        page,
        "<p><code>{}</code>, begun {}</p>\n<table>",
        escape(&measured.command),
        escape(&measured.began)
    );
    for (name, value) in &measured.host {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    *page += "</table>\n";
    for (part, rows) in parts(&measured.rows) {
        for figure in figures(&rows) {
            let mut drawn = drawn(&rows, &figure);
            // Beside the first part only: they are for the whole bench.
            let first = measured.rows.first().is_some_and(|row| row.text_of("flows") == part);
            if first {
                drawn.extend(beside(&measured.bench, &figure).iter().map(|reference| Bar {
                    label: reference.what.into(),
                    figure: Figure::of(&[reference.value]),
                    reference: true,
                }));
            }
            let title = match part.as_str() {
                "" => figure.clone(),
                part => format!("{figure}, {part} flows"),
            };
            *page += &bars(&title, &drawn);
        }
    }
    table(page, &measured.rows);
    references(page, &measured.bench);
}

/// Rows by their `flows`, in order; all in one where they have none.
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

/// Names of the figures of rows, in order.
fn figures(rows: &[&Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| row.figures()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.into());
        }
    }
    names
}

/// A bar per row that has the figure, labelled by its case and by the keys that differ.
fn drawn(rows: &[&Row], figure: &str) -> Vec<Bar> {
    let differs = |name: &str| rows.iter().any(|row| row.text_of(name) != rows[0].text_of(name));
    let with = rows
        .iter()
        .filter_map(|row| Some((row, row.figures().find(|(name, _)| *name == figure)?.1)));
    with.map(|(row, value)| {
        let keys = row
            .keys()
            .filter(|(name, _)| *name != "case" && *name != "limited_by" && differs(name));
        let keys: String = keys.map(|(name, value)| format!(" {name}={value}")).collect();
        Bar {
            label: row.text_of("case") + &keys,
            figure: value,
            reference: false,
        }
    })
    .collect()
}

fn table(page: &mut String, rows: &[Row]) {
    let all: Vec<&Row> = rows.iter().collect();
    let figures = figures(&all);
    let mut keys: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flat_map(Row::keys) {
        if !keys.iter().any(|known| known == name) {
            keys.push(name.into());
        }
    }
    *page += "<table>\n<tr>";
    keys.iter().chain(&figures).for_each(|name| {
        let _ = write!(page, "<th>{}</th>", escape(name));
    });
    *page += "</tr>\n";
    for row in rows {
        *page += "<tr>";
        for name in &keys {
            let _ = write!(page, "<td>{}</td>", escape(&row.text_of(name)));
        }
        for name in &figures {
            let value = row.figures().find(|(other, _)| other == name);
            let text = value.map(|(_, figure)| cell(&figure)).unwrap_or_default();
            let _ = write!(page, "<td class=\"n\">{text}</td>");
        }
        *page += "</tr>\n";
    }
    *page += "</table>\n";
}

fn references(page: &mut String, bench: &str) {
    let these = super::references::REFERENCES
        .iter()
        .filter(|reference| reference.bench == bench);
    let lines: Vec<String> = these
        .map(|reference| {
            format!(
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                escape(reference.what),
                reference.figure,
                reference.value,
                escape(reference.source)
            )
        })
        .collect();
    if !lines.is_empty() {
        *page +=
            "<h3>From elsewhere</h3>\n<table>\n<tr><th>what</th><th>figure</th><th>value</th><th>where</th></tr>\n";
        *page += &lines.join("\n");
        *page += "\n</table>\n";
    }
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

    fn sample() -> Measured {
        Measured::parse(SAMPLE).expect("a result")
    }

    #[test]
    fn page_shows_machine_command_date_medians_and_ranges() {
        let page = page(&[sample()]);
        for part in [
            "A &lt;fast&gt; one",
            "<code>sluice-bench kernel</code>, begun 2026-01-02T03:04:05Z",
            "0.1 0.2 0.3; 1.0 0.5 0.3",
            "490000 (480000-500000)",
            "31.5 (30.0-33.0)",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert_eq!(page.matches("<table>").count(), page.matches("</table>").count());
    }

    #[test]
    fn page_labels_what_comes_from_elsewhere() {
        let page = page(&[sample()]);
        assert_eq!(5, page.matches("class=\"r\"").count());
        assert!(page.contains("From elsewhere"));
        assert!(page.contains("Linux on veth, an earlier run"));
    }
}
