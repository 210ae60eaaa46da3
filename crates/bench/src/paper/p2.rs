//! P2: virtual routers on a PC: what is forwarded of what is offered, what polling is worth, and what routers cost each other.

use std::fmt::Write;

use super::{figure, find};
use crate::rows::Row;

/// What P2's figure and the text around it need, and what it asks of virtual routers without having measured it.
pub const P2: &[&str] = &[
    "router",
    "--only",
    "offered,receive,transmit,isolation,link-isolation,routers,load,fpm",
];

/// What is offered in Fig. 4, in parts of the most that is forwarded, and what is forwarded there then.
const FIGURE_4: [(&str, &str); 9] = [
    ("0.1", "all"),
    ("0.25", "all"),
    ("0.5", "all"),
    ("0.75", "all"),
    ("0.9", "all"),
    ("1.0", "about 450 Mb/s"),
    ("1.1", "about 450 Mb/s"),
    ("1.5", "about 450 Mb/s"),
    ("2.0", "about 450 Mb/s"),
];

/// Ways of waiting, and P2's Mb/s: sent, received.
const WAITS: [(&str, [&str; 2]); 3] = [
    ("poll", ["714 Mb/s", "936 Mb/s"]),
    ("adaptive", ["", ""]),
    ("interrupt", ["714 Mb/s", "383 Mb/s"]),
];

