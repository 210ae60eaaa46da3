//! Problems with their positions in a file, formatted as text for operators and as data for programs.

use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, Severity, SourceCode};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::snippet::{LineStarts, Snippet};
use crate::text::{escaped, shortened};

/// A problem with its position in a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct Located {
    /// The problem.
    pub problem: Problem,
    /// Byte range of the text to which the problem refers.
    pub span: Range<usize>,
    /// Whether the problem is only advice, so that the configuration can still be used.
    pub advice: bool,
}

impl Located {
    pub(crate) fn new(problem: Problem, span: Range<usize>) -> Self {
        Self {
            problem,
            span,
            advice: false,
        }
    }
}

/// Maximum number of problems in a text for operators.
const SHOWN: usize = 100;

/// Maximum number of characters of a message for operators. A message may quote a very long key of the file.
const LONGEST: usize = 600;

/// All problems found in a file.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    name: String,
    text: Arc<str>,
    found: Vec<Located>,
}

/// A problem as data, as the control API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// Line in the text, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// The text to which the problem refers. Empty if something is missing.
    pub text: String,
    /// Description of the problem.
    pub message: String,
    /// What to do about the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the problem is only advice.
    pub advice: bool,
}

impl Diagnosis {
    pub(crate) fn new(name: &str, text: &str, mut found: Vec<Located>) -> Self {
        found.sort_by_key(|located| (located.advice, located.span.start));
        Self {
            name: name.into(),
            text: text.into(),
            found,
        }
    }

    /// The problems. Errors come first; the order within errors and within advice is that of the text.
    pub fn found(&self) -> &[Located] {
        &self.found
    }

    /// The problems as data.
    pub fn findings(&self) -> Vec<Finding> {
        let places = Places::new(&self.text);
        let findings = self.found.iter().scan(places, |places, located| {
            let (line, column) = places.of(located);
            Some(Finding {
                line: line + 1,
                column: column + 1,
                text: self.text.get(located.span.clone()).unwrap_or_default().to_owned(),
                message: located.to_string(),
                hint: located.problem.hint(),
                advice: located.advice,
            })
        });
        findings.collect()
    }

    /// Text for a terminal with `width` columns: each problem with its lines of the file and a hint. Long lines and
    /// messages are shortened, and control characters are escaped.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let theme = if colour {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(width)
            .with_context_lines(1);
        let mut text = String::new();
        let mut places = Places::new(&self.text);
        for located in self.found.iter().take(SHOWN) {
            let (_, column) = places.of(located);
            let shown = Shown {
                located,
                snippet: Snippet::new(&self.name, &self.text, &places.lines, &located.span, column),
            };
            // Rendering into a string can't fail, since the `Display` implementations of problems don't fail.
            let _ = handler.render_report(&mut text, &shown);
        }
        if let Some(more) = self.left_out() {
            text += &format!("{more}\n");
        }
        text
    }

    fn left_out(&self) -> Option<String> {
        let more = self.found.len().checked_sub(SHOWN).filter(|&more| more > 0)?;
        Some(format!("{more} further problems are not shown"))
    }
}

/// Formats one line per problem: `file:line:column: message (hint)`.
impl std::fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = escaped(&self.name);
        let mut places = Places::new(&self.text);
        for (k, located) in self.found.iter().take(SHOWN).enumerate() {
            let separator = if k == 0 { "" } else { "\n" };
            let (line, column) = places.of(located);
            write!(f, "{separator}{name}:{}:{}: {}", line + 1, column + 1, line_of(located))?;
            if let Some(hint) = located.problem.hint() {
                write!(f, " ({})", line_of(hint))?;
            }
        }
        match self.left_out() {
            Some(more) => write!(f, "\n{more}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnosis {}

/// A message shortened to one readable line.
fn line_of(message: impl std::fmt::Display) -> String {
    escaped(&shortened(&message.to_string(), LONGEST)).into_owned()
}

/// Computes lines and columns of problems. The problems must be ordered by position.
struct Places<'t> {
    text: &'t str,
    lines: LineStarts,
    /// Byte offset and column of the previous problem, from which characters are counted.
    last: (usize, usize),
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            lines: LineStarts::new(text),
            last: (0, 0),
        }
    }

    /// Line and column, both counted from 0.
    fn of(&mut self, located: &Located) -> (usize, usize) {
        let at = self.text.floor_char_boundary(located.span.start.min(self.text.len()));
        let (line, start) = self.lines.line(at);
        let (from, before) = match self.last {
            (last, column) if (start..=at).contains(&last) => (last, column),
            _ => (start, 0),
        };
        let column = before + self.text[from..at].chars().count();
        self.last = (at, column);
        (line, column)
    }
}

/// A problem with its excerpt of the file, for the renderer.
#[derive(Debug)]
struct Shown<'a> {
    located: &'a Located,
    snippet: Snippet,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&line_of(self.located))
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(match self.located.advice {
            true => Severity::Warning,
            false => Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        let hint = self.located.problem.hint()?;
        Some(Box::new(line_of(hint)))
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.snippet.span());
        Some(Box::new(std::iter::once(label)))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.snippet)
    }
}
