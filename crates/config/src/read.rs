//! Parses a text to a [`Document`], and records the position of every value.
//!
//! All syntax and type errors are found in one run: after each error, the faulty entry is removed from a copy of the
//! tree, and the tree is deserialised again.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::diagnosis::Located;
use crate::problem::Problem;
use crate::schema::Document;

/// Maximum number of syntax and type errors that are reported for a file.
const MAX_ERRORS: usize = 20;

/// One step of a path in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// A key of a table.
    Key(&'a str),
    /// An element of an array.
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl<'a> From<&'a String> for Step<'a> {
    fn from(key: &'a String) -> Self {
        let index = key
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        index.map_or(Self::Key(key), Self::Index)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// A path in the tree: `place!["routes", 3, "via"]`.
macro_rules! place {
    ($($step:expr),* $(,)?) => { &[$($crate::read::Step::from($step)),*][..] };
}
pub(crate) use place;

/// Positions of all values in the text.
pub(crate) struct Places<'t> {
    root: DeTable<'t>,
}

impl Places<'_> {
    /// Byte range of the value at a path. If the value is absent, the range of the nearest enclosing table.
    pub(crate) fn value(&self, path: &[Step<'_>]) -> Range<usize> {
        let mut span = 0..0;
        let mut steps = path.iter();
        let Some(Step::Key(first)) = steps.next() else {
            return span;
        };
        let mut value = match self.root.get(*first) {
            Some(value) => value,
            None => return span,
        };
        span = value.span();
        for step in steps {
            let next = match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => table.get(*key),
                (Step::Index(index), DeValue::Array(array)) => array.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            value = next;
            span = value.span();
        }
        span
    }
}

/// Parse a text. The returned errors concern only syntax, keys and types; `validate` checks the values.
pub(crate) fn read(text: &str) -> Result<(Document, Places<'_>), Vec<Located>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors
            .iter()
            .take(MAX_ERRORS)
            .map(|e| Located::new(form(e.message(), at(text, &span_of(e, text))), span_of(e, text)))
            .collect());
    }
    let root = root.into_inner();
    let mut rest = root.clone();
    let mut found = Vec::new();
    let mut removed: Vec<String> = Vec::new();
    loop {
        let tree = Spanned::new(0..text.len(), rest.clone());
        let error = match serde::Deserialize::deserialize(toml::de::Deserializer::from(tree)) {
            Ok(document) if found.is_empty() => return Ok((document, Places { root })),
            Ok(_) => return Err(found),
            Err(error) => error,
        };
        let error: toml::de::Error = error;
        let span = span_of(&error, text);
        let problem = form(error.message(), at(text, &span));
        // A key that was removed because of its invalid value must not also be reported as missing. If a key is
        // misspelt, the correct key must not be reported as missing either.
        let follows = match &problem {
            Problem::MissingKey(key) => {
                removed.contains(key) || found.iter().any(|located: &Located| located.problem.means(key))
            }
            _ => false,
        };
        if !follows {
            found.push(Located::new(problem, span.clone()));
        }
        let Some(key) = take_out(&mut rest, &span) else {
            return Err(found);
        };
        removed.push(key);
        if found.len() >= MAX_ERRORS {
            return Err(found);
        }
    }
}

fn span_of(error: &toml::de::Error, text: &str) -> Range<usize> {
    error.span().unwrap_or(0..0).start.min(text.len())..error.span().unwrap_or(0..0).end.min(text.len())
}

fn at<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    text.get(span.clone()).unwrap_or_default()
}

/// Remove the entry with this key or value from the table. If several entries match, the innermost one is removed.
/// Returns the key of the removed entry.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    for (key, value) in table.iter_mut() {
        if let Some(taken) = take_out_of_value(value.get_mut(), span) {
            return Some(taken.unwrap_or_else(|| key.get_ref().to_string()));
        }
    }
    let key = table
        .iter()
        .find(|(key, value)| key.span() == *span || value.span() == *span)?
        .0
        .get_ref()
        .to_string();
    table.remove(key.as_str());
    Some(key)
}

