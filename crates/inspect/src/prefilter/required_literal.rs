//! Finds bytes that every match of an expression contains.
//!
//! The parser supports only what it can evaluate with certainty: bytes that are outside of groups and classes, have no
//! alternative and are not optional. An unsupported expression yields no bytes.

use super::rarity;
use crate::signature::Expression;

/// The rarest contiguous bytes in every match of an expression, and whether their letters match in either case.
pub fn literal(expression: &Expression) -> Option<(Vec<u8>, bool)> {
    if expression.extended {
        return None;
    }
    let mut caseless = expression.caseless;
    let runs = runs(expression.pattern.as_bytes(), &mut caseless)?;
    let rarest = runs
        .into_iter()
        .rev()
        .max_by_key(|run| (rarity::of(run, caseless), run.len()))?;
    Some((rarest, caseless))
}

/// All runs of contiguous bytes in every match; `None` if an alternative may replace all of them.
fn runs(pattern: &[u8], caseless: &mut bool) -> Option<Vec<Vec<u8>>> {
    let (mut runs, mut run) = (Vec::new(), Vec::new());
    let mut rest = pattern;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let atom = match byte {
            // An alternative may replace all runs. A closing parenthesis without a group shows that a group was
            // misread.
            b'|' | b')' => return None,
            b'(' => {
                rest = match options(rest) {
                    Some((on, after)) => {
                        // A case-insensitive search also finds the case-sensitive matches.
                        *caseless |= on.contains(&b'i');
                        // With option `x`, white space and comments are not part of the pattern.
                        (!on.contains(&b'x')).then_some(after)?
                    }
                    None => group(rest)?,
                };
                None
            }
            b'[' => {
                rest = class(rest)?;
                None
            }
            b'\\' => {
                let (atom, after) = escaped(rest)?;
                rest = after;
                atom
            }
            // A brace that is not part of a quantifier is a literal byte, but the result may omit it.
            b'.' | b'^' | b'$' | b'{' | b'}' => None,
            // The quantifier applies to something other than a byte.
            b'*' | b'+' | b'?' => None,
            plain if plain.is_ascii() => Some(plain),
            _ => None,
        };
        let (quantified, after) = quantifiers(rest);
        rest = after;
        match (atom, quantified) {
            (Some(byte), Times::Once) => run.push(byte),
            (Some(byte), Times::Some) => {
                run.push(byte);
                runs.push(std::mem::take(&mut run));
            }
            _ => runs.push(std::mem::take(&mut run)),
        }
    }
    runs.push(run);
    runs.retain(|run| !run.is_empty());
    Some(runs)
}

/// Number of repetitions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Once,
    /// At least once.
    Some,
    /// Possibly not at all.
    Any,
}

/// Combined effect of the quantifiers at this position, and the text after them.
fn quantifiers(mut rest: &[u8]) -> (Times, &[u8]) {
    let mut all = Times::Once;
    loop {
        match quantifier(rest) {
            (Times::Once, after) => return (all, after),
            // With several quantifiers the atom is certain only if each quantifier requires it.
            (times, after) => (all, rest) = (if all == Times::Any { all } else { times }, after),
        }
    }
}

/// The first quantifier, and the text after it.
fn quantifier(rest: &[u8]) -> (Times, &[u8]) {
    let (times, after) = match rest {
        [b'*' | b'?', after @ ..] => (Times::Any, after),
        [b'+', after @ ..] => (Times::Some, after),
        [b'{', after @ ..] => {
            let Some(end) = after.iter().position(|&byte| byte == b'}') else {
                return (Times::Once, rest);
            };
            let inside = &after[..end];
            if !inside
                .iter()
                .all(|&byte| byte.is_ascii_digit() || b", ".contains(&byte))
            {
                return (Times::Once, rest);
            }
            // The quantifiers `{0,3}`, `{00}` and `{,3}` allow zero repetitions.
            let min = inside.split(|&byte| byte == b',').next().unwrap_or_default();
            let is_required = min.iter().any(|byte| (b'1'..=b'9').contains(byte));
            (if is_required { Times::Some } else { Times::Any }, &after[end + 1..])
        }
        _ => return (Times::Once, rest),
    };
    // Lazy and possessive quantifiers have the same bounds as greedy ones.
    match after {
        [b'?' | b'+', after @ ..] => (times, after),
        _ => (times, after),
    }
}

