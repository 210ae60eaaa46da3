//! Gateways between ring ports in memory, with sources and sinks at the opposite ends of the ports: the setup of all
//! in-memory benchmarks.
//!
//! Buffers are DPDK mbufs, which are reused first in, first out; headers are written [`LAG`] packets before they are
//! read.

pub mod frames;
pub mod gateway;
pub mod lanes;
pub mod measure;
pub mod policy;
pub mod progress;
pub mod queues;
pub mod reference;
pub mod scenario;
pub mod sites;
pub mod slices;
pub mod slow;
pub mod steering;
pub mod workers;

use arrayvec::ArrayVec;
use sluice_dpdk::device::Device;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::port::PortPlan;
use sluice_dpdk::{Devices, DpdkIo, Plan};
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Packets};
use sluice_wire::{Checksums, Packet};

use crate::rows::Failure;
use frames::Frame;
use lanes::Middle;
use measure::Direction;
use reference::ports;

/// Number of buffers of a source, which are reused first in, first out.
pub const BUFFERS: u32 = 8191;
/// Number of frames in the queue between source and gateway.
pub const LAG: usize = 4096;

/// Number of frames per burst on each port.
pub const BURST: usize = 64;

/// Source and sink at the opposite ends of a gateway's ports.
pub struct Source {
    pub io: DpdkIo,
    pub devices: Devices,
}

/// Creates the arguments of a ring device. Ring names are global in the process, so each rig must use different names.
pub fn ring(name: &str, end: &str, depth: u32) -> Result<Device, Failure> {
    let end = if end.is_empty() {
        String::new()
    } else {
        format!(",end={end}")
    };
    Ok(format!("ring:{name}{end},depth={depth}").parse()?)
}

/// Plan of the ports of one worker, with buffers that are reused first in, first out.
fn plan(devices: Vec<Device>) -> Plan {
    let ports = devices.into_iter().map(|device| PortPlan::new("ring", device));
    let mut plan = Plan::new(ports.collect(), 1);
    (plan.buffers, plan.cache) = (BUFFERS, 0);
    plan
}

/// Starts DPDK with memory for this number of simultaneous rigs.
pub fn start(rigs: usize) -> Result<&'static Eal, Failure> {
    let devices = ["a", "b", "c", "d"].map(|name| ring(&format!("{name}0"), "", 8192));
    let mut needs = plan(devices.into_iter().collect::<Result<_, _>>()?).needs(&[], None);
    needs.bytes *= 3 * rigs;
    Ok(Eal::start(&needs)?)
}

