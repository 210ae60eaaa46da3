//! P0: carrier-grade NAT: how many times the kernel's packets it passes, by size and execution model, and what it matters
//! which stages share a core.

use std::fmt::Write;

use super::{figure, find};
use crate::frames;
use crate::rows::Row;

/// What P0's figures need.
pub const P0: [&[&str]; 4] = [
    &[
        "frames",
        "--only",
        "theory,iptables,models,sites",
        "--direction",
        "up,down",
    ],
    &["placement"],
    &[
        "kernel",
        "--cases",
        "linux-forward,iptables,sluice-forward,sluice",
        "--rules",
        "1000",
        "--flows",
        "established",
        "--hits",
        "last",
    ],
    &["subscribers"],
];

/// Its figures of throughput: which, the way of the packets, and at 64 bytes uNATp and uNAT over the kernel.
const FIGURES: [(&str, &str, [&str; 2]); 2] = [
    ("Fig. 7", "up", ["15.5 times", "not told"]),
    ("Fig. 8", "down", ["14.7 times", "10.4 times"]),
];

/// Its pairings (Table 4), and what Fig. 10 says of them in its text.
const PAIRINGS: [(&str, &str); 8] = [
    ("Val+NAT", "4.3 Gb/s, best"),
    ("Val+CT", ""),
    ("Val+TX", ""),
    ("NAT+CT", ""),
    ("NAT+TX", "worst"),
    ("RX+Val", ""),
    ("RX+NAT", ""),
    ("RX+TX", ""),
];

/// Its sets of cores (Table 3): what they are on two cores, where the second and the third are one, and what Fig. 9 says of them.
const SETS: [(&str, &str, &str); 2] = [
    (
        "core set 1, TX far away",
        "receive+parse+session on 0 | transmit on 1",
        "worst",
    ),
    (
        "core sets 2 and 3, RX with TX, Validity with NAT",
        "receive on 0 | parse+session on 1 | transmit on 0",
        "better",
    ),
];

/// Rows of one size and way, with or without sites.
struct Of<'r> {
    rows: &'r [Row],
    bytes: &'r str,
    direction: &'r str,
    site: &'r str,
}

impl Of<'_> {
    fn rows<'s>(&'s self, keys: &'s [(&'s str, &'s str)]) -> impl Iterator<Item = &'s Row> {
        let own = [("bytes", self.bytes), ("direction", self.direction)];
        let all = move |row: &&Row| own.iter().chain(keys).all(|(name, value)| row.text_of(name) == *value);
        self.rows.iter().filter(all)
    }

    fn iptables(&self) -> f64 {
        let keys = [("bench", "frames"), ("case", "iptables")];
        let row = self.rows(&keys).next();
        row.and_then(|row| row.median("gbps")).unwrap_or(f64::NAN)
    }

    /// The most of what a case passes, on one core or on several; of a model where one is named.
    fn most(&self, case: &str, model: &str, several: bool) -> f64 {
        // The paper's gateway has sites; what does not translate knows none.
        let site = if case == "sluice" { self.site } else { "none" };
        let keys = [
            ("bench", "frames"),
            ("case", case),
            ("model", model),
            ("source", "included"),
            ("site", site),
        ];
        let rates = self
            .rows(&keys)
            .filter(|row| (row.text_of("cores") != "1") == several)
            .filter_map(|row| row.median("gbps"));
        rates.fold(f64::NAN, f64::max)
    }
}