/// Options that apply to the remaining expression, as in `(?i)`, and the text after them. The opening parenthesis is
/// already consumed.
fn options(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = rest.strip_prefix(b"?")?;
    let end = inside.iter().position(|&byte| byte == b')')?;
    let options = &inside[..end];
    options
        .iter()
        .all(|byte| byte.is_ascii_alphabetic() || b"^-".contains(byte))
        // `(?R)` recurses into the whole expression.
        .then_some(())?;
    let on = options.split(|&byte| byte == b'-').next().unwrap_or_default();
    (!options.contains(&b'R')).then_some((on, &inside[end + 1..]))
}

/// The text after a group; `None` for verbs and comments, which end differently.
fn group(mut rest: &[u8]) -> Option<&[u8]> {
    if rest.starts_with(b"*") || rest.starts_with(b"?#") {
        return None;
    }
    // `(?x:`: comments in the group may contain parentheses.
    if let Some(inside) = rest.strip_prefix(b"?") {
        let options = inside
            .iter()
            .take_while(|byte| byte.is_ascii_alphabetic() || b"^-".contains(byte));
        if options.clone().any(|&byte| byte == b'x') && inside.get(options.count()) == Some(&b':') {
            return None;
        }
    }
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = match byte {
            b')' => return Some(after),
            b'(' => match options(after) {
                Some((on, _)) if on.contains(&b'x') => return None,
                _ => group(after)?,
            },
            b'[' => class(after)?,
            b'\\' => escaped(after)?.1,
            _ => after,
        };
    }
}

/// The text after a character class.
fn class(rest: &[u8]) -> Option<&[u8]> {
    let rest = rest.strip_prefix(b"^").unwrap_or(rest);
    // A closing bracket in the first position is a member of the class.
    let mut rest = rest.strip_prefix(b"]").unwrap_or(rest);
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = match (byte, after) {
            (b']', after) => return Some(after),
            (b'\\', [b'Q' | b'E' | b'c', ..]) => return None,
            (b'\\', [_, after @ ..]) => after,
            (b'[', [b'.' | b'=', ..]) => return None,
            // The closing bracket of `[:alpha:]` does not end the class.
            (b'[', [b':', named @ ..]) => {
                let name = named
                    .iter()
                    .take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'^');
                named[name.count()..].strip_prefix(b":]").unwrap_or(after)
            }
            (_, after) => after,
        };
    }
}