/// `Some(None)` means that an element of the array itself was removed.
fn take_out_of_value(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<Option<String>> {
    match value {
        DeValue::Table(table) => take_out(table, span).map(Some),
        DeValue::Array(array) => take_out_of_array(array, span),
        _ => None,
    }
}

fn take_out_of_array(array: &mut DeArray<'_>, span: &Range<usize>) -> Option<Option<String>> {
    for value in array.iter_mut() {
        if let Some(taken) = take_out_of_value(value.get_mut(), span) {
            return Some(taken);
        }
    }
    let index = array.iter().position(|value| value.span() == *span)?;
    let kept = std::mem::replace(array, DeArray::new())
        .into_iter()
        .enumerate()
        .filter(|(k, _)| *k != index);
    *array = kept.map(|(_, value)| value).collect();
    Some(None)
}

/// Convert a deserialiser's message about a position in the text to a problem. Messages of the library are identified
/// by their wording. Messages of this crate have a hint in their second line.
fn form(message: &str, written: &str) -> Problem {
    let named = |text: &str| {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    if message.starts_with("unknown field ") {
        let mut names = named(message).into_iter();
        let key = names.next().unwrap_or_default();
        return Problem::UnknownKey {
            key,
            known: names.collect(),
        };
    }
    if message.starts_with("missing field ") {
        return Problem::MissingKey(named(message).into_iter().next().unwrap_or_default());
    }
    // The name of the variant is between the first two backticks of the message.
    let unknown = message
        .strip_prefix("unknown variant ")
        .and_then(|rest| rest.split_once(", expected "));
    if let Some((_, known)) = unknown {
        let known: Vec<_> = named(known).into_iter().map(|name| format!("\"{name}\"")).collect();
        return Problem::Form {
            description: mismatch(written),
            hint: Some(format!("write {}", known.join(" or "))),
        };
    }
    if let Some((description, hint)) = message.split_once('\n') {
        return Problem::Form {
            description: description.into(),
            hint: Some(hint.into()),
        };
    }
    // The standard library's message for an invalid address.
    if let Some(family) = message
        .strip_prefix("invalid ")
        .and_then(|rest| rest.strip_suffix(" syntax"))
    {
        return Problem::Form {
            description: mismatch(written),
            hint: Some(format!("write {}", plainly(family))),
        };
    }
    if message.starts_with("wanted string") {
        return Problem::Form {
            description: mismatch(written),
            hint: Some("write a text in quotes".into()),
        };
    }
    if message.starts_with("string values must be quoted") {
        return Problem::Form {
            description: "the text has no quotes".into(),
            hint: Some("put the text in quotes".into()),
        };
    }
    match message.rsplit_once(", expected ") {
        Some((description, expected)) if description.starts_with("invalid ") => Problem::Form {
            description: mismatch(written),
            hint: Some(format!("write {}", plainly(expected))),
        },
        Some((description, expected)) => Problem::Form {
            description: description.into(),
            hint: Some(format!("expected {expected}")),
        },
        None => Problem::Form {
            description: message.into(),
            hint: None,
        },
    }
}

/// Description of an invalid value. A short value is quoted.
fn mismatch(written: &str) -> String {
    if written.is_empty() || written.len() > 60 || written.contains('\n') {
        "this value is not valid here".into()
    } else {
        format!("`{written}` is not a valid value here")
    }
}

/// Description of a Rust type in the terms of the configuration.
fn plainly(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "a boolean" => "true or false".into(),
        "a string" | "path string" => "a text in quotes".into(),
        "a sequence" => "a list in brackets".into(),
        "IP address" => "an address such as \"192.0.2.1\" or \"2001:db8::1\"".into(),
        "IPv4 address" => "an address such as \"192.0.2.1\"".into(),
        "IPv6 address" => "an address such as \"2001:db8::1\"".into(),
        _ if expected.starts_with("struct ") || expected == "a map" => "a table such as { key = value }".into(),
        _ => expected.into(),
    }
}
