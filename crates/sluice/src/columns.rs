//! Tables for terminals. Columns are as wide as their widest cell, and numbers are aligned to the right.

use std::io::{self, Write};

pub use sluice_daemon::config::api::Align;
pub use sluice_daemon::config::api::column::grouped;
use sluice_daemon::config::api::{Column, Row};
use sluice_daemon::config::text::escaped;

/// A table to which rows are added.
#[derive(Debug)]
pub struct Columns {
    titles: Vec<(String, Align)>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    titled: bool,
}

impl Columns {
    /// Create a table with these columns.
    pub fn new(titles: &[(&str, Align)]) -> Self {
        let widths = titles.iter().map(|(title, _)| title.len()).collect();
        Self {
            titles: titles
                .iter()
                .map(|(title, align)| ((*title).to_owned(), *align))
                .collect(),
            widths,
            rows: Vec::new(),
            titled: false,
        }
    }

    /// Add a row. Cells beyond the last column are ignored. Characters that would affect the layout are escaped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().map(|cell| escaped(&cell).into_owned()).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Number of rows that have not been written yet.
    pub fn waiting(&self) -> usize {
        self.rows.len()
    }

    /// Write the pending rows. The titles are written before the first row. Columns never become narrower.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self, output: &mut dyn Write) -> io::Result<()> {
        if !self.titled {
            let titles = self.titles.iter().map(|(title, _)| title.clone()).collect();
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

/// A table with the columns that its row type declares.
#[derive(Debug)]
pub struct Table<T: Row> {
    columns: Vec<&'static Column<T>>,
    lines: Columns,
}

impl<T: Row> Table<T> {
    /// Create a table with all columns.
    pub fn new() -> Self {
        Self::with(|_| true)
    }

    /// Create a table that has only the columns whose titles `wanted` accepts.
    pub fn with(wanted: impl Fn(&str) -> bool) -> Self {
        let columns: Vec<_> = T::COLUMNS.iter().filter(|column| wanted(column.title)).collect();
        let titles: Vec<_> = columns.iter().map(|column| (column.title, column.align)).collect();
        let lines = Columns::new(&titles);
        Self { columns, lines }
    }

    /// Add a row to the table.
    pub fn add(&mut self, row: &T) {
        self.lines.row(self.columns.iter().map(|column| (column.cell)(row)));
    }

    /// Add a row with these cells.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.row(cells);
    }

    /// Number of rows that have not been written yet.
    pub fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Write the pending rows; see [`Columns::flush`].
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self, output: &mut dyn Write) -> io::Result<()> {
        self.lines.flush(output)
    }

    /// Write a table with these rows.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn write<'a>(rows: impl IntoIterator<Item = &'a T>, output: &mut dyn Write) -> io::Result<()> {
        let mut table = Self::new();
        rows.into_iter().for_each(|row| table.add(row));
        table.flush(output)
    }
}

impl<T: Row> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
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
}
