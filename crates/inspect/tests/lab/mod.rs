//! Passes flows between a client and a server through an inspector, with rules in a rule file.
#![allow(dead_code, reason = "each test uses some of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sluice_inspect::evaluate::{IpFields, PacketFields, TcpFields};
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{
    BurstContext, DetectionContext, FlowHandle, FlowPacket, Inspector, InspectorCapacity, RuleMatch, Settings, Verdict,
};
use sluice_inspect::prefilter::Prefilter;
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;
use sluice_inspect::transactions::Transaction;
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::Direction;
use sluice_wire::tcp::flag::{ACK, FIN, PSH, SYN};

/// An inspector with its rules.
pub struct Lab {
    pub rules: Arc<Ruleset>,
    pub inspector: Inspector<'static>,
    pub settings: Settings,
    tools: DetectionContext,
    rates: HostTable,
    /// `sid` of each rule that matched.
    pub fired: Vec<u32>,
    /// Transactions that the flows logged.
    pub said: Vec<Transaction>,
}

/// Compiles a rule file. All rules of the file must load.
pub fn rules(dialect: Dialect, text: &str) -> Arc<Ruleset> {
    let file = read(text.as_bytes(), dialect, &Variables::default(), &Classes::default());
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    assert!(ordered.refused.is_empty(), "{:?}", ordered.refused);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    Arc::new(ordered.with_prefilter(prefilter))
}

impl Lab {
    pub fn new(dialect: Dialect, text: &str) -> Self {
        Self::of(rules(dialect, text))
    }

    pub fn of(rules: Arc<Ruleset>) -> Self {
        Self::with(rules, stream::StreamCapacity::of(16))
    }

    /// Creates a lab with these rules and this capacity for streams.
    pub fn with(rules: Arc<Ruleset>, streams: stream::StreamCapacity) -> Self {
        let protocols = ParserCapacity {
            messages: 16,
            names: 16,
            inflaters: 2,
            transactions: 4,
            ..ParserCapacity::default()
        };
        Self::sized(
            rules,
            InspectorCapacity {
                flows: 16,
                streams,
                protocols,
            },
        )
    }

    /// Creates a lab with these rules and this capacity.
    pub fn sized(rules: Arc<Ruleset>, plan: InspectorCapacity) -> Self {
        let memory = vec![Line([0; 8]); plan.streams.lines()].leak();
        let scratch = Prefilter::scratch(rules.prefilter()).unwrap();
        Self {
            inspector: Inspector::new(&plan, rules.clone(), memory, Hasher::new([1, 2])).unwrap(),
            tools: DetectionContext::new(scratch, &rules),
            // Capacity for all rules of a file that have a rate.
            rates: HostTable::new(4_096, [3, 4]),
            settings: Settings::default(),
            fired: Vec::new(),
            said: Vec::new(),
            rules,
        }
    }

    /// Inspects a packet of a flow.
    pub fn packet(&mut self, handle: FlowHandle, seen: FlowPacket<'_>) -> Verdict {
        let (rules, fired, said) = (&self.rules, &mut self.fired, &mut self.said);
        let mut report =
            |matched: RuleMatch| fired.push(rules.rule(matched.rule.number).unwrap().signature.id.signature);
        let mut round = BurstContext {
            settings: &self.settings,
            hosts: &self.rates,
            context: &mut self.tools,
            now: 1_000_000_000,
            matches: &mut report,
            log: &mut |_, transaction| said.push(*transaction),
        };
        self.inspector.inspect(handle, seen, &mut round)
    }
}

/// A TCP connection through the lab.
pub struct Connection<'l> {
    pub lab: &'l mut Lab,
    pub handle: FlowHandle,
    client: IpAddr,
    ports: [u16; 2],
    /// Forwarded bytes of each direction, at their offsets in the stream. The bytes are zeros where no byte was
    /// forwarded.
    pub delivered: [Vec<u8>; 2],
    /// Verdict on the last packet.
    pub last: Verdict,
}

/// Initial sequence numbers.
const INITIAL: [u32; 2] = [0xffff_fff0, 7_000];

impl<'l> Connection<'l> {
    /// Opens an established connection to a port.
    pub fn open(lab: &'l mut Lab, port: u16) -> Self {
        Self::of(lab, CLIENT, [40_000, port])
    }

    /// Opens an established connection from a client. `last` is then the verdict on the client's acknowledgement of the
    /// server's SYN.
    pub fn of(lab: &'l mut Lab, client: IpAddr, ports: [u16; 2]) -> Self {
        let handle = lab.inspector.create_flow(true).unwrap();
        let between = Endpoints {
            source: client,
            ..ends(6, ports, Direction::Forward, false)
        };
        lab.inspector.start_flow(handle, between, 0, 0);
        let mut connection = Self {
            lab,
            handle,
            client,
            ports,
            delivered: Default::default(),
            last: Verdict::Pass,
        };
        connection.raw(Direction::Forward, -1, SYN, b"");
        connection.raw(Direction::Reverse, -1, SYN | ACK, b"");
        connection.raw(Direction::Forward, 0, ACK, b"");
        connection
    }

