//! P3: one core for packets and another for inspection, beside cores that do both.

use std::fmt::Write;

use super::figure;
use crate::rows::Row;

/// What P3's tables and figures need, of rules that are named beside it.
pub const P3: &[&str] = &[
    "inspect",
    "--bytes",
    "64,128,256,512,1024",
    "--only",
    "throughput,share,load",
];

/// P3's tables: bytes; without inspection irqbalance, kirqd and the split by role; with it irqbalance and the split; Mb/s.
const TABLES: [(&str, [f64; 3], [f64; 2]); 5] = [
    ("64", [158.0, 139.0, 158.0], [99.0, 168.0]),
    ("128", [267.0, 228.0, 287.0], [178.0, 286.0]),
    ("256", [454.0, 444.0, 513.0], [345.0, 532.0]),
    ("512", [700.0, 700.0, 700.0], [631.0, 700.0]),
    ("1024", [700.0, 700.0, 700.0], [700.0, 700.0]),
];

/// Rows of one kind of traffic and size, on two cores where nothing else is said.
struct Of<'r> {
    rows: &'r [Row],
    bytes: &'r str,
    traffic: &'r str,
    inspection: &'r str,
}

impl Of<'_> {
    fn cores(&self, model: &str, cores: &str, name: &str) -> f64 {
        let keys = [
            ("bytes", self.bytes),
            ("traffic", self.traffic),
            ("inspection", self.inspection),
            ("model", model),
            ("cores", cores),
            ("load_share", ""),
        ];
        match model {
            // Who receives assists, and sends.
            "role-split" if self.inspection == "on" => {
                let usual = [("senders", "io"), ("assist_threshold", "128"), ("time_slice_us", "20")];
                figure(self.rows, &[&keys[..], &usual].concat(), name)
            }
            _ => figure(self.rows, &keys, name),
        }
    }

    fn of(&self, model: &str, name: &str) -> f64 {
        self.cores(model, "2", name)
    }

    /// What the split by role should take of what `rss` takes: work ÷ (work + share × hand-over).
    fn expected(&self) -> f64 {
        let (work, handed) = (
            self.of("rss", "work_cycles"),
            self.of("role-split", "handovers_per_packet"),
        );
        work / (work + handed * self.of("role-split", "handover_cycles"))
    }
}

