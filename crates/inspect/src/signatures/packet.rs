//! Options about header fields of a packet.

use super::draft::SignatureDraft;
use super::range::{self, Between, Values};
use super::{Dialect, RuleError, syntax};
use crate::signature::{Bits, Condition, Flags, Sender};

const BYTE: u64 = u8::MAX as u64;
const WORD: u64 = u16::MAX as u64;
const LONG: u64 = u32::MAX as u64;

fn values(draft: &SignatureDraft, text: &str, max: u64) -> Result<Values, RuleError> {
    range::values(text, draft.dialect, Between::of(draft.dialect), max)
}

fn push(draft: &mut SignatureDraft, condition: Condition) -> Result<(), RuleError> {
    draft.push(condition);
    Ok(())
}

pub(super) fn payload_size(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let bytes = values(draft, value, LONG)?.plain(LONG)?;
    push(draft, Condition::PayloadSize(bytes))
}

/// For ICMP fields, `<>` excludes both limits in every dialect.
fn icmp(draft: &SignatureDraft, text: &str) -> Result<std::ops::RangeInclusive<u8>, RuleError> {
    range::values(text, draft.dialect, Between::Exclusive, BYTE)?.plain(BYTE)
}

pub(super) fn icmp_type(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let types = icmp(draft, value)?;
    push(draft, Condition::IcmpType(types))
}

pub(super) fn icmp_code(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let codes = icmp(draft, value)?;
    push(draft, Condition::IcmpCode(codes))
}

pub(super) fn icmp_identifier(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let number = values(draft, value, WORD)?.one()?;
    push(draft, Condition::IcmpIdentifier(number))
}

pub(super) fn icmp_sequence(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let number = values(draft, value, WORD)?.one()?;
    push(draft, Condition::IcmpSequence(number))
}

pub(super) fn ttl(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let hops = values(draft, value, BYTE)?.plain(BYTE)?;
    push(draft, Condition::Ttl(hops))
}

pub(super) fn type_of_service(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (negated, text) = syntax::negation(value);
    let value = values(draft, text, BYTE)?.one()?;
    push(draft, Condition::TypeOfService { value, negated })
}

pub(super) fn identification(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let number = values(draft, value, WORD)?.one()?;
    push(draft, Condition::IpIdentification(number))
}

/// Names of IP protocols that rules use.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("sctp", 132),
];

pub(super) fn ip_protocol(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (not, name) = syntax::negation(value);
    let named = PROTOCOLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let (numbers, negated) = match named {
        Some((_, number)) => (*number..=*number, not),
        None => values(draft, value, BYTE)?.negatable()?,
    };
    push(draft, Condition::IpProtocol { numbers, negated })
}

/// Parses bits. A sign before or after the bits selects the comparison.
fn bits(text: &str, bit: fn(char) -> Option<u8>) -> Result<(Bits, u8), RuleError> {
    let unknown = || RuleError::Unknown {
        written: text.into(),
        hint: None,
    };
    let (mut mode, mut bits) = (None, 0);
    let plain = text
        .trim()
        .trim_start_matches(['+', '*', '!'])
        .trim_end_matches(['+', '*', '!']);
    for sign in text.chars().filter(|sign| "+*!".contains(*sign)) {
        let said = match sign {
            '+' => Bits::All,
            '*' => Bits::Any,
            _ => Bits::None,
        };
        if mode.replace(said).is_some() {
            return Err(unknown());
        }
    }
    if plain.is_empty() {
        return Err(unknown());
    }
    for letter in plain.chars() {
        bits |= bit(letter.to_ascii_uppercase()).ok_or_else(unknown)?;
    }
    match mode {
        Some(_) if bits == 0 => Err(unknown()),
        mode => Ok((mode.unwrap_or(Bits::Exactly), bits)),
    }
}

/// In Suricata `!` means "not all of these bits". For a single bit, this is equivalent to "none of the bits". Rules
/// with several bits are refused.
fn checked(draft: &SignatureDraft, text: &str, (mode, bits): (Bits, u8)) -> Result<(Bits, u8), RuleError> {
    if draft.dialect == Dialect::Suricata && mode == Bits::None && bits.count_ones() > 1 {
        return Err(RuleError::PartNotInspected(text.into()));
    }
    Ok((mode, bits))
}

pub(super) fn fragment_bits(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let bit = |letter| match letter {
        'M' => Some(1),
        'D' => Some(2),
        'R' => Some(4),
        _ => None,
    };
    let (mode, bits) = checked(draft, value, bits(value, bit)?)?;
    push(draft, Condition::FragmentBits { mode, bits })
}

pub(super) fn fragment_offset(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let offset = values(draft, value, WORD)?.plain(WORD)?;
    push(draft, Condition::FragmentOffset(offset))
}

/// `flags:SA+,CE`. The flags after the comma are ignored in the comparison.
pub(super) fn flags(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let flag = |letter| match letter {
        'F' => Some(1),
        'S' => Some(2),
        'R' => Some(4),
        'P' => Some(8),
        'A' => Some(16),
        'U' => Some(32),
        'E' | '2' => Some(64),
        'C' | '1' => Some(128),
        '0' => Some(0),
        _ => None,
    };
    let (wanted, ignored) = value
        .split_once(',')
        .map_or((value, None), |(wanted, rest)| (wanted, Some(rest)));
    let (mode, flags) = checked(draft, value, bits(wanted, flag)?)?;
    let ignored = match ignored {
        None => 0,
        Some(text) => match bits(text, flag)? {
            (Bits::Exactly, ignored) => ignored,
            _ => {
                return Err(RuleError::Unknown {
                    written: text.into(),
                    hint: None,
                });
            }
        },
    };
    push(draft, Condition::Flags(Flags { mode, flags, ignored }))
}

pub(super) fn same_address(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    push(draft, Condition::SameAddress)
}

pub(super) fn sequence(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let number = values(draft, value, LONG)?.one()?;
    push(draft, Condition::Sequence(number))
}

pub(super) fn acknowledgement(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let number = values(draft, value, LONG)?.one()?;
    push(draft, Condition::Acknowledgement(number))
}

pub(super) fn window(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (values, negated) = values(draft, value, WORD)?.negatable()?;
    push(draft, Condition::Window { values, negated })
}

/// `stream_size:client,>,6` and, in Snort 3, `stream_size:>6,to_server`. The number in the rule includes the SYN.
pub(super) fn stream_size(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let (by, size) = match (&arguments[..], draft.dialect) {
        ([size], Dialect::Snort3) => ("either", size.to_string()),
        ([size, by], Dialect::Snort3) => (*by, size.to_string()),
        ([by, sign, size], Dialect::Snort2 | Dialect::Suricata) => (*by, format!("{sign}{size}")),
        _ => return Err(RuleError::PartNotInspected(value.into())),
    };
    let by = match by {
        "to_server" | "client" => Sender::Client,
        "to_client" | "server" => Sender::Server,
        "either" => Sender::Either,
        "both" => Sender::Both,
        _ => {
            return Err(RuleError::Unknown {
                written: by.into(),
                hint: None,
            });
        }
    };
    let counted = values(draft, &size, LONG)?.plain::<u32>(LONG)?;
    let max = match *counted.end() {
        u32::MAX => u32::MAX,
        max => max.checked_sub(1).ok_or(RuleError::NeverTrue)?,
    };
    push(
        draft,
        Condition::StreamSize {
            by,
            bytes: counted.start().saturating_sub(1)..=max,
        },
    )
}
