//! Traces: the paths of packets through the nodes. The first packets that match a filter are traced.

use arrayvec::ArrayVec;
use sluice_wire::layers::{self, Class};

use crate::packet::batch::{Batch, Meta};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Lists, Location, NodeIndex, SlotList};
use crate::packet::time::Now;
use crate::session::family::{Family, V4, V6};
use crate::worker::request::Filter;

/// Maximum number of steps that are recorded for a packet.
pub const STEPS: usize = 12;

/// Maximum number of bytes that are recorded of a received packet.
pub const BYTES: usize = 128;

/// One step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Name of the node.
    pub node: &'static str,
    /// Next location of the packet: the next node, `transmit`, or the name of a drop reason.
    pub exit: &'static str,
}

/// The trace of a packet.
#[derive(Clone, Debug)]
pub struct PacketTrace {
    /// Time of arrival in nanoseconds.
    pub nanoseconds: u64,
    /// Interface on which the packet was received.
    pub interface: u16,
    /// First bytes of the packet.
    pub bytes: ArrayVec<u8, BYTES>,
    /// Length of the packet in bytes.
    pub length: u16,
    /// Nodes through which the packet passed, in order.
    pub steps: ArrayVec<TraceStep, STEPS>,
    /// Egress interface, if the packet was sent.
    pub egress: Option<u16>,
}

/// A trace in progress: its filter and the traced packets.
#[derive(Debug)]
pub struct Tracer {
    filter: Filter,
    traces: Vec<PacketTrace>,
    live: ArrayVec<(BufferIndex, usize), BURST_BUFFERS>,
}

/// The name of a location in traces.
fn name_of(location: Location) -> &'static str {
    match location {
        Location::Node(node) => node.node().name,
        Location::Exited(leave) => leave.name(),
        Location::Dropped(reason) => reason.name(),
    }
}

impl Tracer {
    /// Creates a trace of the first `count` packets that match `filter`. Filter conditions that can't be evaluated for
    /// a single packet are ignored.
    pub fn new(filter: Filter, count: usize) -> Self {
        Self {
            filter,
            traces: Vec::with_capacity(count),
            live: ArrayVec::new(),
        }
    }

    /// The traced packets.
    pub fn traces(&self) -> &[PacketTrace] {
        &self.traces
    }

    /// Whether the requested number of packets has been traced.
    pub fn is_full(&self) -> bool {
        self.traces.len() == self.traces.capacity()
    }

    /// Selects matching packets of a burst that was just parsed.
    pub(crate) fn begin(&mut self, node: &'static str, batch: &Batch<'_, '_>, lists: &Lists, now: Now) {
        self.live.clear();
        for (slot, packet) in batch.packets.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let mut meta = batch.meta[slot];
            if lists.ip4_fast_forward.holds(slot as BufferIndex) {
                meta.layers = layers::parse(packet.bytes()).unwrap_or_default();
            }
            if !self.matches(packet.bytes(), &meta) {
                continue;
            }
            let mut bytes = ArrayVec::new();
            bytes.extend(packet.bytes().iter().copied().take(BYTES));
            let length = packet.len() as u16;
            let steps = ArrayVec::new();
            self.traces.push(PacketTrace {
                nanoseconds: now.nanoseconds,
                interface: meta.interface,
                bytes,
                length,
                steps,
                egress: None,
            });
            let _ = self.live.try_push((slot as BufferIndex, self.traces.len() - 1));
        }
        self.after(node, lists);
    }

    /// Records the next location of the traced packets after a node has run.
    pub(crate) fn after(&mut self, node: &'static str, lists: &Lists) {
        for &(slot, trace) in &self.live {
            let Some(exit) = lists.location(slot).map(name_of) else {
                continue;
            };
            let Some(trace) = self.traces.get_mut(trace) else {
                continue;
            };
            if trace.steps.last().is_none_or(|last| last.exit != exit) {
                let _ = trace.steps.try_push(TraceStep { node, exit });
            }
        }
    }

    /// Records the egress interfaces of the traced packets after all nodes have run.
    pub(crate) fn end(&mut self, batch: &Batch<'_, '_>, lists: &Lists) {
        for &(slot, trace) in &self.live {
            if let Some(trace) = self.traces.get_mut(trace)
                && lists.location(slot) == Some(Location::Node(NodeIndex::transmit))
            {
                trace.egress = Some(batch.meta(slot).egress);
            }
        }
    }

    fn matches(&self, frame: &[u8], meta: &Meta) -> bool {
        use sluice_nat::Address as _;
        let layers = &meta.layers;
        if self.filter.interface.is_some_and(|wanted| wanted != meta.interface) {
            return false;
        }
        let (source, destination) = match layers.class {
            Class::Ipv4 => {
                let (source, destination) = V4::addresses(layers, frame);
                (source.display(), destination.display())
            }
            Class::Ipv6 => {
                let (source, destination) = V6::addresses(layers, frame);
                (source.display(), destination.display())
            }
            _ => {
                let interface = self.filter.interface;
                return self.filter
                    == Filter {
                        interface,
                        ..Filter::default()
                    };
            }
        };
        let f = &self.filter;
        let ports = [layers.source_port, layers.destination_port];
        f.address
            .is_none_or(|net| net.contains(source.into()) || net.contains(destination.into()))
            && f.port.is_none_or(|wanted| ports.contains(&wanted))
            && f.source.is_none_or(|wanted| wanted == source)
            && f.destination.is_none_or(|wanted| wanted == destination)
            && f.source_port.is_none_or(|wanted| wanted == layers.source_port)
            && f.destination_port
                .is_none_or(|wanted| wanted == layers.destination_port)
            && f.protocol.is_none_or(|wanted| wanted == layers.protocol)
    }
}
