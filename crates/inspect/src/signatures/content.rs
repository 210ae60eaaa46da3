//! `content` and its modifiers.

use super::draft::SignatureDraft;
use super::{Dialect, RuleError, range, syntax};
use crate::signature::{Buffer, Condition, Content, FastPattern, Value};

/// `content:!"text|00 ff|",nocase,offset 4`. The list of modifiers after the quotes is Snort 3 syntax.
pub(super) fn read(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (negated, value) = syntax::negation(value);
    let (text, rest) = syntax::quoted(value)?;
    let content = Content {
        buffer: draft.buffer(),
        bytes: syntax::bytes(text)?,
        nocase: false,
        negated,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        ends: false,
        fast: FastPattern::Unspecified,
    };
    draft.push_search(Condition::Content(content), false)?;
    if rest.is_empty() {
        return Ok(());
    }
    let list = rest.strip_prefix(',').filter(|_| draft.dialect != Dialect::Suricata);
    for part in syntax::arguments(list.ok_or_else(|| RuleError::Trailing(rest.into()))?)? {
        let (name, value) = syntax::word(part);
        listed(draft, name, value)?;
    }
    Ok(())
}

/// `tls.version:1.2`: the version that the server selected.
pub(super) fn tls_version(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let version = match value.trim().trim_matches('"') {
        "1.0" => 0x0301,
        "1.1" => 0x0302,
        "1.2" => 0x0303,
        "1.3" => 0x0304,
        other => match other.strip_prefix("0x").map(|digits| u16::from_str_radix(digits, 16)) {
            Some(Ok(version)) => version,
            _ => return Err(RuleError::PartNotInspected(value.into())),
        },
    };
    whole(draft, Buffer::TlsVersion, &version.to_be_bytes());
    Ok(())
}

/// `ftpdata_command:stor`: the command for the data connection on its control connection.
pub(super) fn transfer(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    match value.trim() {
        "retr" => whole(draft, Buffer::FtpDataCommand, b"RETR"),
        "stor" => whole(draft, Buffer::FtpDataCommand, b"STOR"),
        _ => return Err(RuleError::PartNotInspected(value.into())),
    }
    Ok(())
}

/// `ftp.mode:passive`: the mode of the data connection that a command or a reply negotiates.
pub(super) fn transfer_mode(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    match value.trim() {
        mode @ ("active" | "passive") => whole(draft, Buffer::FtpMode, mode.as_bytes()),
        _ => return Err(RuleError::PartNotInspected(value.into())),
    }
    Ok(())
}

/// Requires that a buffer consists of exactly these bytes.
fn whole(draft: &mut SignatureDraft, buffer: Buffer, bytes: &[u8]) {
    draft.push(Condition::Content(Content {
        buffer,
        bytes: bytes.into(),
        nocase: false,
        negated: false,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        ends: false,
        fast: FastPattern::Unspecified,
    }));
}

fn listed(draft: &mut SignatureDraft, name: &str, value: &str) -> Result<(), RuleError> {
    let wanted = || {
        if value.is_empty() {
            Err(RuleError::MissingValue)
        } else {
            Ok(value)
        }
    };
    let alone = || {
        if value.is_empty() {
            Ok(())
        } else {
            Err(RuleError::UnexpectedValue(value.into()))
        }
    };
    match name {
        "nocase" => alone().and_then(|()| nocase(draft)),
        "offset" => offset(draft, wanted()?),
        "depth" => depth(draft, wanted()?),
        "distance" => distance(draft, wanted()?),
        "within" => within(draft, wanted()?),
        "fast_pattern" => alone().and_then(|()| fast_pattern(draft, None)),
        "fast_pattern_offset" => fast_pattern_offset(draft, wanted()?),
        "fast_pattern_length" => fast_pattern_length(draft, wanted()?),
        "endswith" => alone().and_then(|()| endswith(draft)),
        "startswith" => alone().and_then(|()| startswith(draft)),
        _ => Err(RuleError::Unknown {
            written: name.into(),
            hint: hint(name),
        }),
    }
}

