//! Problems with their place in a file, as text for a person and as data for a program.

use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity, SourceCode};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// A problem and where it stands.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct Located {
    /// What is wrong.
    pub problem: Problem,
    /// The bytes of the text that it is about.
    pub span: Range<usize>,
    /// Whether it is only advice: the configuration would run.
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

impl Diagnostic for Located {
    fn severity(&self) -> Option<Severity> {
        Some(if self.advice {
            Severity::Warning
        } else {
            Severity::Error
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.problem
            .hint()
            .map(|hint| Box::new(hint) as Box<dyn std::fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(
            None,
            self.span.clone(),
        ))))
    }
}

/// Everything that was found in a file.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    source: NamedSource<Arc<str>>,
    found: Vec<Located>,
}

/// One problem as data: what the control API answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Complaint {
    /// Line in the text, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// The text that it is about; empty where it is about something missing.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether it is only advice.
    pub advice: bool,
}

impl Diagnosis {
    pub(crate) fn new(name: &str, text: &str, mut found: Vec<Located>) -> Self {
        found.sort_by_key(|located| (located.advice, located.span.start));
        Self {
            source: NamedSource::new(name, Arc::from(text)),
            found,
        }
    }

    /// The problems, errors first, then by place.
    pub fn found(&self) -> &[Located] {
        &self.found
    }

    /// As data.
    pub fn complaints(&self) -> Vec<Complaint> {
        let text: &str = self.source.inner();
        self.found
            .iter()
            .map(|located| {
                let before = text.get(..located.span.start).unwrap_or_default();
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                Complaint {
                    line: before.matches('\n').count() + 1,
                    column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
                    text: text.get(located.span.clone()).unwrap_or_default().to_owned(),
                    message: located.to_string(),
                    hint: located.problem.hint(),
                    advice: located.advice,
                }
            })
            .collect()
    }

    /// For a terminal of so many columns: each problem with its lines of the file and what to do about it.
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
        for located in &self.found {
            let shown = Shown {
                located,
                source: &self.source,
            };
            // Writing into a string fails only where `Display` of a problem does, and those do not.
            let _ = handler.render_report(&mut text, &shown);
        }
        text
    }
}

/// One line each: `file:line:column: message (hint)`.
impl std::fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (k, complaint) in self.complaints().iter().enumerate() {
            let separator = if k == 0 { "" } else { "\n" };
            let Complaint {
                line,
                column,
                message,
                hint,
                ..
            } = complaint;
            write!(f, "{separator}{}:{line}:{column}: {message}", self.source.name())?;
            if let Some(hint) = hint {
                write!(f, " ({hint})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnosis {}

/// A problem beside its text, for the renderer.
#[derive(Debug)]
struct Shown<'a> {
    located: &'a Located,
    source: &'a NamedSource<Arc<str>>,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.located.fmt(f)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<Severity> {
        self.located.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.located.help()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.located.labels()
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }
}
