//! Options that read numbers and test positions in data: `byte_test`, `byte_jump`, `byte_extract`, `isdataat`, lengths,
//! `base64_decode`.

use super::draft::SignatureDraft;
use super::range::{self, Between};
use super::{Dialect, RuleError, syntax};
use crate::signature::{
    Base64Decode, Buffer, ByteExtract, ByteJump, ByteTest, Comparison, Condition, IsDataAt, JumpFrom, NumberField,
    NumberFormat, Value,
};

/// Optional arguments that follow the fixed arguments.
struct NumberArguments {
    number: NumberField,
    multiplier: u32,
    align: Option<u8>,
    from: JumpFrom,
    post_offset: Value,
}

/// The parsed option, which determines the allowed additional arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberOption {
    Test,
    Jump,
    Extract,
}

fn tail(
    draft: &SignatureDraft,
    of: NumberOption,
    count: &str,
    offset: &str,
    words: &[&str],
) -> Result<NumberArguments, RuleError> {
    let number = NumberField {
        buffer: draft.buffer(),
        count: range::number(count)?,
        offset: draft.value(offset)?,
        relative: false,
        form: NumberFormat::Big,
        mask: None,
    };
    let mut tail = NumberArguments {
        number,
        multiplier: 1,
        align: None,
        from: JumpFrom::Number,
        post_offset: Value::Constant(0),
    };
    let (mut text, mut base, mut order) = (false, None, None);
    for part in words {
        let (name, value) = syntax::word(part);
        let takes_value = name == "bitmask"
            || matches!((name, of), ("multiplier", NumberOption::Jump | NumberOption::Extract))
            || matches!(
                (name, of),
                ("post_offset", NumberOption::Jump) | ("align", NumberOption::Extract)
            );
        if takes_value == value.is_empty() {
            return Err(RuleError::PartNotInspected((*part).into()));
        }
        match (name, of) {
            ("relative", _) => tail.number.relative = true,
            ("big", _) => order = Some(NumberFormat::Big),
            ("little", _) => order = Some(NumberFormat::Little),
            ("string", _) => text = true,
            ("hex", _) => base = Some(16),
            ("dec", _) => base = Some(10),
            ("oct", _) => base = Some(8),
            ("bitmask", _) => tail.number.mask = Some(mask(value)?),
            ("multiplier", _) => tail.multiplier = range::number(value)?,
            ("align", NumberOption::Jump) => tail.align = Some(4),
            ("align", _) => tail.align = Some(alignment(value)?),
            ("from_beginning", NumberOption::Jump) => tail.from = JumpFrom::Begin,
            ("from_end", NumberOption::Jump) => tail.from = JumpFrom::End,
            ("post_offset", _) => tail.post_offset = draft.value(value)?,
            _ => return Err(RuleError::PartNotInspected((*part).into())),
        }
    }
    tail.number.form = match (text, base) {
        (true, base) => NumberFormat::Text(base.unwrap_or(10)),
        (false, None) => order.unwrap_or(NumberFormat::Big),
        (false, Some(_)) => return Err(RuleError::MissingPart("string")),
    };
    let max = match (tail.number.form, draft.dialect) {
        (NumberFormat::Text(_), Dialect::Suricata) => 23,
        (NumberFormat::Text(_), _) => 10,
        (_, Dialect::Suricata) => 8,
        _ => 4,
    };
    let min = u8::from(of != NumberOption::Jump);
    if tail.number.count < min || tail.number.count > max {
        return Err(RuleError::OutOfRange(count.into()));
    }
    Ok(tail)
}

fn mask(text: &str) -> Result<u32, RuleError> {
    range::number(text).and_then(|mask| {
        if mask == 0 {
            Err(RuleError::OutOfRange(text.into()))
        } else {
            Ok(mask)
        }
    })
}

fn alignment(text: &str) -> Result<u8, RuleError> {
    range::number(text).and_then(|align| {
        if [2, 4].contains(&align) {
            Ok(align)
        } else {
            Err(RuleError::OutOfRange(text.into()))
        }
    })
}