/// P0's figures. There they are of packets on wires of 10 Gb/s and eight cores, here of packets in memory with the source on
/// the same cores, and Linux's on veth: ratios are compared.
pub fn p0(rows: &[Row]) -> String {
    let mut text = String::from(
        "\nP0, 8,000 established flows; uNAT: run-to-completion on one core, uNATp: the best pipeline\n\n",
    );
    let mut line = |what: &str, paper: &str, ours: &str| {
        let _ = writeln!(text, "{what:<70} {paper:>24} {ours:>44}");
    };
    line("", "paper", "here");
    wires(rows, &mut line);
    for (figure_name, direction, times) in FIGURES {
        for bytes in frames::SIZES.map(|bytes| bytes.to_string()) {
            for (site, with) in [("none", ""), ("tags-and-mac", ", with sites")] {
                let of = Of {
                    rows,
                    bytes: &bytes,
                    direction,
                    site,
                };
                throughput(&of, &format!("{figure_name}: {bytes} bytes{with}"), times, &mut line);
            }
        }
    }
    for site in ["none", "tags-and-mac"] {
        ways(rows, site, &mut line);
    }
    placements(rows, &mut line);
    control(rows, &mut line);
    text
}

type Line<'l> = dyn FnMut(&str, &str, &str) + 'l;

/// A size of Fig. 7 or 8.
fn throughput(of: &Of<'_>, what: &str, [at_64, at_64_alone]: [&str; 2], line: &mut Line<'_>) {
    let (kernel, one) = (of.iptables(), of.most("sluice", "run-to-completion", false));
    let (all, pipeline) = (
        of.most("sluice", "run-to-completion", true),
        of.most("sluice", "pipeline", true),
    );
    if one.is_nan() {
        return;
    }
    let l2fwd = of.most("l2fwd", "run-to-completion", false);
    let theory = figure(
        of.rows,
        &[("case", "theory"), ("bytes", of.bytes), ("line_gbps", "10")],
        "gbps",
    );
    let is_small = of.bytes == "64";
    let paper = if is_small { "7.61 Gb/s" } else { "" };
    line(
        &format!("{what}, a line of 10 Gb/s"),
        paper,
        &format!("{theory:.2} Gb/s"),
    );
    let ours = format!("{l2fwd:.2} / {one:.2} / {pipeline:.2} / {kernel:.2} Gb/s");
    line(&format!("{what}, L2FWD / uNAT / uNATp / Kernel"), "", &ours);
    let paper = match (is_small, of.direction) {
        (true, _) => at_64,
        (false, "up") => "2 to 15 times",
        _ => "",
    };
    line(
        &format!("{what}, uNATp over Kernel"),
        paper,
        &format!("{:.1} times", pipeline / kernel),
    );
    let paper = if is_small { at_64_alone } else { "" };
    line(
        &format!("{what}, uNAT over Kernel"),
        paper,
        &format!("{:.1} times", one / kernel),
    );
    let is_full = of.bytes.parse::<usize>().is_ok_and(|bytes| bytes >= 256);
    let paper = if is_full { "near 1" } else { "" };
    line(
        &format!("{what}, uNATp of that line"),
        paper,
        &format!("{:.2}", pipeline / theory),
    );
    let paper = if is_full && of.direction == "down" { "1" } else { "" };
    line(
        &format!("{what}, uNAT of that line"),
        paper,
        &format!("{:.2}", one / theory),
    );
    if !all.is_nan() {
        let ours = format!("{:.2}", all / pipeline);
        line(&format!("{what}, run-to-completion on all cores over uNATp"), "", &ours);
    }
}

/// Packets of either way at 64 bytes.
fn ways(rows: &[Row], site: &str, line: &mut Line<'_>) {
    let of = |direction| Of {
        rows,
        bytes: "64",
        direction,
        site,
    };
    let over = |model, several| of("down").most("sluice", model, several) / of("up").most("sluice", model, several);
    let with = if site == "none" { "" } else { ", with sites" };
    for (name, model, several, paper) in [
        ("uNAT", "run-to-completion", false, "above 1"),
        ("uNATp", "pipeline", true, "about 1"),
    ] {
        let ratio = over(model, several);
        if !ratio.is_nan() {
            let what = format!("Fig. 7, 8: 64 bytes{with}, {name}, down over up");
            line(&what, paper, &format!("{ratio:.2}"));
        }
    }
    for direction in ["up", "down"] {
        let keys = [
            ("bench", "frames"),
            ("bytes", "64"),
            ("direction", direction),
            ("site", "tags-and-mac"),
        ];
        let added = rows.iter().filter(|row| row.median("extra_cycles").is_some());
        let all: Vec<_> = added.cloned().collect();
        if let Some(row) = find(&all, &keys).filter(|_| site != "none") {
            let cycles = row.median("extra_cycles").unwrap_or(f64::NAN);
            let what = format!("tags and virtual MAC, 64 bytes, {direction}, cycles more a packet");
            line(&what, "", &format!("{cycles:.1}"));
        }
    }
}

