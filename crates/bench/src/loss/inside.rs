//! Measurement inside the namespaces: each combination of loss, location and delay in sequence.

use std::time::Duration;

use super::hosts::{Hosts, Way};
use super::{Failure, LossArguments, Part, Place, stream, transfers};
use crate::rows::{Named, Row, Run, Runs, pairs};

/// Measure everything that the arguments select.
pub fn run(arguments: &LossArguments, run: &mut Run<'_>) -> Result<(), Failure> {
    for &place in &arguments.place {
        let mut hosts = Hosts::build(place, arguments)?;
        if arguments.does(Part::Stream) {
            let _server = stream::server(&hosts)?;
            for &delay in &arguments.delay {
                for &loss in &arguments.loss {
                    let point = Point { place, delay, loss };
                    (run.row)(streams(&mut hosts, point, arguments, run.quick)?);
                }
            }
        }
        if arguments.does(Part::Transfers) {
            for way in [Way::Inspected, Way::Plain] {
                let _server = transfers::server(&hosts, way)?;
                for &loss in &arguments.loss {
                    let point = Point { place, delay: 0, loss };
                    (run.row)(files(&mut hosts, way, point, arguments)?);
                }
            }
        }
    }
    Ok(())
}

/// Loss in percent, its location, and the delay.
#[derive(Clone, Copy, Debug)]
struct Point {
    place: Place,
    /// Round-trip delay in milliseconds.
    delay: u32,
    loss: f64,
}

impl Point {
    fn row(self, case: &str) -> Row {
        Row::new(case)
            .key("place", self.place.name())
            .key("loss_percent", self.loss)
            .key("round_trip_ms", self.delay)
    }

    fn one_way(self) -> Duration {
        Duration::from_micros(u64::from(self.delay) * 500)
    }
}

/// Whether a drop reason concerns the inspection of TCP segments, or overload.
fn is_of_inspection(name: &str) -> bool {
    name.starts_with("stream-") || name.starts_with("inspection-") || name == "signature" || name == "flow-dropped"
}

/// Measures streams in turn with and without inspection.
fn streams(hosts: &mut Hosts, point: Point, arguments: &LossArguments, quick: bool) -> Result<Row, Failure> {
    let (mut all, mut counted) = (Runs::default(), Runs::default());
    for turn in 0..arguments.runs(quick) {
        let mut ways = Way::ALL.to_vec();
        ways.retain(|&way| way != Way::Direct || arguments.direct);
        // Alternate which path is measured first.
        if turn % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            hosts.lose(point.loss, point.one_way(), arguments.seed + turn as u64)?;
            let before = hosts.dropped(is_of_inspection)?;
            let stream = stream::run(hosts, way, arguments.seconds(quick))?;
            all.add(RATES[way as usize], stream.mbit_s);
            if way != Way::Direct {
                all.add(SENT_AGAIN[way as usize], stream.sent_again);
            }
            let counts = hosts.counts()?;
            counted.add("relay_overflowed", counts.overflowed as f64);
            if way == Way::Inspected {
                let dropped = hosts.dropped(is_of_inspection)? - before;
                counted.extend([("lost", counts.lost as f64), ("dropped_by_inspection", dropped as f64)]);
            }
        }
    }
    let ratios = pairs(all.of(RATES[0]), all.of(RATES[1]), |with, without| with / without);
    let row = point.row("stream").key("congestion", hosts.congestion()?);
    Ok(row.figure("ratio", &ratios).runs(&all).runs(&counted))
}

/// Names of figures in rows: one figure for each path.
const RATES: [&str; 3] = ["inspected_mbit_s", "plain_mbit_s", "direct_mbit_s"];
const SENT_AGAIN: [&str; 2] = ["inspected_sent_again", "plain_sent_again"];

fn files(hosts: &mut Hosts, way: Way, point: Point, arguments: &LossArguments) -> Result<Row, Failure> {
    hosts.lose(point.loss, point.one_way(), arguments.seed)?;
    let before = hosts.dropped(is_of_inspection)?;
    let told = transfers::run_between(hosts, way, arguments)?;
    let dropped = hosts.dropped(is_of_inspection)? - before;
    let bridge = match way {
        Way::Inspected => "inspected",
        Way::Plain | Way::Direct => "plain",
    };
    Ok(point
        .row("transfers")
        .key("congestion", hosts.congestion()?)
        .key("bridge", bridge)
        .runs(&told)
        .figure("lost", &[hosts.counts()?.lost as f64])
        .figure("dropped_by_inspection", &[dropped as f64]))
}
