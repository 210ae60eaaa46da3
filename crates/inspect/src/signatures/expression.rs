//! `pcre`, and its flags in each dialect.

use super::draft::SignatureDraft;
use super::{Dialect, RuleError, syntax};
use crate::signature::{Buffer, Condition, Expression};

/// Flags of Snort 2 and Suricata that select the buffer of an expression. Cookies are inspected as sent.
const BUFFERS: &[(char, Buffer)] = &[
    ('U', Buffer::HttpUri),
    ('I', Buffer::HttpRawUri),
    ('P', Buffer::HttpClientBody),
    ('H', Buffer::HttpHeader),
    ('D', Buffer::HttpRawHeader),
    ('M', Buffer::HttpMethod),
    ('C', Buffer::HttpCookie),
    ('S', Buffer::HttpStatusCode),
    ('Y', Buffer::HttpStatusMessage),
    ('B', Buffer::Payload),
];

const SNORT2_BUFFERS: &[(char, Buffer)] = &[('K', Buffer::HttpCookie)];

const SURICATA_BUFFERS: &[(char, Buffer)] = &[
    ('Q', Buffer::FileData),
    ('V', Buffer::HttpUserAgent),
    ('W', Buffer::HttpHost),
    ('Z', Buffer::HttpRawHost),
];

/// `pcre:!"/expression/ismU"`.
pub(super) fn read(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let malformed = || RuleError::NotAnExpression(value.into());
    let (negated, text) = syntax::negation(value);
    let (text, rest) = syntax::quoted(text)?;
    if !rest.is_empty() {
        return Err(RuleError::Trailing(rest.into()));
    }
    // `m` allows a different delimiter, as in Perl.
    let text = text.strip_prefix('m').unwrap_or(text);
    let delimiter = text
        .chars()
        .next()
        .filter(|first| !first.is_alphanumeric())
        .ok_or_else(malformed)?;
    let (pattern, flags) = text[delimiter.len_utf8()..]
        .rsplit_once(delimiter)
        .ok_or_else(malformed)?;
    if pattern.is_empty() {
        return Err(RuleError::Empty);
    }
    let mut expression = Expression {
        buffer: draft.buffer(),
        pattern: pattern.into(),
        negated,
        ..Expression::default()
    };
    let mut chosen = None;
    for flag in flags.chars() {
        match flag {
            'i' => expression.caseless = true,
            's' => expression.dot_all = true,
            'm' => expression.multi_line = true,
            'x' => expression.extended = true,
            'A' => expression.anchored = true,
            'E' => expression.dollar_end_only = true,
            'G' => expression.ungreedy = true,
            'R' => expression.relative = true,
            // `O` disables Snort's match limit. The flag has no effect, because this crate has no such option.
            'O' => {}
            _ => {
                let buffer = buffer(flag, draft.dialect).ok_or(RuleError::ExpressionFlag(flag))?;
                if chosen.replace(buffer).is_some_and(|other| other != buffer) {
                    return Err(RuleError::Contradiction(flag.to_string().into()));
                }
                if flag == 'Q' {
                    draft.needs_to_client = Some(draft.option);
                }
            }
        }
    }
    expression.buffer = chosen.unwrap_or(expression.buffer);
    let floating = chosen.is_none() && draft.dialect == Dialect::Snort2;
    draft.push_search(Condition::Expression(expression), floating)
}

fn buffer(flag: char, dialect: Dialect) -> Option<Buffer> {
    let own = match dialect {
        Dialect::Snort2 => SNORT2_BUFFERS,
        Dialect::Suricata => SURICATA_BUFFERS,
        Dialect::Snort3 => return None,
    };
    BUFFERS
        .iter()
        .chain(own)
        .find(|(known, _)| *known == flag)
        .map(|(_, buffer)| *buffer)
}
