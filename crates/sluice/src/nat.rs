//! `sluice show mapping`: which outside ports belong to whom.

use std::io::Write;
use std::path::Path;

use sluice_daemon::Shares;
use sluice_daemon::config::api::{MappingFilter, Share, path};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::each;

use Align::{Left, Right};

/// Spans of a share that a table names.
const SPANS: usize = 4;

/// What the daemon knows.
///
/// # Errors
/// Those of the connection and of the output.
pub fn mapping(
    client: &mut Client,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut shown = Shown::new(json, output)?;
    each(client, path::SHARES, filter, u64::MAX, |share| shown.share(share))?;
    shown.end()
}

/// What a configuration says.
///
/// # Errors
/// The file can't be read or is wrong; those of the output.
pub fn mapping_of_file(
    file: &Path,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let shares = Shares::of_file(file)?;
    let mut shown = Shown::new(json, output)?;
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let (found, next) = shares.list(filter, from, 256);
        found.into_iter().try_for_each(|share| shown.share(share))?;
        cursor = next;
    }
    shown.end()
}

/// A list under way: as a table, or as JSON.
struct Shown<'a> {
    output: &'a mut dyn Write,
    table: Option<Columns>,
    separator: &'static str,
}

impl<'a> Shown<'a> {
    fn new(json: bool, output: &'a mut dyn Write) -> Result<Self, CommandError> {
        if json {
            write!(output, "{{\"shares\":[")?;
        }
        let titles = [("POOL", Left), ("INSIDE", Left), ("PORTS", Right), ("OUTSIDE", Left)];
        Ok(Self {
            output,
            table: (!json).then(|| Columns::new(&titles)),
            separator: "\n",
        })
    }

    fn share(&mut self, share: Share) -> Result<(), CommandError> {
        let Some(table) = &mut self.table else {
            write!(self.output, "{}", self.separator)?;
            self.separator = ",\n";
            return Ok(serde_json::to_writer(&mut *self.output, &share).map_err(std::io::Error::from)?);
        };
        table.row(share_row(share));
        if table.waiting() >= 256 {
            table.flush(self.output)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), CommandError> {
        match &mut self.table {
            Some(table) => Ok(table.flush(self.output)?),
            None => Ok(writeln!(self.output, "\n]}}")?),
        }
    }
}

fn share_row(share: Share) -> [String; 4] {
    let mut spans: Vec<_> = share.spans.iter().take(SPANS).map(ToString::to_string).collect();
    if share.spans.len() > SPANS {
        spans.push(format!("and {} more", share.spans.len() - SPANS));
    }
    let ports = grouped(share.ports.into());
    [share.pool, share.inside.to_string(), ports, spans.join(" ")]
}
