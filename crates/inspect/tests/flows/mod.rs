//! Generates flows that fire a rule, from the signature of the rule.
#![allow(dead_code, reason = "each test uses some of it")]

mod cells;
mod layout;
mod pattern;
pub mod play;
pub mod wire;

use std::net::IpAddr;

use ipnet::IpNet;
use sluice_inspect::Signature;
use sluice_inspect::evaluate::IcmpFields;
use sluice_inspect::signature::{
    Addresses, Bits, Buffer, Condition, FlowBit, Ports, Protocol, RateKind, Service, Side, Toward,
};

pub use layout::Place;
use layout::{filler, solve};
use play::{Message, Wire};
use wire::{Buffers, Manner};

/// A flow that probably fires a rule.
#[derive(Clone, Debug)]
pub struct Flow {
    pub wire: Wire,
    /// Messages that must be sent first, to set flow variables.
    before: Vec<Message>,
    pub toward: Toward,
    /// Contents of the buffers of the decisive message.
    pub buffers: Buffers,
    pub places: Vec<Place>,
    form: Form,
    pub filler: u8,
    /// Number of times that the flow must be played before the rule fires.
    pub times: u32,
    /// Bytes changed at the end: message, offset, and new value.
    changes: Vec<(usize, usize, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Raw,
    Http(Manner),
}

fn is_http(buffer: Buffer) -> bool {
    !matches!(
        buffer,
        Buffer::Payload | Buffer::Base64 | Buffer::DnsQuery | Buffer::TlsSni | Buffer::Ja3Hash
    )
}

fn buffer_of(condition: &Condition) -> Option<Buffer> {
    match condition {
        Condition::Content(content) => Some(content.buffer),
        Condition::Expression(expression) => Some(expression.buffer),
        Condition::ByteTest(test) => Some(test.number.buffer),
        Condition::ByteJump(jump) => Some(jump.number.buffer),
        Condition::ByteExtract(extract) => Some(extract.number.buffer),
        Condition::IsDataAt(there) => Some(there.buffer),
        Condition::Base64Decode(decode) => Some(decode.buffer),
        Condition::BufferLength(buffer, _) => Some(*buffer),
        _ => None,
    }
}

/// Candidate flows, the most probable first, or the reason for which none exists.
pub fn flows(signature: &Signature, rules: &[Signature]) -> Result<Vec<Flow>, &'static str> {
    let wire = wire_of(signature)?;
    let needed = needed(signature);
    if needed.is_empty() {
        return decisive(signature, wire);
    }
    let setters = rules
        .iter()
        .filter(|rule| rule.id != signature.id && is_set_by(rule, &needed));
    let mut why = "flowbits: no rule sets them";
    for setter in setters.take(12) {
        let both = joined(&wire, signature, setter);
        let Some(wire) = both else {
            why = "flowbits: the rule that sets them is about other ends";
            continue;
        };
        let mut flows = Vec::new();
        for first in decisive(setter, wire.clone()).unwrap_or_default().into_iter().take(4) {
            for mut second in decisive(signature, wire.clone())? {
                second.before = first.decisive_messages();
                second.before.extend(first.answer());
                flows.push(second);
            }
        }
        if !flows.is_empty() {
            return Ok(flows);
        }
        why = "flowbits: no flow for the rule that sets them";
    }
    Err(why)
}

fn needed(signature: &Signature) -> Vec<&str> {
    let mut needed = Vec::new();
    for condition in &signature.conditions {
        if let Condition::FlowBits(bits) = condition
            && bits.command == FlowBit::IsSet
        {
            needed.extend(
                bits.names
                    .iter()
                    .take(if bits.any { 1 } else { 99 })
                    .map(|name| &**name),
            );
        }
    }
    needed
}

fn is_set_by(rule: &Signature, names: &[&str]) -> bool {
    needed(rule).is_empty()
        && names.iter().all(|name| {
            rule.conditions.iter().any(|condition| match condition {
                Condition::FlowBits(bits) => {
                    bits.command == FlowBit::Set && bits.names.iter().any(|set| &**set == *name)
                }
                _ => false,
            })
        })
}

