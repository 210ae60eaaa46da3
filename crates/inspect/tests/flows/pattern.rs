//! Generates a shortest text that an expression matches. The text consists of filler bytes wherever the expression
//! allows a choice.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use sluice_inspect::signature::Expression;

/// Constraint on the data before or after the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edge {
    /// No constraint.
    #[default]
    Free,
    /// A line starts or ends at this edge of the text.
    Line,
    /// The buffer starts or ends at this edge of the text.
    Buffer,
}

/// A text and its constraints.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// Bytes of the text. `None` means that nearly any byte is allowed.
    pub bytes: Vec<Option<u8>>,
    pub start: Edge,
    pub end: Edge,
    /// Texts of captured groups to which the pattern refers.
    captured: Vec<Vec<Option<u8>>>,
}

/// Placeholder byte for a reference to the first capture. The byte with the next number represents the second capture.
const REFERENCE: u8 = 0xf1;

/// Generates a text. Returns `None` if the expression is not supported.
pub fn text(expression: &Expression, filler: u8) -> Option<Text> {
    // Lookaheads are removed, because the shortest text never contains the text that a negative lookahead excludes.
    let pattern = without_lookahead(&expression.pattern)?;
    let referring = (1..=9).any(|number| pattern.contains(&format!("\\{number}")));
    let pattern = (1..=9).fold(pattern, |pattern, number| {
        pattern.replace(&format!("\\{number}"), &format!("\\x{:02x}", REFERENCE - 1 + number))
    });
    let hir = ParserBuilder::new()
        .utf8(false)
        .unicode(false)
        .case_insensitive(false)
        .dot_matches_new_line(expression.dot_all)
        .multi_line(expression.multi_line)
        .ignore_whitespace(expression.extended)
        .build()
        .parse(&pattern)
        .ok()?;
    let mut text = Text::default();
    if referring {
        text.captured = vec![Vec::new(); 9];
    }
    if expression.anchored {
        text.start = Edge::Buffer;
    }
    write(&hir, filler, &mut text)?;
    Some(text)
}

/// The pattern without `(?!…)` and `(?=…)`; `None` if it contains a lookbehind.
fn without_lookahead(pattern: &str) -> Option<String> {
    let mut rest = pattern.to_owned();
    while let Some(at) = rest.find("(?!").or_else(|| rest.find("(?=")) {
        let bytes = rest.as_bytes();
        let (mut depth, mut end, mut class) = (0, at, false);
        loop {
            match bytes.get(end)? {
                b'\\' => end += 1,
                b'[' => class = true,
                b']' => class = false,
                b'(' if !class => depth += 1,
                b')' if !class => depth -= 1,
                _ => {}
            }
            end += 1;
            if depth == 0 {
                break;
            }
        }
        rest.replace_range(at..end, "");
    }
    ["(?<=", "(?<!"]
        .iter()
        .all(|around| !rest.contains(around))
        .then_some(rest)
}

fn write(hir: &Hir, filler: u8, text: &mut Text) -> Option<()> {
    match hir.kind() {
        HirKind::Empty => Some(()),
        _ if text.end != Edge::Free => behind_the_end(hir, filler, text),
        HirKind::Literal(literal) => {
            for &byte in &literal.0 {
                match text.captured.get(usize::from(byte.wrapping_sub(REFERENCE))) {
                    Some(captured) => text.bytes.extend(captured.clone()),
                    None => text.bytes.push(Some(byte)),
                }
            }
            Some(())
        }
        HirKind::Class(class) => {
            text.bytes.push(choose(class, filler)?);
            Some(())
        }
        HirKind::Look(look) => {
            match look {
                Look::Start | Look::StartLF if text.bytes.last() == Some(&Some(b'\n')) => {}
                Look::Start if text.bytes.is_empty() => text.start = Edge::Buffer,
                Look::StartLF if text.bytes.is_empty() => text.start = text.start.max_of(Edge::Line),
                Look::End => text.end = Edge::Buffer,
                Look::EndLF => text.end = Edge::Line,
                Look::WordAscii | Look::WordAsciiNegate => {}
                _ => return None,
            }
            Some(())
        }
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min.min(10_000) {
                write(&repetition.sub, filler, text)?;
            }
            Some(())
        }
        HirKind::Capture(capture) => {
            let start = text.bytes.len();
            write(&capture.sub, filler, text)?;
            if let Some(captured) = text.captured.get_mut(capture.index as usize - 1) {
                *captured = text.bytes[start..].to_vec();
            }
            Some(())
        }
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, filler, text)),
        HirKind::Alternation(choices) => choices.iter().find_map(|choice| {
            let mut tried = text.clone();
            write(choice, filler, &mut tried)?;
            *text = tried;
            Some(())
        }),
    }
}

/// If an alternative ends a line, only the end of the line may follow it.
fn behind_the_end(hir: &Hir, filler: u8, text: &mut Text) -> Option<()> {
    match hir.properties().minimum_len() {
        Some(0) => Some(()),
        _ if text.end == Edge::Line => {
            let before = text.bytes.len();
            text.end = Edge::Free;
            write(hir, filler, text)?;
            (text.bytes.get(before) == Some(&Some(b'\n'))).then_some(())
        }
        _ => None,
    }
}

impl Edge {
    fn max_of(self, other: Self) -> Self {
        if self == Self::Free { other } else { self }
    }
}

/// Returns a byte of the class, or `None` (any byte) if the class contains the filler and most other bytes.
fn choose(class: &Class, filler: u8) -> Option<Option<u8>> {
    let holds = |byte: u8| match class {
        Class::Bytes(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&byte)),
        Class::Unicode(class) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&char::from(byte))),
    };
    if holds(filler) && (0..=255).filter(|&byte| holds(byte)).count() > 250 {
        return Some(None);
    }
    let harmless = b"-zqk7_ ;=&\n".iter().copied();
    std::iter::once(filler)
        .chain(harmless)
        .chain(b'!'..=b'~')
        .chain(0..=255)
        .find(|&byte| holds(byte))
        .map(Some)
}