/// The byte that an escape sequence represents, if any, and the text after the sequence.
fn escaped(rest: &[u8]) -> Option<(Option<u8>, &[u8])> {
    let (&byte, after) = rest.split_first()?;
    Some(match byte {
        b'x' => {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_number.then_some(())?;
            (Some(u8::from_str_radix(digits, 16).ok()?), after)
        }
        b'r' => (Some(b'\r'), after),
        b'n' => (Some(b'\n'), after),
        b't' => (Some(b'\t'), after),
        b'f' => (Some(0x0c), after),
        b'e' => (Some(0x1b), after),
        b'a' => (Some(0x07), after),
        b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'h' | b'H' | b'v' | b'V' | b'b' | b'B' | b'A' | b'Z' | b'z'
        | b'G' | b'R' | b'X' | b'K' => (None, after),
        // A back reference, or a byte in octal.
        b'0'..=b'9' => {
            let digits = after.iter().take_while(|digit| digit.is_ascii_digit()).count();
            (None, &after[digits..])
        }
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => (Some(other), after),
        // Properties, names, quotations, control characters, and invalid escapes.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::bindings::expression::{CompiledPattern, Matcher, PatternOptions, SearchResult};

    fn expression(pattern: &str) -> Expression {
        Expression {
            pattern: pattern.into(),
            ..Expression::default()
        }
    }

    fn of(pattern: &str) -> Option<(String, bool)> {
        literal(&expression(pattern)).map(|(bytes, caseless)| (bytes.escape_ascii().to_string(), caseless))
    }

    #[test]
    fn bytes_that_every_match_holds_are_named() {
        for (pattern, expected) in [
            ("evil", "evil"),
            ("^GE[a-z]+\\.exe\\?", ".exe?"),
            ("abc?defg", "defg"),
            ("ab{0,3}cdx", "cdx"),
            ("ab{,3}cdx", "cdx"),
            ("abc{2}xyz", "xyz"),
            ("long_one+b", "long_one"),
            ("\\x00\\x41b\\/c", "\\x00Ab/c"),
            ("a(?:b|c)defg(h)?ij", "defg"),
            ("a[]x(|]defg", "defg"),
            ("a[[:alpha:])|]defg", "defg"),
            ("(?=look)behind(?!it)", "behind"),
            ("a\\1bcd", "bcd"),
            ("a\\123bcd", "bcd"),
            ("x{y}z", "x"),
            ("xa{2}{0}bc", "bc"),
            ("[[:a]bc:]d", "bc:]d"),
            ("name=\\d+\\r\\nx", "\\r\\nx"),
        ] {
            assert_eq!(Some((expected.to_owned(), false)), of(pattern), "{pattern}");
        }
        assert_eq!(Some(("evil".to_owned(), true)), of("(?i)evil"));
    }

    #[test]
    fn nothing_is_named_where_a_match_may_do_without_it() {
        for pattern in [
            "a|b",
            "(abc)*",
            "abc|",
            "(?x)a b c",
            "\\Qa|b\\E",
            "[abc]+",
            "a*b?",
            "(?#|)a",
            "(*ANYCRLF)abc",
            "\\x{41}bc",
            "\\p{L}abc",
            "(abc",
            "[abc",
            "",
            "\u{e9}?",
            "(?R)?",
            "[[:a]|b:]c]d",
            "(?x: a # )\n b)?c",
        ] {
            assert_eq!(None, of(pattern), "{pattern}");
        }
    }
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Checks the result against PCRE2. The generated expressions consist of elements that parsers often
        /// misinterpret.
        #[test]
        fn every_match_holds_what_is_named(
            parts in vec(prop::sample::select(&PARTS[..]), 1..9),
            data in vec(prop::sample::select(&b"abAB]:0,1{} |()"[..]), 0..24),
        ) {
            let pattern = parts.concat();
            let Ok(compiled) = CompiledPattern::new(&pattern, PatternOptions::default()) else { return Ok(()) };
            let Some((bytes, caseless)) = literal(&expression(&pattern)) else { return Ok(()) };
            if let SearchResult::Match(_) = Matcher::new().find(&compiled, &data, true, true) {
                let holds = data.windows(bytes.len()).any(|part| match caseless {
                    true => part.eq_ignore_ascii_case(&bytes),
                    false => *part == *bytes,
                });
                prop_assert!(holds, "{pattern:?} matches {:?} without {:?}", data.escape_ascii().to_string(), bytes.escape_ascii().to_string());
            }
        }
    }

    const PARTS: [&str; 40] = [
        "a", "b", "A", "ab", "ba", "]", ":", "0", "1", ",", " ", "|", "(", ")", "(?:", "(?i)", "(?-i)", "(?i:", "(?=",
        "(?!", "[", "[^", "[[:", ":]", "alpha", "\\", "\\x41", "\\x0", "\\1", "\\b", "{0}", "{1}", "{,1}", "{0,1}",
        "{1,}", "*", "+", "?", ".", "$",
    ];
}
