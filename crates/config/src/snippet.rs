//! Excerpt of a file for a problem: a few lines, each of a limited length.

use std::ops::Range;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use crate::text::escaped;

/// Maximum number of characters that are shown of a line. If a line is longer, the characters around the span are
/// shown.
const LONGEST: usize = 200;

/// Number of characters shown before the span in a longer line.
const BEFORE: usize = 40;

/// Maximum number of lines of a span. If a span is longer, only its first line is shown.
const MAX_LINES: usize = 12;

/// Offsets at which the lines of a text begin.
#[derive(Debug)]
pub(crate) struct LineStarts(Vec<usize>);

impl LineStarts {
    pub(crate) fn new(text: &str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(starts).collect())
    }

    /// Line of a byte, counted from 0, and the offset at which the line begins.
    pub(crate) fn line(&self, at: usize) -> (usize, usize) {
        let line = self.0.partition_point(|&start| start <= at).saturating_sub(1);
        (line, self.0[line])
    }

    /// A line without its line end, and the offset at which it begins. `None` after the last line.
    fn text<'t>(&self, text: &'t str, line: usize) -> Option<(usize, &'t str)> {
        let start = *self.0.get(line)?;
        let end = self.0.get(line + 1).map_or(text.len(), |next| next - 1);
        let content = text.get(start..end)?;
        Some((start, content.strip_suffix('\r').unwrap_or(content)))
    }
}

/// An excerpt of a file, with the range that a problem refers to.
#[derive(Debug)]
pub(crate) struct Snippet {
    name: String,
    text: String,
    /// Range in `text` to which the problem refers.
    span: Range<usize>,
    /// First line of `text` in the file, counted from 0.
    first: usize,
    /// Column of the span in its line of the file, counted from 0.
    column: usize,
}

impl Snippet {
    /// Create an excerpt with one line before and one line after the span.
    pub(crate) fn new(name: &str, text: &str, lines: &LineStarts, span: &Range<usize>, column: usize) -> Self {
        let start = text.floor_char_boundary(span.start.min(text.len()));
        let mut end = text.floor_char_boundary(span.end.clamp(start, text.len()));
        let (line, _) = lines.line(start);
        let (mut last, last_start) = lines.line(end);
        // If a span ends at a line end, the span does not include the next line.
        if last > line && last_start == end {
            last -= 1;
        }
        if last - line >= MAX_LINES {
            (last, end) = (line, text.len());
        }
        let first = line.saturating_sub(1);
        let mut snippet = Self {
            name: escaped(name).into_owned(),
            text: String::new(),
            span: 0..0,
            first,
            column,
        };
        for number in first..=last + 1 {
            let Some((line_start, content)) = lines.text(text, number) else {
                break;
            };
            // The text after the last line end is not a line.
            if number > last && line_start == text.len() {
                break;
            }
            let within = |at: usize| at.saturating_sub(line_start).min(content.len());
            let place = (line..=last).contains(&number).then(|| within(start)..within(end));
            let shown = snippet.push(content, place.clone().unwrap_or_default());
            if place.is_some() {
                snippet.span = if number == line {
                    shown
                } else {
                    snippet.span.start..shown.end
                };
            }
        }
        snippet
    }

    /// Add a line of the file. Returns the range of `place` in the excerpt.
    fn push(&mut self, line: &str, place: Range<usize>) -> Range<usize> {
        let place = line.floor_char_boundary(place.start)..line.floor_char_boundary(place.end);
        let is_long = line.char_indices().nth(LONGEST).is_some();
        let start = match is_long {
            true => line[..place.start]
                .char_indices()
                .nth_back(BEFORE - 1)
                .map_or(0, |(at, _)| at),
            false => 0,
        };
        let end = line[start..]
            .char_indices()
            .nth(LONGEST)
            .map_or(line.len(), |(at, _)| start + at);
        if start > 0 {
            self.text.push('…');
        }
        let inner = place.start.clamp(start, end)..place.end.clamp(start, end);
        self.push_visible(&line[start..inner.start]);
        let from = self.text.len();
        self.push_visible(&line[inner.clone()]);
        let to = self.text.len();
        self.push_visible(&line[inner.end..end]);
        if end < line.len() {
            self.text.push('…');
        }
        self.text.push('\n');
        from..to
    }

    fn push_visible(&mut self, text: &str) {
        for (k, part) in text.split('\t').enumerate() {
            self.text.push_str(if k == 0 { "" } else { "    " });
            self.text.push_str(&escaped(part));
        }
    }

    /// Range in the excerpt to which the problem refers.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl SourceCode for Snippet {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let lines = self.text.as_str().read_span(span, before, after)?;
        let line = self.first + lines.line();
        // If no preceding lines are requested, the heading must state the column in the file.
        let column = if before == 0 { self.column } else { lines.column() };
        let (name, count) = (self.name.clone(), lines.line_count());
        let contents = MietteSpanContents::new_named(name, lines.data(), *lines.span(), line, column, count);
        Ok(Box::new(contents))
    }
}
