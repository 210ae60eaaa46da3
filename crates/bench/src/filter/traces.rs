//! Packet headers to look up.

use sluice_filter::{Field, Header, Range, Rule};

use crate::rig::frames::Random;

pub const CLIENTS: u32 = 50;
pub const SERVERS: u32 = 30;
pub const SERVICE: u32 = 80;
/// Maximum number of consecutive packets of one request.
const ROW: u64 = 24;

pub fn client(number: u32) -> u32 {
    0x0a00_0100 + number
}

pub fn server(number: u32) -> u32 {
    0xc000_0200 + number
}

/// Named headers.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub name: &'static str,
    pub headers: Vec<Header<u32>>,
}

/// Source of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Requests of 50 clients to 30 servers, with up to 24 consecutive packets each (P1, section 4.1).
    Local,
    /// A random corner of a random rule for every packet.
    Uniform,
    /// Random headers that match no rule, if such headers can be found.
    NoneMatch,
    /// All fields are random.
    Random,
}

impl Trace {
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Uniform => "uniform",
            Self::NoneMatch => "none-match",
            Self::Random => "random",
        }
    }

    pub fn traffic(self, rules: &[Rule<u32>], count: usize) -> Traffic {
        Traffic {
            name: self.name(),
            headers: self.headers(rules, count),
        }
    }

    pub fn headers(self, rules: &[Rule<u32>], count: usize) -> Vec<Header<u32>> {
        let mut random = Random(0x5eed_0001);
        let mut headers = Vec::with_capacity(count);
        while headers.len() < count {
            match self {
                Self::Local => {
                    let source = client(random.below(CLIENTS.into()));
                    let destination = server(random.below(SERVERS.into()));
                    let port = 1024 + random.below(64_512);
                    let header = tcp(source, destination, port, SERVICE);
                    let row = 1 + random.below(ROW) as usize;
                    headers.extend(std::iter::repeat_n(header, row.min(count - headers.len())));
                }
                Self::Uniform => {
                    let rule = &rules[random.below(rules.len() as u64) as usize];
                    let mut end = |Range { first, last }: Range<u32>| if random.below(2) == 0 { first } else { last };
                    let mut header = Header::new(end(rule.source), end(rule.destination));
                    for field in [Field::SourcePort, Field::DestinationPort, Field::Protocol] {
                        header = header.with(field, end(rule.get(field)).min(field.last_named()));
                    }
                    headers.push(header);
                }
                Self::NoneMatch => {
                    let [source, destination] = [0, 1].map(|_| 0xf000_0000 | random.below(1 << 24));
                    headers.push(tcp(source, destination, 1024 + random.below(64_512), SERVICE));
                }
                Self::Random => {
                    let [source, destination] = [0, 1].map(|_| random.below(1 << 32));
                    let [from, to] = [0, 1].map(|_| random.below(1 << 16));
                    headers.push(tcp(source, destination, from, to).with(Field::Protocol, random.below(256)));
                }
            }
        }
        headers
    }
}

/// Source, destination, source port, destination port, protocol.
pub type Tuple = [u32; 5];

/// Header of a packet with these five fields.
pub fn header(&[source, destination, from, to, protocol]: &Tuple) -> Header<u32> {
    Header::new(source, destination)
        .with(Field::SourcePort, from)
        .with(Field::DestinationPort, to)
        .with(Field::Protocol, protocol)
}

fn tcp(source: u32, destination: u32, source_port: u32, destination_port: u32) -> Header<u32> {
    header(&[source, destination, source_port, destination_port, 6])
}
