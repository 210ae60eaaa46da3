//! Runs scenarios in separate processes, because DPDK starts only once per process and each scenario has its own
//! network namespace.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use sluice_dpdk::{Device, Devices, DpdkIo, Eal, Plan, PortPlan};
use sluice_engine::packet::io::{BufferIndex, PacketIo, Packets, PortIndex};
use sluice_testkit::process;

const VARIABLE: &str = "SLUICE_SCENARIO_MEMORY";

/// Maximum wait for an expected event.
const DEADLINE: Duration = Duration::from_secs(30);

/// Run `body` in a separate process with its own network namespace, first with ordinary pages, then with hugepages.
/// `test` is the name of the calling test in its file.
#[track_caller]
pub fn on_each_memory(test: &str, body: impl FnOnce(Scenario)) {
    let test = &process::name(test);
    match std::env::var(VARIABLE).as_deref() {
        Ok(memory) => body(Scenario {
            hugepages: memory == "hugepages",
        }),
        Err(_) => {
            spawn(test, "ordinary");
            match Reserved::hugepages() {
                Some(_reserved) => spawn(test, "hugepages"),
                None => println!("{test}: skipped on hugepages: none could be reserved in /proc/sys/vm/nr_hugepages"),
            }
        }
    }
}

fn spawn(test: &str, memory: &str) {
    let may_unshare = Command::new("unshare")
        .args(["--net", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !may_unshare {
        println!("{test}: skipped: this user may not make a network namespace (unshare --net)");
        return;
    }
    // /sys shows only the interfaces of the namespace in which it was mounted.
    let script = "mount -t sysfs sysfs /sys && ip link set lo up && \
                  echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; \
                  echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "sh", "-c", script, "sh"])
        .env(VARIABLE, memory);
    process::again(command, test);
}

/// Hugepages that are reserved for one scenario. Dropping this value releases as many hugepages as were reserved, even
/// if other processes have reserved hugepages in the meantime.
///
/// Tests run in separate processes. A file lock prevents simultaneous changes of the number of hugepages. The kernel
/// releases the lock when the process ends.
struct Reserved {
    _one_at_a_time: File,
}

const PAGES: &str = "/proc/sys/vm/nr_hugepages";
const RESERVED: usize = 160;

fn change_pages(change: impl Fn(usize) -> usize) -> Option<()> {
    let pages = std::fs::read_to_string(PAGES).ok()?.trim().parse().ok()?;
    std::fs::write(PAGES, change(pages).to_string()).ok()
}

impl Reserved {
    fn hugepages() -> Option<Self> {
        let lock = File::create(std::env::temp_dir().join("sluice-test-hugepages.lock")).ok()?;
        lock.lock().ok()?;
        change_pages(|pages| pages + RESERVED)?;
        let reserved = Self { _one_at_a_time: lock };
        (sluice_dpdk::eal::free_hugepage_bytes() >= RESERVED << 21).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        change_pages(|pages| pages.saturating_sub(RESERVED));
    }
}

/// The scenario that this process runs.
pub struct Scenario {
    pub hugepages: bool,
}

impl Scenario {
    /// Start DPDK for a plan, and open the plan's ports for one worker.
    pub fn open(&self, plan: &Plan) -> Opened {
        let (devices, mut hands) = self.open_many(plan);
        Opened {
            devices,
            hand: hands.remove(0),
        }
    }

    /// Start DPDK for a plan, and open the plan's ports for all workers.
    pub fn open_many(&self, plan: &Plan) -> (Devices, Vec<DpdkIo>) {
        let eal = self.eal(plan.bytes());
        Devices::open(eal, plan).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Start DPDK with `bytes` bytes of memory.
    pub fn eal(&self, bytes: usize) -> &'static Eal {
        let needs = sluice_dpdk::EalRequirements {
            bytes,
            hugepages: Some(self.hugepages),
            ..Default::default()
        };
        let eal = Eal::start(&needs).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(self.hugepages, *eal.memory() == sluice_dpdk::eal::Memory::Hugepages);
        eal
    }
}

/// A plan with small pools for the named devices.
pub fn plan(devices: &[&str]) -> Plan {
    Plan::new(devices.iter().map(|name| port(name)).collect(), 1)
}

/// A port for the named device.
pub fn port(name: &str) -> PortPlan {
    let device: Device = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    PortPlan {
        promiscuous: true,
        ..PortPlan::new(name, device)
    }
}

/// Run a command that must succeed.
pub fn command(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Create a veth pair, bring it up, and disable offloads that leave checksums incomplete.
pub fn veth(first: &str, second: &str, mtu: u16) {
    command(&format!(
        "ip link add {first} mtu {mtu} type veth peer name {second} mtu {mtu}"
    ));
    for interface in [first, second] {
        command(&format!("ethtool -K {interface} tx off rx off gro off tso off gso off"));
        command(&format!("ip link set {interface} up"));
    }
}

/// Path of a file that only this process uses.
pub fn private_path(name: &str) -> String {
    std::env::temp_dir()
        .join(format!("sluice-{}-{name}", std::process::id()))
        .to_string_lossy()
        .into_owned()
}

/// A frame with the local experimental EtherType 0x88b5. The frame contains `number` and has at least 22 bytes.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    bytes.extend((bytes.len()..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8));
    bytes
}

/// Whether the frame was created by [`frame`].
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&[0x88, 0xb5])
}

