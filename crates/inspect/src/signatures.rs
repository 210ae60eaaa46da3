//! Parses signature files of three dialects into the common form of [`signature`](crate::signature).
//!
//! A rule is loaded only if all of its options are supported. An option that affects matching and can't be expressed in
//! a [`Signature`] causes the parser to refuse the whole rule. The refusal states the line and the name of the option.
//! Options that only describe the rule (`metadata`, `reference`, …) are stored or ignored.

mod bytes;
mod classes;
mod content;
mod draft;
mod error;
mod events;
mod expression;
mod flow;
mod header;
pub mod hostile;
mod keywords;
mod lines;
mod lists;
mod math;
mod metadata;
mod packet;
mod positions;
mod range;
mod services;
mod state;
mod syntax;
mod transform;
mod variables;

use std::collections::HashMap;

pub use classes::{Classes, ClassesError};
pub use error::RuleError;
pub use lists::Lists;
pub use variables::Variables;

use crate::signature::{Action, Id, Signature};
use draft::SignatureDraft;
use header::HeaderParser;
use lines::Rule;

/// Dialect of a signature file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Suricata 7.
    Suricata,
    /// Snort 2.9.
    Snort2,
    /// Snort 3.
    Snort3,
}

/// Content of a signature file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignatureFile {
    /// Loaded rules, in the order of the file.
    pub signatures: Vec<Signature>,
    /// Rules that are not loaded.
    pub refused: Vec<Refusal>,
    /// Number of rules that are commented out.
    pub commented: usize,
}

/// A rule that is not loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Line on which the rule begins, counted from 1.
    pub line: u32,
    /// Identifier of the rule, if it could be parsed.
    pub id: Option<Id>,
    /// Action of the rule, if it could be parsed.
    pub action: Option<Action>,
    /// The invalid option or part of the header; empty if the whole rule is invalid.
    pub option: Box<str>,
    /// What is wrong.
    pub why: RuleError,
}

/// Parses a file whose rules refer to no lists. Each rule is either loaded or refused; parsing of the file never fails.
pub fn read(text: &[u8], dialect: Dialect, variables: &Variables, classes: &Classes) -> SignatureFile {
    read_with(text, dialect, variables, classes, &Lists::default())
}

/// Parses a file whose rules may refer to lists.
pub fn read_with(
    text: &[u8],
    dialect: Dialect,
    variables: &Variables,
    classes: &Classes,
    lists: &Lists,
) -> SignatureFile {
    let mut file = SignatureFile::default();
    let mut headers = HeaderParser::new(variables, dialect);
    let mut places: HashMap<(u32, u32), usize> = HashMap::new();
    for rule in lines::rules(text, dialect, &mut file.commented) {
        let signature = match signature(&rule, dialect, &mut headers, classes, lists) {
            Ok(signature) => signature,
            Err(refusal) => {
                file.refused.push(refusal);
                continue;
            }
        };
        let key = (signature.id.generator, signature.id.signature);
        let Some(&place) = places.get(&key) else {
            places.insert(key, file.signatures.len());
            file.signatures.push(signature);
            continue;
        };
        let kept = &mut file.signatures[place];
        let older = if signature.id.revision > kept.id.revision {
            std::mem::replace(kept, signature)
        } else {
            signature
        };
        let (line, revision) = (kept.line, kept.id.revision);
        let why = RuleError::Twice { line, revision };
        file.refused.push(Refusal {
            line: older.line,
            id: Some(older.id),
            action: Some(older.action),
            option: "sid".into(),
            why,
        });
    }
    file.signatures.sort_by_key(|signature| signature.line);
    file.refused.sort_by_key(|refusal| refusal.line);
    file
}

fn signature(
    rule: &Rule,
    dialect: Dialect,
    headers: &mut HeaderParser,
    classes: &Classes,
    lists: &Lists,
) -> Result<Signature, Refusal> {
    let text = rule.text.as_deref().map_err(RuleError::clone);
    let first = text.as_ref().ok().and_then(|text| text.split_whitespace().next());
    let action = first.and_then(|word| header::action(word).ok());
    let refusal = |id, option: &str, why| Refusal {
        line: rule.line,
        id,
        action,
        option: option.into(),
        why,
    };
    let text = text.map_err(|why| refusal(None, "", why))?;
    let (header, body) = syntax::parts(text).map_err(|why| refusal(None, "", why))?;
    let options = syntax::options(body).map_err(|(option, why)| refusal(None, option, why))?;
    let id = metadata::id(&options).map_err(|(option, why)| refusal(None, option, why))?;
    let header = headers
        .read(header)
        .map_err(|(part, why)| refusal(Some(id), &part, why))?;
    let mut draft = SignatureDraft::new(dialect, id, header, lists.clone());
    for option in &options {
        keywords::read(&mut draft, option).map_err(|why| refusal(Some(id), option.name, why))?;
    }
    draft
        .signature(rule.line, classes)
        .map_err(|(option, why)| refusal(Some(id), option, why))
}