/// Linux and Sluice on the same wires, each received where it passes more.
fn wires(rows: &[Row], line: &mut Line<'_>) {
    let of = |case, direction, site, name| {
        let keys = [
            ("bench", "kernel"),
            ("case", case),
            ("direction", direction),
            ("site", site),
        ];
        let all = rows
            .iter()
            .filter(|row| keys.iter().all(|(key, value)| row.text_of(key) == *value));
        all.filter_map(|row| row.median(name)).fold(f64::NAN, f64::max)
    };
    for direction in ["up", "down"] {
        for (case, site, name, what) in [
            ("sluice", "none", "times_iptables", "Sluice over iptables"),
            (
                "sluice",
                "tags-and-mac",
                "times_iptables",
                "Sluice with sites over iptables",
            ),
            (
                "sluice-forward",
                "none",
                "times_linux_forward",
                "Sluice over Linux, both forwarding",
            ),
        ] {
            let times = of(case, direction, site, name);
            if !times.is_nan() {
                let what = format!("{what} on the same veth, 64 bytes, {direction}");
                line(&what, "", &format!("{times:.2} times"));
            }
        }
    }
    let rate = of("linux-forward", "up", "none", "packets_per_s") / 1e6;
    line(
        "text: Linux forwards, 64 bytes",
        "about 0.7 M/s",
        &format!("{rate:.2} M/s"),
    );
}

/// Fig. 9 and 10, and the policy that they ask for.
fn placements(rows: &[Row], line: &mut Line<'_>) {
    let up = [("direction", "up"), ("flows", "established"), ("kind", "measured")];
    let with = |more: &[(&'static str, &'static str)]| [&up[..], more].concat();
    let gbps = |mpps: f64| mpps * 512.0 / 1e3;
    let apart = rows.iter().filter_map(|row| row.median("line_cycles")).next();
    for (what, placement, paper) in SETS {
        let keys = with(&[("scenario", "established up"), ("placement", placement)]);
        let ours = format!(
            "{:.2} Gb/s, cores {:.0} cycles apart",
            gbps(figure(rows, &keys, "mpps")),
            apart.unwrap_or(f64::NAN)
        );
        line(&format!("Fig. 9: {what}"), paper, &ours);
    }
    for (name, paper) in PAIRINGS {
        for flows in ["established", "new"] {
            let of = |suffix: &str, kind| {
                let scenario = format!("P0 {name}{suffix}");
                let keys = [
                    ("scenario", scenario.as_str()),
                    ("direction", "up"),
                    ("flows", flows),
                    ("kind", kind),
                ];
                let figure_name = if kind == "measured" { "mpps" } else { "predicted_mpps" };
                gbps(figure(rows, &keys, figure_name))
            };
            let two = of(", two cores", "measured");
            let spread = match of("", "measured") {
                none if none.is_nan() => format!("{:.2} expected", of("", "predicted")),
                measured => format!("{measured:.2}"),
            };
            let what = format!("Fig. 10: {name}, {flows} flows, two cores (one each for the others)");
            line(
                &what,
                if flows == "new" { paper } else { "" },
                &format!("{two:.2} ({spread}) Gb/s"),
            );
        }
    }
    for planner in ["sluice", "always run-to-completion", "always pipeline"] {
        let keys = [("scenario", "all"), ("planner", planner)];
        let behind = figure(rows, &keys, "mean_behind_best_percent");
        let paper = if planner == "sluice" { "asked for" } else { "" };
        let what = format!("a policy of placement: {planner}, behind the best in the mean");
        line(&what, paper, &format!("{behind:.1} %"));
    }
}

