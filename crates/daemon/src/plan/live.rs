//! Live traffic: frames that interfaces receive for a limited time, up to a maximum size.

use std::time::Duration;

use serde::Serialize;
use sluice_config::Config;
use sluice_config::config::Link;
use sluice_engine::packet::io::PortIndex;

use super::joined::cut;
use super::measure::MAX_FRAMES;
use super::report::TrafficOrigin;
use crate::lowering;
use crate::replay::captures::{Captured, Stream};

/// Maximum total size of the frames kept, in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// Maximum number of bytes of a frame in addition to its IP packet: the Ethernet header and two tags.
const ETHERNET_OVERHEAD: u32 = 22;

/// Why live traffic is not available.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The daemon's interfaces received nothing.
    #[error(
        "the running daemon received no packet on {interfaces} within {seconds:.0} s: check with `sluice show \
         interfaces` whether the links are up, and listen longer (--live 60s), or remove --live to plan for the \
              carrier mix"
    )]
    DaemonSilent {
        /// Names of the interfaces.
        interfaces: String,
        /// Duration of listening in seconds.
        seconds: f64,
    },
    /// The kernel interfaces received nothing.
    #[error(
        "no daemon runs, and the kernel received no packet on {interfaces} within {seconds:.0} s: check with `ip -s \
         link` whether the interfaces are up and receive (packets that another program receives by XDP or DPDK are \
              not visible), and listen longer (--live 60s), or remove --live to plan for the carrier mix"
    )]
    KernelSilent {
        /// Names of the interfaces.
        interfaces: String,
        /// Duration of listening in seconds.
        seconds: f64,
    },
    /// No received packet is suitable for the measurement.
    #[error(
        "all {packets} received packets are longer than the MTU of this configuration's interfaces: raise `mtu`; or, \
         if the kernel merges segments, disable merging with `ethtool -K DEVICE gro off`"
    )]
    TooLong {
        /// Number of packets.
        packets: u64,
    },
    /// None of the daemon's interfaces is in the configuration.
    #[error(
        "the running daemon has none of the interfaces of this configuration ({interfaces}): give the configuration \
         of that daemon, or the socket of another daemon with --socket"
    )]
    UnknownInterfaces {
        /// Interfaces of the configuration.
        interfaces: String,
    },
    /// The configuration has no kernel interface.
    #[error(
        "no daemon runs, and none of the devices ({devices}) is a kernel interface that can be captured: start the \
         daemon with this configuration, or give captures (--in INTERFACE=CAPTURE)"
    )]
    NoKernelInterface {
        /// Devices of the configuration.
        devices: String,
    },
    /// The process lacks the privilege to capture packets.
    #[error("no daemon runs, and capturing on {0} needs the privilege to open packet sockets: run the command as root")]
    Forbidden(String),
    /// Packets of a device can't be captured.
    #[error("no daemon runs, and capturing on {device} failed: {error}; `ip link` lists the interfaces")]
    Device {
        /// Name of the device.
        device: String,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// The daemon's capture can't be decoded.
    #[error("the daemon's capture can't be read ({0}); do the versions of daemon and command differ?")]
    Unreadable(String),
}

/// Source of live traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveSource {
    /// Capture of the running daemon.
    Daemon,
    /// Packet sockets on kernel interfaces.
    Kernel,
}

/// Whether more frames can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// More frames can be kept.
    Available,
    /// A limit has been reached.
    Full,
}

/// Traffic received on an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SeenInterface {
    /// Name of the interface.
    pub name: String,
    /// Device as configured. For a bond, the members are listed.
    pub device: String,
    /// Number of packets, including packets of the interface's VLANs.
    pub packets: u64,
    /// Bytes of the counted packets.
    pub bytes: u64,
    /// Number of packets that are used for the measurement.
    pub kept: u64,
}

/// Summary of the received traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Seen {
    /// Duration of listening in seconds.
    pub seconds: f64,
    /// Packets received.
    pub packets: u64,
    /// Packets per second.
    pub packets_per_second: f64,
    /// Frame bits per second, without check sequence.
    pub bits_per_second: f64,
    /// Mean frame size in bytes, without check sequence.
    pub bytes: f64,
    /// Number of packets that are used for the measurement.
    pub kept: u64,
    /// Number of frames that were split again, because the kernel had joined several segments.
    pub joined: u64,
    /// Frames discarded because they exceed the MTU of the links.
    pub too_long: u64,
    /// Traffic by interface.
    pub interfaces: Vec<SeenInterface>,
}

/// Progress of listening.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Duration of listening so far.
    pub elapsed: Duration,
    /// Packets kept.
    pub packets: usize,
    /// Total bytes of the packets that are kept.
    pub bytes: usize,
}

/// Received frames and their statistics.
#[derive(Debug)]
pub struct Live {
    source: LiveSource,
    frames: Vec<(PortIndex, Captured)>,
    bytes: usize,
    joined: u64,
    too_long: u64,
    /// Statistics for each port.
    interfaces: Vec<SeenInterface>,
    /// Maximum frame length on the links.
    longest: u32,
    stream: Stream,
    elapsed: Duration,
    full: bool,
}

