//! `sluice show`: has a command for each operation of the API that declares a command. This file generates options,
//! help, tables and JSON from the declarations. Output that is neither a table nor JSON is implemented in the file of
//! each command.

use std::fmt;
use std::io::Write;
use std::path::Path;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use serde::Serialize;
use sluice_daemon::config::api::operation::{self, OperationKind};
use sluice_daemon::config::api::{Answered, Description, Listed, Operation, Row};

use crate::client::Client;
use crate::columns::Table;
use crate::exit::CommandError;

/// Number of rows between two flushes. Because of the flushes, a list of a million sessions is not held in memory.
pub(crate) const ROWS: usize = 256;

/// A parsed command of `sluice show`.
pub trait Typed: fmt::Debug {
    /// Execute the command.
    ///
    /// # Errors
    /// Returns the errors of the connection and of the output.
    fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError>;
}

/// Text output of an operation that has a single answer.
pub trait ShowAnswer: Answered<Request: Args + fmt::Debug> + fmt::Debug {
    /// Options that the command has in addition to the options of the request.
    type Options: Args + fmt::Debug;

    /// Print the answer.
    fn text(answer: &Self::Answer, options: &Self::Options, output: &mut dyn Write) -> Result<(), CommandError>;
}

/// Text output of an operation that returns a list.
pub(crate) trait ShowList: Listed<Request: Args + fmt::Debug> + fmt::Debug {
    /// Options that the command has in addition to the options of the request.
    type Options: Args + fmt::Debug;
    /// Alternative names of the command.
    const ALIASES: &[&str] = &[];

    /// Print the list, with at most `limit` entries if a limit is given.
    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        options: &Self::Options,
        output: &mut dyn Write,
    ) -> Result<(), CommandError>;
}

/// A command that sends several requests to the daemon.
pub(crate) trait ShowSeveral: Operation {
    /// Arguments of the command.
    type Command: Typed + Args + 'static;
}

/// No options in addition to those of the request.
#[derive(Args, Clone, Copy, Debug)]
pub struct NoOptions {}

/// A command that prints a single answer.
#[derive(Args, Debug)]
struct Answer<O: ShowAnswer> {
    #[command(flatten)]
    request: O::Request,
    #[command(flatten)]
    options: O::Options,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl<O: ShowAnswer> Typed for Answer<O> {
    fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError> {
        let answer = Client::connect(socket)?.ask::<O>(&self.request)?;
        match self.json {
            true => pretty(&answer, output),
            false => O::text(&answer, &self.options, output),
        }
    }
}

/// A command that prints a list that is returned at once.
#[derive(Args, Debug)]
struct List<O: ShowList> {
    #[command(flatten)]
    request: O::Request,
    #[command(flatten)]
    options: O::Options,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl<O: ShowList> Typed for List<O> {
    fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError> {
        let client = &mut Client::connect(socket)?;
        match self.json {
            true => as_json::<O>(client, &self.request, u64::MAX, output),
            false => O::text(client, &self.request, u64::MAX, &self.options, output),
        }
    }
}

/// A command that prints a list that is returned in pages.
#[derive(Args, Debug)]
struct Pages<O: ShowList> {
    #[command(flatten)]
    request: O::Request,
    #[command(flatten)]
    options: O::Options,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Maximum number of entries.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,
}

impl<O: ShowList> Typed for Pages<O> {
    fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError> {
        let (client, limit) = (&mut Client::connect(socket)?, self.limit.unwrap_or(u64::MAX));
        match self.json {
            true => as_json::<O>(client, &self.request, limit, output),
            false => O::text(client, &self.request, limit, &self.options, output),
        }
    }
}

/// A command in the grammar of `sluice show`.
struct Entry {
    name: &'static str,
    description: Description,
    aliases: &'static [&'static str],
    options: fn(clap::Command) -> clap::Command,
    typed: fn(&ArgMatches) -> Result<Box<dyn Typed>, clap::Error>,
}

impl Entry {
    const fn of<O: Operation, C: Typed + Args + 'static>(name: &'static str) -> Self {
        Self {
            name,
            description: O::DESCRIPTION,
            aliases: &[],
            options: C::augment_args,
            typed: |matches| Ok(Box::new(C::from_arg_matches(matches)?)),
        }
    }

    const fn get<O: ShowAnswer>(name: &'static str) -> Self {
        Self::of::<O, Answer<O>>(name)
    }

    const fn list<O: ShowList>(name: &'static str) -> Self {
        let aliases = O::ALIASES;
        Self {
            aliases,
            ..Self::of::<O, List<O>>(name)
        }
    }

    const fn pages<O: ShowList>(name: &'static str) -> Self {
        let aliases = O::ALIASES;
        Self {
            aliases,
            ..Self::of::<O, Pages<O>>(name)
        }
    }

