//! Rules for tests: options in a generic header, and the expected conditions.
#![allow(dead_code)]

use sluice_inspect::Signature;
use sluice_inspect::signature::{
    Buffer, Condition, Content, Expression, FastPattern, IsDataAt, NumberField, NumberFormat, Value,
};
use sluice_inspect::signatures::{Classes, Dialect, RuleError, SignatureFile, Variables, read};

pub use Dialect::{Snort2, Snort3, Suricata};

pub const EVERY: [Dialect; 3] = [Suricata, Snort2, Snort3];

/// Parses a file with the default variables and classes.
pub fn file(dialect: Dialect, text: impl AsRef<[u8]>) -> SignatureFile {
    read(text.as_ref(), dialect, &Variables::default(), &Classes::default())
}

/// A rule with these options.
pub fn rule(options: &str) -> String {
    format!("alert tcp any any -> any any (msg:\"m\"; {options} sid:7; rev:2;)")
}

/// The signature of a rule that must load.
pub fn loaded(dialect: Dialect, options: &str) -> Signature {
    let mut file = file(dialect, rule(options));
    assert_eq!(Vec::<String>::new(), faults(&file), "{dialect:?} {options}");
    file.signatures.pop().unwrap()
}

/// Option and reason of every refused rule.
pub fn faults(file: &SignatureFile) -> Vec<String> {
    file.refused
        .iter()
        .map(|refusal| format!("{}: {}", refusal.option, refusal.why))
        .collect()
}

/// Option and reason of a rule that must be refused.
pub fn refused(dialect: Dialect, options: &str) -> (String, RuleError) {
    let mut file = file(dialect, rule(options));
    assert_eq!(0, file.signatures.len(), "{dialect:?} {options} loads");
    let refusal = file.refused.pop().unwrap();
    (refusal.option.into(), refusal.why)
}

/// Each row contains dialects, options, and the expected conditions.
pub type Table<'t> = &'t [(&'t [Dialect], &'t str, Vec<Condition>)];

pub fn compare(table: Table) {
    for (dialects, options, expected) in table {
        for dialect in *dialects {
            assert_eq!(
                **expected,
                *loaded(*dialect, options).conditions,
                "{dialect:?} {options}"
            );
        }
    }
}

/// A content of the payload.
pub fn content(bytes: &[u8]) -> Content {
    Content {
        buffer: Buffer::Payload,
        bytes: bytes.into(),
        nocase: false,
        negated: false,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        ends: false,
        fast: FastPattern::Unspecified,
    }
}

/// A content of another buffer.
pub fn content_of(buffer: Buffer, bytes: &[u8]) -> Condition {
    Condition::Content(Content {
        buffer,
        ..content(bytes)
    })
}

/// An expression on the payload.
pub fn expression(pattern: &str) -> Expression {
    Expression {
        pattern: pattern.into(),
        ..Expression::default()
    }
}

/// A number in the payload.
pub fn number(count: u8, offset: i64) -> NumberField {
    NumberField {
        buffer: Buffer::Payload,
        count,
        offset: Value::Constant(offset),
        relative: false,
        form: NumberFormat::Big,
        mask: None,
    }
}

/// A condition on data in the payload.
pub fn data_at(at: i64) -> IsDataAt {
    IsDataAt {
        buffer: Buffer::Payload,
        at: Value::Constant(at),
        relative: false,
        negated: false,
    }
}

pub fn constant(number: i64) -> Option<Value> {
    Some(Value::Constant(number))
}
