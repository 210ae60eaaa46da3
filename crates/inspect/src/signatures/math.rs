//! `byte_math`.

use super::draft::SignatureDraft;
use super::{Dialect, RuleError, range, syntax};
use crate::signature::{ByteMath, Condition, NumberField, NumberFormat, Operator, Value};

/// `byte_math:bytes 2,offset 0,oper *,rvalue 10,result name[,relative][,endian little][,string hex][,bitmask 0xf0]`.
pub(super) fn math(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (mut count, mut offset, mut operator, mut operand, mut result) = (None, None, None, None, None);
    let (mut relative, mut order, mut text, mut mask) = (false, None, None, None);
    for part in syntax::arguments(value)? {
        let unknown = || RuleError::PartNotInspected(part.into());
        let twice = match syntax::word(part) {
            ("relative", "") => std::mem::replace(&mut relative, true),
            ("bytes", number) => count.replace(range::number::<u8>(number)?).is_some(),
            ("offset", place) => offset.replace(draft.value(place)?).is_some(),
            ("oper", sign) => operator.replace(operation(sign).ok_or_else(unknown)?).is_some(),
            ("rvalue", number) => operand.replace(draft.value(number)?).is_some(),
            ("result", name) => result.replace(name).is_some(),
            ("endian", "big") => order.replace(NumberFormat::Big).is_some(),
            ("endian", "little") => order.replace(NumberFormat::Little).is_some(),
            ("string", base) => text.replace(base_of(base).ok_or_else(unknown)?).is_some(),
            ("bitmask", bits) => mask.replace(range::number::<u32>(bits)?).is_some(),
            _ => return Err(unknown()),
        };
        if twice {
            return Err(RuleError::Contradiction(part.into()));
        }
    }
    let count = count.ok_or(RuleError::MissingPart("bytes"))?;
    let max = if text.is_some() { 10 } else { 4 };
    // Suricata supports longer binary numbers than Snort.
    let max = if draft.dialect == Dialect::Suricata {
        max.max(8)
    } else {
        max
    };
    if count == 0 || count > max {
        return Err(RuleError::OutOfRange(format!("bytes {count}").into()));
    }
    if mask == Some(0) {
        return Err(RuleError::OutOfRange("bitmask 0".into()));
    }
    let operator = operator.ok_or(RuleError::MissingPart("oper"))?;
    let operand = operand.ok_or(RuleError::MissingPart("rvalue"))?;
    let is_shift = matches!(operator, Operator::ShiftLeft | Operator::ShiftRight);
    match operand {
        Value::Constant(0) if operator == Operator::Divide => return Err(RuleError::NeverTrue),
        Value::Constant(number) if number < 0 || (is_shift && number > 63) => {
            return Err(RuleError::OutOfRange(format!("rvalue {number}").into()));
        }
        _ => {}
    }
    let name = result.ok_or(RuleError::MissingPart("result"))?;
    if name.is_empty() || range::signed(name).is_ok() {
        return Err(RuleError::UnknownValue(name.into()));
    }
    let number = NumberField {
        buffer: draft.buffer(),
        count,
        offset: offset.ok_or(RuleError::MissingPart("offset"))?,
        relative,
        form: text.map_or(order.unwrap_or(NumberFormat::Big), NumberFormat::Text),
        mask,
    };
    let math = ByteMath {
        number,
        operator,
        value: operand,
        into: draft.name(name)?,
    };
    draft.push_search(Condition::ByteMath(math), relative)
}

fn operation(sign: &str) -> Option<Operator> {
    Some(match sign {
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "<<" => Operator::ShiftLeft,
        ">>" => Operator::ShiftRight,
        _ => return None,
    })
}

fn base_of(name: &str) -> Option<u32> {
    Some(match name {
        "hex" => 16,
        "dec" => 10,
        "oct" => 8,
        _ => return None,
    })
}
