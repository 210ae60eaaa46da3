//! Any bytes as a signature file: what the fuzz target and the tests that replay its corpus do.

use super::{Classes, Dialect, Variables, positions, read};

/// Reads the bytes in every dialect.
///
/// # Panics
/// Where that does, where a refusal says nothing, or where a condition is relative to no match.
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
