//! Tests rule files: lines, comments, multi-line rules, and duplicate identifiers.

use crate::rules::*;
use sluice_inspect::signatures::RuleError;

const RULE: &str = "alert tcp any any -> any any";

fn lines(file: &sluice_inspect::signatures::SignatureFile) -> Vec<(u32, u32)> {
    file.signatures
        .iter()
        .map(|signature| (signature.line, signature.id.signature))
        .collect()
}

#[test]
fn comments_and_blank_lines_hold_no_rules() {
    let text = format!(
        "# A file\r\n\r\n{RULE} (sid:1;)\r\n#{RULE} (sid:2;)\r\n # {RULE} (sid:3;)\r\n## more\r\n{RULE} (sid:4;)"
    );
    for dialect in EVERY {
        let file = file(dialect, &text);
        assert_eq!(
            (vec![(3, 1), (7, 4)], 2, 0),
            (lines(&file), file.commented, file.refused.len())
        );
    }
}

#[test]
fn continued_line_is_one_rule() {
    let text = format!("\n{RULE} ( \\\r\n  msg:\"a\"; \\\n sid:1; )\n{RULE} (sid:2;)\n");
    for dialect in EVERY {
        assert_eq!(vec![(2, 1), (5, 2)], lines(&file(dialect, &text)));
    }
}

#[test]
fn rule_of_snort_3_spans_lines() {
    let text = format!(
        "{RULE}\n(\n  msg:\"a)\";\n\n  # no word\n  content:\"b\",nocase; sid:1;\n)\n/* {RULE}\n(sid:9;) */\n{RULE} (sid:2;)"
    );
    let found = file(Snort3, &text);
    assert_eq!(
        (vec![(1, 1), (10, 2)], Vec::<String>::new()),
        (lines(&found), faults(&found))
    );
    let text = format!("#begin\n{RULE} (sid:1;)\n#end\n{RULE} (sid:2;)");
    assert_eq!(vec![(4, 2)], lines(&file(Snort3, &text)));
    assert_eq!(vec![(2, 1), (4, 2)], lines(&file(Snort2, &text)));
}

#[test]
fn rule_without_end_leaves_the_next_whole() {
    let text = format!("{RULE} (msg:\"a; sid:1;\n{RULE} (sid:2;)\n{RULE} (sid:3;\n{RULE} (sid:4;)");
    for dialect in EVERY {
        let file = file(dialect, &text);
        assert_eq!(vec![(2, 2), (4, 4)], lines(&file), "{dialect:?}");
        let faults: Vec<_> = file
            .refused
            .into_iter()
            .map(|refusal| (refusal.line, refusal.why))
            .collect();
        assert_eq!(
            vec![(1, RuleError::UnclosedQuote), (3, RuleError::MissingParenthesis)],
            faults,
            "{dialect:?}"
        );
    }
}

#[test]
fn higher_revision_of_a_number_wins() {
    let text =
        format!("{RULE} (sid:1; rev:2;)\n{RULE} (sid:1; rev:3;)\n{RULE} (sid:1; rev:1;)\n{RULE} (gid:2; sid:1;)");
    let file = file(Suricata, &text);
    assert_eq!(vec![(2, 1), (4, 1)], lines(&file));
    let refused: Vec<_> = file
        .refused
        .into_iter()
        .map(|refusal| (refusal.line, refusal.why))
        .collect();
    let twice = RuleError::Twice { line: 2, revision: 3 };
    assert_eq!(vec![(1, twice.clone()), (3, twice)], refused);
}

#[test]
fn line_that_is_not_utf_8_is_refused_unless_it_is_a_comment() {
    let mut text = b"# \xff\n".to_vec();
    text.extend_from_slice(RULE.as_bytes());
    text.extend_from_slice(b" (content:\"\xff\"; sid:1;)\n");
    text.extend_from_slice(rule("").as_bytes());
    for dialect in EVERY {
        let file = file(dialect, &text);
        assert_eq!(
            (2, RuleError::NotUtf8),
            (file.refused[0].line, file.refused[0].why.clone())
        );
        assert_eq!(vec![(3, 7)], lines(&file));
    }
}