impl Live {
    /// Create an empty collection.
    pub fn new(config: &Config, source: LiveSource) -> Self {
        let ports = lowering::ports(config);
        let interfaces = ports
            .iter()
            .filter_map(|&(_, index)| config.interfaces.get(usize::from(index)));
        // A VLAN may have a larger MTU than its parent.
        let mtu = config.interfaces.iter().map(|interface| interface.mtu).max();
        Self {
            source,
            frames: Vec::new(),
            bytes: 0,
            joined: 0,
            too_long: 0,
            longest: u32::from(mtu.unwrap_or(1500)) + ETHERNET_OVERHEAD,
            stream: Stream::default(),
            interfaces: interfaces
                .map(|interface| SeenInterface {
                    name: interface.name.clone(),
                    device: device(&interface.link),
                    ..SeenInterface::default()
                })
                .collect(),
            elapsed: Duration::ZERO,
            full: false,
        }
    }

    /// Count a frame that the kernel received, and keep it. Joined segments are split.
    pub(super) fn receive(&mut self, port: PortIndex, frame: Captured) -> Capacity {
        let Captured { at, length, .. } = frame;
        let pieces = (length > self.longest).then(|| cut(&frame.bytes, (self.longest - ETHERNET_OVERHEAD) as usize));
        let Some(pieces) = pieces.flatten() else {
            self.count(port, 1, length.into());
            return self.keep(port, frame);
        };
        self.joined += 1;
        for bytes in pieces {
            let length = bytes.len() as u32;
            self.count(port, 1, length.into());
            if self.keep(port, Captured { at, bytes, length }) == Capacity::Full {
                return Capacity::Full;
            }
        }
        Capacity::Available
    }

    /// Count frames that the kernel dropped because they arrived too fast. The size of dropped frames is assumed to be
    /// the mean of the received frames.
    pub(super) fn missed(&mut self, port: PortIndex, frames: u64) {
        if let Some(seen) = self.interfaces.get(usize::from(port)) {
            let mean = seen.bytes as f64 / seen.packets.max(1) as f64;
            self.count(port, frames, (mean * frames as f64) as u64);
        }
    }

    fn count(&mut self, port: PortIndex, packets: u64, bytes: u64) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            interface.packets += packets;
            interface.bytes += bytes;
        }
    }

    /// Keep a frame.
    pub(super) fn keep(&mut self, port: PortIndex, frame: Captured) -> Capacity {
        if self.full || self.frames.len() == MAX_FRAMES || self.bytes + frame.bytes.len() > MAX_BYTES {
            self.full = true;
            return Capacity::Full;
        }
        if frame.length > self.longest || frame.bytes.len() < frame.length as usize {
            self.too_long += 1;
            return Capacity::Available;
        }
        self.bytes += frame.bytes.len();
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            interface.kept += 1;
        }
        self.frames.push((port, frame));
        Capacity::Available
    }

    /// Keep the frames of one chunk of the daemon's capture.
    ///
    /// # Errors
    /// The chunk is not in the capture format.
    pub fn take(&mut self, config: &Config, piece: &[u8]) -> Result<Capacity, LiveError> {
        let mut stream = std::mem::take(&mut self.stream);
        let taken = stream.take(piece, &mut |name, frame| {
            if let Some(port) = port(config, name) {
                self.keep(port, frame);
            }
        });
        self.stream = stream;
        taken.map_err(|error| LiveError::Unreadable(error.to_string()))?;
        Ok(if self.full { Capacity::Full } else { Capacity::Available })
    }

    /// Count packets and bytes that an interface received, whether the frames were kept or not.
    pub fn received(&mut self, config: &Config, name: &str, packets: u64, bytes: u64) {
        if let Some(port) = port(config, name) {
            self.count(port, packets, bytes);
        }
    }

    /// Progress after the elapsed time.
    pub fn pace(&self, elapsed: Duration) -> Pace {
        Pace {
            elapsed,
            packets: self.frames.len(),
            bytes: self.bytes,
        }
    }

    /// End the collection after `elapsed`.
    ///
    /// # Errors
    /// No packet was received, or no received packet is suitable for the measurement.
    pub fn finish(mut self, elapsed: Duration) -> Result<Self, LiveError> {
        self.elapsed = elapsed;
        self.frames.sort_by_key(|(_, frame)| frame.at);
        if !self.frames.is_empty() {
            return Ok(self);
        }
        if self.too_long > 0 {
            return Err(LiveError::TooLong { packets: self.too_long });
        }
        let name = |seen: &SeenInterface| match seen.name == seen.device {
            true => seen.name.clone(),
            false => format!("{} ({})", seen.name, seen.device),
        };
        let names: Vec<_> = self.interfaces.iter().map(name).collect();
        let (interfaces, seconds) = (names.join(", "), elapsed.as_secs_f64());
        Err(match self.source {
            LiveSource::Daemon => LiveError::DaemonSilent { interfaces, seconds },
            LiveSource::Kernel => LiveError::KernelSilent { interfaces, seconds },
        })
    }

    pub(super) fn frames(&self) -> &[(PortIndex, Captured)] {
        &self.frames
    }

    pub(super) fn name(&self) -> String {
        match self.source {
            LiveSource::Daemon => "live traffic of the running daemon's interfaces".into(),
            LiveSource::Kernel => "live traffic of the kernel's interfaces".into(),
        }
    }

    pub(super) fn origin(&self) -> TrafficOrigin {
        match self.source {
            LiveSource::Daemon => TrafficOrigin::Daemon(self.seen()),
            LiveSource::Kernel => TrafficOrigin::Kernel(self.seen()),
        }
    }

    fn seen(&self) -> Seen {
        let sum = |value: fn(&SeenInterface) -> u64| self.interfaces.iter().map(value).sum::<u64>();
        let (packets, bytes) = (sum(|seen| seen.packets), sum(|seen| seen.bytes) as f64);
        let seconds = self.elapsed.as_secs_f64().max(1e-3);
        Seen {
            seconds,
            packets,
            packets_per_second: packets as f64 / seconds,
            bits_per_second: bytes * 8.0 / seconds,
            bytes: bytes / packets.max(1) as f64,
            kept: self.frames.len() as u64,
            joined: self.joined,
            too_long: self.too_long,
            interfaces: self.interfaces.clone(),
        }
    }
}