/// Endpoints that match the first rule and the second rule.
fn joined(wire: &Wire, first: &Signature, second: &Signature) -> Option<Wire> {
    let other = wire_of(second).ok()?;
    let mut joined = wire.clone();
    (wire.ip.protocol == other.ip.protocol).then_some(())?;
    let [one, two] = [sides(first), sides(second)];
    for place in 0..2 {
        let candidates = [wire.ports[place], other.ports[place]];
        joined.ports[place] = candidates
            .into_iter()
            .find(|&port| one[place].ports.contains(port) && two[place].ports.contains(port))?;
        let candidates = [wire.addresses[place], other.addresses[place]];
        joined.addresses[place] = candidates
            .into_iter()
            .find(|&address| one[place].addresses.contains(address) && two[place].addresses.contains(address))?;
    }
    Some(joined)
}

/// Rule sides that describe the client and the server.
fn sides(signature: &Signature) -> [&Side; 2] {
    let header = &signature.header;
    match toward(signature) {
        Toward::Server => [&header.source, &header.destination],
        Toward::Client => [&header.destination, &header.source],
    }
}

fn toward(signature: &Signature) -> Toward {
    let answers = |condition: &Condition| {
        matches!(
            buffer_of(condition),
            Some(Buffer::HttpStatusCode | Buffer::HttpStatusMessage)
        )
    };
    match signature.flow.direction {
        Some(toward) => toward,
        None if signature.conditions.iter().any(answers) => Toward::Client,
        None => Toward::Server,
    }
}

fn address(addresses: &Addresses, usual: IpAddr) -> Option<IpAddr> {
    let first = |prefix: &IpNet| prefix.hosts().next();
    let mut candidates = std::iter::once(usual).chain(addresses.within.iter().filter_map(first));
    candidates.find(|&address| addresses.contains(address))
}

fn port(ports: &Ports, usual: u16) -> Option<u16> {
    let mut candidates = [usual, 80]
        .into_iter()
        .chain(ports.0.iter().map(|range| *range.start()));
    candidates.find(|&port| ports.contains(port))
}

fn wire_of(signature: &Signature) -> Result<Wire, &'static str> {
    let mut wire = Wire::default();
    let usual = match &*signature.header.services {
        [Service::Http, ..] => 80,
        [Service::Dns, ..] => 53,
        _ => 7_777,
    };
    for (place, side) in sides(signature).into_iter().enumerate() {
        let usual_port = [40_000, usual][place];
        wire.addresses[place] = address(&side.addresses, wire.addresses[place]).ok_or("no address")?;
        wire.ports[place] = port(&side.ports, usual_port).ok_or("no port")?;
    }
    wire.ip.protocol = match signature.header.protocol {
        Protocol::Tcp | Protocol::Application => 6,
        Protocol::Udp => 17,
        Protocol::Icmp => 1,
        Protocol::Ip => 17,
        Protocol::Number(number) => number,
    };
    wire.established = signature.flow.established.unwrap_or(true);
    let (mut icmp, mut flags) = (IcmpFields::default(), None);
    let mine = toward(signature) as usize;
    for condition in &signature.conditions {
        match condition {
            Condition::IcmpType(kinds) => icmp.kind = *kinds.start(),
            Condition::IcmpCode(codes) => icmp.code = *codes.start(),
            Condition::IcmpIdentifier(number) => icmp.identifier = *number,
            Condition::IcmpSequence(number) => icmp.sequence = *number,
            Condition::Ttl(values) => wire.ip.ttl = *values.start(),
            Condition::TypeOfService { value, negated } => {
                wire.ip.type_of_service = if *negated { !*value } else { *value };
            }
            Condition::IpIdentification(number) => wire.ip.identification = Some(*number),
            Condition::IpProtocol { numbers, negated } => {
                wire.ip.protocol = match negated {
                    false => *numbers.start(),
                    true => (17..).find(|number| !numbers.contains(number)).ok_or("no protocol")?,
                };
            }
            Condition::FragmentBits { mode, bits } => {
                wire.ip.fragment_bits = if *mode == Bits::None { 0 } else { *bits };
            }
            Condition::FragmentOffset(units) => wire.ip.fragment_offset = *units.start(),
            Condition::SameAddress => {
                wire.ip.same_address = true;
                wire.addresses[1] = wire.addresses[0];
            }
            Condition::Window { values, negated: false } => wire.window = *values.start(),
            Condition::Flags(asked) => {
                flags = Some(if asked.mode == Bits::None {
                    16
                } else {
                    asked.flags & !asked.ignored
                });
            }
            Condition::Sequence(number) => {
                wire.initial[mine] = match flags {
                    Some(flags) if flags & 16 == 0 => *number,
                    _ => number.wrapping_sub(1),
                };
            }
            Condition::Acknowledgement(number) => wire.initial[1 - mine] = number.wrapping_sub(1),
            Condition::StreamSize { .. } => return Err("stream_size"),
            _ => {}
        }
    }
    wire.flags = flags;
    wire.icmp = (wire.ip.protocol == 1).then_some(icmp);
    Ok(wire)
}

