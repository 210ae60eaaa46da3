//! Measurements of a benchmark: rows of keys and figures, formatted as a table and as JSON.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// Any error; it is printed as one line on the terminal.
pub type Failure = Box<dyn std::error::Error>;

/// Minimum, median and maximum of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Figure {
    /// The figure of several runs; all values are 0 if the slice is empty.
    pub fn of(runs: &[f64]) -> Self {
        let mut runs = runs.to_vec();
        runs.sort_by(f64::total_cmp);
        let at = |place: usize| runs.get(place).copied().unwrap_or(0.0);
        let (min, median, max) = (at(0), at(runs.len() / 2), at(runs.len().saturating_sub(1)));
        Self { min, median, max }
    }

    /// A figure in a JSON row; `None` if the value is not a figure.
    fn from_json(value: &Value) -> Option<Self> {
        let number = |name| value.get(name).and_then(Value::as_f64);
        let (min, median, max) = (number("min")?, number("median")?, number("max")?);
        Some(Self { min, median, max })
    }

    fn json(&self) -> Value {
        json!({"min": self.min, "median": self.median, "max": self.max})
    }

    /// Median, and the range in brackets, with a suitable number of digits.
    pub fn text(&self) -> String {
        let [min, median, max] = [self.min, self.median, self.max].map(|value| number(value, self.median));
        format!("{median} ({min}-{max})")
    }
}

