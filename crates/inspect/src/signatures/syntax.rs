//! Parses the grammar that the dialects share: a header, options in parentheses, quotes, and lists.

use super::RuleError;

/// An option, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleOption<'a> {
    pub name: &'a str,
    /// Text after the colon.
    pub value: Option<&'a str>,
}

/// Header and options of a rule.
pub(super) fn parts(text: &str) -> Result<(&str, &str), RuleError> {
    let (header, rest) = text.split_once('(').ok_or(RuleError::MissingParenthesis)?;
    match rest.trim_end().strip_suffix(')') {
        Some(body) => Ok((header.trim(), body)),
        None if !unquoted(rest).1 => Err(RuleError::UnclosedQuote),
        None => Err(RuleError::MissingParenthesis),
    }
}

/// Whether the rule continues on the next line.
pub(super) fn is_unfinished(text: &str) -> bool {
    let Some((_, rest)) = text.split_once('(') else {
        return starts_long_header(text);
    };
    !rest.trim_end().ends_with(')') || !unquoted(rest).1
}

/// Whether a header continues because its opening parenthesis is on a later line.
fn starts_long_header(text: &str) -> bool {
    text.split_whitespace()
        .next()
        .is_some_and(|word| super::header::action(word).is_ok())
}

/// Bytes outside of quotes that are not escaped, with their positions, and whether every quote is closed.
fn unquoted(text: &str) -> (Vec<(usize, u8)>, bool) {
    let (mut quoted, mut escaped) = (false, false);
    let mut outside = Vec::new();
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            _ => outside.push((place, byte)),
        }
    }
    (outside, !quoted)
}

/// Splits at a separator outside of quotes. If a quote is not closed, the error contains the last part.
fn cut(text: &str, separator: u8) -> Result<Vec<&str>, &str> {
    let (outside, closed) = unquoted(text);
    let mut parts = Vec::new();
    let mut start = 0;
    for (place, _) in outside.into_iter().filter(|(_, byte)| *byte == separator) {
        parts.push(text[start..place].trim());
        start = place + 1;
    }
    let last = text[start..].trim();
    parts.push(last);
    if closed { Ok(parts) } else { Err(last) }
}

/// Returns the options of a rule, or the invalid option.
pub(super) fn options(body: &str) -> Result<Vec<RuleOption<'_>>, (&str, RuleError)> {
    let written = |text| {
        let (name, value) = str::split_once(text, ':').map_or((text, None), |(name, value)| (name, Some(value.trim())));
        RuleOption {
            name: name.trim_end(),
            value: value.filter(|value| !value.is_empty()),
        }
    };
    let mut parts = cut(body, b';').map_err(|last| (written(last).name, RuleError::UnclosedQuote))?;
    match parts.pop() {
        Some("") | None => Ok(parts.into_iter().filter(|part| !part.is_empty()).map(written).collect()),
        Some(last) => Err((written(last).name, RuleError::MissingSemicolon)),
    }
}

/// The comma-separated parts of a value.
pub(super) fn arguments(value: &str) -> Result<Vec<&str>, RuleError> {
    cut(value, b',').map_err(|_| RuleError::UnclosedQuote)
}

/// Splits a name from the text after it, as in `offset 4`.
pub(super) fn word(text: &str) -> (&str, &str) {
    text.split_once([' ', '\t'])
        .map_or((text, ""), |(name, rest)| (name, rest.trim_start()))
}

/// A string in quotes, and the text after it.
pub(super) fn quoted(text: &str) -> Result<(&str, &str), RuleError> {
    let inner = text
        .strip_prefix('"')
        .ok_or_else(|| RuleError::NotQuoted(text.into()))?;
    let mut escaped = false;
    for (place, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok((&inner[..place], inner[place + 1..].trim_start())),
            _ => {}
        }
    }
    Err(RuleError::UnclosedQuote)
}

/// Whether the text starts with `!`, and the text after it.
pub(super) fn negation(text: &str) -> (bool, &str) {
    text.strip_prefix('!')
        .map_or((false, text), |rest| (true, rest.trim_start()))
}

/// The bytes of a content: text, escapes, and hexadecimal digits between bars.
pub(super) fn bytes(text: &str) -> Result<Box<[u8]>, RuleError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        match character {
            '|' => {
                let (digits, behind) = rest[1..].split_once('|').ok_or(RuleError::UnclosedHexadecimal)?;
                bytes.extend(hexadecimal(digits)?);
                rest = behind;
                continue;
            }
            '\\' => {
                let escaped = rest[1..].chars().next().filter(|escaped| "\\\";:".contains(*escaped));
                bytes.push(escaped.ok_or_else(|| RuleError::NotAnEscape(rest.chars().take(2).collect()))? as u8);
                rest = &rest[2..];
                continue;
            }
            _ => rest = &rest[character.len_utf8()..],
        }
        bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
    }
    if bytes.is_empty() {
        Err(RuleError::Empty)
    } else {
        Ok(bytes.into())
    }
}

pub(super) fn hexadecimal(digits: &str) -> Result<Vec<u8>, RuleError> {
    let nibbles: Option<Vec<u32>> = digits
        .chars()
        .filter(|digit| !digit.is_ascii_whitespace())
        .map(|digit| digit.to_digit(16))
        .collect();
    match nibbles {
        Some(nibbles) if nibbles.len() % 2 == 0 => {
            Ok(nibbles.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
        }
        _ => Err(RuleError::NotHexadecimal(digits.into())),
    }
}
