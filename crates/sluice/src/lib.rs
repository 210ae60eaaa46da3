//! The command line tool `sluice`. This crate parses arguments and prints results; the daemon crate implements the
//! functions.

#![forbid(unsafe_code)]

pub mod applications;
pub mod arguments;
pub mod bind;
pub mod bridges;
pub mod check;
pub mod client;
pub mod columns;
pub mod control;
pub mod exit;
pub mod filter;
pub mod generate;
pub mod graph;
pub mod import;
pub mod inspect;
pub mod inspection;
mod lists;
pub mod live;
pub mod nat;
pub mod packets;
pub mod plan;
pub mod replay;
pub mod routes;
pub mod sets;
pub mod show;
pub mod sites;
pub mod top;

use std::io::Write;

use sluice_daemon::config::text::EscapedOutput;

use arguments::{Arguments, Command};
use exit::CommandError;

/// Execute a command. Results are written to `output`. Characters that control a terminal are escaped.
///
/// # Errors
/// See [`CommandError`].
pub fn execute(arguments: &Arguments, output: &mut dyn Write) -> Result<(), CommandError> {
    match &arguments.command {
        // Packets, compiled rules and shell scripts are not escaped, because they are not meant for a terminal.
        Command::Capture(_) | Command::CompileSignatures { .. } | Command::Completion { .. } | Command::Man { .. } => {
            written(arguments, output)
        }
        _ => written(arguments, &mut EscapedOutput::new(output)),
    }
}

fn written(arguments: &Arguments, output: &mut dyn Write) -> Result<(), CommandError> {
    let socket = &arguments.socket;
    match &arguments.command {
        Command::Run { config } => Ok(sluice_daemon::run(sluice_daemon::load(config)?, output)?),
        Command::Plan(arguments) => plan::plan(socket, arguments, output),
        Command::Replay(replay) => replay::replay(replay, output),
        Command::Inspect(arguments) => inspect::inspect(arguments, output),
        Command::Check { file, json, partial } => check::check(file, *json, *partial, output),
        Command::Bind(arguments) => bind::bind(arguments, output),
        Command::Unbind(arguments) => bind::unbind(arguments, output),
        Command::Import(import) => import::import(import, output),
        Command::Apply { file, dry_run, json } => control::apply(socket, file, *dry_run, *json, output),
        Command::Show(show) => show.run(socket, output),
        Command::Top(top) => top::top(socket, top, output),
        Command::Clear(clear) => control::clear(socket, clear, output),
        Command::Filter(edit) => filter::edit(socket, edit, output),
        Command::Set(edit) => sets::edit(socket, edit, output),
        Command::Trace(trace) => packets::trace(socket, trace, output),
        Command::Capture(capture) => packets::capture(socket, capture, output),
        Command::CompileSignatures { into } => {
            let compiled = sluice_daemon::compiling::compile_child(&mut std::io::stdin(), into, output);
            Ok(compiled.map_err(sluice_daemon::DaemonError::from)?)
        }
        Command::Completion { shell } => generate::completion(*shell, output),
        Command::Man { into } => generate::man(into.as_deref(), output),
    }
}