/// P3's figures. There they are of packets on wires that end at 700 Mb/s, here of packets in memory: gains are compared.
pub fn p3(rows: &[Row]) -> String {
    let mut text = String::from("\nP3, two cores, every flow in both directions\n\n");
    let mut line = |what: &str, paper: &str, ours: &str| {
        let _ = writeln!(text, "{what:<64} {paper:>24} {ours:>40}");
    };
    line("", "paper", "here");
    for (bytes, without, [even, split]) in TABLES {
        let of = |inspection| Of {
            rows,
            bytes,
            traffic: "rfc2544",
            inspection,
        };
        let off = of("off");
        let [a, b, c] = ["even", "even-moving", "role-split"].map(|model| off.of(model, "mbps"));
        line(
            &format!("Table 1: {bytes} bytes, even / even-moving / role-split"),
            &format!("{} / {} / {} Mb/s", without[0], without[1], without[2]),
            &format!("{a:.0} / {b:.0} / {c:.0} Mb/s"),
        );
        let on = of("on");
        let [a, c] = ["even", "role-split"].map(|model| on.of(model, "mbps"));
        line(
            &format!("Table 3: {bytes} bytes, even / role-split"),
            &format!("{even} / {split} Mb/s"),
            &format!("{a:.0} / {c:.0} Mb/s"),
        );
        line(
            &format!("Table 3: {bytes} bytes, role-split over even (over the better)"),
            &format!("{:.2}", split / even),
            &format!(
                "{:.2} ({:.2})",
                on.of("role-split", "over_even"),
                on.of("role-split", "over_better_even")
            ),
        );
        line(
            &format!("{bytes} bytes, role-split over rss (expected)"),
            "",
            &format!("{:.2} ({:.2})", on.of("role-split", "over_rss"), on.expected()),
        );
        line(
            &format!("{bytes} bytes, even over rss, both on one core"),
            "",
            &format!("{:.2}", on.cores("even", "1", "over_rss")),
        );
        line(
            &format!("{bytes} bytes, one queue: role-split over rss"),
            "",
            &format!("{:.2}", on.of("role-split", "over_rss_on_one_core")),
        );
        let waits = |model| on.of(model, "lock_cycles") / on.of(model, "work_cycles") * 100.0;
        line(
            &format!("Table 4: {bytes} bytes, waiting for locks, even"),
            "9.90 % of samples",
            &format!("{:.2} %", waits("even")),
        );
        line(
            &format!("Table 5: {bytes} bytes, cycles for lines that are shared, even"),
            "",
            &format!("{:.0} a packet", on.of("even", "shared_cycles")),
        );
        let busy =
            |model| [on.of(model, "busy_share_first"), on.of(model, "busy_share_second")].map(|share| share * 100.0);
        let ([a, b], [c, d]) = (busy("even"), busy("role-split"));
        line(
            &format!("Fig. 6: {bytes} bytes, cores in use, even; role-split"),
            "alike; second more",
            &format!("{a:.0} and {b:.0} %; {c:.0} and {d:.0} %"),
        );
        let share = |bytes, traffic| {
            let keys = [("bytes", bytes), ("traffic", traffic), ("cores", "1")];
            let found = rows.iter().filter(|row| row.median("share_of_matcher").is_some());
            let all: Vec<_> = found.cloned().collect();
            figure(&all, &keys, "share_of_matcher") * 100.0
        };
        line(
            &format!("{bytes} bytes, the matcher's share of rss on one core"),
            "",
            &format!("{:.0} %", share(bytes, "rfc2544")),
        );
    }
    for bytes in ["512", "1024"] {
        let of = Of {
            rows,
            bytes,
            traffic: "elephant",
            inspection: "on",
        };
        line(
            &format!("{bytes} bytes, one flow has half: role-split over rss"),
            "",
            &format!("{:.2}", of.of("role-split", "over_rss")),
        );
    }
    for bytes in ["64", "512"] {
        for share in ["0.1", "0.5", "0.9"] {
            let of = |model, name| {
                let keys = [("bytes", bytes), ("load_share", share), ("model", model)];
                figure(rows, &keys, name)
            };
            for (name, what, scale) in [("p99_us", "p99, us", 1.0), ("loss_share", "lost, %", 100.0)] {
                let [a, b, c] = ["even", "rss", "role-split"].map(|model| of(model, name) * scale);
                line(
                    &format!("{bytes} bytes, {share} of rss's load, {what}: even / rss / role-split"),
                    "",
                    &format!("{a:.1} / {b:.1} / {c:.1}"),
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_p3_stand_beside_the_rows_that_they_are_of() {
        let row = |model: &str, cores: u32, inspection: &str, mbps: f64| {
            Row::default()
                .key("bytes", 64)
                .key("model", model)
                .key("cores", cores)
                .key("inspection", inspection)
                .key("traffic", "rfc2544")
                .figure("mbps", &[mbps])
                .figure("work_cycles", &[1_000.0])
                .figure("lock_cycles", &[20.0])
                .figure("handovers_per_packet", &[0.5])
                .figure("handover_cycles", &[500.0])
        };
        let split = |assist, row: Row| {
            row.key("senders", "io")
                .key("assist_threshold", assist)
                .key("time_slice_us", 20)
        };
        let rows = [
            row("even", 2, "off", 900.0),
            row("even-moving", 2, "off", 800.0),
            row("role-split", 2, "off", 700.0),
            row("rss", 1, "on", 100.0),
            row("even", 1, "on", 95.0).figure("over_rss", &[0.95]),
            row("even", 2, "on", 150.0),
            row("even-moving", 2, "on", 160.0),
            row("rss", 2, "on", 200.0),
            split("off", row("role-split", 2, "on", 1.0)),
            split("128", row("role-split", 2, "on", 180.0))
                .figure("over_even", &[1.2])
                .figure("over_better_even", &[1.12])
                .figure("over_rss", &[0.9])
                .figure("over_rss_on_one_core", &[1.8]),
            // Another part's, with the same keys and one more.
            row("even", 2, "on", 1.0)
                .key("load_share", 0.5)
                .figure("p99_us", &[7.0]),
            row("rss", 1, "on", 100.0).figure("share_of_matcher", &[0.5]),
        ];
        let text = p3(&rows);
        for (what, paper, ours) in [
            ("Table 1: 64 bytes", "158 / 139 / 158 Mb/s", "900 / 800 / 700 Mb/s"),
            ("Table 3: 64 bytes, even /", "99 / 168 Mb/s", "150 / 180 Mb/s"),
            ("Table 3: 64 bytes, role-split over even", "1.70", "1.20 (1.12)"),
            ("64 bytes, role-split over rss", "", "0.90 (0.80)"),
            ("64 bytes, even over rss, both", "", "0.95"),
            ("64 bytes, one queue", "", "1.80"),
            ("Table 4: 64 bytes", "9.90 % of samples", "2.00 %"),
            ("64 bytes, the matcher's share", "", "50 %"),
            ("64 bytes, 0.5 of rss's load, p99", "", "7.0 / NaN / NaN"),
        ] {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_default();
            assert!(line.contains(paper) && line.ends_with(ours), "{what}: {line}");
        }
    }
}
