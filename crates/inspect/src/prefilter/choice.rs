//! What is searched for on behalf of a rule, and where.

use super::{PatternClass, rarity, required_literal};
use crate::evaluate::RETAINED_BYTES;
use crate::signature::{Buffer, Condition, Content, Expression, FastPattern, Protocol, Signature, Toward, Value};

/// What is searched for.
pub enum PatternChoice {
    /// Bytes of a content or of an expression, and whether their letters match in either case.
    Literal(Buffer, Box<[u8]>, bool),
    /// Nothing in this buffer, for it is nearly everywhere, or nobody knows what: the rule is asked about all that is there
    /// and has its ports.
    All(Buffer),
    /// Nothing: the rule is always asked.
    Nothing,
    /// Nothing: the rule is asked when something odd is met, and only then.
    Event,
}

/// A content of so few bytes is in most packets: a search that must report each of them takes several times as long as one
/// that need not, whoever sends them.
const SHORT_CONTENT: usize = 2;

/// Bytes of a literal that are searched for at most: more find no fewer candidates, and take memory.
const MAX_LITERAL: usize = 128;

/// Chooses the content that the rule names (`fast_pattern`), else the rarest; of a rule without contents, bytes that every match of
/// an expression holds.
pub fn choice(signature: &Signature) -> PatternChoice {
    if is_of_event(signature) {
        return PatternChoice::Event;
    }
    // A file's hash is there at its end, when its begin is no longer: nothing is looked for before.
    if let Some(hash) = signature.file_hashes().next() {
        return PatternChoice::All(hash);
    }
    // Buffers first, for the reason that `worth` gives; of a kind, the rarest bytes say most.
    let rank = |(buffer, literal): &(Buffer, Option<(Vec<u8>, bool)>)| {
        let rarity = literal.as_ref().map(|(bytes, caseless)| rarity::of(bytes, *caseless));
        (rarity.is_some(), *buffer != Buffer::Payload, rarity)
    };
    let expressions = signature.conditions.iter().filter_map(|condition| match condition {
        Condition::Expression(expression) if searchable(expression) => {
            let literal = required_literal::literal(expression).filter(|(bytes, _)| !searched(bytes).is_empty());
            Some((expression.buffer, literal))
        }
        _ => None,
    });
    let found = match chosen(signature) {
        Some(content) => Some((content.buffer, Some((part(content).to_vec(), content.nocase)))),
        None => expressions.max_by_key(rank),
    };
    match found {
        Some((buffer, Some((bytes, caseless)))) => {
            let bytes = searched(&bytes);
            match bytes.len() <= SHORT_CONTENT && buffer == Buffer::Payload && signature.header.has_ports() {
                true => PatternChoice::All(buffer),
                false => PatternChoice::Literal(buffer, bytes.into(), caseless),
            }
        }
        Some((buffer, None)) => PatternChoice::All(buffer),
        None => zeros(signature).map_or(PatternChoice::Nothing, |content| PatternChoice::All(content.buffer)),
    }
}

/// A content of nothing but zeros.
fn zeros(signature: &Signature) -> Option<&Content> {
    signature.conditions.iter().find_map(|condition| match condition {
        Condition::Content(content) => {
            (!content.negated && is_searchable_buffer(content.buffer) && !content.bytes.is_empty()).then_some(content)
        }
        _ => None,
    })
}

/// The content whose search ends where it does itself: of each of its places the rule is told once it is there as a whole.
pub fn anchor_content(signature: &Signature) -> Option<&Content> {
    chosen(signature).filter(|content| content.bytes.ends_with(part(content)))
}

fn is_of_event(signature: &Signature) -> bool {
    let is_event = |condition: &Condition| matches!(condition, Condition::Event(_));
    signature.conditions.iter().any(is_event)
}

/// The content that the rule asks for, else the best.
fn chosen(signature: &Signature) -> Option<&Content> {
    if is_of_event(signature) || signature.file_hashes().next().is_some() {
        return None;
    }
    let contents = signature.conditions.iter().filter_map(|condition| match condition {
        Condition::Content(content) if usable(content) => Some(content),
        _ => None,
    });
    let asked = contents
        .clone()
        .find(|content| content.fast != FastPattern::Unspecified);
    let asked = begins_far(signature).or(asked);
    // Of equals, the first: `max_by_key` would take the last.
    asked.or_else(|| {
        contents
            .rev()
            .max_by_key(|content| (score(content, part(content)), part(content).len()))
    })
}