/// `byte_test:count,[!]operator,value,offset[,relative][,little][,string,hex][,bitmask 0xf0]`.
pub(super) fn test(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let [count, operator, wanted, offset, ref words @ ..] = arguments[..] else {
        return Err(RuleError::MissingPart("count, operator, value, offset"));
    };
    let tail = tail(draft, NumberOption::Test, count, offset, words)?;
    let (negated, comparison) = syntax::negation(operator);
    let comparison = match comparison {
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        "=" => Comparison::Equal,
        // A single `!` means "not equal".
        "" if negated => Comparison::Equal,
        ">=" => Comparison::GreaterOrEqual,
        ">" => Comparison::Greater,
        "&" => Comparison::And,
        "^" => Comparison::Xor,
        _ => {
            return Err(RuleError::Unknown {
                written: operator.into(),
                hint: None,
            });
        }
    };
    let test = ByteTest {
        number: tail.number,
        comparison,
        value: draft.value(wanted)?,
        negated,
    };
    draft.push_search(Condition::ByteTest(test), tail.number.relative)
}

/// `byte_jump:count,offset[,relative][,multiplier 2][,align][,from_beginning][,post_offset -6]…`.
pub(super) fn jump(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let [count, offset, ref words @ ..] = arguments[..] else {
        return Err(RuleError::MissingPart("count, offset"));
    };
    let tail = tail(draft, NumberOption::Jump, count, offset, words)?;
    let jump = ByteJump {
        number: tail.number,
        multiplier: tail.multiplier,
        align: tail.align.is_some(),
        from: tail.from,
        post_offset: tail.post_offset,
    };
    draft.push_search(Condition::ByteJump(jump), tail.number.relative)
}

/// `byte_extract:count,offset,name[,relative][,multiplier 2][,align 4]…`.
pub(super) fn extract(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let [count, offset, name, ref words @ ..] = arguments[..] else {
        return Err(RuleError::MissingPart("count, offset, name"));
    };
    let tail = tail(draft, NumberOption::Extract, count, offset, words)?;
    if name.is_empty() || range::signed(name).is_ok() {
        return Err(RuleError::UnknownValue(name.into()));
    }
    let extract = ByteExtract {
        number: tail.number,
        multiplier: tail.multiplier,
        align: tail.align.unwrap_or(1),
        into: draft.name(name)?,
    };
    draft.push_search(Condition::ByteExtract(extract), tail.number.relative)
}

/// `isdataat:[!]10[,relative][,rawbytes]`.
pub(super) fn is_data_at(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (negated, text) = syntax::negation(value);
    let arguments = syntax::arguments(text)?;
    let mut found = IsDataAt {
        buffer: draft.buffer(),
        at: draft.value(arguments[0])?,
        relative: false,
        negated,
    };
    let mut raw = false;
    for word in &arguments[1..] {
        match *word {
            "relative" => found.relative = true,
            "rawbytes" => raw = true,
            _ => return Err(RuleError::PartNotInspected((*word).into())),
        }
    }
    if raw {
        found.buffer = Buffer::Payload;
    }
    // In Suricata, `1,relative` is the first byte after the match. Snort counts the same byte as 0.
    if found.relative && draft.dialect == Dialect::Suricata {
        found.at = match found.at {
            Value::Constant(1..) => found.at.less_one(),
            Value::Constant(0) if !negated => return Ok(()),
            Value::Constant(0) => return Err(RuleError::NeverTrue),
            _ => return Err(RuleError::PartNotInspected(arguments[0].into())),
        };
    }
    draft.push_search(Condition::IsDataAt(found), found.relative && !raw)
}

impl Value {
    fn less_one(self) -> Value {
        match self {
            Value::Constant(number) => Value::Constant(number - 1),
            extracted => extracted,
        }
    }
}

