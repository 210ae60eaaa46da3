//! Options that say what a rule is about and not what it matches.

use super::draft::Draft;
use super::syntax::{self, Written};
use super::{Dialect, Fault, flow, range};
use crate::signature::Id;

/// The number of a rule; read before all else so that a refusal can name it.
pub(super) fn id<'a>(options: &[Written<'a>]) -> Result<Id, (&'a str, Fault)> {
    let value = |name: &str| options.iter().find(|option| option.name == name);
    let number = |name, unsaid| match value(name) {
        Some(option) => option
            .value
            .ok_or(Fault::MissingValue)
            .and_then(range::number)
            .map_err(|why| (option.name, why)),
        None => unsaid,
    };
    Ok(Id {
        generator: number("gid", Ok(1))?,
        signature: number("sid", Err(("sid", Fault::NoId)))?,
        revision: number("rev", Ok(0))?,
    })
}

pub(super) fn message(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    let (text, rest) = syntax::quoted(value)?;
    if !rest.is_empty() {
        return Err(Fault::Trailing(rest.into()));
    }
    let mut message = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        message.push(if character == '\\' {
            characters.next().unwrap_or(character)
        } else {
            character
        });
    }
    draft.message = message.into();
    Ok(())
}

pub(super) fn class(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    draft.class = Some(value.into());
    Ok(())
}

pub(super) fn priority(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    let priority = range::number(value)?;
    if priority == 0 {
        return Err(Fault::OutOfRange(value.into()));
    }
    draft.priority = Some(priority);
    Ok(())
}

pub(super) fn reference(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    let (kind, rest) = value.split_once(',').ok_or(Fault::MissingPart("what is referred to"))?;
    draft.references.push((kind.trim().into(), rest.trim().into()));
    Ok(())
}

/// `metadata:policy balanced-ips drop, service http`. The detection of `engine shared` is not in the rule.
pub(super) fn metadata(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    if draft.dialect == Dialect::Suricata {
        return Ok(());
    }
    for part in value.split(',') {
        match syntax::word(part.trim()) {
            ("service", name) => flow::service(draft, name)?,
            ("engine", _) => return Err(Fault::PartNotInspected(part.trim().into())),
            _ => {}
        }
    }
    Ok(())
}
