//! `sluice run`: starts the daemon with a loaded configuration, and prints the counters when the daemon ends.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::packet::reason::Reason;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::control::Control;
use crate::socket::Socket;
use crate::start::{start, sum};
use crate::watchdog::Watchdog;
use crate::{DaemonError, Loaded, api, log};

/// Maximum wait at shutdown for tasks that can't be cancelled.
const PATIENCE: Duration = Duration::from_secs(1);

/// Run until SIGINT or SIGTERM; SIGHUP reopens the file of records. The counters are written to `output` at the end.
///
/// # Errors
/// The process can't be started.
pub fn run(loaded: Loaded, output: &mut dyn Write) -> Result<(), DaemonError> {
    log::start(loaded.checked.config.document.control.log);
    let document = &loaded.checked.config.document;
    let (name, path) = (document.system.name.clone(), document.control.socket.clone());
    let (cores, limit) = (
        loaded.checked.config.cores.clone(),
        document.system.watchdog.limit.duration(),
    );
    for finding in loaded.checked.advice.findings() {
        tracing::warn!("{}:{}: {}", loaded.name, finding.line, finding.message);
    }
    let socket = Socket::claim(&path)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    // Install signal handlers before anything is opened, so that a signal during the start leads to an orderly shutdown.
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        let caught = |kind| signal(kind).map_err(DaemonError::Runtime);
        (
            caught(SignalKind::interrupt())?,
            caught(SignalKind::terminate())?,
            caught(SignalKind::hangup())?,
        )
    };
    let running = start(&loaded)?;
    let watchdog = Watchdog::start(running.plane.counters().to_vec(), cores, limit).map_err(DaemonError::Runtime)?;
    let (control, workers) = Control::new(loaded, running, watchdog)?;
    let control = Arc::new(control);
    let served = runtime.block_on(async {
        control.set_neighbours().await?;
        control.record_shares();
        control.follow_feeds();
        let listener = socket.listener().and_then(tokio::net::UnixListener::from_std);
        let listener = listener.map_err(DaemonError::Runtime)?;
        tracing::info!("{name} is running, with the control socket {}", path.display());
        // SIGHUP reports that log rotation has moved the files to which lines are appended, so the files are reopened.
        let reopen = async {
            while hangup.recv().await.is_some() {
                tracing::info!("the files of records are reopened");
                control.reopen_records();
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            ended = api::serve(control.clone(), listener) => ended.map_err(DaemonError::Runtime),
            () = control.housekeep() => Ok(()),
            () = control.rebalance() => Ok(()),
            () = control.follow_links() => Ok(()),
            () = control.follow_hosts() => Ok(()),
            () = control.check_hosts() => Ok(()),
            () = control.follow_routes() => Ok(()),
            () = control.follow_uplinks() => Ok(()),
            () = control.follow_devices() => Ok(()),
            () = reopen => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    });
    tracing::info!("the daemon ends: packets in processing are still sent");
    // The shutdown of the runtime ends the requests in progress and drops their references to the control. A running
    // rule compilation is not awaited, because the compiler process ends together with this process.
    runtime.shutdown_timeout(PATIENCE);
    workers.stop(&control.counters);
    control.collect_alerts();
    control.release_links();
    if let Some(sites) = &control.sites {
        sites.stop();
    }
    control.hosts.stop();
    control.finish_records();
    print(&control, output).map_err(DaemonError::Output)?;
    drop(socket);
    if let Some(control) = Arc::into_inner(control) {
        close_devices(control);
    }
    tracing::info!("the devices are closed");
    served
}

fn close_devices(control: Control) {
    let closing = control.closing.finish();
    for name in &closing {
        tracing::warn!("{name}: the previous device is not closed yet; the kernel releases it when the process ends");
    }
    match control.into_devices().close() {
        // A device that is still being closed holds buffers, so their memory is not freed.
        Ok(_) if !closing.is_empty() => {}
        Ok(closed) => {
            for balance in closed.balances().iter().filter(|balance| !balance.is_even()) {
                tracing::warn!("packet buffers leaked: {balance:?}");
            }
        }
        Err(error) => tracing::error!("{error}"),
    }
}

/// Print the counters of interfaces and of drops.
fn print(control: &Control, output: &mut dyn Write) -> std::io::Result<()> {
    let plane = control.plane();
    let named = plane.snapshot().interfaces.iter().enumerate();
    for (number, interface) in named.filter(|(_, interface)| !interface.name.is_empty()) {
        let total = |value: fn(&sluice_engine::packet::counters::InterfaceCounters) -> u64| {
            sum(&control.counters, number, value)
        };
        writeln!(
            output,
            "{}: received {} ({} bytes), sent {} ({} bytes), originated {}, dropped {}, to host {}, parked {}, unparked {}",
            interface.name,
            total(|counters| counters.received.get()),
            total(|counters| counters.received_bytes.get()),
            total(|counters| counters.sent.get()),
            total(|counters| counters.sent_bytes.get()),
            total(|counters| counters.originated.get()),
            total(|counters| counters.all_drops()),
            total(|counters| counters.to_host.get()),
            total(|counters| counters.parked.get()),
            total(|counters| counters.unparked.get()),
        )?;
    }
    for reason in Reason::all() {
        let dropped: u64 = drops(control, reason);
        if dropped > 0 {
            writeln!(output, "dropped {dropped}: {} ({})", reason.name(), reason.help())?;
        }
    }
    output.flush()
}

/// Packets dropped for a reason, summed over all interfaces and workers.
pub(crate) fn drops(control: &Control, reason: Reason) -> u64 {
    let interfaces = control.counters.iter().flat_map(|worker| worker.interfaces.iter());
    interfaces.map(|interface| interface.drops(reason)).sum()
}
