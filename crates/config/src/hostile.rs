//! Processes arbitrary bytes as a configuration or a listing, for the fuzz targets and the tests that replay their
//! corpora.

use indexmap::IndexMap;

use crate::import::{self, Format, ImportError};
use crate::memory::EntryBytes;
use crate::text::is_hidden;
use crate::{Diagnosis, Machine, check, difference, file, parse};

/// Maximum size in bytes of the text that describes all problems of a file on a terminal.
const RENDERED: usize = 1 << 20;

/// Read, check, render, print and compare a text.
///
/// # Panics
/// One of these steps panics, the printed text is read back as a different configuration, or the rendered text is not
/// safe for a terminal.
pub fn text(bytes: &[u8]) {
    let text = match file::text("text", bytes.to_vec()) {
        Ok(text) => text,
        Err(diagnosis) => return render(&diagnosis),
    };
    let machine = Machine {
        cores: (0..4).collect(),
        memory: 4 << 30,
        entry: EntryBytes::default(),
    };
    if let Ok(document) = parse("text", &text) {
        let printed = document.print().expect("a document is TOML");
        assert_eq!(Some(document), parse("printed", &printed).ok());
    }
    match check("text", &text, &machine) {
        Ok(checked) => {
            assert!(difference(&checked.config, &checked.config).is_empty());
            render(&checked.advice);
        }
        Err(diagnosis) => {
            assert!(!diagnosis.found().is_empty());
            render(&diagnosis);
        }
    }
}

/// Read, convert and print arbitrary bytes as packet filter listings.
///
/// # Panics
/// One of these steps panics, or an error message exceeds the maximum length.
pub fn listing(bytes: &[u8]) {
    let text = match import::text("listing", bytes) {
        Ok(text) => text,
        Err(error) => return is_readable(&error),
    };
    let source = import::Source { name: "listing", text };
    let formats = [Format::Iptables, Format::Ip6tables, Format::Nft, Format::Ipset];
    for format in formats.into_iter().map(Some).chain([None]) {
        match import::import(&[source], format, &IndexMap::new()) {
            Ok(imported) => drop(imported.print()),
            Err(error) => is_readable(&error),
        }
    }
}

fn is_readable(error: &ImportError) {
    let text = error.to_string();
    assert!(text.len() < 4096, "{} bytes", text.len());
}

/// Format a diagnosis in all supported forms, and check the results.
fn render(diagnosis: &Diagnosis) {
    let findings = diagnosis.findings();
    assert_eq!(diagnosis.found().len(), findings.len());
    let json = serde_json::to_string(&findings).expect("a complaint is JSON");
    let read: Vec<crate::Finding> = serde_json::from_str(&json).expect("JSON is read back");
    assert_eq!(findings, read);
    let is_acted_on = |text: &str| text.chars().any(|c| c != '\n' && is_hidden(c));
    for width in [40, 80, 1000] {
        let plain = diagnosis.render(width, false);
        assert!(plain.len() <= RENDERED, "{} bytes", plain.len());
        assert!(!is_acted_on(&plain), "{plain:?}");
        assert_eq!(diagnosis.found().is_empty(), plain.is_empty());
        assert!(!is_acted_on(&uncoloured(&diagnosis.render(width, true))));
    }
    let lines = diagnosis.to_string();
    assert!(lines.len() <= RENDERED && !is_acted_on(&lines), "{lines:?}");
}

/// Removes the renderer's colour codes from a text. Colour codes of the file remain, because the renderer has escaped
/// them.
fn uncoloured(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        plain += digits.strip_prefix('m').unwrap_or(part);
    }
    plain
}
