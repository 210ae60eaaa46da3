//! A link in memory: vhost at one end of a socket and virtio-user at the other end, both in this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::workers::{IdlePolicy, Queues};
use sluice_dpdk::{Plan, PortPlan};

use super::side::Side;
use crate::process::await_some;
use crate::rig::Source;
use crate::router::Failure;

/// Device that the measured worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// The guest side, virtio-user.
    #[value(name = "virtio-user")]
    Virtio,
    /// The host side, vhost.
    Vhost,
}

/// Both ends of a link: that of the measured worker, and the opposite end.
pub struct Pair {
    ends: [Source; 2],
    wire: Wire,
}

/// The link between both ends.
pub struct Wire {
    /// Whether the measured worker's end listens on the socket; the listening end is opened first and closed last.
    listens: bool,
    socket: PathBuf,
}

/// Maximum time until both ends are connected.
const PATIENCE: Duration = Duration::from_secs(10);

fn open(eal: &'static Eal, name: &str, interrupts: bool) -> Result<Source, Failure> {
    let mut port = PortPlan::new("wire", name.parse()?);
    port.interrupts = interrupts;
    let mut plan = Plan::new(vec![port], 1);
    plan.buffers = 8_191;
    Source::of(eal, &plan, 0)
}

impl Pair {
    /// Opens both ends, with interrupts for the measured worker.
    pub fn open(eal: &'static Eal, device: Device, interrupts: bool) -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("sluice-bench-{}-{number}", std::process::id()));
        let [listening, connecting] = ["vhost", "virtio"].map(|kind| format!("{kind}:{}", socket.display()));
        let listens = device == Device::Vhost;
        let listener = open(eal, &listening, interrupts && listens)?;
        let connector = open(eal, &connecting, interrupts && !listens)?;
        let ends = if listens {
            [listener, connector]
        } else {
            [connector, listener]
        };
        let wire = Wire { listens, socket };
        let pair = Self { ends, wire };
        let is_up = |end: &Source| end.devices.ports()[0].link().up;
        let both = await_some(PATIENCE, || Ok(pair.ends.iter().all(is_up).then_some(())))?;
        both.ok_or("vhost and virtio-user do not find each other")?;
        Ok(pair)
    }

    /// Whether the arrival of frames can wake the measured worker.
    pub fn interrupts(&self) -> bool {
        self.ends[0].devices.ports()[0].interrupts()
    }

    /// Starts a thread on each core: the measured worker, and the opposite side, which polls.
    pub fn start(
        self,
        eal: &'static Eal,
        [near, far]: [usize; 2],
        waiting: IdlePolicy,
    ) -> Result<(Wire, [Side; 2]), Failure> {
        let [own, other] = self.ends;
        let polls = IdlePolicy {
            sleep: None,
            interrupt: false,
            ..waiting
        };
        let queues = own.devices.queues(0);
        let own = Side::start(eal, "near", near, own, (waiting, queues))?;
        let other = Side::start(eal, "far", far, other, (polls, Queues::default()))?;
        Ok((self.wire, [own, other]))
    }

    pub fn close(self) {
        self.wire.close(self.ends);
    }
}

impl Wire {
    /// Closes both ends; the end that does not listen is closed first.
    pub fn close(self, [near, far]: [Source; 2]) {
        let ends = if self.listens { [far, near] } else { [near, far] };
        ends.into_iter().for_each(Source::close);
        // The listening end may already have removed the socket.
        let _ = std::fs::remove_file(self.socket);
    }
}
