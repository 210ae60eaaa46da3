//! Tables for terminals: columns as wide as their widest cell, numbers to the right.

use std::io::{self, Write};

use sluice_daemon::config::text::escaped;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table that grows by rows.
#[derive(Debug)]
pub struct Columns {
    titles: Vec<(&'static str, Align)>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    titled: bool,
}

impl Columns {
    /// A table with these columns.
    pub fn new(titles: &[(&'static str, Align)]) -> Self {
        let widths = titles.iter().map(|(title, _)| title.len()).collect();
        Self {
            titles: titles.to_vec(),
            widths,
            rows: Vec::new(),
            titled: false,
        }
    }

    /// Add a row; cells beyond the columns are left out. What would leave its cell is escaped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().map(|cell| escaped(&cell).into_owned()).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Rows that were not written yet.
    pub fn waiting(&self) -> usize {
        self.rows.len()
    }

    /// Write the rows so far, with the titles before the first one. Columns never grow narrower.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self, output: &mut dyn Write) -> io::Result<()> {
        if !self.titled {
            let titles = self.titles.iter().map(|(title, _)| (*title).to_owned()).collect();
            self.rows.insert(0, titles);
            self.titled = true;
        }
        for row in self.rows.drain(..) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&self.widths).zip(&self.titles) {
                match align {
                    Align::Left => line += &format!("{cell:<width$}  "),
                    Align::Right => line += &format!("{cell:>width$}  "),
                }
            }
            writeln!(output, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k != 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_text_and_numbers_are_aligned() {
        let mut columns = Columns::new(&[("NAME", Align::Left), ("COUNT", Align::Right)]);
        columns.row(["a".into(), "1".into()]);
        columns.row(["longer".into(), "1,234,567".into()]);
        let mut output = Vec::new();
        columns.flush(&mut output).unwrap();
        assert_eq!(
            "NAME        COUNT\na               1\nlonger  1,234,567\n",
            String::from_utf8(output).unwrap()
        );
    }

    #[test]
    fn cell_with_ends_of_lines_and_escape_sequences_stays_one_cell() {
        let mut columns = Columns::new(&[("NAME", Align::Left), ("COUNT", Align::Right)]);
        columns.row(["a\n\t\u{1b}[2J\u{9b}\u{202e}b".into(), "1".into()]);
        let mut output = Vec::new();
        columns.flush(&mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(
            Some("a\\u000a\\u0009\\u001b[2J\\u009b\\u202eb      1"),
            text.lines().nth(1)
        );
        assert_eq!(2, text.lines().count());
    }

    #[test]
    fn number_grouped_has_a_comma_every_three_digits() {
        assert_eq!(
            ["0", "999", "1,000", "12,345,678"],
            [0, 999, 1_000, 12_345_678].map(grouped).each_ref()
        );
    }
}