/// Creates a source and a gateway connected by `ports` ports. The source's first ports are connected to the gateway;
/// one or two further ports return frames to the source.
pub fn join(eal: &'static Eal, number: u32, ports: u16, depth: u32) -> Result<[Source; 2], Failure> {
    let ends = |end: &str| {
        (0..ports)
            .map(|port| ring(&format!("rig{number}-{port}"), end, depth))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut far = ends("a")?;
    for port in 0..ports.min(2) {
        far.push(ring(&format!("loop{number}-{port}"), "", 8192)?);
    }
    Ok([Source::of(eal, &plan(far), 0)?, Source::of(eal, &plan(ends("b")?), 0)?])
}

/// Creates a source whose port 0 returns frames to the source.
pub fn looped(eal: &'static Eal, number: u32) -> Result<Source, Failure> {
    Source::of(eal, &plan(vec![ring(&format!("straight{number}"), "", 8192)?]), 0)
}

/// Indexes of a range of buffers.
pub fn slots(of: std::ops::Range<usize>) -> ArrayVec<BufferIndex, BURST_BUFFERS> {
    of.map(|slot| slot as BufferIndex).collect()
}

impl Source {
    /// Creates the ports of a plan for a single worker, after starting DPDK on a core.
    pub fn alone(plan: &Plan, core: usize) -> Result<(&'static Eal, Self), Failure> {
        let eal = Eal::start(&plan.needs(&[core], Some(false)))?;
        Ok((eal, Self::of(eal, plan, 0)?))
    }

    /// Creates the ports of worker `own` in a plan for several workers.
    pub fn of(eal: &'static Eal, plan: &Plan, own: usize) -> Result<Self, Failure> {
        let (devices, io) = Devices::open(eal, plan)?;
        let io = io.into_iter().nth(own).ok_or("the worker's devices are missing")?;
        Ok(Self { io, devices })
    }

    /// Writes frames for each of up to two ports, until `write` returns no more, and sends them; returns the number
    /// written, and the number accepted by the ports.
    #[inline(always)]
    pub fn send(
        &mut self,
        ports: &[(u16, usize)],
        mut write: impl FnMut(u16, &mut Packet<'_>) -> bool,
    ) -> (usize, usize) {
        let made = self.io.allocate(ports.iter().map(|&(_, count)| count).sum());
        let mut used = [0; 2];
        {
            let mut lent = Packets::new();
            self.io.packets(&mut lent);
            let mut packets = lent.iter_mut().take(made);
            for (used, &(port, count)) in used.iter_mut().zip(ports) {
                // If `write` returns no frame for one port, the other port gets no frames either.
                let written = packets
                    .by_ref()
                    .take(count)
                    .map_while(|packet| write(port, packet).then_some(()));
                *used = written.count();
            }
        }
        let (mut first, mut taken) = (0, 0);
        for (used, &(port, _)) in used.iter().zip(ports) {
            taken += self.io.transmit(port, &slots(first..first + used));
            first += used;
        }
        self.io.free(&slots(first..made));
        self.io.end();
        (first, taken)
    }

    /// Writes and sends frames; returns the number written.
    #[inline(always)]
    pub fn feed<F: Frame>(
        &mut self,
        ports: &[(u16, usize)],
        checksums: Checksums,
        mut draw: impl FnMut(u16) -> Option<F>,
    ) -> usize {
        let written = self.send(ports, |port, packet| match draw(port) {
            Some(frame) => {
                packet.set_len(frame.length());
                packet.set_checksums(checksums);
                frame.write(packet.bytes_mut());
                true
            }
            None => false,
        });
        written.0
    }

    /// Passes each frame output by a port to `look`, and frees it.
    #[inline(always)]
    pub fn drain(&mut self, port: u16, mut look: impl FnMut(&[u8])) -> usize {
        let count = self.io.receive(port);
        {
            let mut lent = Packets::new();
            self.io.packets(&mut lent);
            lent.iter().for_each(|packet| look(packet.bytes()));
        }
        self.io.free(&slots(0..count));
        self.io.end();
        count
    }

    /// Frees the frames output by a port.
    #[inline(always)]
    pub fn discard(&mut self, port: u16) -> usize {
        let count = self.io.receive(port);
        self.io.free(&slots(0..count));
        self.io.end();
        count
    }

    pub fn close(self) {
        drop(self.io);
        drop(self.devices.close());
    }
}

/// A copy of an output frame.
pub type Sample = Box<[u8]>;

/// Interval of samples: one in this number of output frames is compared with the reference.
pub const SAMPLE: usize = 1000;

/// Sampled output frames.
#[derive(Debug, Default)]
pub struct Samples {
    pub kept: Vec<Sample>,
    /// Number of frames since the last sample.
    since: usize,
}

impl Samples {
    /// Frees the frames output by a port; keeps a copy of the first frame if a sample is due.
    #[inline(always)]
    pub fn drain(&mut self, source: &mut Source, port: u16) -> usize {
        let is_due = self.since >= SAMPLE;
        let (mut first, kept) = (true, &mut self.kept);
        let count = match is_due {
            true => source.drain(port, |frame| {
                if std::mem::take(&mut first) {
                    kept.push(frame.into());
                }
            }),
            false => source.discard(port),
        };
        self.since = if is_due && count > 0 { 0 } else { self.since + count };
        count
    }
}

/// Receives packets from a port, rewrites their MAC addresses, and transmits them through the other port (`l2fwd`);
/// returns the number of packets.
#[inline(always)]
pub fn cross(io: &mut DpdkIo, from: u16) -> usize {
    let (to, by) = match from {
        0 => (frames::ROUTER_MAC, frames::OUTSIDE_MAC),
        _ => (frames::HOST_MAC, frames::INSIDE_MAC),
    };
    let count = io.receive(from);
    {
        let mut lent = Packets::new();
        io.packets(&mut lent);
        for packet in &mut lent {
            if let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() {
                head[..6].copy_from_slice(&to);
                head[6..].copy_from_slice(&by);
            }
        }
    }
    io.transmit(1 - from, &slots(0..count));
    io.end();
    count
}

/// Two ports between which packets are forwarded with other MAC addresses (`l2fwd`).
pub struct L2fwd {
    pub io: DpdkIo,
    pub direction: Direction,
}

impl Middle for L2fwd {
    #[inline(always)]
    fn round(&mut self) -> usize {
        let ports = ports(self.direction).iter();
        ports.map(|&(port, _)| cross(&mut self.io, port)).sum()
    }
}
