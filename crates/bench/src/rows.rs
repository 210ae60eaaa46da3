//! What a bench measures: rows of keys and figures, as a table and as JSON.

use std::borrow::Cow;

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

    /// The figure in a row of JSON; `None` where the value is none.
    fn from_json(value: &Value) -> Option<Self> {
        let number = |name| value.get(name).and_then(Value::as_f64);
        Some(Self {
            min: number("min")?,
            median: number("median")?,
            max: number("max")?,
        })
    }

    fn json(&self) -> Value {
        json!({"min": self.min, "median": self.median, "max": self.max})
    }
}

/// One row: what was measured, by its keys, and what came out.
#[derive(Clone, Debug, Default)]
pub struct Row {
    keys: Map<String, Value>,
    figures: Vec<(Cow<'static, str>, Figure)>,
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
        self.figures.push((name.into(), Figure::of(runs)));
        self
    }

    /// The median of a figure.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find(|(figure, _)| figure == name)
            .map(|(_, figure)| figure.median)
    }

    /// A key's value as text; empty where the row does not have it.
    pub fn text_of(&self, name: &str) -> String {
        self.keys.get(name).map(plain).unwrap_or_default()
    }

    /// Its keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = (&str, String)> {
        self.keys.iter().map(|(name, value)| (name.as_str(), plain(value)))
    }

    /// Its figures, in order.
    pub fn figures(&self) -> impl Iterator<Item = (&str, Figure)> {
        self.figures.iter().map(|(name, figure)| (name.as_ref(), *figure))
    }

    /// As JSON: keys and figures beside one another.
    pub fn json(&self) -> Value {
        let mut row = self.keys.clone();
        for (name, figure) in &self.figures {
            row.insert(name.to_string(), figure.json());
        }
        Value::Object(row)
    }

    /// The row that [`Row::json`] wrote: what has minimum, median and maximum is a figure, texts, numbers and
    /// booleans are keys, everything else is left out.
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut row = Self::default();
        for (name, value) in value.as_object()? {
            match Figure::from_json(value) {
                Some(figure) => row.figures.push((name.clone().into(), figure)),
                None if value.is_object() || value.is_array() => {}
                None => {
                    row.keys.insert(name.clone(), value.clone());
                }
            }
        }
        Some(row)
    }

    /// As one line.
    pub fn text(&self) -> String {
        let keys: Vec<_> = self.keys().map(|(name, value)| format!("{name}={value}")).collect();
        let figures: Vec<_> = self
            .figures()
            .map(|(name, figure)| format!("{name} {}", cell(&figure)))
            .collect();
        format!("{}: {}", keys.join(" "), figures.join(", "))
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Median, and the range in brackets, with as many digits as say something.
pub fn cell(figure: &Figure) -> String {
    let number = |value| number(value, figure.median);
    format!(
        "{} ({}-{})",
        number(figure.median),
        number(figure.min),
        number(figure.max)
    )
}

/// A number with the digits that suit one of the size of `like`.
pub fn number(value: f64, like: f64) -> String {
    let digits = match like.abs() {
        large if large >= 1000.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// Rows as an aligned table: keys to the left, figures (median and range) to the right. Columns that are the same in
/// all rows stay in.
pub fn table(rows: &[Row]) -> String {
    let mut head: Vec<(String, bool)> = Vec::new();
    for figures in [false, true] {
        for row in rows {
            let names: Vec<&str> = if figures {
                row.figures().map(|(name, _)| name).collect()
            } else {
                row.keys().map(|(name, _)| name).collect()
            };
            for name in names {
                if !head.iter().any(|(known, _)| known == name) {
                    head.push((name.into(), figures));
                }
            }
        }
    }
    let mut lines = vec![head.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()];
    for row in rows {
        let value = |(name, figure): &(String, bool)| match figure {
            false => row.text_of(name),
            true => row
                .figures()
                .find(|(other, _)| other == name)
                .map(|(_, figure)| cell(&figure))
                .unwrap_or_default(),
        };
        lines.push(head.iter().map(value).collect());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&head)
            .zip(&widths)
            .map(|((value, (_, figure)), width)| match figure {
                false => format!("{value:<width$}"),
                true => format!("{value:>width$}"),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// What a bench is asked for, and where its rows go.
pub struct Run<'r> {
    /// Fewer sizes and runs.
    pub quick: bool,
    /// Takes each row as it is measured.
    pub row: &'r mut dyn FnMut(Row),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_of_runs_is_least_middle_and_largest() {
        let expected = Figure {
            min: 1.0,
            median: 3.0,
            max: 9.0,
        };
        assert_eq!(expected, Figure::of(&[9.0, 1.0, 3.0]));
        assert_eq!(0.0, Figure::of(&[]).median);
        assert_eq!(4.0, Figure::of(&[4.0]).max);
    }

    #[test]
    fn row_comes_back_from_its_json() {
        let row = Row::new("sluice")
            .key("rules", 10)
            .figure("packets_per_s", &[1.0, 2.0, 3.0]);
        let back = Row::from_json(&row.json()).expect("an object");
        assert_eq!(row.json(), back.json());
        assert_eq!("10", back.text_of("rules"));
        assert_eq!(Some(2.0), back.median("packets_per_s"));
    }

    #[test]
    fn table_aligns_keys_left_and_figures_right() {
        let rows = [
            Row::new("a").figure("ns", &[1.5]),
            Row::new("longer").key("rules", 7).figure("ns", &[1234.5]),
        ];
        let expected = "case    rules                ns\n\
                        a                1.50 (1.50-1.50)\n\
                        longer  7      1234 (1234-1234)\n";
        let table = table(&rows);
        let ends: Vec<usize> = table.lines().map(str::len).collect();
        assert_eq!(ends[0], ends[1], "{table}\n{expected}");
        assert_eq!(ends[1], ends[2], "{table}\n{expected}");
        assert!(table.lines().all(|line| !line.ends_with(' ')));
        assert_eq!(Some("longer  7"), table.lines().nth(2).map(|line| &line[..9]));
    }
}