/// The control plane, of which the paper has no figures.
fn control(rows: &[Row], line: &mut Line<'_>) {
    let of = |case: &str| {
        let keys = [("bench", "subscribers"), ("case", case), ("by", "daemon")];
        find(rows, &keys)
    };
    let text = |row: &Row, name| row.median(name).unwrap_or(f64::NAN);
    if let Some(row) = of("capacity") {
        let (sites, terminals) = (row.text_of("sites"), row.text_of("terminals"));
        let what = format!("control: memory of each of {sites} sites of {terminals} terminals");
        line(&what, "", &format!("{:.0} bytes", text(row, "bytes_per_site")));
    }
    if let Some(row) = of("lease-to-mapping") {
        let ours = format!("{:.1} ms, {:.1} ms", text(row, "p50_ms"), text(row, "p99_ms"));
        line(
            "control: from a lease file to packets, median, 99th percentile",
            "",
            &ours,
        );
    }
    if let Some(row) = of("public-leases") {
        let what = format!("control: public leases of a Kea for {} sites", row.text_of("sites"));
        line(&what, "", &format!("{:.1} s", text(row, "seconds")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of `frames` at 64 bytes.
    fn frames(case: &str, direction: &str, site: &str, gbps: f64) -> Row {
        let row = Row::new(case).key("bench", "frames").key("bytes", 64);
        row.key("direction", direction)
            .key("site", site)
            .figure("gbps", &[gbps])
    }

    fn model(case: &str, model: &str, cores: u32, direction: &str, gbps: f64) -> Row {
        let row = frames(case, direction, "none", gbps).key("model", model);
        row.key("cores", cores).key("source", "included")
    }

    fn placement(scenario: &str, placement: &str, flows: &str, kind: &str) -> Row {
        let row = Row::default().key("bench", "placement").key("scenario", scenario);
        row.key("placement", placement)
            .key("direction", "up")
            .key("flows", flows)
            .key("kind", kind)
    }

    fn kernel(case: &str, direction: &str) -> Row {
        let row = Row::new(case).key("bench", "kernel").key("direction", direction);
        row.key("site", "none").figure("packets_per_s", &[800_000.0])
    }

    fn subscribers(case: &str) -> Row {
        let row = Row::new(case).key("bench", "subscribers").key("by", "daemon");
        row.key("sites", 10_000).key("terminals", 4)
    }

    fn rows() -> Vec<Row> {
        let (first, second) = (SETS[0].1, SETS[1].1);
        let planner = |name: &str, behind| {
            let row = Row::default().key("scenario", "all").key("planner", name);
            row.figure("mean_behind_best_percent", &[behind])
        };
        vec![
            frames("theory", "up", "none", 7.62).key("line_gbps", 10),
            frames("iptables", "up", "none", 0.25),
            frames("iptables", "down", "none", 0.2),
            // Without what the source takes: of another kind.
            frames("sluice", "up", "none", 99.0)
                .key("model", "run-to-completion")
                .key("cores", 1),
            model("l2fwd", "run-to-completion", 1, "up", 9.0),
            model("l2fwd", "run-to-completion", 2, "up", 18.0),
            model("sluice", "run-to-completion", 1, "up", 4.0),
            model("sluice", "run-to-completion", 2, "up", 7.5),
            model("sluice", "pipeline", 2, "up", 3.0),
            model("sluice", "pipeline", 2, "up", 5.0),
            model("sluice", "run-to-completion", 1, "down", 4.4),
            model("sluice", "pipeline", 2, "down", 5.0),
            model("sluice", "run-to-completion", 1, "up", 3.5).key("site", "tags-and-mac"),
            model("sluice", "pipeline", 2, "up", 4.5).key("site", "tags-and-mac"),
            frames("sluice", "up", "tags-and-mac", 3.0).figure("extra_cycles", &[12.0]),
            kernel("linux-forward", "up"),
            kernel("sluice", "up").figure("times_iptables", &[0.8]),
            kernel("sluice", "up").figure("times_iptables", &[1.6]),
            kernel("sluice-forward", "up").figure("times_linux_forward", &[1.3]),
            placement("established up", "run-to-completion on 0", "established", "measured")
                .figure("line_cycles", &[90.0]),
            placement("established up", first, "established", "measured").figure("mpps", &[5.0]),
            placement("established up", second, "established", "measured").figure("mpps", &[10.0]),
            placement("P0 Val+NAT, two cores", second, "new", "measured").figure("mpps", &[2.0]),
            placement("P0 Val+NAT", "x", "new", "predicted").figure("predicted_mpps", &[4.0]),
            planner("sluice", 1.4),
            subscribers("capacity").figure("bytes_per_site", &[900.0]),
            subscribers("lease-to-mapping")
                .figure("p50_ms", &[1.5])
                .figure("p99_ms", &[9.5]),
            subscribers("public-leases").figure("seconds", &[21.0]),
        ]
    }

    #[test]
    fn figures_of_p0_stand_beside_the_rows_that_they_are_of() {
        let text = p0(&rows());
        for (what, paper, ours) in [
            ("Fig. 7: 64 bytes, a line", "7.61 Gb/s", "7.62 Gb/s"),
            ("Fig. 7: 64 bytes, L2FWD / uNAT", "", "9.00 / 4.00 / 5.00 / 0.25 Gb/s"),
            ("Fig. 7: 64 bytes, uNATp over Kernel", "15.5 times", "20.0 times"),
            ("Fig. 7: 64 bytes, uNAT over Kernel", "not told", "16.0 times"),
            ("Fig. 7: 64 bytes, uNATp of that line", "", "0.66"),
            ("Fig. 7: 64 bytes, run-to-completion on all", "", "1.50"),
            (
                "Fig. 7: 64 bytes, with sites, uNATp over Kernel",
                "15.5 times",
                "18.0 times",
            ),
            ("Fig. 8: 64 bytes, uNAT over Kernel", "10.4 times", "22.0 times"),
            ("Fig. 7, 8: 64 bytes, uNAT, down over up", "above 1", "1.10"),
            ("Fig. 7, 8: 64 bytes, uNATp, down over up", "about 1", "1.00"),
            ("tags and virtual MAC, 64 bytes, up", "", "12.0"),
            ("text: Linux forwards", "about 0.7 M/s", "0.80 M/s"),
            ("Sluice over iptables on the same veth, 64 bytes, up", "", "1.60 times"),
            ("Sluice over Linux, both forwarding on the same veth", "", "1.30 times"),
            ("Fig. 9: core set 1", "worst", "2.56 Gb/s, cores 90 cycles apart"),
            (
                "Fig. 9: core sets 2 and 3",
                "better",
                "5.12 Gb/s, cores 90 cycles apart",
            ),
            (
                "Fig. 10: Val+NAT, new flows",
                "4.3 Gb/s, best",
                "1.02 (2.05 expected) Gb/s",
            ),
            ("a policy of placement: sluice", "asked for", "1.4 %"),
            ("control: memory of each of 10000 sites", "", "900 bytes"),
            ("control: from a lease file", "", "1.5 ms, 9.5 ms"),
            ("control: public leases", "", "21.0 s"),
        ] {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_default();
            assert!(line.contains(paper) && line.ends_with(ours), "{what}: {line}");
        }
        assert!(!text.contains("128 bytes"), "what is not measured is left out");
        assert!(!text.contains("Fig. 8: 64 bytes, with sites"));
    }

    #[test]
    fn command_lines_of_p0_are_understood() {
        for words in P0 {
            let line = ["sluice-bench"].iter().chain(words);
            assert!(crate::understands(line), "{words:?}");
        }
    }
}