/// Flows with one decisive message.
fn decisive(signature: &Signature, wire: Wire) -> Result<Vec<Flow>, &'static str> {
    let conditions = &signature.conditions;
    let has = |is: fn(Buffer) -> bool| conditions.iter().filter_map(buffer_of).any(is);
    let services = &signature.header.services;
    let http = has(is_http);
    if http && !services.is_empty() && !services.contains(&Service::Http) {
        return Err("a buffer of HTTP in another service");
    }
    let tcp = wire.ip.protocol == 6;
    if http && !tcp {
        return Err("a buffer of HTTP in datagrams");
    }
    let mut forms = Vec::new();
    if !http {
        forms.push(Form::Raw);
    }
    let speaks = http || tcp && services.contains(&Service::Http);
    if speaks {
        for choice in 0..8u8 {
            let [query, value, in_header] = [1, 2, 4].map(|bit| choice & bit != 0);
            forms.push(Form::Http(Manner {
                query,
                value,
                in_header,
            }));
        }
    }
    let mut flows = Vec::new();
    let mut why = "no layout is found";
    for expressions_first in [true, false] {
        match solve(conditions, expressions_first) {
            Err(said) => why = said,
            Ok((buffers, places)) => flows.extend(forms.iter().map(|&form| Flow {
                wire: wire.clone(),
                before: Vec::new(),
                toward: toward(signature),
                buffers: buffers.clone(),
                places: places.clone(),
                form,
                filler: filler(conditions),
                times: match &signature.rate {
                    None => 1,
                    Some(rate) => match rate.kind {
                        RateKind::After => rate.count + 1,
                        RateKind::Limit => 1,
                        RateKind::Every | RateKind::Once => rate.count,
                    },
                },
                changes: Vec::new(),
            })),
        }
    }
    if flows.is_empty() { Err(why) } else { Ok(flows) }
}

impl Flow {
    /// All messages.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = self.before.clone();
        messages.extend(self.decisive_messages());
        if self.wire.flags.is_none() && self.wire.ip.protocol == 6 {
            messages.extend(self.answer());
        }
        for &(message, at, byte) in &self.changes {
            messages[message].bytes[at] = byte;
        }
        messages
    }

    fn decisive_messages(&self) -> Vec<Message> {
        let say = |toward, bytes: &[u8]| Message {
            toward,
            bytes: bytes.to_vec(),
        };
        let bytes = match (self.form, self.toward) {
            (Form::Raw, _) => self.buffers.get(&Buffer::Payload).cloned().unwrap_or_default(),
            (Form::Http(manner), Toward::Server) => wire::request(&self.buffers, manner),
            (Form::Http(manner), Toward::Client) => wire::response(&self.buffers, manner),
        };
        let mut messages = Vec::new();
        if self.toward == Toward::Client {
            let first = if self.is_spoken() {
                &b"GET / HTTP/1.1\r\n\r\n"[..]
            } else {
                b"-\r\n"
            };
            messages.push(say(Toward::Server, first));
        }
        messages.push(say(self.toward, &bytes));
        messages
    }

    /// Returns the flow with one byte of a message replaced.
    pub fn changed(mut self, message: usize, at: usize, byte: u8) -> Self {
        self.changes.push((message, at, byte));
        self
    }

    /// Returns the flow with one byte of a buffer replaced.
    pub fn with(&self, buffer: Buffer, at: usize, byte: u8) -> Self {
        let mut other = self.clone();
        if let Some(cell) = other.buffers.get_mut(&buffer).and_then(|bytes| bytes.get_mut(at)) {
            *cell = byte;
        }
        other
    }

    fn is_spoken(&self) -> bool {
        matches!(self.form, Form::Http(_))
    }

    /// Reply of the other host.
    fn answer(&self) -> Option<Message> {
        let (toward, bytes) = match self.toward {
            Toward::Server if self.is_spoken() => (Toward::Client, &b"HTTP/1.1 204 OK\r\n\r\n"[..]),
            Toward::Server => (Toward::Client, &b"-\r\n"[..]),
            Toward::Client if self.is_spoken() => (Toward::Server, &b"GET / HTTP/1.1\r\n\r\n"[..]),
            Toward::Client => (Toward::Server, &b"-\r\n"[..]),
        };
        Some(Message {
            toward,
            bytes: bytes.to_vec(),
        })
    }
}