    /// Sends bytes at an offset in the stream of a direction.
    pub fn send_at(&mut self, direction: Direction, place: usize, data: &[u8]) -> Verdict {
        self.raw(direction, place as i64, ACK | PSH, data)
    }

    /// Sends bytes of the client.
    pub fn client(&mut self, place: usize, data: &[u8]) -> Verdict {
        self.send_at(Direction::Forward, place, data)
    }

    /// Sends bytes of the server.
    pub fn server(&mut self, place: usize, data: &[u8]) -> Verdict {
        self.send_at(Direction::Reverse, place, data)
    }

    /// Ends the stream of a direction.
    pub fn finish(&mut self, direction: Direction, place: usize) -> Verdict {
        self.raw(direction, place as i64, ACK | FIN, b"")
    }

    fn raw(&mut self, direction: Direction, place: i64, flags: u8, data: &[u8]) -> Verdict {
        let mut segment = vec![0; 20];
        let [from, to] = match direction {
            Direction::Forward => self.ports,
            Direction::Reverse => [self.ports[1], self.ports[0]],
        };
        segment[0..2].copy_from_slice(&from.to_be_bytes());
        segment[2..4].copy_from_slice(&to.to_be_bytes());
        let sequence = INITIAL[direction as usize].wrapping_add(1).wrapping_add(place as u32);
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        // The segment acknowledges all bytes that have arrived from the other host.
        let other = direction.opposite() as usize;
        let acknowledged = INITIAL[other]
            .wrapping_add(1)
            .wrapping_add(self.delivered[other].len() as u32);
        segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        segment[12] = 5 << 4;
        segment[13] = flags;
        segment[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        if flags & SYN != 0 {
            // The header has the option with the largest window scale.
            segment[12] = 6 << 4;
            segment.extend([1, 3, 3, 14]);
        }
        segment.extend_from_slice(data);
        self.last = self.inspect(direction, segment);
        self.last
    }

    fn inspect(&mut self, direction: Direction, mut segment: Vec<u8>) -> Verdict {
        let verdict = self.verdict(direction, &mut segment);
        match verdict {
            Verdict::Pass | Verdict::Skip(_) | Verdict::Leave(_) => {
                let sequence = u32::from_be_bytes(segment[4..8].try_into().unwrap());
                let place = sequence.wrapping_sub(INITIAL[direction as usize].wrapping_add(1)) as usize;
                let into = &mut self.delivered[direction as usize];
                let data = &segment[header(&segment)..];
                if !data.is_empty() && place < 1 << 24 {
                    into.resize(into.len().max(place + data.len()), 0);
                    into[place..place + data.len()].copy_from_slice(data);
                }
            }
            Verdict::Drop(_) | Verdict::Reject(_) => {}
        }
        verdict
    }

    fn verdict(&mut self, direction: Direction, segment: &mut [u8]) -> Verdict {
        let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
        let tcp = TcpFields {
            flags: segment[13],
            sequence: number(4),
            acknowledgement: number(8),
            window: u16::MAX,
        };
        let facts = PacketFields {
            ip: IpFields {
                ttl: 64,
                protocol: 6,
                ..IpFields::default()
            },
            tcp: Some(tcp),
            payload: (segment.len() - header(segment)) as u32,
            ..PacketFields::default()
        };
        let established = segment[13] & SYN == 0;
        let mut ends = ends(6, self.ports, direction, established);
        match direction {
            Direction::Forward => ends.source = self.client,
            Direction::Reverse => ends.destination = self.client,
        }
        let seen = FlowPacket {
            ends,
            fields: facts,
            direction,
            payload: header(segment),
            segment,
            own_side: true,
        };
        self.lab.packet(self.handle, seen)
    }
}

/// Default address of the client.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 2));

/// Length of a TCP header.
fn header(segment: &[u8]) -> usize {
    usize::from(segment[12] >> 4) * 4
}

/// Endpoints of a packet in a direction.
pub fn ends(protocol: u8, ports: [u16; 2], direction: Direction, established: bool) -> Endpoints {
    let ends = Endpoints {
        source: CLIENT,
        destination: [198, 51, 100, 7].into(),
        ports,
        protocol,
        toward: Toward::Server,
        established,
        service: None,
    };
    match direction {
        Direction::Forward => ends,
        Direction::Reverse => ends.reversed(),
    }
}

/// Sends a datagram in a new flow, from a client to a port.
pub fn datagram(lab: &mut Lab, port: u16, data: &[u8]) -> Verdict {
    let handle = lab.inspector.create_flow(false).unwrap();
    let client = ends(17, [40_000, port], Direction::Forward, false);
    lab.inspector.start_flow(handle, client, 0, 0);
    let mut segment = vec![0; 8];
    segment.extend_from_slice(data);
    let facts = PacketFields {
        ip: IpFields {
            ttl: 64,
            protocol: 17,
            ..IpFields::default()
        },
        payload: data.len() as u32,
        ..PacketFields::default()
    };
    let ends = ends(17, [40_000, port], Direction::Forward, false);
    let seen = FlowPacket {
        ends,
        fields: facts,
        direction: Direction::Forward,
        segment: &mut segment,
        payload: 8,
        own_side: true,
    };
    let verdict = lab.packet(handle, seen);
    lab.inspector.remove_flow(handle);
    verdict
}
