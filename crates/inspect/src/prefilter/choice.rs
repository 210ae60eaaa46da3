//! Selects the pattern of a rule for which the prefilter searches, and the buffer to search.

use super::{PatternClass, rarity, required_literal};
use crate::evaluate::RETAINED_BYTES;
use crate::signature::{Buffer, Condition, Content, Expression, FastPattern, Protocol, Signature, Toward, Value};

/// The pattern for which the prefilter searches on behalf of a rule.
pub enum PatternChoice {
    /// Buffer, bytes of a content or of an expression, and whether letters match in either case.
    Literal(Buffer, Box<[u8]>, bool),
    /// No pattern in this buffer, because the pattern is unknown or would match nearly everywhere. The rule is
    /// evaluated for all data of the buffer on the rule's ports.
    All(Buffer),
    /// No pattern: the rule is always evaluated.
    Nothing,
    /// No pattern: the rule is evaluated only when an event occurs.
    Event,
}

/// Contents up to this length occur in most packets of any sender. A search that reports all matches of frequent contents takes
/// several times as long as a search without such contents.
const SHORT_CONTENT: usize = 2;

/// Maximum length of a literal. Longer literals take memory and don't reduce the number of candidates.
const MAX_LITERAL: usize = 128;

/// Chooses the content that the rule names (`fast_pattern`), otherwise the rarest content. For a rule without contents, the choice is
/// bytes that every match of an expression contains.
pub fn choice(signature: &Signature) -> PatternChoice {
    if is_of_event(signature) {
        return PatternChoice::Event;
    }
    // The hash of a file is available only at the end of the file. At that time the start of the file may be discarded,
    // so the rule has no pattern and is evaluated when the hash is available.
    if let Some(hash) = signature.file_hashes().next() {
        return PatternChoice::All(hash);
    }
    // Other buffers are preferred to the payload, for the reason stated at `score`. Among equal buffers, the rarest
    // bytes are preferred.
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

/// A content that consists of zeros only.
fn zeros(signature: &Signature) -> Option<&Content> {
    signature.conditions.iter().find_map(|condition| match condition {
        Condition::Content(content) => {
            (!content.negated && is_searchable_buffer(content.buffer) && !content.bytes.is_empty()).then_some(content)
        }
        _ => None,
    })
}

/// The chosen content, if its pattern ends at the end of the content. Every match is then reported when the whole content has arrived.
pub fn anchor_content(signature: &Signature) -> Option<&Content> {
    chosen(signature).filter(|content| content.bytes.ends_with(part(content)))
}

fn is_of_event(signature: &Signature) -> bool {
    let is_event = |condition: &Condition| matches!(condition, Condition::Event(_));
    signature.conditions.iter().any(is_event)
}

/// The content that the rule names, or otherwise the content with the highest score.
fn chosen(signature: &Signature) -> Option<&Content> {
    if is_of_event(signature) || signature.file_hashes().next().is_some() {
        return None;
    }
    let contents = signature.conditions.iter().filter_map(|condition| match condition {
        Condition::Content(content) if usable(content) => Some(content),
        _ => None,
    });
    let required = contents
        .clone()
        .find(|content| content.fast != FastPattern::Unspecified);
    let required = find_distant(signature).or(required);
    // Among equal contents, the first one is taken. `max_by_key` returns the last maximum, so the order is reversed.
    required.or_else(|| {
        contents
            .rev()
            .max_by_key(|content| (score(content, part(content)), part(content).len()))
    })
}

/// A content of a stream or a file, if the next content may lie beyond the bytes that are retained after this content.
/// The rule must be evaluated when this content arrives, so that the position of the content is recorded.
fn find_distant(signature: &Signature) -> Option<&Content> {
    let is_far = |value: Option<Value>| matches!(value, Some(Value::Constant(bytes)) if bytes > RETAINED_BYTES);
    let mut distant = None;
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
            true if is_far(content.distance) || is_far(content.within) => return distant,
            true => {}
            false => distant = Some(content).filter(|content| is_long && usable(content)),
        }
    }
    None
}

fn usable(content: &Content) -> bool {
    !content.negated && is_searchable_buffer(content.buffer) && !searched(&content.bytes).is_empty()
}

/// Whether the prefilter can search a buffer. Decoded and transformed buffers exist only while a rule is evaluated.
fn is_searchable_buffer(buffer: Buffer) -> bool {
    buffer != Buffer::Base64 && buffer.transformed().is_none()
}

/// Bytes of a content for the search: the part that the rule names, or all bytes if that part is invalid.
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

/// Bytes for the search: the last [`MAX_LITERAL`] bytes, without leading zeros. Vectorscan rejects leading zeros, and
/// zeros occur in most data.
fn searched(bytes: &[u8]) -> &[u8] {
    let last = &bytes[bytes.len().saturating_sub(MAX_LITERAL)..];
    let zeros = last.iter().take_while(|&&byte| byte == 0).count();
    &last[zeros..]
}

/// Score of a content in bits. Protocol buffers are a small part of the data, so they are scanned less often and rarely
/// contain a pattern by chance. For a content in such a buffer, the score is increased by the value of three letters.
/// Bodies get no bonus, because nearly all data is in bodies. Methods and status codes have few different values,
/// regardless of their length.
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

/// Classes that are searched for a rule's pattern in this buffer.
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

/// Whether a rule applies to single packets: it is declared as a packet rule, or tests a field that only packets have.
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
