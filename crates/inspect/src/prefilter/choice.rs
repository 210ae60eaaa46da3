//! What is searched for on behalf of a rule, and where.

use super::{Class, rarity};
use crate::signature::{Buffer, Condition, Content, Expression, Fast, Protocol, Signature, Toward};

/// What is searched for.
pub enum Choice<'a> {
    /// A part of a content.
    Literal(Buffer, &'a [u8], bool),
    /// The first of these that can be searched for.
    Expressions(Vec<&'a Expression>),
    /// Nothing in this buffer, for it is nearly everywhere: the rule is asked about all that its ports have.
    Ports(Buffer),
    /// Nothing: the rule is always asked.
    Nothing,
    /// Nothing: the rule is asked when something odd is met, and only then.
    Event,
}

/// A content of so few bytes is in most packets: a search that must report each of them takes several times as long as one
/// that need not, whoever sends them.
const SHORT: usize = 2;

/// Chooses the content that the rule asks for, else the best; without any, expressions.
pub fn choice(signature: &Signature) -> Choice<'_> {
    if is_of_event(signature) {
        return Choice::Event;
    }
    if let Some(content) = chosen(signature) {
        let (buffer, part) = (content.buffer, part(content));
        return match part.len() <= SHORT && buffer == Buffer::Payload && signature.header.has_ports() {
            true => Choice::Ports(buffer),
            false => Choice::Literal(buffer, part, content.nocase),
        };
    }
    let mut expressions: Vec<&Expression> = signature
        .conditions
        .iter()
        .filter_map(|condition| match condition {
            Condition::Expression(expression) if searchable(expression) => Some(expression),
            _ => None,
        })
        .collect();
    // Buffers first, for the reason that `worth` gives; of a kind, the longest says most.
    expressions.sort_by_key(|expression| {
        (
            expression.buffer == Buffer::Payload,
            std::cmp::Reverse(expression.pattern.len()),
        )
    });
    match expressions.is_empty() {
        true => Choice::Nothing,
        false => Choice::Expressions(expressions),
    }
}

fn is_of_event(signature: &Signature) -> bool {
    let is_event = |condition: &Condition| matches!(condition, Condition::Event(_));
    signature.conditions.iter().any(is_event)
}

/// The content that the rule asks for, else the best.
pub fn chosen(signature: &Signature) -> Option<&Content> {
    if is_of_event(signature) {
        return None;
    }
    let contents = signature.conditions.iter().filter_map(|condition| match condition {
        Condition::Content(content) if usable(content) => Some(content),
        _ => None,
    });
    let asked = contents.clone().find(|content| content.fast != Fast::Unsaid);
    // Of equals, the first: `max_by_key` would take the last.
    asked.or_else(|| {
        contents
            .rev()
            .max_by_key(|content| (worth(content, part(content)), part(content).len()))
    })
}

fn usable(content: &Content) -> bool {
    !content.negated && is_there(content.buffer) && !content.bytes.is_empty()
}

/// What is decoded or changed while a rule is asked is not there to be searched before.
fn is_there(buffer: Buffer) -> bool {
    buffer != Buffer::Base64 && buffer.transformed().is_none()
}

/// The bytes of a content that are searched for: all, where the part that the rule names is not one of it.
fn part(content: &Content) -> &[u8] {
    match content.fast {
        Fast::Part(first, count) if count > 0 => content
            .bytes
            .get(usize::from(first)..usize::from(first) + usize::from(count))
            .unwrap_or(&content.bytes),
        _ => &content.bytes,
    }
}

/// How good a content is, in bits. A buffer of a protocol is a small part of what is sent, so it is scanned less
/// often and holds a pattern by chance less often: worth three letters against the payload; a body is nearly all of
/// it. Methods and status are among a handful, whatever their length.
fn worth(content: &Content, part: &[u8]) -> u32 {
    let rarity = rarity::of(part, content.nocase);
    match content.buffer {
        Buffer::HttpMethod | Buffer::HttpStatusCode | Buffer::HttpStatusMessage => rarity.min(8),
        Buffer::Payload | Buffer::Base64 => rarity,
        Buffer::FileData | Buffer::HttpClientBody => rarity + 4,
        Buffer::HttpHeader | Buffer::HttpRawHeader => rarity + 12,
        _ => rarity + 16,
    }
}

/// An expression that begins where the condition before it ended may mean that place by its anchors; a search through
/// all of the buffer knows no such place.
fn searchable(expression: &Expression) -> bool {
    let anchored = ["^", "\\A", "\\G", "\\b", "\\B", "(?<"]
        .iter()
        .any(|anchor| expression.pattern.contains(anchor));
    !expression.negated && is_there(expression.buffer) && !(expression.relative && anchored)
}

/// The classes in which a rule's pattern in this buffer is searched for.
pub fn classes(signature: &Signature, buffer: Buffer) -> Vec<Class> {
    if buffer != Buffer::Payload {
        return vec![Class::Buffer(buffer)];
    }
    let (tcp, others) = match signature.header.protocol {
        Protocol::Tcp | Protocol::Number(6) => (true, false),
        Protocol::Ip | Protocol::Application => (true, true),
        Protocol::Udp | Protocol::Icmp | Protocol::Number(_) => (false, true),
    };
    let mut classes = Vec::new();
    match signature.flow.direction {
        _ if !tcp => {}
        _ if per_packet(signature) => classes.push(Class::Packet),
        Some(toward) => classes.push(Class::Stream(toward)),
        None => classes.extend([Toward::Server, Toward::Client].map(Class::Stream)),
    }
    if others {
        classes.push(Class::Datagram);
    }
    classes
}

/// Whether a rule is about single packets: it says so, or asks for what only a packet has.
fn per_packet(signature: &Signature) -> bool {
    match signature.flow.stream {
        Some(stream) => !stream,
        None => signature.conditions.iter().any(|condition| {
            matches!(
                condition,
                Condition::PayloadSize(_)
                    | Condition::Flags(_)
                    | Condition::Ttl(_)
                    | Condition::TypeOfService { .. }
                    | Condition::IpIdentification(_)
                    | Condition::FragmentBits { .. }
                    | Condition::FragmentOffset(_)
                    | Condition::Sequence(_)
                    | Condition::Acknowledgement(_)
                    | Condition::Window { .. }
            )
        }),
    }
}