/// Format a number with the digits that suit the magnitude of `like`.
pub fn number(value: f64, like: f64) -> String {
    let digits = match like.abs() {
        large if large >= 1000.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

pub fn median(runs: impl IntoIterator<Item = f64>) -> f64 {
    Figure::of(&runs.into_iter().collect::<Vec<_>>()).median
}

/// Combines two series of values run by run.
pub fn pairs(one: &[f64], other: &[f64], of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| of(*one, *other)).collect()
}

/// An option whose values have names, used on the command line and in rows.
pub trait Named: clap::ValueEnum {
    fn name(&self) -> String {
        let value = self.to_possible_value();
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl<T: clap::ValueEnum> Named for T {}

/// Results of repeated runs: one value per figure and run.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<(&'static str, Vec<f64>)>);

impl Runs {
    /// Add a run's value of a figure.
    pub fn add(&mut self, name: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name, vec![value])),
        }
    }

    /// Add a run's values of several figures.
    pub fn extend(&mut self, values: impl IntoIterator<Item = (&'static str, f64)>) {
        values.into_iter().for_each(|(name, value)| self.add(name, value));
    }

    /// The values of a figure in all runs.
    pub fn of(&self, name: &str) -> &[f64] {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or(&[], |(_, values)| values)
    }

    /// The median of a figure over all runs.
    pub fn median(&self, name: &str) -> f64 {
        Figure::of(self.of(name)).median
    }
}

/// A row: keys that describe the measurement, and figures.
#[derive(Clone, Debug, Default)]
pub struct Row {
    keys: Map<String, Value>,
    figures: Vec<(Cow<'static, str>, Figure)>,
}

impl Row {
    pub fn new(case: impl Into<Value>) -> Self {
        Self::default().key("case", case)
    }

    pub fn key(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(name.into(), value.into());
        self
    }

    pub fn figure(mut self, name: impl Into<Cow<'static, str>>, runs: &[f64]) -> Self {
        self.figures.push((name.into(), Figure::of(runs)));
        self
    }

    /// Adds a figure of another row to this row, under another name and multiplied by a factor. Does nothing if the
    /// other row does not have the figure.
    pub fn scaled(self, other: &Self, from: &str, name: &'static str, factor: f64) -> Self {
        match other.get(from) {
            Some(Figure { min, median, max }) => self.figure(name, &[min, median, max].map(|value| value * factor)),
            None => self,
        }
    }

    /// Add all figures of some runs, in the order in which they were added.
    pub fn runs(self, runs: &Runs) -> Self {
        runs.0
            .iter()
            .fold(self, |row, (name, values)| row.figure(*name, values))
    }

    pub fn get(&self, name: &str) -> Option<Figure> {
        let found = self.figures.iter().find(|(figure, _)| figure == name);
        found.map(|(_, figure)| *figure)
    }

    pub fn median(&self, name: &str) -> Option<f64> {
        self.get(name).map(|figure| figure.median)
    }

    /// Value of a key as text; empty if the row does not have it.
    pub fn text_of(&self, name: &str) -> String {
        self.keys.get(name).map(plain).unwrap_or_default()
    }

    pub fn keys(&self) -> impl Iterator<Item = (&str, String)> {
        self.keys.iter().map(|(name, value)| (name.as_str(), plain(value)))
    }

    pub fn figures(&self) -> impl Iterator<Item = (&str, Figure)> {
        self.figures.iter().map(|(name, figure)| (name.as_ref(), *figure))
    }

    /// The row as JSON, with keys and figures on one level.
    pub fn json(&self) -> Value {
        let mut row = self.keys.clone();
        for (name, figure) in &self.figures {
            row.insert(name.to_string(), figure.json());
        }
        Value::Object(row)
    }

    /// Parse a row of [`Row::json`]: objects with minimum, median and maximum are figures; texts, numbers and booleans
    /// are keys; other values are ignored.
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut row = Self::default();
        for (name, value) in value.as_object()? {
            match Figure::from_json(value) {
                Some(figure) => row.figures.push((name.clone().into(), figure)),
                None if value.is_object() || value.is_array() => {}
                None => _ = row.keys.insert(name.clone(), value.clone()),
            }
        }
        Some(row)
    }

    pub fn text(&self) -> String {
        let keys: Vec<_> = self.keys().map(|(name, value)| format!("{name}={value}")).collect();
        let figures = self.figures().map(|(name, figure)| format!("{name} {}", figure.text()));
        format!("{}: {}", keys.join(" "), figures.collect::<Vec<_>>().join(", "))
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Names of the columns, each with a flag that marks figures, and the cells of all rows; keys come before figures.
pub fn grid(rows: &[Row]) -> (Vec<(String, bool)>, Vec<Vec<String>>) {
    let mut head: Vec<(String, bool)> = Vec::new();
    let keys = rows
        .iter()
        .flat_map(|row| row.keys().map(|(name, _)| (name.to_owned(), false)));
    let figures = rows
        .iter()
        .flat_map(|row| row.figures().map(|(name, _)| (name.to_owned(), true)));
    for column in keys.chain(figures) {
        if !head.contains(&column) {
            head.push(column);
        }
    }
    let cell = |row: &Row, (name, is_figure): &(String, bool)| match is_figure {
        false => row.text_of(name),
        true => row.get(name).map(|figure| figure.text()).unwrap_or_default(),
    };
    let cells = rows
        .iter()
        .map(|row| head.iter().map(|column| cell(row, column)).collect());
    let cells = cells.collect();
    (head, cells)
}

/// Format rows as an aligned table: keys to the left, figures (median and range) to the right. Columns with equal
/// values in all rows are included.
pub fn table(rows: &[Row]) -> String {
    let (head, cells) = grid(rows);
    let names = head.iter().map(|(name, _)| name.clone()).collect();
    let lines: Vec<Vec<String>> = [names].into_iter().chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line
            .iter()
            .zip(&head)
            .zip(&widths)
            .map(|((value, (_, is_figure)), width)| match is_figure {
                false => format!("{value:<width$}"),
                true => format!("{value:>width$}"),
            });
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Options of a benchmark, and the receiver of its rows.
pub struct Run<'r> {
    /// Whether to measure fewer sizes with fewer runs.
    pub quick: bool,
    /// Called with each row as soon as it is measured.
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
    fn row_of_something_else_than_an_object_is_none() {
        assert!(Row::from_json(&json!([1, 2])).is_none());
        let row = Row::from_json(&json!({"case": "x", "odd": {"min": 1}, "list": [1]})).expect("an object");
        assert_eq!(1, row.keys().count());
        assert_eq!(0, row.figures().count());
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

    #[test]
    fn table_of_nothing_is_an_empty_line() {
        assert_eq!("\n", table(&[]));
    }
}
