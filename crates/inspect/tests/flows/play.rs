//! Plays the packets of a flow through an inspector.

use std::net::IpAddr;

use sluice_inspect::evaluate::{IcmpFields, IpFields, PacketFields, TcpFields};
use sluice_inspect::inspector::{FlowHandle, FlowPacket};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_wire::Direction;
use sluice_wire::tcp::flag::{ACK, FIN, PSH, SYN};

use crate::lab::Lab;

/// Data that a host sends before the other host replies, or a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub toward: Toward,
    pub bytes: Vec<u8>,
}

/// Properties that all packets of a flow share.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Addresses of the client and the server.
    pub addresses: [IpAddr; 2],
    pub ports: [u16; 2],
    pub ip: IpFields,
    pub icmp: Option<IcmpFields>,
    /// TCP flags of the last packet with data. Earlier packets don't have these flags.
    pub flags: Option<u8>,
    pub window: u16,
    /// Initial sequence numbers of client and server.
    pub initial: [u32; 2],
    /// Whether datagrams belong to a flow in which both hosts have already sent packets.
    pub established: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            addresses: [[192, 168, 0, 2].into(), [198, 51, 100, 7].into()],
            ports: [40_000, 80],
            ip: IpFields {
                ttl: 64,
                protocol: 6,
                ..IpFields::default()
            },
            icmp: None,
            flags: None,
            window: 60_000,
            initial: [0xffff_fff0, 7_000],
            established: true,
        }
    }
}

/// Splits consecutive messages into segments of `step` bytes.
pub fn in_parts(messages: &[(Toward, &[u8])], step: usize) -> Vec<Message> {
    let parts = messages.iter().flat_map(|(toward, bytes)| {
        bytes.chunks(step).map(|part| Message {
            toward: *toward,
            bytes: part.to_vec(),
        })
    });
    parts.collect()
}

/// Plays a whole flow. [`Lab::fired`] then contains the rules that fired, once for each match.
pub fn play(lab: &mut Lab, wire: &Wire, messages: &[Message]) {
    let tcp = wire.ip.protocol == 6;
    let handle = lab.inspector.create_flow(tcp).expect("there is room");
    let mut player = Player {
        lab,
        handle,
        wire,
        sent: [0; 2],
    };
    match tcp {
        true => player.connection(messages),
        false => player.datagrams(messages),
    }
    lab.inspector.remove_flow(handle);
}

struct Player<'l> {
    lab: &'l mut Lab,
    handle: FlowHandle,
    wire: &'l Wire,
    sent: [u32; 2],
}

fn direction(toward: Toward) -> Direction {
    match toward {
        Toward::Server => Direction::Forward,
        Toward::Client => Direction::Reverse,
    }
}

impl Player<'_> {
    fn datagrams(&mut self, messages: &[Message]) {
        for message in messages {
            let header = match self.wire.ip.protocol {
                17 | 1 | 58 => 8,
                _ => 0,
            };
            let mut segment = vec![0; header];
            segment.extend_from_slice(&message.bytes);
            let established = self.wire.established;
            self.packet(direction(message.toward), None, established, segment, header);
        }
    }

    fn connection(&mut self, messages: &[Message]) {
        let lone = self.wire.flags.filter(|flags| flags & ACK == 0 || flags & SYN != 0);
        if let (Some(flags), Some(first)) = (lone, messages.first()) {
            // The packet acknowledges nothing, because it precedes the handshake or because no handshake exists.
            return self.segment(direction(first.toward), flags, &first.bytes);
        }
        self.segment(Direction::Forward, SYN, b"");
        self.segment(Direction::Reverse, SYN | ACK, b"");
        self.segment(Direction::Forward, ACK, b"");
        for (place, message) in messages.iter().enumerate() {
            let last = place + 1 == messages.len();
            let flags = self.wire.flags.filter(|_| last).unwrap_or(ACK | PSH);
            self.segment(direction(message.toward), flags, &message.bytes);
        }
        self.segment(Direction::Forward, ACK | FIN, b"");
        self.segment(Direction::Reverse, ACK | FIN, b"");
    }

    fn segment(&mut self, direction: Direction, flags: u8, data: &[u8]) {
        let (mine, other) = (direction as usize, direction.opposite() as usize);
        let sequence = self.wire.initial[mine].wrapping_add(self.sent[mine]);
        let acknowledgement = match flags & ACK {
            0 => 0,
            _ => self.wire.initial[other].wrapping_add(self.sent[other]),
        };
        let [from, to] = match direction {
            Direction::Forward => self.wire.ports,
            Direction::Reverse => [self.wire.ports[1], self.wire.ports[0]],
        };
        let mut segment = vec![0; 20];
        segment[0..2].copy_from_slice(&from.to_be_bytes());
        segment[2..4].copy_from_slice(&to.to_be_bytes());
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
        segment[12] = 5 << 4;
        segment[13] = flags;
        segment[14..16].copy_from_slice(&self.wire.window.to_be_bytes());
        segment.extend_from_slice(data);
        self.sent[mine] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let tcp = TcpFields {
            flags,
            sequence,
            acknowledgement,
            window: self.wire.window,
        };
        self.packet(direction, Some(tcp), flags & SYN == 0, segment, 20);
    }

    fn packet(
        &mut self,
        direction: Direction,
        tcp: Option<TcpFields>,
        established: bool,
        mut segment: Vec<u8>,
        header: usize,
    ) {
        let wire = self.wire;
        let forward = Endpoints {
            source: wire.addresses[0],
            destination: wire.addresses[1],
            ports: wire.ports,
            protocol: wire.ip.protocol,
            toward: Toward::Server,
            established,
            service: None,
        };
        let ends = match direction {
            Direction::Forward => forward,
            Direction::Reverse => forward.reversed(),
        };
        let facts = PacketFields {
            ip: wire.ip,
            tcp,
            icmp: wire.icmp,
            payload: (segment.len() - header) as u32,
            ..PacketFields::default()
        };
        let seen = FlowPacket {
            ends,
            fields: facts,
            direction,
            segment: &mut segment,
            payload: header,
            own_side: true,
        };
        self.lab.packet(self.handle, seen);
    }
}
