//! Live traffic for `sluice plan`. The traffic is captured by the running daemon, or from kernel interfaces.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_daemon::DaemonError;
use sluice_daemon::config::Config;
use sluice_daemon::config::api::{CaptureRequest, CaptureSource, Interface, RouterFilter, operation};
use sluice_daemon::plan::{self as planner, Capacity, Live, LiveError, LiveSource, MAX_FRAMES, Pace, PlanError};

use crate::arguments::DEFAULT_SOCKET;
use crate::client::{Client, ClientError};
use crate::columns::grouped;
use crate::exit::CommandError;

/// Interval at which progress is shown even if no packet arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Capture for some time. If a running daemon answers, the daemon captures. If no daemon answers, this process captures
/// on kernel interfaces.
///
/// # Errors
/// No packets arrive, or this process lacks the permission to capture.
pub fn live(socket: &Path, config: &Config, time: Duration) -> Result<Live, CommandError> {
    let mut progress = Progress::new(time);
    // A socket that is specified on the command line takes precedence over the configuration.
    let socket = match socket == Path::new(DEFAULT_SOCKET) {
        true => &config.document.control.socket,
        false => socket,
    };
    let mut client = match Client::connect(socket) {
        Ok(client) => client,
        Err(ClientError::Absent { .. }) => {
            let traffic = planner::listen(config, time, &mut |pace| progress.show(pace));
            return traffic.map_err(failed);
        }
        Err(error) => return Err(error.into()),
    };
    let before = interfaces(&mut client, config)?;
    let start = Instant::now();
    let mut live = Live::new(config, LiveSource::Daemon);
    let request = CaptureRequest {
        source: CaptureSource::Received,
        count: MAX_FRAMES as u32,
        seconds: time.as_secs() as u32,
        bytes: u16::MAX,
    };
    client.follow::<operation::Capture, _>(&request, POLL_INTERVAL, |piece| {
        let capacity = live.take(config, piece).map_err(failed)?;
        progress.show(live.pace(start.elapsed()));
        Ok::<_, CommandError>(capacity == Capacity::Available)
    })?;
    let after = interfaces(&mut Client::connect(socket)?, config)?;
    let elapsed = start.elapsed();
    for now in after {
        let Some(before) = before.iter().find(|before| before.name == now.name) else {
            continue;
        };
        let packets = now.received.saturating_sub(before.received);
        let bytes = now.received_bytes.saturating_sub(before.received_bytes);
        live.received(config, &now.name, packets, bytes);
    }
    live.finish(elapsed).map_err(failed)
}

/// Interfaces of the daemon that are also in the configuration.
fn interfaces(client: &mut Client, config: &Config) -> Result<Vec<Interface>, CommandError> {
    let found = client.all::<operation::Interfaces>(&RouterFilter::default())?;
    let matching = found
        .into_iter()
        .filter(|found| config.interface(&found.name).is_some());
    let matching: Vec<_> = matching.collect();
    if matching.is_empty() {
        let names: Vec<_> = config
            .interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        return Err(failed(LiveError::UnknownInterfaces {
            interfaces: names.join(", "),
        }));
    }
    Ok(matching)
}

fn failed(error: LiveError) -> CommandError {
    DaemonError::Plan(Box::new(PlanError::Live(error))).into()
}

/// A progress line on the terminal. Without a terminal, no line is shown.
struct Progress {
    time: Duration,
    terminal: bool,
}

impl Progress {
    fn new(time: Duration) -> Self {
        let terminal = io::stderr().is_terminal();
        Self { time, terminal }
    }

    fn show(&mut self, pace: Pace) {
        if self.terminal {
            let (elapsed, time) = (pace.elapsed.min(self.time).as_secs_f64(), self.time.as_secs());
            let (packets, bytes) = (grouped(pace.packets as u64), pace.bytes as f64 / 1e6);
            let line = format!("\r\x1b[Klistening, {elapsed:.1} of {time} s: {packets} packets, {bytes:.1} MB");
            // Errors are ignored, because the progress line is not essential.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
