//! `sluice top`: shows the activity of the running daemon between two polls of its counters.

pub mod poll;
pub mod prediction;
pub mod screen;
pub mod sheet;
pub mod snapshot;
pub mod text;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use poll::Poller;
use snapshot::Snapshot;

use crate::arguments::Top;
use crate::exit::CommandError;

/// Show snapshots on the terminal, or print them.
///
/// # Errors
/// Returns the errors of the connection, the terminal and the output.
pub fn top(socket: &Path, top: &Top, output: &mut dyn Write) -> Result<(), CommandError> {
    let Top { interval, once, json } = *top;
    match (once, json) {
        (_, true) => snapshots(socket, interval, |snapshot| {
            serde_json::to_writer(&mut *output, &snapshot).map_err(io::Error::from)?;
            writeln!(output)?;
            // Flush each snapshot, because a program may read the output.
            output.flush()?;
            Ok(!once)
        }),
        (false, false) if io::stdout().is_terminal() => screen::run(socket, interval),
        _ => snapshots(socket, interval, |snapshot| {
            text::write(&snapshot, output)?;
            Ok(false)
        }),
    }
}

/// Pass snapshots to `each` until `each` requests the end.
fn snapshots(
    socket: &Path,
    interval: Duration,
    mut each: impl FnMut(Snapshot) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let mut poller = Poller::new(socket);
    let mut before = poller.poll()?;
    loop {
        std::thread::sleep(interval);
        let now = poller.poll()?;
        if !each(Snapshot::between(&before, &now))? {
            return Ok(());
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sluice_daemon::config::api::{Core, Drop, Interface, Status, WorkerCounter};

    use super::poll::Poll;

    /// Counters of a daemon after `seconds` seconds of constant load at 2 GHz. Worker 0 receives 1,000,000 packets per
    /// second, and hands a tenth of them over to worker 1. Each packet costs 200 cycles on each worker that processes
    /// it.
    pub(super) fn poll(at: Instant, seconds: u64) -> Poll {
        Poll {
            at,
            status: status(),
            cores: vec![core(0, seconds), core(1, seconds)],
            interfaces: vec![
                interface("inside", "up", [1_000_000 * seconds, 0], 50 * seconds),
                interface("outside", "down", [0, 99_000 * seconds], 0),
            ],
            drops: vec![
                drop("ttl-expired", 9),
                drop("martian", 0),
                drop("shed", 50 * seconds),
                drop("unsolicited", 70 * seconds),
            ],
        }
    }

    fn status() -> Status {
        Status {
            name: "gateway".into(),
            version: "1".into(),
            process: 7,
            uptime: 100,
            generation: 1,
            sessions: [1_000, 234],
            capacity: [10_000, 10_000],
            tsc_hz: 2_000_000_000,
            warnings: Vec::new(),
        }
    }

    /// Counters of a worker after `seconds` seconds.
    pub(super) fn core(worker: u16, seconds: u64) -> Core {
        let (packets, parts) = match worker {
            0 => (1_000_000 * seconds, "receive+parse"),
            _ => (100_000 * seconds, "session+transmit"),
        };
        let given = if worker == 0 { 100_000 * seconds } else { 0 };
        let taken = if worker == 0 { 0 } else { 100_000 * seconds };
        let counters = [
            ("handed-over", given),
            ("taken-over", taken),
            ("waiting", 3 + 4 * u64::from(worker)),
            ("shed", if worker == 0 { 50 * seconds } else { 0 }),
            ("cycles-receive", 30 * packets),
            ("cycles-parse", 30 * packets),
            ("cycles-session", 100 * packets),
            ("cycles-transmit", 20 * packets),
            ("cycles-housekeeping", 5 * packets),
            ("cycles-hand-over", 10 * packets),
            ("cycles-take-over", 10 * packets),
        ];
        Core {
            worker,
            core: worker + 2,
            state: "running".into(),
            parts: parts.into(),
            shards: 8,
            sessions: 617,
            packets,
            rate: 0,
            busy: 0.0,
            leaked: 0,
            counters: counters.map(|(name, count)| counter(name, count)).into(),
        }
    }

    fn counter(name: &str, count: u64) -> WorkerCounter {
        WorkerCounter {
            name: name.into(),
            count,
            unit: "packets".into(),
            kind: if name == "waiting" { "gauge" } else { "total" }.into(),
        }
    }

    fn interface(name: &str, link: &str, [received, sent]: [u64; 2], dropped: u64) -> Interface {
        Interface {
            router: "default".into(),
            name: name.into(),
            device: "null:".into(),
            driver: "null".into(),
            link: link.into(),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1_500,
            queues: 1,
            steering: String::new(),
            card: String::new(),
            addresses: Vec::new(),
            received,
            received_bytes: 100 * received,
            sent,
            sent_bytes: 100 * sent,
            originated: 0,
            dropped,
            to_host: 0,
            parked: 0,
            unparked: 0,
            counters: Vec::new(),
        }
    }

    fn drop(name: &str, packets: u64) -> Drop {
        Drop {
            name: name.into(),
            help: String::new(),
            packets,
        }
    }
}
