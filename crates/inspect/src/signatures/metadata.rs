//! Options that describe a rule and don't affect matching.

use super::draft::SignatureDraft;
use super::syntax::{self, RuleOption};
use super::{Dialect, RuleError, flow, range};
use crate::signature::Id;

/// Parses the identifier of a rule before all other options, so that a refusal can state it.
pub(super) fn id<'a>(options: &[RuleOption<'a>]) -> Result<Id, (&'a str, RuleError)> {
    let value = |name: &str| options.iter().find(|option| option.name == name);
    let number = |name, default| match value(name) {
        Some(option) => option
            .value
            .ok_or(RuleError::MissingValue)
            .and_then(range::number)
            .map_err(|why| (option.name, why)),
        None => default,
    };
    Ok(Id {
        generator: number("gid", Ok(1))?,
        signature: number("sid", Err(("sid", RuleError::NoId)))?,
        revision: number("rev", Ok(0))?,
    })
}

pub(super) fn message(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (text, rest) = syntax::quoted(value)?;
    if !rest.is_empty() {
        return Err(RuleError::Trailing(rest.into()));
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

pub(super) fn class(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    draft.class = Some(value.into());
    Ok(())
}

pub(super) fn priority(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let priority = range::number(value)?;
    if priority == 0 {
        return Err(RuleError::OutOfRange(value.into()));
    }
    draft.priority = Some(priority);
    Ok(())
}

pub(super) fn reference(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (kind, rest) = value
        .split_once(',')
        .ok_or(RuleError::MissingPart("what is referred to"))?;
    draft.references.push((kind.trim().into(), rest.trim().into()));
    Ok(())
}

/// `metadata:policy balanced-ips drop, service http`. Rules with `engine shared` are refused, because their detection
/// code is not in the rule.
pub(super) fn metadata(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    if draft.dialect == Dialect::Suricata {
        return Ok(());
    }
    for part in value.split(',') {
        match syntax::word(part.trim()) {
            ("service", name) => flow::service(draft, name)?,
            ("engine", _) => return Err(RuleError::PartNotInspected(part.trim().into())),
            _ => {}
        }
    }
    Ok(())
}
