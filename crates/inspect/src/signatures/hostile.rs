//! Parses arbitrary bytes as a signature file, for the fuzz target and for the tests that replay its corpus.

use super::{Classes, Dialect, Variables, positions, read};

/// Parses the bytes in every dialect.
///
/// # Panics Panics if the parser panics, a refusal has no message, or a relative condition has no preceding match.
pub fn text(bytes: &[u8]) {
    for dialect in [Dialect::Suricata, Dialect::Snort2, Dialect::Snort3] {
        let file = read(bytes, dialect, &Variables::default(), &Classes::default());
        assert!(
            file.refused
                .iter()
                .all(|refusal| refusal.line > 0 && !refusal.why.to_string().is_empty())
        );
        for signature in &file.signatures {
            assert!(positions::is_resolved(&signature.conditions), "{signature:?}");
        }
    }
}
