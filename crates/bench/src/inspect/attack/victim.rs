//! An inspector that processes one conversation after another and measures the time of each packet.

use std::sync::Arc;

use etherparse::PacketBuilder;
use sluice_dpdk::tsc;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{BurstContext, DetectionContext, FlowHandle, Inspector, InspectorCapacity, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::scope::Endpoints;
use sluice_inspect::stream;
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::{Direction, layers};

use super::super::Failure;
use super::super::even::{ends, seen};
use super::super::traffic::{End, tcp_frame};
use super::Conversation;

/// Address and port of the client, and address of the server.
const CLIENT: End = ([192, 168, 0, 2], 40_000);
const SERVER: [u8; 4] = [198, 51, 100, 7];
/// Initial sequence number of the data in both directions.
const FIRST: u32 = 1;

pub struct Victim {
    inspector: Inspector<'static>,
    tools: DetectionContext,
    rates: HostTable,
    settings: Settings,
    now: u64,
    /// Units of inspection work of each packet of the last conversation.
    pub units: Vec<u64>,
}

impl Victim {
    /// Creates an inspector with these rules and with a gateway's default policies and buffer sizes.
    pub fn new(rules: Arc<Ruleset>) -> Result<Self, Failure> {
        let plan = InspectorCapacity {
            flows: 4,
            streams: stream::StreamCapacity {
                reassembly: 16 << 20,
                share: 8 << 20,
                ..stream::StreamCapacity::of(4)
            },
            protocols: ParserCapacity {
                messages: 16,
                names: 16,
                inflaters: 4,
                ..ParserCapacity::default()
            },
        };
        // The memory is leaked, so it lives as long as the process.
        let memory = vec![Line([0; 8]); plan.streams.lines()].leak();
        let scratch = rules.prefilter().scratch()?;
        Ok(Self {
            tools: DetectionContext::new(scratch, &rules),
            inspector: Inspector::new(&plan, rules, memory, Hasher::new([1, 2]))?,
            rates: HostTable::new(4_096, [3, 4]),
            settings: Settings::default(),
            now: 0,
            units: Vec::new(),
        })
    }

    /// Processes a conversation as a new flow; returns the cycles of each packet.
    pub fn hear(&mut self, conversation: &Conversation) -> Vec<u64> {
        let Some(handle) = self.inspector.create_flow(!conversation.datagrams) else {
            return Vec::new();
        };
        // Advance the time, so that rate limits of the previous conversation have expired.
        self.now += 3_600_000_000_000;
        let (mut acknowledged, mut has_begun) = ([FIRST; 2], false);
        let mut say = |victim: &mut Self, direction, numbers, syn, bytes: &[u8]| {
            let mut frame = frame(conversation, direction, numbers, syn, bytes);
            let begins = !std::mem::replace(&mut has_begun, true);
            victim.packet(handle, direction, (begins, syn), &mut frame)
        };
        if !conversation.datagrams {
            say(self, Direction::Forward, (FIRST - 1, None), true, &[]);
            say(self, Direction::Reverse, (FIRST - 1, Some(FIRST)), true, &[]);
            say(self, Direction::Forward, (FIRST, Some(FIRST)), false, &[]);
        }
        let mut cycles = Vec::with_capacity(conversation.pieces.len());
        self.units.clear();
        for piece in &conversation.pieces {
            let direction = match piece.forward {
                true => Direction::Forward,
                false => Direction::Reverse,
            };
            let sequence = FIRST.wrapping_add(piece.place);
            let other = acknowledged[direction.opposite() as usize];
            let before = self.inspector.counters.work_units;
            cycles.push(say(self, direction, (sequence, Some(other)), false, &piece.bytes));
            self.units.push(self.inspector.counters.work_units - before);
            // If the stream has no gap, the other side acknowledges all received data.
            let own = &mut acknowledged[direction as usize];
            if sequence == *own {
                *own = own.wrapping_add(piece.bytes.len() as u32);
            }
        }
        self.inspector.remove_flow(handle);
        cycles
    }

    /// Cycles of a packet, which may be the first one of its flow, or the SYN of a side.
    fn packet(
        &mut self,
        handle: FlowHandle,
        direction: Direction,
        (begins, syn): (bool, bool),
        frame: &mut [u8],
    ) -> u64 {
        let Ok(layers) = layers::parse(frame) else { return 0 };
        let ends = ends(&layers, frame, direction, !syn);
        if begins {
            let first = Endpoints {
                established: false,
                ..ends
            };
            self.inspector.start_flow(handle, first, 0, self.now);
        }
        let seen = seen(frame, &layers, ends, direction);
        let mut round = BurstContext {
            settings: &self.settings,
            hosts: &self.rates,
            context: &mut self.tools,
            now: self.now,
            matches: &mut |_| {},
            log: &mut |_, _| {},
        };
        let began = tsc::now();
        std::hint::black_box(self.inspector.inspect(handle, seen, &mut round));
        tsc::now() - began
    }
}

/// A frame of a conversation with its sequence and acknowledgment number, and with the maximum window and window scale.
fn frame(
    conversation: &Conversation,
    direction: Direction,
    (sequence, acknowledged): (u32, Option<u32>),
    syn: bool,
    bytes: &[u8],
) -> Vec<u8> {
    let (client, server) = (CLIENT, (SERVER, conversation.port));
    let ends = match direction {
        Direction::Forward => [client, server],
        Direction::Reverse => [server, client],
    };
    if !conversation.datagrams {
        let options: &[u8] = if syn { &[1, 3, 3, 14] } else { &[] };
        return tcp_frame(ends, (sequence, acknowledged), syn, options, bytes);
    }
    let [from, to] = ends;
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
    let mut frame = Vec::new();
    // Writing to a vector does not fail, and no datagram exceeds the maximum size.
    let _ = builder.udp(from.1, to.1).write(&mut frame, bytes);
    frame
}