/// The content of a stream or a file that another one follows at a distance at which it need no longer be kept: the rule must be asked
/// when it comes, so that where it lay is remembered.
fn begins_far(signature: &Signature) -> Option<&Content> {
    let is_far = |value: Option<Value>| matches!(value, Some(Value::Constant(bytes)) if bytes > RETAINED_BYTES);
    let mut begins = None;
    for condition in &signature.conditions {
        let Condition::Content(content) = condition else {
            continue;
        };
        let is_relative = content.distance.is_some() || content.within.is_some();
        let is_long = matches!(
            content.buffer,
            Buffer::Payload | Buffer::FileData | Buffer::HttpClientBody
        );
        match is_relative {
            true if is_far(content.distance) || is_far(content.within) => return begins,
            true => {}
            false => begins = Some(content).filter(|content| is_long && usable(content)),
        }
    }
    None
}

fn usable(content: &Content) -> bool {
    !content.negated && is_searchable_buffer(content.buffer) && !searched(&content.bytes).is_empty()
}

/// What is decoded or changed while a rule is asked is not there to be searched before.
fn is_searchable_buffer(buffer: Buffer) -> bool {
    buffer != Buffer::Base64 && buffer.transformed().is_none()
}

/// The bytes of a content that are searched for: all, where the part that the rule names is not one of it.
fn part(content: &Content) -> &[u8] {
    let named = match content.fast {
        FastPattern::Part(first, count) => content
            .bytes
            .get(usize::from(first)..usize::from(first) + usize::from(count))
            .map(searched)
            .filter(|part| !part.is_empty()),
        _ => None,
    };
    named.unwrap_or_else(|| searched(&content.bytes))
}

/// What is searched for of these bytes: the last [`LONG`], without leading zeros, which Vectorscan does not take and most data is
/// full of.
fn searched(bytes: &[u8]) -> &[u8] {
    let last = &bytes[bytes.len().saturating_sub(MAX_LITERAL)..];
    let zeros = last.iter().take_while(|&&byte| byte == 0).count();
    &last[zeros..]
}

/// How good a content is, in bits. A buffer of a protocol is a small part of what is sent, so it is scanned less
/// often and holds a pattern by chance less often: worth three letters against the payload; a body is nearly all of
/// it. Methods and status are among a handful, whatever their length.
fn score(content: &Content, part: &[u8]) -> u32 {
    let rarity = rarity::of(part, content.nocase);
    match content.buffer {
        Buffer::HttpMethod | Buffer::HttpStatusCode | Buffer::HttpStatusMessage => rarity.min(8),
        Buffer::Payload | Buffer::Base64 => rarity,
        Buffer::FileData | Buffer::HttpClientBody => rarity + 4,
        Buffer::HttpHeader | Buffer::HttpRawHeader => rarity + 12,
        _ => rarity + 16,
    }
}

fn searchable(expression: &Expression) -> bool {
    !expression.negated && is_searchable_buffer(expression.buffer)
}

/// The classes in which a rule's pattern in this buffer is searched for.
pub fn classes(signature: &Signature, buffer: Buffer) -> Vec<PatternClass> {
    if buffer != Buffer::Payload {
        return vec![PatternClass::Buffer(buffer)];
    }
    let (tcp, others) = match signature.header.protocol {
        Protocol::Tcp | Protocol::Number(6) => (true, false),
        Protocol::Ip | Protocol::Application => (true, true),
        Protocol::Udp | Protocol::Icmp | Protocol::Number(_) => (false, true),
    };
    let mut classes = Vec::new();
    match signature.flow.direction {
        _ if !tcp => {}
        _ if per_packet(signature) => classes.push(PatternClass::Packet),
        Some(toward) => classes.push(PatternClass::Stream(toward)),
        None => classes.extend([Toward::Server, Toward::Client].map(PatternClass::Stream)),
    }
    if others {
        classes.push(PatternClass::Datagram);
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
