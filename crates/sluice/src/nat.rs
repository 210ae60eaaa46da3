//! `sluice show nat`, `show mapping` and `show subscribers`: the utilisation of translation resources, and the inside
//! hosts to which outside ports belong.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sluice_daemon::Shares;
use sluice_daemon::config::api::{MappingFilter, Nat, Row, operation};

use crate::client::Client;
use crate::columns::{Table, grouped};
use crate::exit::CommandError;
use crate::show::{NoOptions, ROWS, ShowAnswer, ShowList, ShowSeveral, Typed, each};

/// Options of `show mapping`.
#[derive(Args, Debug)]
pub struct MappingCommand {
    #[command(flatten)]
    filter: MappingFilter,
    /// Compute from this configuration file instead of querying the daemon.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ShowSeveral for operation::Mappings {
    type Command = MappingCommand;
}

impl Typed for MappingCommand {
    fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError> {
        match &self.config {
            Some(file) => mapping_of_file(file, &self.filter, self.json, output),
            None => mapping(&mut Client::connect(socket)?, &self.filter, self.json, output),
        }
    }
}

/// Print the daemon's mappings. Computed shares are listed only if an address is specified, because every inside
/// address has a share.
fn mapping(
    client: &mut Client,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut lists = Lists::new(json, output);
    let mut shares = lists.start_list("shares")?;
    if filter.inside.is_some() || filter.outside.is_some() {
        each::<operation::Shares>(client, filter, u64::MAX, |share| lists.entry(&mut shares, &share))?;
    }
    lists.end_list(shares)?;
    let mut blocks = lists.start_list("blocks")?;
    each::<operation::PortBlocks>(client, filter, u64::MAX, |block| lists.entry(&mut blocks, &block))?;
    lists.end_list(blocks)?;
    let mut mappings = lists.start_list("mappings")?;
    each::<operation::Mappings>(client, filter, u64::MAX, |mapping| lists.entry(&mut mappings, &mapping))?;
    lists.end_list(mappings)?;
    lists.end()
}

/// Print the mappings that are computed from a configuration.
fn mapping_of_file(
    file: &Path,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let shares = Shares::of_file(file)?;
    let mut lists = Lists::new(json, output);
    let mut table = lists.start_list("shares")?;
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let (found, next) = shares.list(filter, from, ROWS);
        found.iter().try_for_each(|share| lists.entry(&mut table, share))?;
        cursor = next;
    }
    lists.end_list(table)?;
    lists.end()
}

impl ShowList for operation::Subscribers {
    type Options = NoOptions;

    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        _: &NoOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let mut lists = Lists::new(false, output);
        let mut table = lists.start_list("subscribers")?;
        each::<Self>(client, request, limit, |subscriber| {
            lists.entry(&mut table, &subscriber)
        })?;
        lists.end_list(table)?;
        lists.end()
    }
}

impl ShowAnswer for operation::Nat {
    type Options = NoOptions;

    fn text(nat: &Nat, _: &NoOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        Table::write(&nat.pools, output)?;
        writeln!(output)?;
        Table::write(&nat.tables, output)?;
        if nat.quarantine_overflows != 0 {
            writeln!(
                output,
                "{} ports were not quarantined, because the table of quarantined ports was full",
                grouped(nat.quarantine_overflows)
            )?;
        }
        if nat.borrowed_blocks != 0 {
            writeln!(
                output,
                "{} blocks of 64 ports were moved to shards that had no free ports of their own",
                grouped(nat.borrowed_blocks)
            )?;
        }
        if !nat.subscribers.is_empty() {
            writeln!(output)?;
            Table::write(&nat.subscribers, output)?;
        }
        if !nat.rules.is_empty() {
            writeln!(output)?;
            Table::write(&nat.rules, output)?;
            let more = nat.rules_in_all - nat.rules.len() as u64;
            if more > 0 {
                writeln!(output, "and {} more rules: see --rules", grouped(more))?;
            }
        }
        if !nat.hosts.is_empty() {
            writeln!(output)?;
            Table::write(&nat.hosts, output)?;
        }
        Ok(())
    }
}

/// Several lists that are printed one after another, either as tables without empty lists, or as one JSON object.
struct Lists<'a> {
    output: &'a mut dyn Write,
    json: bool,
    /// Separator before the next list, and separator before the next entry.
    before: [&'static str; 2],
}

impl<'a> Lists<'a> {
    fn new(json: bool, output: &'a mut dyn Write) -> Self {
        Self {
            output,
            json,
            before: [if json { "{" } else { "" }, ""],
        }
    }

    fn start_list<T: Row>(&mut self, name: &str) -> Result<Table<T>, CommandError> {
        if self.json {
            write!(self.output, "{}\"{name}\":[", self.before[0])?;
            self.before = ["\n],", "\n"];
        } else {
            self.before[1] = self.before[0];
        }
        Ok(Table::new())
    }

    fn entry<T: Row + Serialize>(&mut self, table: &mut Table<T>, entry: &T) -> Result<(), CommandError> {
        if self.json {
            write!(self.output, "{}", self.before[1])?;
            self.before[1] = ",\n";
            return Ok(serde_json::to_writer(&mut *self.output, entry).map_err(std::io::Error::from)?);
        }
        table.add(entry);
        match table.waiting() >= ROWS {
            true => self.flush(table),
            false => Ok(()),
        }
    }

    fn flush<T: Row>(&mut self, table: &mut Table<T>) -> Result<(), CommandError> {
        write!(self.output, "{}", self.before[1])?;
        self.before = ["\n", ""];
        Ok(table.flush(self.output)?)
    }

    fn end_list<T: Row>(&mut self, mut table: Table<T>) -> Result<(), CommandError> {
        match table.waiting() > 0 {
            true => self.flush(&mut table),
            false => Ok(()),
        }
    }

    fn end(self) -> Result<(), CommandError> {
        if self.json {
            writeln!(self.output, "\n]}}")?;
        } else if self.before[0].is_empty() {
            writeln!(self.output, "nothing matches")?;
        }
        Ok(())
    }
}
