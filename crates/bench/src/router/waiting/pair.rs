//! A wire in memory: vhost on one side of a socket, virtio-user on the other, both in this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::workers::{Queues, Waiting};
use sluice_dpdk::{Devices, DpdkIo, Plan, PortPlan};

use super::side::Side;
use crate::process::await_some;
use crate::router::Failure;

/// The device of the worker that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A virtual machine's side.
    Virtio,
    /// The host's side.
    Vhost,
}

impl Device {
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-user",
            Self::Vhost => "vhost",
        }
    }
}

/// Both ends.
pub struct Pair {
    /// The measured worker's, and the other.
    devices: [Devices; 2],
    /// As long as no thread has them.
    hands: Option<[DpdkIo; 2]>,
    /// The measured one listens: it was there first and is the last to go.
    listens: bool,
    socket: PathBuf,
}

/// Longest wait for both ends to know each other.
const PATIENCE: Duration = Duration::from_secs(10);

fn open(eal: &'static Eal, name: &str, interrupts: bool) -> Result<(Devices, DpdkIo), Failure> {
    let mut port = PortPlan::new("wire", name.parse()?);
    port.interrupts = interrupts;
    let mut plan = Plan::new(vec![port], 1);
    plan.buffers = 8_191;
    let (devices, mut hands) = Devices::open(eal, &plan)?;
    Ok((devices, hands.pop().ok_or("a hand is missing")?))
}

impl Pair {
    /// Open both ends, with interrupts at the measured worker's.
    pub fn open(eal: &'static Eal, device: Device, interrupts: bool) -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("sluice-bench-{}-{number}", std::process::id()));
        let [listening, connecting] = ["vhost", "virtio"].map(|kind| format!("{kind}:{}", socket.display()));
        let listens = device == Device::Vhost;
        let listener = open(eal, &listening, interrupts && listens)?;
        let connector = open(eal, &connecting, interrupts && !listens)?;
        let (near, far) = if listens {
            (listener, connector)
        } else {
            (connector, listener)
        };
        let pair = Self {
            devices: [near.0, far.0],
            hands: Some([near.1, far.1]),
            listens,
            socket,
        };
        let is_up = |devices: &Devices| devices.ports()[0].link().up;
        let both = await_some(PATIENCE, || Ok(pair.devices.iter().all(is_up).then_some(())))?;
        both.ok_or("vhost and virtio-user do not find each other")?;
        Ok(pair)
    }

    /// Whether frames can wake the measured worker.
    pub fn interrupts(&self) -> bool {
        self.devices[0].ports()[0].interrupts()
    }

    /// Start a thread on each core: the measured worker's, and the other's, which polls.
    pub fn start(
        mut self,
        eal: &'static Eal,
        [near, far]: [usize; 2],
        waiting: Waiting,
    ) -> Result<(Self, Side, Side), Failure> {
        let [own, other] = self.hands.take().ok_or("both sides run already")?;
        let polls = Waiting {
            sleep: None,
            interrupt: false,
            ..waiting
        };
        let own = Side::start(eal, "near", near, own, (waiting, self.devices[0].queues(0)))?;
        let other = Side::start(eal, "far", far, other, (polls, Queues::default()))?;
        Ok((self, own, other))
    }

    /// End both threads.
    pub fn stop(mut self, [own, other]: [Side; 2]) -> Result<Self, Failure> {
        self.hands = Some([own.stop()?, other.stop()?]);
        Ok(self)
    }

    /// Close both ends: who connected first.
    pub fn close(self) {
        let Self {
            devices: [near, far],
            hands,
            listens,
            socket,
        } = self;
        drop(hands);
        let [first, last] = if listens { [far, near] } else { [near, far] };
        drop(first.close());
        drop(last.close());
        // Whoever listened may have taken it away.
        let _ = std::fs::remove_file(socket);
    }
}
