//! Limits the size of files and functions, and requires that no two public types of a crate have the same name.
//!
//! The files in `crates/*/src` are counted. The length of a file includes its unit tests, because a reader has to scroll past
//! them. The length of a function is counted from its signature to its closing brace. Functions of unit tests are not
//! limited. Tables of data, that is `const` and `static` items, are not counted. Bodies of macros are not parsed.

mod census;
mod exceptions;
mod interface;

use std::collections::BTreeMap;
use std::fmt::Write;

use census::Census;
use exceptions::{DUPLICATES, Exception, FILES, FUNCTIONS};

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 80;

/// Items that exceed `max`, compared with the exceptions. Returns the lines that must be added to, changed in or removed from
/// the exceptions.
fn differences(max: usize, counted: &BTreeMap<String, usize>, exceptions: &[Exception]) -> String {
    let allowed: BTreeMap<&str, usize> = exceptions.iter().map(|&(name, allowed, _)| (name, allowed)).collect();
    assert_eq!(exceptions.len(), allowed.len(), "an exception is listed twice");
    assert!(
        exceptions.is_sorted_by_key(|exception| exception.0),
        "exceptions are sorted"
    );
    let mut text = String::new();
    for (name, &number) in counted.iter().filter(|(_, number)| **number > max) {
        match allowed.get(name.as_str()) {
            None => writeln!(text, "{name}: {number}, at most {max}").unwrap(),
            Some(&allowed) if number > allowed => writeln!(text, "{name}: {number}, at most {allowed}").unwrap(),
            // The numbers of exceptions may only decrease. A number must be lowered if its item has become smaller by more
            // than 5 %.
            Some(&allowed) if number + allowed / 20 < allowed => {
                writeln!(text, "{name}: only {number} now, lower its exception of {allowed}").unwrap();
            }
            Some(_) => {}
        }
    }
    for (name, _) in allowed {
        match counted.get(name) {
            None => writeln!(text, "{name}: is no more, remove its exception").unwrap(),
            Some(&number) if number <= max => {
                writeln!(text, "{name}: {number}, remove its exception").unwrap();
            }
            Some(_) => {}
        }
    }
    text
}

#[test]
fn files_are_short() {
    let census = Census::of_workspace();
    assert!(census.files.len() > 500, "{}", census.files.len());
    let differences = differences(MAX_FILE_LINES, &census.files, FILES);
    assert!(differences.is_empty(), "lines of files:\n{differences}");
}

#[test]
fn functions_are_short() {
    let census = Census::of_workspace();
    assert!(census.functions.len() > 5000, "{}", census.functions.len());
    let differences = differences(MAX_FUNCTION_LINES, &census.functions, FUNCTIONS);
    assert!(differences.is_empty(), "lines of functions:\n{differences}");
}

#[test]
fn public_types_of_a_crate_have_names_of_their_own() {
    let census = Census::of_workspace();
    assert!(census.types.len() > 500, "{}", census.types.len());
    let differences = differences(1, &census.types, DUPLICATES);
    assert!(differences.is_empty(), "public types of a name:\n{differences}");
}

#[test]
fn census_counts_functions_without_tables_and_tests() {
    let mut census = Census::default();
    let text = "const TABLE: [u8; 2] = [\n    1,\n    2,\n];\npub struct Shown;\nstruct Hidden;\nimpl Shown {\n    \
                fn long(\n        &self,\n    ) {\n        const INNER: [u8; 1] = [\n            1,\n        ];\n    \
                }\n}\n#[cfg(test)]\nmod tests {\n    pub struct Shown;\n    fn free() {}\n}\n";
    census.count("wire", [("lib.rs".to_owned(), text.to_owned())].into_iter());
    assert_eq!(BTreeMap::from([("wire/lib.rs".to_owned(), 13)]), census.files);
    assert_eq!(
        BTreeMap::from([("wire/lib.rs: Shown::long".to_owned(), 4)]),
        census.functions
    );
    assert_eq!(BTreeMap::from([("wire: Shown".to_owned(), 1)]), census.types);
}

#[test]
fn census_counts_types_of_the_public_interface() {
    let files = [
        (
            "lib.rs",
            "mod hidden; mod inner; pub mod shown; pub use inner::{deep::Reexported, Named}; pub use hidden::*;",
        ),
        ("hidden.rs", "pub struct Twice;"),
        (
            "inner/mod.rs",
            "pub mod deep; pub use deep::Named; pub struct Twice; pub struct Unreachable;",
        ),
        (
            "inner/deep.rs",
            "pub struct Reexported; pub struct Named; pub struct Unreachable;",
        ),
        (
            "shown.rs",
            "pub enum Twice {} struct Private; pub use crate::inner::deep::Reexported;",
        ),
    ];
    let mut census = Census::default();
    census.count(
        "wire",
        files.map(|(path, text)| (path.to_owned(), text.to_owned())).into_iter(),
    );
    let expected = [("wire: Named", 1), ("wire: Reexported", 1), ("wire: Twice", 2)];
    assert_eq!(
        BTreeMap::from(expected.map(|(name, number)| (name.to_owned(), number))),
        census.types
    );
}

#[test]
fn exceptions_are_a_ratchet() {
    let counted = BTreeMap::from([("file".to_owned(), 600)]);
    assert_eq!("file: 600, at most 500\n", differences(500, &counted, &[]));
    assert_eq!(
        "file: 600, at most 599\n",
        differences(500, &counted, &[("file", 599, "")])
    );
    assert_eq!("", differences(500, &counted, &[("file", 600, "")]));
    assert_eq!("", differences(500, &counted, &[("file", 630, "")]));
    assert_eq!(
        "file: only 600 now, lower its exception of 640\n",
        differences(500, &counted, &[("file", 640, "")])
    );
    assert_eq!(
        "file: 600, remove its exception\n",
        differences(600, &counted, &[("file", 600, "")])
    );
    assert_eq!(
        "gone: is no more, remove its exception\n",
        differences(600, &counted, &[("gone", 600, "")])
    );
}
