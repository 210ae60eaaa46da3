//! Any bytes as a configuration: what the fuzz target and the tests that replay its corpus do.

use crate::memory::EntryBytes;
use crate::{Machine, check, difference, parse};

/// Read, check, render, print and compare.
///
/// # Panics
/// Where any of them does, or where what was printed is read back as something else.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let machine = Machine {
        cores: (0..4).collect(),
        memory: 4 << 30,
        entry: EntryBytes::default(),
    };
    if let Ok(document) = parse("text", text) {
        let printed = document.print().expect("a document is TOML");
        assert_eq!(Some(document), parse("printed", &printed).ok());
    }
    match check("text", text, &machine) {
        Ok(checked) => assert!(difference(&checked.config, &checked.config).is_empty()),
        Err(diagnosis) => {
            assert!(!diagnosis.complaints().is_empty());
            assert!(!diagnosis.render(80, true).is_empty());
        }
    }
}