/// P2's figures. There they are of a card of 1 Gb/s, here of packets in memory and of wires in memory.
pub fn p2(rows: &[Row]) -> String {
    let mut text = String::from("\nP2, frames of 64 bytes\n\n");
    let mut line = |what: &str, paper: &str, ours: &str| {
        let _ = writeln!(text, "{what:<66} {paper:>18} {ours:>44}");
    };
    line("", "paper", "here");
    for graph in ["plain", "chain"] {
        for (load, paper) in FIGURE_4 {
            let of = |name| figure(rows, &[("graph", graph), ("load_share", load)], name);
            let ours = format!("{:.0} of {:.0} Mb/s", of("forwarded_mbps"), of("offered_mbps"));
            line(&format!("Fig. 4: two inputs, {graph}, load {load}"), paper, &ours);
        }
    }
    let most = |graph| figure(rows, &[("graph", graph), ("load_share", "2.0")], "forwarded_mbps");
    let ratio = format!("{:.2}", most("chain") / most("plain"));
    line("Fig. 4: with a chain over without, saturated", "", &ratio);
    for device in ["virtio-user", "vhost"] {
        let keys = |case, wait, load| [("case", case), ("device", device), ("wait", wait), ("load_share", load)];
        for (wait, [sent, received]) in WAITS {
            for (case, paper) in [("transmit", sent), ("receive", received)] {
                let Some(row) = find(rows, &keys(case, wait, "")) else {
                    line(&format!("{case}, {device}, {wait}"), paper, "the driver can't");
                    continue;
                };
                let mbps = row.median("mbps").unwrap_or(f64::NAN);
                line(&format!("{case}, {device}, {wait}"), paper, &format!("{mbps:.0} Mb/s"));
            }
            if let Some(row) = find(rows, &keys("receive", wait, "0.1")) {
                let share = row.median("cpu_share").unwrap_or(f64::NAN) * 100.0;
                let what = format!("receive, {device}, {wait}: a core's use at a tenth of that");
                line(&what, "", &format!("{share:.0} %"));
            }
        }
        let mbps = |wait| figure(rows, &keys("receive", wait, ""), "mbps");
        let ratio = format!("{:.2}", mbps("poll") / mbps("interrupt"));
        line(&format!("receive, {device}, poll over interrupt"), "2.44", &ratio);
    }
    for (case, queue, what) in [
        ("isolation", "own", "routers, queues of their own"),
        ("isolation", "shared", "routers, one queue"),
        ("link-isolation", "own", "links on one link"),
    ] {
        let of = |load, name| {
            let keys = [("case", case), ("queue", queue), ("neighbour_load", load)];
            figure(rows, &keys, name)
        };
        let ours = format!("{:.0} of {:.0} lost", of("2.0", "lost"), of("2.0", "packets"));
        line(&format!("isolation of {what}: a neighbour floods"), "demanded", &ours);
        let ours = format!("{:.1} us, {:.1} alone", of("2.0", "p99_us"), of("0.0", "p99_us"));
        line(&format!("isolation of {what}: 99th percentile"), "", &ours);
    }
    let routed = rows.iter().filter(|row| row.text_of("links") == "1000");
    for row in routed.filter(|row| row.median("over_one_router").is_some()) {
        let (routers, routes) = (row.text_of("routers"), row.text_of("routes"));
        let [cycles, ratio] = ["cycles_per_packet", "over_one_router"].map(|name| row.median(name).unwrap_or(f64::NAN));
        let what = format!("a packet over {routers} routers with {routes} routes in all");
        line(&what, "", &format!("{cycles:.0} cycles, {ratio:.2} of one's"));
    }
    let loads = rows
        .iter()
        .filter(|row| row.text_of("case") == "load" && row.text_of("routers") == "1");
    for row in loads.filter(|row| row.median("routes_per_s").is_some()) {
        let what = format!(
            "changes a second among {} routes of IPv{}, cores: {}",
            row.text_of("routes"),
            row.text_of("family"),
            row.text_of("cores")
        );
        let rate = row.median("routes_per_s").unwrap_or(f64::NAN);
        line(&what, "", &format!("{:.2} million", rate / 1e6));
    }
    let fpm = |phase, name| figure(rows, &[("case", "fpm"), ("phase", phase)], name);
    line(
        "a daemon's table by FPM, packets going on",
        "",
        &format!("{:.2} s", fpm("load", "seconds")),
    );
    let ours = format!("{:.0} of {:.0} lost", fpm("replay", "lost"), fpm("replay", "packets"));
    line("the same table again", "", &ours);
    let ours = format!(
        "{:.2} ms, {:.2} ms",
        fpm("live", "visible_ms"),
        fpm("live", "visible_p99_ms")
    );
    line("a route until packets follow it: median, 99th percentile", "", &ours);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_p2_stand_beside_the_rows_that_they_are_of() {
        let offered = |graph: &str, load, offered, forwarded| {
            let row = Row::new("forward").key("graph", graph).key("load_share", load);
            row.figure("offered_mbps", &[offered])
                .figure("forwarded_mbps", &[forwarded])
        };
        let wire = |case: &str, wait: &str, mbps| {
            let row = Row::new(case).key("device", "vhost").key("wait", wait);
            row.figure("mbps", &[mbps])
        };
        let isolation = |load, lost, p99| {
            let row = Row::new("isolation").key("queue", "shared").key("neighbour_load", load);
            row.figure("packets", &[1_000.0])
                .figure("lost", &[lost])
                .figure("p99_us", &[p99])
        };
        let routers = |routers, links, ratio| {
            let row = Row::new("forward").key("routers", routers).key("links", links);
            row.key("routes", 1_000)
                .figure("cycles_per_packet", &[210.0])
                .figure("over_one_router", &[ratio])
        };
        let fpm = |phase: &str| Row::new("fpm").key("phase", phase);
        let rows = [
            offered("plain", 2.0, 20_000.0, 10_000.0),
            offered("chain", 2.0, 18_000.0, 9_000.0),
            wire("receive", "poll", 3_000.0),
            wire("receive", "interrupt", 1_500.0),
            wire("receive", "interrupt", 300.0)
                .key("load_share", 0.1)
                .figure("cpu_share", &[0.25]),
            wire("transmit", "poll", 2_000.0),
            isolation(0.0, 0.0, 4.0),
            isolation(2.0, 3.0, 9.0),
            routers(1, 1, 0.9),
            routers(1_000, 1_000, 1.05),
            Row::new("load")
                .key("routers", 1)
                .key("routes", 1_000_000)
                .key("family", 4)
                .key("cores", 2)
                .figure("routes_per_s", &[1_900_000.0]),
            fpm("load").figure("seconds", &[2.5]),
            fpm("replay").figure("lost", &[0.0]).figure("packets", &[5_000.0]),
        ];
        let text = p2(&rows);
        for (what, paper, ours) in [
            (
                "Fig. 4: two inputs, plain, load 2.0",
                "about 450 Mb/s",
                "10000 of 20000 Mb/s",
            ),
            ("Fig. 4: with a chain over without", "", "0.90"),
            ("receive, vhost, poll ", "936 Mb/s", "3000 Mb/s"),
            ("receive, vhost, interrupt ", "383 Mb/s", "1500 Mb/s"),
            ("receive, vhost, interrupt:", "", "25 %"),
            ("receive, vhost, poll over interrupt", "2.44", "2.00"),
            ("transmit, vhost, poll", "714 Mb/s", "2000 Mb/s"),
            ("transmit, vhost, interrupt", "714 Mb/s", "the driver can't"),
            ("isolation of routers, one queue: a", "demanded", "3 of 1000 lost"),
            ("isolation of routers, one queue: 99th", "", "9.0 us, 4.0 alone"),
            ("a packet over 1000 routers", "", "210 cycles, 1.05 of one's"),
            ("changes a second among 1000000", "", "1.90 million"),
            ("a daemon's table", "", "2.50 s"),
            ("the same table again", "", "0 of 5000 lost"),
        ] {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_default();
            assert!(line.contains(paper) && line.ends_with(ours), "{what}: {line}");
        }
        assert!(!text.contains("over 1 routers"), "one link is another thing");
    }
}
