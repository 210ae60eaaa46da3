//! A snapshot as plain text.

use std::io::{self, Write};

use super::sheet::{self, Sheet};
use super::snapshot::Snapshot;
use crate::columns::Columns;

/// Maximum number of drop reasons that are listed. `sluice show drops` lists all reasons.
const REASONS: usize = 10;

/// Write a snapshot.
///
/// # Errors
/// Returns the errors of the output.
pub fn write(snapshot: &Snapshot, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", sheet::title(snapshot))?;
    for warning in &snapshot.warnings {
        writeln!(output, "warning: {warning}")?;
    }
    table(sheet::load(snapshot), output)?;
    table(sheet::stages(snapshot), output)?;
    table(sheet::assist(snapshot), output)?;
    table(sheet::traffic(snapshot), output)?;
    table(sheet::drops(snapshot, REASONS), output)
}

fn table<const N: usize>(sheet: Sheet<N>, output: &mut dyn Write) -> io::Result<()> {
    if sheet.rows.is_empty() {
        return Ok(());
    }
    let titles = sheet.titles.each_ref().map(|(title, align)| (title.as_str(), *align));
    let mut columns = Columns::new(&titles);
    sheet.rows.into_iter().for_each(|row| columns.row(row.cells));
    writeln!(output)?;
    columns.flush(output)
}
