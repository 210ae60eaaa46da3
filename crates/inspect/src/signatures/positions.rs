//! Resolves the positions of a rule's conditions after all conditions are parsed.
//!
//! The reference of a relative condition depends on the dialect. After resolution, a relative condition always refers
//! to the end of the preceding match in the same buffer. Without a preceding match the position is counted from the
//! start of the buffer.

use super::draft::Step;
use super::{Dialect, RuleError};
use crate::signature::{Buffer, Condition, Content, DatasetValue, Expression, FastPattern, Transform, Value};

/// Returns the conditions in order, or the option whose condition is invalid.
pub(super) fn resolve_positions<'a>(
    dialect: Dialect,
    mut steps: Vec<Step<'a>>,
    transformed: &[(Buffer, Vec<Transform>)],
) -> Result<Box<[Condition]>, (&'a str, RuleError)> {
    float(&mut steps);
    if dialect == Dialect::Suricata {
        gather(&mut steps);
    }
    anchor(&mut steps).map_err(|(place, why)| (steps[place].option, why))?;
    let mut conditions = Vec::with_capacity(steps.len());
    let mut extracted = 0;
    for step in steps {
        let option = step.option;
        let mut used = values(&step.condition).into_iter().flatten();
        if used.any(|value| matches!(value, Value::Extracted(place) if place >= extracted)) {
            return Err((option, RuleError::UsedBeforeExtracted));
        }
        extracted += u8::from(is_stored(&step.condition));
        match step.condition {
            Condition::Content(content) => {
                check(&content).map_err(|why| (option, why))?;
                let of = content.buffer.transformed().and_then(|place| transformed.get(place));
                match of.and_then(|(buffer, steps)| with_dot(&content, *buffer, steps)) {
                    Some(without) => conditions.extend(without),
                    None => conditions.push(Condition::Content(content)),
                }
            }
            condition => conditions.push(condition),
        }
    }
    Ok(conditions.into())
}

/// A relative condition that names no buffer inspects the buffer of the preceding match.
fn float(steps: &mut [Step]) {
    let mut last = None;
    for step in steps {
        if step.fresh {
            last = None;
        }
        let moves = moves(&step.condition);
        let Some((buffer, relative)) = place(&mut step.condition) else {
            continue;
        };
        if let (true, Some(last), Some(true)) = (step.floating, last, relative.as_deref()) {
            *buffer = last;
        }
        if moves {
            last = Some(*buffer);
        }
    }
}

/// Suricata evaluates one buffer after another. Conditions on headers come first.
fn gather(steps: &mut [Step]) {
    let mut order: Vec<Buffer> = Vec::new();
    steps.sort_by_cached_key(|step| {
        let buffer = buffer(&step.condition)?;
        Some(order.iter().position(|known| *known == buffer).unwrap_or_else(|| {
            order.push(buffer);
            order.len() - 1
        }))
    });
}

/// Makes a relative condition absolute if it has no preceding match.
fn anchor(steps: &mut [Step]) -> Result<(), (usize, RuleError)> {
    let mut last: Option<Buffer> = None;
    for (number, step) in steps.iter_mut().enumerate() {
        if step.fresh {
            last = None;
        }
        let moves = moves(&step.condition);
        let Some((buffer, relative)) = place(&mut step.condition) else {
            continue;
        };
        let buffer = *buffer;
        if last != Some(buffer) {
            if let Some(relative) = relative {
                *relative = false;
            } else if let Condition::Content(content) = &mut step.condition {
                from_start(content).map_err(|why| (number, why))?;
            }
        }
        if moves {
            last = Some(buffer);
        }
    }
    Ok(())
}

/// Converts `distance` and `within` of a content to positions from the start of the buffer.
fn from_start(content: &mut Content) -> Result<(), RuleError> {
    if content.distance.is_none() && content.within.is_none() {
        return Ok(());
    }
    check_not_mixed(content)?;
    let (distance, within) = (content.distance.take(), content.within.take());
    (content.offset, content.depth) = match (distance, within) {
        // The part of the range before the start of the buffer is removed.
        (Some(Value::Constant(distance @ ..0)), Some(Value::Constant(within))) => {
            (None, Some(Value::Constant((within + distance).max(0))))
        }
        (Some(Value::Constant(..0)), Some(Value::Extracted(_))) => return Err(RuleError::NotInspected),
        (Some(Value::Constant(..=0)), within) => (None, within),
        other => other,
    };
    Ok(())
}

fn check_not_mixed(content: &Content) -> Result<(), RuleError> {
    let from_start = content.offset.is_some() || content.depth.is_some();
    let from_match = content.distance.is_some() || content.within.is_some();
    if from_start && from_match {
        Err(RuleError::MixedPositions)
    } else {
        Ok(())
    }
}

fn check(content: &Content) -> Result<(), RuleError> {
    check_not_mixed(content)?;
    let placed = [content.offset, content.depth, content.distance, content.within]
        .iter()
        .any(Option::is_some);
    if content.fast == FastPattern::Only && (placed || content.negated) {
        return Err(RuleError::OnlyWithPosition);
    }
    if let FastPattern::Part(first, count) = content.fast
        && (count == 0 || usize::from(first) + usize::from(count) > content.bytes.len())
    {
        return Err(RuleError::OutOfRange(format!("fast_pattern {first},{count}").into()));
    }
    for capacity in [content.depth, content.within] {
        if let Some(Value::Constant(capacity)) = capacity
            && capacity < content.bytes.len() as i64
        {
            return Err(RuleError::NoRoom(capacity));
        }
    }
    Ok(())
}

