//! An inspector that processes one conversation after another and measures the time of each packet.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sluice_dpdk::tsc;
use sluice_inspect::evaluate::{IpFields, PacketFields, TcpFields};
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{
    BurstContext, DetectionContext, FlowHandle, FlowPacket, Inspector, InspectorCapacity, Settings,
};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_inspect::stream;
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::tcp::flag::{ACK, PSH, SYN};

use super::super::Failure;
use super::Conversation;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 2));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const CLIENT_PORT: u16 = 40_000;
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
        let ends = ends(conversation, Direction::Forward, false);
        self.inspector.begin_flow(handle, ends, 0, self.now);
        let mut acknowledged = [FIRST; 2];
        if !conversation.datagrams {
            for (direction, flags) in [
                (Direction::Forward, SYN),
                (Direction::Reverse, SYN | ACK),
                (Direction::Forward, ACK),
            ] {
                let sequence = if flags & SYN != 0 { FIRST - 1 } else { FIRST };
                let mut segment = header(conversation, direction, (sequence, FIRST), flags);
                self.packet(handle, conversation, direction, &mut segment);
            }
        }
        let mut cycles = Vec::with_capacity(conversation.pieces.len());
        self.units.clear();
        for piece in &conversation.pieces {
            let direction = if piece.forward {
                Direction::Forward
            } else {
                Direction::Reverse
            };
            let mut segment = match conversation.datagrams {
                true => vec![0; 8],
                false => {
                    let sequence = FIRST.wrapping_add(piece.place);
                    let other = acknowledged[direction.opposite() as usize];
                    header(conversation, direction, (sequence, other), ACK | PSH)
                }
            };
            segment.extend_from_slice(&piece.bytes);
            let before = self.inspector.counters.work_units;
            cycles.push(self.packet(handle, conversation, direction, &mut segment));
            self.units.push(self.inspector.counters.work_units - before);
            // If the stream has no gap, the other side acknowledges all received data.
            let own = &mut acknowledged[direction as usize];
            if FIRST.wrapping_add(piece.place) == *own {
                *own = own.wrapping_add(piece.bytes.len() as u32);
            }
        }
        self.inspector.remove_flow(handle);
        cycles
    }

    fn packet(
        &mut self,
        handle: FlowHandle,
        conversation: &Conversation,
        direction: Direction,
        segment: &mut [u8],
    ) -> u64 {
        let number = |at: usize| {
            segment
                .get(at..at + 4)
                .map_or(0, |four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
        };
        let payload = match conversation.datagrams {
            true => 8,
            false => usize::from(segment[12] >> 4) * 4,
        };
        let facts = PacketFields {
            ip: IpFields {
                ttl: 64,
                protocol: ends(conversation, direction, true).protocol,
                ..IpFields::default()
            },
            tcp: (!conversation.datagrams).then(|| TcpFields {
                flags: segment[13],
                sequence: number(4),
                acknowledgement: number(8),
                window: u16::MAX,
            }),
            payload: (segment.len() - payload) as u32,
            ..PacketFields::default()
        };
        let is_opening = !conversation.datagrams && segment[13] & SYN != 0;
        let seen = FlowPacket {
            ends: ends(conversation, direction, !is_opening),
            fields: facts,
            direction,
            segment,
            payload,
            own_side: true,
        };
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

fn ends(conversation: &Conversation, direction: Direction, established: bool) -> Endpoints {
    let ends = Endpoints {
        source: CLIENT,
        destination: SERVER,
        ports: [CLIENT_PORT, conversation.port],
        protocol: if conversation.datagrams { UDP } else { TCP },
        toward: Toward::Server,
        established,
        service: None,
    };
    match direction {
        Direction::Forward => ends,
        Direction::Reverse => ends.reversed(),
    }
}

/// A TCP header with the maximum window and window scale.
fn header(
    conversation: &Conversation,
    direction: Direction,
    (sequence, acknowledged): (u32, u32),
    flags: u8,
) -> Vec<u8> {
    let ports = ends(conversation, direction, true).ports;
    let mut segment = Vec::with_capacity(24);
    segment.extend(ports[0].to_be_bytes());
    segment.extend(ports[1].to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledged.to_be_bytes());
    let options: &[u8] = if flags & SYN != 0 { &[1, 3, 3, 14] } else { &[] };
    segment.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(options);
    segment
}
