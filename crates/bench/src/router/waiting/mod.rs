//! Measures receive and transmit separately, in each waiting mode, with 64-byte frames (P2: 936 Mb/s by polling, 383
//! Mb/s by interrupts). The figures are the throughput of a saturated worker, and the cost of a worker that is not
//! saturated. The links are virtio-user and vhost; another core is the opposite side.

mod pair;
mod side;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::tsc;
use sluice_dpdk::workers::IdlePolicy;

use super::Failure;
use crate::rows::{Named, Row, Run, Runs};
use pair::{Device, Pair};
use side::{Order, Side};

/// Number of bits in a 64-byte frame, as in P2's figures.
const BITS: f64 = 512.0;
/// Offered load for measuring the cost of waiting, relative to the throughput of a polling worker.
const LOAD: f64 = 0.1;

/// Waiting modes of the worker, as in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Wait {
    /// `busy-poll = true`.
    Poll,
    /// The default mode: spin, pause, then sleep for 50 us.
    Adaptive,
    /// `idle = { spin = 0, pause = 0, interrupt = true }`: wait for an interrupt whenever there are no packets.
    Interrupt,
}

impl Wait {
    fn waiting(self) -> IdlePolicy {
        let usual = IdlePolicy {
            spin: 64,
            pause: 256,
            sleep: Some(Duration::from_micros(50)),
            interrupt: false,
        };
        match self {
            Self::Poll => IdlePolicy { sleep: None, ..usual },
            Self::Adaptive => usual,
            Self::Interrupt => IdlePolicy {
                spin: 0,
                pause: 0,
                sleep: Some(Duration::from_millis(10)),
                interrupt: true,
            },
        }
    }
}

/// Observes a worker for a while after it has started its task; returns the number of due frames that the opposite side
/// could not send.
fn watch(near: &Side, far: &Side, orders: [Order; 2], time: Duration, runs: &mut Runs) -> Result<f64, Failure> {
    near.order(orders[0]);
    far.order(orders[1]);
    std::thread::sleep(time / 5);
    let (before, far_before, begin) = (near.seen()?, far.seen()?, Instant::now());
    std::thread::sleep(time);
    let (after, far_after, seconds) = (near.seen()?, far.seen()?, begin.elapsed().as_secs_f64());
    near.order(Order::Rest);
    far.order(Order::Rest);
    let (packets, cpu) = (after.packets - before.packets, after.cpu_ns - before.cpu_ns);
    let quiet = (after.quiet - before.quiet) as f64;
    runs.extend([
        ("packets_per_s", packets as f64 / seconds),
        ("mbps", packets as f64 / seconds * BITS / 1e6),
        ("cpu_share", cpu as f64 / 1e9 / seconds),
        ("cpu_ns_per_packet", cpu as f64 / packets.max(1) as f64),
        (
            "quiet_rounds_share",
            quiet / (after.rounds - before.rounds).max(1) as f64,
        ),
    ]);
    let refused = (far_after.refused - far_before.refused) as f64;
    let due = refused + (far_after.packets - far_before.packets) as f64;
    Ok(refused / due.max(1.0))
}

fn row_of(case: &str, device: Device, wait: Wait, runs: &Runs) -> Row {
    let row = Row::new(case).key("wait", wait.name()).key("device", device.name());
    row.key("cores", 1).key("bytes", 64).runs(runs)
}

/// Requested measurements.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub receive: bool,
    pub transmit: bool,
}

/// Measures rows of both devices and all waiting modes.
pub fn waiting(run: &mut Run<'_>, eal: &'static Eal, wanted: Wanted, runs: usize) -> Result<(), Failure> {
    let cores = allowed_cores();
    let &[near, far, ..] = cores.as_slice() else {
        eprintln!("sluice-bench: receive and transmit need two cores, and this process may use one: left out");
        return Ok(());
    };
    let time = Duration::from_millis(if run.quick { 200 } else { 1_000 });
    for device in [Device::Virtio, Device::Vhost] {
        // Throughput of a polling worker in packets per second; the load in all waiting modes is a share of it.
        let mut polled = 0.0;
        for &wait in Wait::value_variants() {
            let pair = Pair::open(eal, device, wait == Wait::Interrupt)?;
            if wait == Wait::Interrupt && !pair.interrupts() {
                let name = device.name();
                eprintln!("sluice-bench: the driver of {name} tells of no frames by interrupts: left out");
                pair.close();
                continue;
            }
            let (wire, [near, far]) = pair.start(eal, [near, far], wait.waiting())?;
            let rates = |orders| {
                let mut all = Runs::default();
                let refused = (0..runs).map(|_| watch(&near, &far, orders, time, &mut all));
                refused.collect::<Result<Vec<_>, _>>().map(|refused| (all, refused))
            };
            if wanted.receive {
                let (most, _) = rates([Order::Receive, Order::Flood])?;
                if wait == Wait::Poll {
                    polled = most.median("packets_per_s");
                }
                (run.row)(row_of("receive", device, wait, &most));
                far.pace(tsc::frequency() as f64 / (polled * LOAD));
                let (part, refused) = rates([Order::Receive, Order::Pace])?;
                let row = row_of("receive", device, wait, &part).key("load_share", LOAD);
                (run.row)(row.figure("lost_share", &refused));
            }
            if wanted.transmit {
                let (most, _) = rates([Order::Flood, Order::Receive])?;
                (run.row)(row_of("transmit", device, wait, &most));
            }
            wire.close([near.stop()?, far.stop()?]);
        }
    }
    Ok(())
}
