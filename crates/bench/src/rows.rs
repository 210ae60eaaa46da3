//! What a bench measures: rows of keys and figures, as a table and as JSON.

use serde_json::{Map, Value, json};

/// Minimum, median and maximum of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Smallest.
    pub min: f64,
    /// Middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Figure {
    /// The figure of some runs; all 0 of none.
    pub fn of(runs: &[f64]) -> Self {
        let mut runs = runs.to_vec();
        runs.sort_by(f64::total_cmp);
        match runs.as_slice() {
            [] => Self {
                min: 0.0,
                median: 0.0,
                max: 0.0,
            },
            [min, .., max] => Self {
                min: *min,
                median: runs[runs.len() / 2],
                max: *max,
            },
            [one] => Self {
                min: *one,
                median: *one,
                max: *one,
            },
        }
    }
}

/// One row: what was measured, by its keys, and what came out.
#[derive(Clone, Debug, Default)]
pub struct Row {
    keys: Map<String, Value>,
    figures: Vec<(&'static str, Figure)>,
}

impl Row {
    /// A row of a case.
    pub fn new(case: &str) -> Self {
        Self::default().key("case", case)
    }

    /// And a key.
    pub fn key(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(name.into(), value.into());
        self
    }

    /// And a figure.
    pub fn figure(mut self, name: &'static str, runs: &[f64]) -> Self {
        self.figures.push((name, Figure::of(runs)));
        self
    }

    /// As JSON: keys and figures beside one another.
    pub fn json(&self) -> Value {
        let mut row = self.keys.clone();
        for (name, figure) in &self.figures {
            row.insert(
                (*name).into(),
                json!({"min": figure.min, "median": figure.median, "max": figure.max}),
            );
        }
        Value::Object(row)
    }

    /// As one line.
    pub fn text(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let keys: Vec<_> = self
            .keys
            .iter()
            .map(|(name, value)| format!("{name}={}", plain(value)))
            .collect();
        let figures: Vec<_> = self
            .figures
            .iter()
            .map(|(name, f)| format!("{name} {:.1} ({:.1} to {:.1})", f.median, f.min, f.max))
            .collect();
        format!("{}: {}", keys.join(" "), figures.join(", "))
    }
}

/// What a bench is asked for, and where its rows go.
pub struct Run<'r> {
    /// Fewer sizes and runs.
    pub quick: bool,
    /// Takes each row as it is measured.
    pub row: &'r mut dyn FnMut(Row),
}