    const fn several<O: ShowSeveral>(name: &'static str) -> Self {
        Self::of::<O, O::Command>(name)
    }

    fn command(&self) -> clap::Command {
        let paragraphs = self.description.paragraphs();
        // The types that declare the options also declare their help texts.
        (self.options)(clap::Command::new(self.name))
            .about(self.description.summary())
            .long_about(paragraphs.map_or(Resettable::Reset, |text| Resettable::Value(text.into())))
            .aliases(self.aliases)
    }
}

macro_rules! entry {
    ($kind:ident several $name:ident $command:literal) => {
        Entry::several::<operation::$name>($command)
    };
    ($kind:ident $printed:ident $name:ident $command:literal) => {
        Entry::$kind::<operation::$name>($command)
    };
}

/// Implements the commands for lists whose text output is only a table.
macro_rules! printed {
    (table $name:ident) => {
        impl ShowList for operation::$name {
            type Options = NoOptions;

            fn text(
                client: &mut Client,
                request: &Self::Request,
                limit: u64,
                _: &NoOptions,
                output: &mut dyn Write,
            ) -> Result<(), CommandError> {
                table::<Self>(client, request, limit, output, |_| true)
            }
        }
    };
    ($printed:ident $name:ident) => {};
}

macro_rules! commands {
    ($(
        $(#[doc = $help:literal])+
        $kind:ident $name:ident $path:literal $request:ident => $answer:ident $(, $printed:ident $command:literal)?;
    )*) => {
        $($(printed!($printed $name);)?)*

        static COMMANDS: &[Entry] = &[$($(entry!($kind $printed $name $command),)?)*];
    };
}

sluice_daemon::config::operations!(commands);

/// The arguments of `sluice show`, parsed to one of its commands.
#[derive(Debug)]
pub struct Show(Box<dyn Typed>);

impl Show {
    /// Execute the parsed command.
    ///
    /// # Errors
    /// Returns the errors of the connection and of the output.
    pub fn run(&self, socket: &Path, output: &mut dyn Write) -> Result<(), CommandError> {
        self.0.run(socket, output)
    }
}

impl FromArgMatches for Show {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = matches.subcommand().and_then(|(name, matches)| {
            let entry = COMMANDS.iter().find(|entry| entry.name == name)?;
            Some((entry.typed)(matches))
        });
        typed
            .unwrap_or_else(|| Err(clap::Error::new(ErrorKind::MissingSubcommand)))
            .map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Show {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        command.subcommands(COMMANDS.iter().map(Entry::command))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        COMMANDS.iter().any(|entry| entry.name == name)
    }
}

/// Print the accepted entries of a list as a table.
pub(crate) fn table<O: Listed<Item: Row>>(
    client: &mut Client,
    request: &O::Request,
    limit: u64,
    output: &mut dyn Write,
    mut wanted: impl FnMut(&O::Item) -> bool,
) -> Result<(), CommandError> {
    let mut table = Table::new();
    let rows = match O::DESCRIPTION.kind {
        OperationKind::Pages => ROWS,
        _ => usize::MAX,
    };
    each::<O>(client, request, limit, |item| {
        if wanted(&item) {
            table.add(&item);
        }
        if table.waiting() >= rows {
            table.flush(output)?;
        }
        Ok(())
    })?;
    Ok(table.flush(output)?)
}

/// Pass the entries of a list to a callback one at a time, up to a limit.
pub(crate) fn each<O: Listed>(
    client: &mut Client,
    request: &O::Request,
    limit: u64,
    mut entry: impl FnMut(O::Item) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut left = limit;
    client.list::<O, _>(request, |items| {
        for item in items {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            entry(item)?;
        }
        Ok::<_, CommandError>(left != 0)
    })
}

/// Print a list as a JSON object with a single array: `{"routes":[…]}`. The array has the name of the last part of the
/// path. The list may be larger than the memory.
fn as_json<O: Listed>(
    client: &mut Client,
    request: &O::Request,
    limit: u64,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let path = O::DESCRIPTION.path;
    write!(output, "{{\"{}\":[", path.rsplit('/').next().unwrap_or_default())?;
    let mut separator = "\n";
    each::<O>(client, request, limit, |item| {
        write!(output, "{separator}")?;
        separator = ",\n";
        Ok(serde_json::to_writer(&mut *output, &item).map_err(std::io::Error::from)?)
    })?;
    Ok(writeln!(output, "\n]}}")?)
}

/// Print one value as indented JSON.
pub(crate) fn pretty(value: &impl Serialize, output: &mut dyn Write) -> Result<(), CommandError> {
    serde_json::to_writer_pretty(&mut *output, value).map_err(std::io::Error::from)?;
    Ok(writeln!(output)?)
}