/// Poll until `done` returns a value, or until the deadline.
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(began.elapsed() < DEADLINE, "{what}: nothing after {DEADLINE:?}");
        std::thread::yield_now();
    }
}

/// Send all frames.
pub fn send(hand: &mut DpdkIo, port: PortIndex, frames: &[Vec<u8>]) {
    let mut sent = 0;
    wait_for("frames to be taken", || {
        sent += send_some(hand, port, &frames[sent..]);
        (sent == frames.len()).then_some(())
    });
}

/// Send one burst of frames. Frames that the device rejects are freed.
pub fn send_some(hand: &mut DpdkIo, port: PortIndex, frames: &[Vec<u8>]) -> usize {
    let made = hand.allocate(frames.len().min(32));
    let slots: ArrayVec<BufferIndex, 128> = (0..made as BufferIndex).collect();
    {
        let mut lent = Packets::new();
        hand.packets(&mut lent);
        for (packet, frame) in lent.iter_mut().zip(frames) {
            assert!(
                packet.set_len(frame.len()),
                "a buffer has room for {} bytes",
                frame.len()
            );
            packet.bytes_mut().copy_from_slice(frame);
        }
    }
    let sent = hand.transmit(port, &slots);
    hand.free(&slots[sent..]);
    assert_eq!(0, hand.end(), "nothing is forgotten in the hand");
    sent
}

/// Receive one burst, and return the frames that satisfy the predicate `keep`.
pub fn receive_some(hand: &mut DpdkIo, port: PortIndex, keep: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let came = hand.receive(port);
    let frames = {
        let mut lent = Packets::new();
        hand.packets(&mut lent);
        lent.iter()
            .filter(|packet| keep(packet.bytes()))
            .map(|packet| packet.bytes().to_vec())
            .collect()
    };
    let slots: ArrayVec<BufferIndex, 128> = (0..came as BufferIndex).collect();
    hand.free(&slots);
    assert_eq!(0, hand.end(), "nothing is forgotten in the hand");
    frames
}

/// Send numbered frames into one port in bursts, and check that another port delivers every frame in order.
pub fn exchange(hand: &mut DpdkIo, from: PortIndex, to: PortIndex, count: u32, length: usize) {
    let mut next = 0;
    while next < count {
        let frames: Vec<_> = (next..count.min(next + 32))
            .map(|number| frame(number, length))
            .collect();
        let (mut sent, mut came) = (0, Vec::new());
        wait_for("frames to come out", || {
            sent += send_some(hand, from, &frames[sent..]);
            came.extend(receive_some(hand, to, is_ours));
            // Poll the sending port, because some drivers process their transmit queue only during polls.
            receive_some(hand, from, |_| false);
            (came.len() >= frames.len()).then_some(())
        });
        assert_eq!(frames.len(), came.len());
        for (frame, came) in frames.iter().zip(&came) {
            assert_eq!(frame, came, "frame of {length} bytes from port {from} to port {to}");
        }
        next += frames.len() as u32;
    }
}

/// Number of frames that a kernel may lose in one exchange. Under memory pressure, the kernel fails to allocate memory
/// for large frames.
const LOSSES: usize = 8;

/// Like [`exchange`], but through a kernel, which may lose frames. Lost frames are sent again.
pub fn exchange_by_kernel(hand: &mut DpdkIo, from: PortIndex, to: PortIndex, count: u32, length: usize) {
    let mut losses = 0;
    for first in (0..count).step_by(32) {
        let numbers = first..count.min(first + 32);
        let mut missing: Vec<_> = numbers.map(|number| frame(number, length)).collect();
        let mut unsent = missing.clone();
        let mut progress = Instant::now();
        wait_for("frames to come out", || {
            let sent = send_some(hand, from, &unsent);
            unsent.drain(..sent);
            for came in receive_some(hand, to, is_ours) {
                let place = missing.iter().position(|frame| *frame == came);
                missing.remove(place.unwrap_or_else(|| panic!("a frame that was not sent came from port {to}")));
                progress = Instant::now();
            }
            receive_some(hand, from, |_| false);
            if unsent.is_empty() && progress.elapsed() > DEADLINE / 10 {
                losses += missing.len();
                assert!(losses <= LOSSES, "{losses} frames of {length} bytes were lost");
                unsent = missing.clone();
                progress = Instant::now();
            }
            missing.is_empty().then_some(())
        });
    }
}

/// Ports, and the burst buffers of one worker.
pub struct Opened {
    pub devices: Devices,
    pub hand: DpdkIo,
}

impl Opened {
    /// Close the devices, and check that each pool has all of its buffers, except buffers that a driver may keep.
    pub fn close(self) {
        close(self.devices, vec![self.hand]);
    }
}

/// Close the devices, and check that each pool has all of its buffers, except buffers that a driver may keep.
pub fn close(devices: Devices, hands: Vec<DpdkIo>) {
    for hand in &hands {
        assert_eq!(
            (0, 0),
            (hand.outstanding(), hand.parked()),
            "the hand is empty and nothing is parked"
        );
    }
    drop(hands);
    let closed = devices.close().unwrap_or_else(|error| panic!("{error}"));
    for balance in closed.balances() {
        println!("{balance:?}");
        assert!(balance.is_even(), "{balance:?}");
        if balance.retained_by_driver == 0 {
            assert_eq!(balance.size, balance.available, "{balance:?}");
        }
    }
}
