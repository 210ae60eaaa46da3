//! Escapes texts from the network and from files for a terminal, a log or a JSON document.
//!
//! A host name in a lease, a server name or a rule message may contain escape sequences that manipulate a terminal,
//! line ends that fake an additional row, and Unicode marks that reverse the text. Each of these characters is replaced
//! by its JSON escape, such as `\u001b`. A JSON parser thus restores the exact value, and an operator sees which
//! characters were sent.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a terminal interprets a character or displays nothing for it: C0, DEL and C1 controls, line ends, and
/// Unicode characters for format, direction and filling.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text on one line, in which every hidden character is escaped, including line ends and tabs.
pub fn escaped(text: &str) -> Cow<'_, str> {
    without(text, is_hidden)
}

/// A text of several lines, in which every hidden character except line ends is escaped.
///
/// For a JSON document, the result is an equivalent document, since hidden characters occur only in JSON strings.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    without(text, is_hidden_in_lines)
}

/// A text of at most `max` characters. The middle of a longer text is omitted.
pub fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(max) else {
        return Cow::Borrowed(text);
    };
    let head = text.char_indices().nth(max - max / 2).map_or(cut, |(at, _)| at);
    let tail = text
        .char_indices()
        .rev()
        .take(max / 2)
        .last()
        .map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("{}…{}", &text[..head], &text[tail..]))
}

/// A value as JSON, with hidden characters escaped.
///
/// # Errors
/// The value can't be represented in JSON.
pub fn to_json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(match escaped_lines(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    })
}

fn is_hidden_in_lines(character: char) -> bool {
    character != '\n' && is_hidden(character)
}

fn without(text: &str, hidden: fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(hidden) else {
        return Cow::Borrowed(text);
    };
    let mut escaped = String::with_capacity(text.len() + 16);
    let (clean, mut rest) = text.split_at(first);
    escaped.push_str(clean);
    while let Some(character) = rest.chars().next() {
        push(&mut escaped, character);
        rest = &rest[character.len_utf8()..];
        let (clean, after) = rest.split_at(rest.find(hidden).unwrap_or(rest.len()));
        escaped.push_str(clean);
        rest = after;
    }
    Cow::Owned(escaped)
}

/// Append the escape defined in RFC 8259, section 7: UTF-16 code units of four digits each.
fn push(text: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string can't fail.
        let _ = write!(text, "\\u{unit:04x}");
    }
}

/// A writer for texts of several lines. It applies [`escaped_lines`], and replaces invalid UTF-8 by U+FFFD.
#[derive(Debug)]
pub struct EscapedOutput<W> {
    output: W,
    /// First bytes of a character, if its remaining bytes have not been written yet.
    incomplete: Vec<u8>,
}

impl<W: Write> EscapedOutput<W> {
    /// Create a writer on another output.
    pub fn new(output: W) -> Self {
        let incomplete = Vec::new();
        Self { output, incomplete }
    }
}

impl<W: Write> Write for EscapedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let joined;
        let bytes = match self.incomplete.is_empty() {
            true => bytes,
            false => {
                joined = [std::mem::take(&mut self.incomplete).as_slice(), bytes].concat();
                &joined
            }
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.output.write_all(escaped_lines(chunk.valid()).as_bytes())?;
            let invalid = chunk.invalid();
            let is_incomplete = |bytes| std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_incomplete(invalid) {
                self.incomplete = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.output.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One character of each class that a terminal interprets, with its escape.
    const HOSTILE: [(char, &str); 14] = [
        ('\0', "\\u0000"),
        ('\n', "\\u000a"),
        ('\t', "\\u0009"),
        ('\u{1b}', "\\u001b"),
        ('\u{7f}', "\\u007f"),
        ('\u{9b}', "\\u009b"),
        ('\u{61c}', "\\u061c"),
        ('\u{200e}', "\\u200e"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
        ('\u{202e}', "\\u202e"),
        ('\u{2067}', "\\u2067"),
        ('\u{feff}', "\\ufeff"),
        ('\u{e0041}', "\\udb40\\udc41"),
    ];

    #[test]
    fn character_of_each_class_is_escaped_and_others_are_not() {
        for (character, escape) in HOSTILE {
            assert_eq!(format!("a{escape}é"), escaped(&format!("a{character}é")));
        }
        let plain = "Käse – 名前 \\u001b ✓";
        assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!("a\n\\u0009b", escaped_lines("a\n\tb"));
    }

    #[test]
    fn text_that_is_shortened_keeps_its_begin_and_its_end() {
        assert_eq!("abcd", shortened("abcd", 4));
        assert_eq!("ab…fg", shortened("abcdefg", 4));
        assert_eq!("ä…", shortened("äöüß", 1));
    }

    fn text() -> impl Strategy<Value = String> {
        let character = prop_oneof![
            any::<char>(),
            proptest::sample::select(HOSTILE.map(|(character, _)| character).to_vec()),
        ];
        proptest::collection::vec(character, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_and_json_is_read_back_as_it_was(text in text()) {
            prop_assert!(!escaped(&text).chars().any(is_hidden));
            prop_assert_eq!(text.matches('\n').count(), escaped_lines(&text).matches('\n').count());
            let json = to_json(&[&text]).unwrap();
            prop_assert!(!json.chars().any(is_hidden));
            prop_assert_eq!(vec![text], serde_json::from_str::<Vec<String>>(&json).unwrap());
        }

        #[test]
        fn output_writes_the_same_however_it_is_cut(text in text(), cuts in proptest::collection::vec(1_usize..6, 1..8)) {
            let mut output = EscapedOutput::new(Vec::new());
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                output.write_all(part).unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            let expected = escaped_lines(&text);
            prop_assert_eq!(expected.as_bytes(), output.output);
        }

        #[test]
        fn output_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut output = EscapedOutput::new(Vec::new());
            output.write_all(&bytes).unwrap();
            let text = String::from_utf8(output.output).unwrap();
            prop_assert!(!text.chars().any(is_hidden_in_lines));
        }
    }
}