/// Whether the condition stores a value in a variable.
fn is_stored(condition: &Condition) -> bool {
    matches!(condition, Condition::ByteExtract(_) | Condition::ByteMath(_))
}

/// In a buffer with a `dotprefix` transform, `.example.org` at the end is equivalent to `example.org` at the end,
/// either at the start of the buffer or after a dot. The case after a dot needs no transform.
fn with_dot(content: &Content, buffer: Buffer, steps: &[Transform]) -> Option<Vec<Condition>> {
    if *steps != [Transform::DotPrefix] {
        return None;
    }
    let placed = [content.offset, content.depth, content.distance, content.within]
        .iter()
        .any(Option::is_some);
    let name = content
        .bytes
        .strip_prefix(b".")
        .filter(|name| !name.is_empty() && content.ends && !placed)?;
    let escaped: String = name.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let expression = Condition::Expression(Expression {
        buffer,
        pattern: format!("(?:^|\\.){escaped}\\z").into(),
        negated: content.negated,
        caseless: content.nocase,
        ..Expression::default()
    });
    if content.negated {
        return Some(vec![expression]);
    }
    let fast = if content.fast == FastPattern::Unspecified {
        FastPattern::Unspecified
    } else {
        FastPattern::Chosen
    };
    let without = Content {
        bytes: name.into(),
        buffer,
        fast,
        ..content.clone()
    };
    Some(vec![Condition::Content(without), expression])
}

/// Whether a match of the condition moves the position to which the next condition is relative.
fn moves(condition: &Condition) -> bool {
    match condition {
        Condition::Content(content) => !content.negated && content.fast != FastPattern::Only,
        Condition::Expression(expression) => !expression.negated,
        Condition::ByteJump(_) | Condition::ByteExtract(_) | Condition::ByteMath(_) => true,
        _ => false,
    }
}

/// Buffer that a condition inspects.
fn buffer(condition: &Condition) -> Option<Buffer> {
    match condition {
        Condition::Content(content) => Some(content.buffer),
        Condition::Expression(expression) => Some(expression.buffer),
        Condition::ByteTest(test) => Some(test.number.buffer),
        Condition::ByteJump(jump) => Some(jump.number.buffer),
        Condition::ByteExtract(extract) => Some(extract.number.buffer),
        Condition::ByteMath(math) => Some(math.number.buffer),
        Condition::Dataset(test) => match test.value {
            DatasetValue::Buffer(buffer) => Some(buffer),
            DatasetValue::Address(_) => None,
        },
        Condition::IsDataAt(at) => Some(at.buffer),
        Condition::Base64Decode(decode) => Some(decode.buffer),
        Condition::BufferLength(buffer, _) => Some(*buffer),
        _ => None,
    }
}

/// Whether each relative condition follows a match in its own buffer, and each value is extracted before it is used.
pub(super) fn is_resolved(conditions: &[Condition]) -> bool {
    let (mut last, mut extracted) = (None, 0);
    conditions.iter().all(|condition| {
        let known = values(condition).into_iter().flatten().all(|value| match value {
            Value::Extracted(place) => place < extracted,
            Value::Constant(_) => true,
        });
        extracted += u8::from(is_stored(condition));
        let buffer = buffer(condition);
        let follows = !is_relative(condition) || (last.is_some() && last == buffer);
        if moves(condition) {
            last = buffer;
        }
        known && follows
    })
}

fn is_relative(condition: &Condition) -> bool {
    match condition {
        Condition::Content(content) => content.distance.is_some() || content.within.is_some(),
        condition => matches!(place(&mut condition.clone()), Some((_, Some(true)))),
    }
}

/// Buffer of a condition, and whether the condition is relative. The positions of a content determine whether the content is
/// relative.
fn place(condition: &mut Condition) -> Option<(&mut Buffer, Option<&mut bool>)> {
    match condition {
        Condition::Content(content) => Some((&mut content.buffer, None)),
        Condition::Expression(expression) => Some((&mut expression.buffer, Some(&mut expression.relative))),
        Condition::ByteTest(test) => Some((&mut test.number.buffer, Some(&mut test.number.relative))),
        Condition::ByteJump(jump) => Some((&mut jump.number.buffer, Some(&mut jump.number.relative))),
        Condition::ByteExtract(extract) => Some((&mut extract.number.buffer, Some(&mut extract.number.relative))),
        Condition::ByteMath(math) => Some((&mut math.number.buffer, Some(&mut math.number.relative))),
        Condition::IsDataAt(at) => Some((&mut at.buffer, Some(&mut at.relative))),
        Condition::Base64Decode(decode) => Some((&mut decode.buffer, Some(&mut decode.relative))),
        _ => None,
    }
}

/// Values of a condition that may be extracted values.
fn values(condition: &Condition) -> [Option<Value>; 4] {
    match condition {
        Condition::Content(content) => [content.offset, content.depth, content.distance, content.within],
        Condition::ByteTest(test) => [Some(test.number.offset), Some(test.value), None, None],
        Condition::ByteJump(jump) => [Some(jump.number.offset), Some(jump.post_offset), None, None],
        Condition::ByteExtract(extract) => [Some(extract.number.offset), None, None, None],
        Condition::ByteMath(math) => [Some(math.number.offset), Some(math.value), None, None],
        Condition::IsDataAt(at) => [Some(at.at), None, None, None],
        _ => [None; 4],
    }
}
