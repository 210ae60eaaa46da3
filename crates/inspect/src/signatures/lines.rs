//! Joins the lines of a file into rules.

use super::{Dialect, RuleError, header, syntax};

/// A rule as written in the file, with its lines joined.
pub(super) struct Rule {
    /// First line of the rule, counted from 1.
    pub line: u32,
    pub text: Result<String, RuleError>,
}

/// Returns the rules of a file. Rules that are commented out are only counted.
pub(super) fn rules(text: &[u8], dialect: Dialect, commented: &mut usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut open: Option<Rule> = None;
    let mut skipped_until: Option<&str> = None;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let lossy = String::from_utf8_lossy(line);
        let trimmed = lossy.trim();
        if let Some(end) = skipped_until {
            if trimmed.ends_with(end) {
                skipped_until = None;
            }
            continue;
        }
        // A rule without an end must not include the following rules, so the rule ends before this line.
        if open.is_some() && starts_rule(trimmed) {
            rules.extend(open.take());
        }
        if trimmed.is_empty() && dialect == Dialect::Snort3 {
            continue;
        }
        if let Some(comment) = trimmed.strip_prefix('#') {
            skipped_until = (dialect == Dialect::Snort3 && comment.starts_with("begin")).then_some("#end");
            *commented += usize::from(starts_rule(comment.trim_start_matches(['#', ' ', '\t'])));
            continue;
        }
        if dialect == Dialect::Snort3 && open.is_none() && trimmed.starts_with("/*") {
            skipped_until = (!trimmed.ends_with("*/")).then_some("*/");
            continue;
        }
        if trimmed.is_empty() && open.is_none() {
            continue;
        }
        let rule = open.get_or_insert_with(|| Rule {
            line: number,
            text: Ok(String::new()),
        });
        let continued = trimmed.strip_suffix('\\');
        match (&mut rule.text, std::str::from_utf8(line)) {
            (Ok(text), Ok(_)) => {
                text.push_str(continued.unwrap_or(trimmed));
                text.push(' ');
            }
            (text, _) => *text = Err(RuleError::NotUtf8),
        }
        let unfinished = dialect == Dialect::Snort3 && rule.text.as_deref().is_ok_and(syntax::is_unfinished);
        if continued.is_none() && !unfinished {
            rules.extend(open.take());
        }
    }
    rules.extend(open);
    rules
}

fn starts_rule(line: &str) -> bool {
    let Some((action, rest)) = line.split_once([' ', '\t']) else {
        return false;
    };
    header::action(action).is_ok() && rest.contains('(')
}