const MAX_BUFFER_LENGTH: u64 = u32::MAX as u64;

/// `bufferlen:5<=>10[,relative]` of Snort 3. The relative form measures the buffer after the preceding match, and is
/// expressed as tests for data at the two limits.
pub(super) fn buffer_length(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let between = Between::of(draft.dialect);
    let bytes =
        range::values(arguments[0], draft.dialect, between, MAX_BUFFER_LENGTH)?.plain::<u32>(MAX_BUFFER_LENGTH)?;
    let buffer = draft.buffer();
    match arguments[1..] {
        [] => draft.push_search(Condition::BufferLength(buffer, bytes), false),
        ["relative"] if draft.dialect == Dialect::Snort3 => {
            let end = |at: u32, negated| {
                Condition::IsDataAt(IsDataAt {
                    buffer,
                    at: Value::Constant(at.into()),
                    relative: true,
                    negated,
                })
            };
            let (min, max) = (*bytes.start(), *bytes.end());
            if let Some(at) = min.checked_sub(1) {
                draft.push_search(end(at, false), true)?;
            }
            if max < u32::MAX {
                draft.push_search(end(max, true), true)?;
            }
            Ok(())
        }
        _ => Err(RuleError::PartNotInspected(value.into())),
    }
}

/// `ftp.dynamic_port:>1023`: the port of the data connection that a command or a reply negotiates.
pub(super) fn dynamic_port(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    const LAST: u64 = u16::MAX as u64;
    let between = Between::of(draft.dialect);
    let (ports, negated) = range::values(value, draft.dialect, between, LAST)?.negatable::<u16>()?;
    let compares = |comparison, port: u16, negated| {
        Condition::ByteTest(ByteTest {
            number: NumberField {
                buffer: Buffer::FtpDynamicPort,
                count: 2,
                offset: Value::Constant(0),
                relative: false,
                form: NumberFormat::Big,
                mask: None,
            },
            comparison,
            value: Value::Constant(port.into()),
            negated,
        })
    };
    if ports.start() == ports.end() {
        draft.push(compares(Comparison::Equal, *ports.start(), negated));
        return Ok(());
    }
    let ports = range::values(value, draft.dialect, between, LAST)?.plain::<u16>(LAST)?;
    draft.push(compares(Comparison::GreaterOrEqual, *ports.start(), false));
    draft.push(compares(Comparison::LessOrEqual, *ports.end(), false));
    Ok(())
}

/// `urilen:5<>10[,norm]`. By default Snort 2 measures the URI as sent, and Suricata measures the normalised URI.
pub(super) fn uri_length(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let buffer = match (&arguments[1..], draft.dialect) {
        ([], Dialect::Suricata) | (["norm"], _) => Buffer::HttpUri,
        ([], _) | (["raw"], _) => Buffer::HttpRawUri,
        _ => return Err(RuleError::PartNotInspected(value.into())),
    };
    let between = Between::of(draft.dialect);
    let bytes = range::values(arguments[0], draft.dialect, between, MAX_BUFFER_LENGTH)?.plain(MAX_BUFFER_LENGTH)?;
    draft.push_search(Condition::BufferLength(buffer, bytes), false)
}

/// `base64_decode[:bytes 150][,offset 10][,relative]`.
pub(super) fn base64_decode(draft: &mut SignatureDraft, value: Option<&str>) -> Result<(), RuleError> {
    let mut decode = Base64Decode {
        buffer: draft.buffer(),
        bytes: None,
        offset: 0,
        relative: false,
    };
    for part in value.map(syntax::arguments).transpose()?.unwrap_or_default() {
        match syntax::word(part) {
            ("relative", "") => decode.relative = true,
            ("bytes", count) => decode.bytes = Some(range::number(count)?),
            ("offset", offset) => decode.offset = range::number(offset)?,
            _ => return Err(RuleError::PartNotInspected(part.into())),
        }
    }
    draft.push_search(Condition::Base64Decode(decode), decode.relative)
}