fn device(link: &Link) -> String {
    match link {
        Link::Device { device, .. } => device.as_str().into(),
        Link::Bond { members, .. } => {
            let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
            members.join(", ")
        }
        Link::Vlan { .. } | Link::Virtual { .. } | Link::Tunnel(_) | Link::Removed => String::new(),
    }
}

/// Port of an interface; for a VLAN, the port of its parent.
fn port(config: &Config, name: &str) -> Option<PortIndex> {
    let (index, interface) = config.interface(name)?;
    let owner = match &interface.link {
        Link::Vlan { parent, .. } => *parent,
        _ => index,
    };
    lowering::port(config, owner)
}

#[cfg(test)]
mod tests {
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Machine, check};

    use super::*;

    const TWO: &str = r#"
[sessions]
ipv4 = 1024
ipv6 = 0
[interfaces.inside]
device = "eth1"
mtu = 9000
[interfaces.guests]
parent = "inside"
vlan = "7"
[interfaces.outside]
device = "eth2"
"#;

    fn config() -> Config {
        let machine = Machine {
            cores: vec![0],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let checked = check("test", TWO, &machine).unwrap_or_else(|e| panic!("{e}"));
        checked.config.into_inner()
    }

    fn frame(seconds: u64, length: usize) -> Captured {
        Captured {
            at: Duration::from_secs(seconds),
            bytes: vec![0; length],
            length: length as u32,
        }
    }

    #[test]
    fn frames_of_a_vlan_are_its_parents_and_in_the_order_of_time() {
        let config = config();
        assert_eq!(
            [Some(0), Some(0), Some(1), None],
            ["inside", "guests", "outside", "other"].map(|name| port(&config, name))
        );
        let mut live = Live::new(&config, LiveSource::Daemon);
        live.keep(1, frame(2, 100));
        live.keep(0, frame(1, 200));
        live.received(&config, "guests", 3, 600);
        live.received(&config, "outside", 1, 100);
        let live = live.finish(Duration::from_secs(2)).unwrap();
        let order: Vec<_> = live.frames().iter().map(|(port, _)| *port).collect();
        assert_eq!(vec![0, 1], order);
        let seen = live.seen();
        assert_eq!(
            (4, 2.0, 2800.0, 175.0),
            (seen.packets, seen.packets_per_second, seen.bits_per_second, seen.bytes)
        );
        assert_eq!(
            [("eth1", 3, 1), ("eth2", 1, 1)],
            [0, 1].map(|port| {
                let SeenInterface {
                    device, packets, kept, ..
                } = &seen.interfaces[port];
                (device.as_str(), *packets, *kept)
            })
        );
    }

    #[test]
    fn frames_beyond_the_bounds_are_not_kept() {
        let mut live = Live::new(&config(), LiveSource::Kernel);
        let most = (0..MAX_FRAMES).filter(|_| live.keep(0, frame(0, 60)) == Capacity::Available);
        assert_eq!(MAX_FRAMES, most.count());
        assert_eq!(Capacity::Full, live.keep(0, frame(0, 60)));
        let mut live = Live::new(&config(), LiveSource::Kernel);
        while live.keep(0, frame(0, 9014)) == Capacity::Available {}
        assert_eq!(MAX_BYTES / 9014, live.frames().len());
    }

    #[test]
    fn nothing_is_refused_with_what_was_waited_for() {
        let nothing = |source, long| {
            let mut live = Live::new(&config(), source);
            if long {
                live.keep(0, frame(0, 20_000));
            }
            live.finish(Duration::from_secs(5)).unwrap_err().to_string()
        };
        for (said, part) in [
            (
                nothing(LiveSource::Kernel, false),
                "the kernel received no packet on inside (eth1), outside (eth2) within 5 s",
            ),
            (nothing(LiveSource::Daemon, false), "sluice show interfaces"),
            (nothing(LiveSource::Kernel, true), "raise `mtu`"),
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
