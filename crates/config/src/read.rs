//! From text to [`Document`], with the place of every value kept.
//!
//! Every mistake of form in the file is found in one reading: what is wrong is taken out of a copy of the tree, and
//! the rest is read again.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::diagnosis::Located;
use crate::problem::Problem;
use crate::schema::Document;

/// Most mistakes of form reported at once; the rest are seldom worth reading.
const MOST: usize = 20;

/// One step into the tree.
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
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// A path into the tree: `place!["routes", 3, "via"]`.
macro_rules! place {
    ($($step:expr),* $(,)?) => { &[$($crate::read::Step::from($step)),*][..] };
}
pub(crate) use place;

/// Where in the text each value stands.
pub(crate) struct Places<'t> {
    root: DeTable<'t>,
}

impl Places<'_> {
    /// The bytes of the value at a path; where it is not written, those of the nearest table around it.
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

/// Read a text. Errors are those of form alone; what the values mean is checked by `validate`.
pub(crate) fn read(text: &str) -> Result<(Document, Places<'_>), Vec<Located>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors
            .iter()
            .take(MOST)
            .map(|e| Located::new(form(e.message()), span_of(e, text)))
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
        let problem = form(error.message());
        // A key that was taken out above for its value is not missing.
        let follows = matches!(&problem, Problem::MissingKey(key) if removed.contains(key));
        if !follows {
            found.push(Located::new(problem, span.clone()));
        }
        let Some(key) = take_out(&mut rest, &span) else {
            return Err(found);
        };
        removed.push(key);
        if found.len() >= MOST {
            return Err(found);
        }
    }
}

fn span_of(error: &toml::de::Error, text: &str) -> Range<usize> {
    error.span().unwrap_or(0..0).start.min(text.len())..error.span().unwrap_or(0..0).end.min(text.len())
}

/// Take the entry with this key or value out of the table, the deepest where several stand at the same place.
/// Returns its key.
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

/// `Some(None)`: an element was taken out of this array itself.
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

/// A problem from the message of a deserialiser: its own ones are known by their words, ours carry the hint in a
/// second line.
fn form(message: &str) -> Problem {
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
    if message.starts_with("unknown variant ") {
        let mut names = named(message).into_iter();
        let written = names.next().unwrap_or_default();
        let known: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
        return Problem::Form {
            what: format!("\"{written}\" is not known here"),
            hint: Some(format!("write {}", known.join(" or "))),
        };
    }
    match message.split_once('\n') {
        Some((what, hint)) => Problem::Form {
            what: what.into(),
            hint: Some(hint.into()),
        },
        None => match message.split_once(", expected ") {
            Some((what, expected)) => Problem::Form {
                what: what.into(),
                hint: Some(format!("write {expected}")),
            },
            None => Problem::Form {
                what: message.into(),
                hint: None,
            },
        },
    }
}