fn hint(name: &str) -> Option<&'static str> {
    const LISTED: &[&str] = &[
        "nocase",
        "offset",
        "depth",
        "distance",
        "within",
        "fast_pattern",
        "fast_pattern_offset",
        "fast_pattern_length",
        "endswith",
        "startswith",
    ];
    super::error::nearest(name, LISTED.iter().copied())
        .and_then(|near| LISTED.iter().copied().find(|name| *name == near))
}

/// `uricontent:"text"` is a content of the URI.
pub(super) fn of_uri(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    read(draft, value)?;
    draft.content()?.buffer = Buffer::HttpUri;
    Ok(())
}

pub(super) fn nocase(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.content()?.nocase = true;
    Ok(())
}

pub(super) fn rawbytes(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.content()?.buffer = Buffer::Payload;
    Ok(())
}

/// Lowest and highest constant that a position may have.
const FORWARD: (i64, i64) = (0, u32::MAX as i64);
const SIGNED_RANGE: (i64, i64) = (-(u32::MAX as i64), u32::MAX as i64);

fn position(
    draft: &mut SignatureDraft,
    text: &str,
    (min, max): (i64, i64),
    place: fn(&mut Content) -> &mut Option<Value>,
) -> Result<(), RuleError> {
    let value = draft.value(text)?;
    if matches!(value, Value::Constant(number) if number < min || number > max) {
        return Err(RuleError::OutOfRange(text.into()));
    }
    match place(draft.content()?).replace(value) {
        Some(_) => Err(RuleError::ModifierTwice),
        None => Ok(()),
    }
}

pub(super) fn offset(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    position(draft, value, FORWARD, |content| &mut content.offset)
}

pub(super) fn depth(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    position(draft, value, FORWARD, |content| &mut content.depth)
}

pub(super) fn distance(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    position(draft, value, SIGNED_RANGE, |content| &mut content.distance)
}

pub(super) fn within(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    position(draft, value, FORWARD, |content| &mut content.within)
}

pub(super) fn startswith(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    let content = draft.content()?;
    if content.offset.is_some() || content.depth.is_some() {
        return Err(RuleError::ModifierTwice);
    }
    content.offset = Some(Value::Constant(0));
    content.depth = Some(Value::Constant(content.bytes.len() as i64));
    Ok(())
}

pub(super) fn endswith(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.content()?.ends = true;
    Ok(())
}

/// `fast_pattern`, `fast_pattern:only`, `fast_pattern:4,8`.
pub(super) fn fast_pattern(draft: &mut SignatureDraft, value: Option<&str>) -> Result<(), RuleError> {
    let dialect = draft.dialect;
    let content = draft.content()?;
    content.fast = match value {
        None if matches!(content.fast, FastPattern::Part(..)) => content.fast,
        None => FastPattern::Chosen,
        // Suricata verifies the position even with `only`.
        Some("only") if dialect == Dialect::Suricata => FastPattern::Chosen,
        Some("only") => {
            // Snort searches case-insensitively and does not verify the position.
            content.nocase = true;
            FastPattern::Only
        }
        Some(value) => {
            let (first, count) = value
                .split_once(',')
                .ok_or_else(|| RuleError::PartNotInspected(value.into()))?;
            FastPattern::Part(range::number(first)?, range::number(count)?)
        }
    };
    Ok(())
}

pub(super) fn fast_pattern_offset(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let first: u16 = range::number(value)?;
    let content = draft.content()?;
    let rest = content
        .bytes
        .len()
        .saturating_sub(first.into())
        .try_into()
        .unwrap_or(u16::MAX);
    content.fast = FastPattern::Part(
        first,
        if let FastPattern::Part(_, count) = content.fast {
            count
        } else {
            rest
        },
    );
    Ok(())
}

pub(super) fn fast_pattern_length(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let count = range::number(value)?;
    let content = draft.content()?;
    content.fast = FastPattern::Part(
        if let FastPattern::Part(first, _) = content.fast {
            first
        } else {
            0
        },
        count,
    );
    Ok(())
}
