//! Tables of a snapshot, for the output as text and on the terminal.

use sluice_daemon::counters::CycleStage;

use super::snapshot::{Cycles, Figures, STAGES, Snapshot, Traffic};
use crate::columns::Align::{Left, Right};
use crate::columns::{Align, grouped};

/// A table. If the table has a sum of all rows, the sum is the first row.
#[derive(Clone, Debug)]
pub struct Sheet<const N: usize> {
    /// Title and alignment of each column.
    pub titles: [(String, Align); N],
    /// Rows of the table.
    pub rows: Vec<Row<N>>,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row<const N: usize> {
    /// Cells of the row.
    pub cells: [String; N],
    /// Whether the row needs the operator's attention.
    pub urgent: bool,
}

/// Load above which a worker counts as full, because it has no room left for bursts.
const FULL: f64 = 0.95;

/// Table of workers with their load, cost, prediction and rings.
pub fn load(snapshot: &Snapshot) -> Sheet<10> {
    let Snapshot { gateway, workers, .. } = snapshot;
    let mut rows = vec![load_row(["all".into(), "-".into()], gateway, false)];
    rows.extend(workers.iter().map(|worker| {
        let names = [worker.worker.to_string(), worker.core.to_string()];
        load_row(names, &worker.figures, worker.state == "stuck")
    }));
    // The sum of the loads may exceed the limit although no worker is full. The row of the sum is therefore urgent only
    // if packets were shed.
    rows[0].urgent = gateway.shed > 0.0;
    Sheet {
        titles: titles([
            ("WORKER", Right),
            ("CORE", Right),
            ("BUSY", Right),
            ("PACKETS/S", Right),
            ("PREDICTED", Right),
            ("CYCLES", Right),
            ("WAITING", Right),
            ("HANDED/S", Right),
            ("TAKEN/S", Right),
            ("SHED/S", Right),
        ]),
        rows,
    }
}

fn load_row([worker, core]: [String; 2], figures: &Figures, stuck: bool) -> Row<10> {
    let cells = [
        worker,
        core,
        format!("{:.0} %", figures.busy * 100.0),
        scaled(figures.packets),
        figures.predicted.map_or("-".into(), scaled),
        figures
            .cycles_per_packet
            .map_or("-".into(), |cycles| scaled(cycles.total)),
        scaled(figures.waiting as f64),
        scaled(figures.handed_over),
        scaled(figures.taken_over),
        scaled(figures.shed),
    ];
    Row {
        cells,
        urgent: stuck || figures.busy >= FULL || figures.shed > 0.0,
    }
}

/// Text that the daemon reports for a worker that performs all parts of packet processing.
const ALL: &str = "receive+parse+session+transmit";

/// Columns of the table of stages: the worker, the stages, and the parts.
const STAGE_COLUMNS: usize = STAGES.len() + 2;

/// Table of workers with their cycles per packet in each stage, and the parts of packet processing that each worker
/// performs.
pub fn stages(snapshot: &Snapshot) -> Sheet<STAGE_COLUMNS> {
    let Snapshot { gateway, workers, .. } = snapshot;
    let mut rows = vec![stages_row("all".into(), gateway, "-")];
    rows.extend(workers.iter().map(|worker| {
        let number = worker.worker.to_string();
        let parts = if worker.parts == ALL { "all" } else { &worker.parts };
        stages_row(number, &worker.figures, parts)
    }));
    Sheet {
        titles: std::array::from_fn(|column| match column.checked_sub(1) {
            None => ("WORKER".into(), Right),
            Some(stage) => match STAGES.get(stage) {
                Some(&stage) => (stage_title(stage), Right),
                None => ("PARTS".into(), Left),
            },
        }),
        rows,
    }
}

/// Title of the column of a stage. The names of some stages are too long for a terminal of 80 columns.
fn stage_title(stage: CycleStage) -> String {
    match stage {
        CycleStage::Transmit => "SEND".into(),
        CycleStage::HandOver => "HANDED".into(),
        CycleStage::TakeOver => "TAKEN".into(),
        stage => stage.name().to_uppercase(),
    }
}

fn stages_row(worker: String, figures: &Figures, parts: &str) -> Row<STAGE_COLUMNS> {
    let cycles = figures.cycles_per_packet.as_ref();
    let cells = std::array::from_fn(|column| match column.checked_sub(1) {
        None => worker.clone(),
        Some(stage) if stage < STAGES.len() => cycles.map_or("-".into(), |Cycles { stages, .. }| scaled(stages[stage])),
        Some(_) => parts.into(),
    });
    Row { cells, urgent: false }
}

/// Table of the workers that have taken over shards from other workers since the start.
pub fn assist(snapshot: &Snapshot) -> Sheet<7> {
    let assisting = snapshot.workers.iter().filter(|worker| worker.figures.assist.begun > 0);
    let rows = assisting.map(|worker| {
        let assist = &worker.figures.assist;
        let cells = [
            worker.worker.to_string(),
            assist.lent.to_string(),
            scaled(assist.waiting as f64),
            scaled(assist.packets),
            scaled(assist.slices_ended),
            scaled(assist.begun as f64),
            scaled(assist.ended as f64),
        ];
        Row { cells, urgent: false }
    });
    Sheet {
        titles: titles([
            ("WORKER", Right),
            ("LENT", Right),
            ("QUEUED", Right),
            ("ASSISTED/S", Right),
            ("SLICES/S", Right),
            ("BEGUN", Right),
            ("ENDED", Right),
        ]),
        rows: rows.collect(),
    }
}

/// Table of interfaces with their received and sent traffic.
pub fn traffic(snapshot: &Snapshot) -> Sheet<7> {
    let mut rows = vec![traffic_row("all", "-", &snapshot.traffic)];
    let interfaces = snapshot.interfaces.iter();
    rows.extend(interfaces.map(|interface| traffic_row(&interface.name, &interface.link, &interface.traffic)));
    Sheet {
        titles: titles([
            ("INTERFACE", Left),
            ("LINK", Left),
            ("RECEIVED/S", Right),
            ("BITS/S", Right),
            ("SENT/S", Right),
            ("BITS/S", Right),
            ("DROPPED/S", Right),
        ]),
        rows,
    }
}

fn traffic_row(name: &str, link: &str, traffic: &Traffic) -> Row<7> {
    let cells = [
        name.into(),
        link.into(),
        scaled(traffic.received),
        scaled(traffic.received_bits),
        scaled(traffic.sent),
        scaled(traffic.sent_bits),
        scaled(traffic.dropped),
    ];
    Row {
        cells,
        urgent: link == "down",
    }
}

/// Table of at most `max` drop reasons. The reasons with the most packets are listed.
pub fn drops(snapshot: &Snapshot, max: usize) -> Sheet<3> {
    let listed = snapshot.drops.iter().take(max).map(|drop| Row {
        cells: [scaled(drop.rate), scaled(drop.packets as f64), drop.name.clone()],
        urgent: false,
    });
    Sheet {
        titles: titles([("DROPPED/S", Right), ("DROPPED", Right), ("REASON", Left)]),
        rows: listed.collect(),
    }
}

fn titles<const N: usize>(titles: [(&str, Align); N]) -> [(String, Align); N] {
    titles.map(|(title, align)| (title.to_owned(), align))
}

/// The line above the tables.
pub fn title(snapshot: &Snapshot) -> String {
    let Snapshot {
        name,
        uptime,
        sessions: [v4, v6],
        seconds,
        ..
    } = snapshot;
    let up = humantime::format_duration(std::time::Duration::from_secs(*uptime));
    let sessions = grouped(v4 + v6);
    format!("{name}: up {up}, {sessions} sessions; the last {seconds:.1} s")
}

/// Format a number of up to 10¹⁵ with at most six characters: below 100,000 as an integer, otherwise with three digits
/// and k, M, G or T.
pub fn scaled(number: f64) -> String {
    if number < 99_999.5 {
        return match number {
            few if few < 9.95 && (few * 10.0).round() % 10.0 != 0.0 => format!("{few:.1}"),
            number => grouped(number.round() as u64),
        };
    }
    let mut rest = number;
    for unit in ["", "k", "M", "G"] {
        if rest < 999.5 {
            return three(rest) + unit;
        }
        rest /= 1_000.0;
    }
    three(rest) + "T"
}

fn three(number: f64) -> String {
    match number {
        small if small < 9.995 => format!("{small:.2}"),
        middle if middle < 99.95 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_scaled_has_six_characters_at_most() {
        for (expected, number) in [
            ("0", 0.0),
            ("0.5", 0.5),
            ("1", 0.993),
            ("10", 9.96),
            ("99,999", 99_999.4),
            ("100k", 99_999.6),
            ("1.00M", 999_600.0),
            ("14.2M", 14_204_000.0),
            ("999M", 999.4e6),
            ("1.00G", 999.6e6),
            ("100T", 1e14),
        ] {
            assert_eq!(expected, scaled(number), "{number}");
            assert!(expected.len() <= 6);
        }
    }
}
