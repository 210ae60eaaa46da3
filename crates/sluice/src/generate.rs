//! `sluice completion` and `sluice man`: output that is generated from the grammar.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::exit::CommandError;

/// Write the completion script for a shell.
///
/// # Errors
/// Returns the errors of the output.
pub fn completion(shell: Shell, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut typed(), "sluice", &mut text);
    output.write_all(&text)?;
    Ok(())
}

/// The grammar without internal commands.
fn typed() -> clap::Command {
    let whole = Arguments::command();
    let typed = whole.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new("sluice")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(typed.cloned())
}

/// Write the manual page of `sluice`, or write the manual pages of all commands to a directory.
///
/// # Errors
/// Returns the errors of the output or of the directory.
pub fn man(into: Option<&Path>, output: &mut dyn Write) -> Result<(), CommandError> {
    match into {
        None => clap_mangen::Man::new(Arguments::command()).render(output)?,
        Some(folder) => clap_mangen::generate_to(Arguments::command(), folder).map_err(|error| CommandError::File {
            path: folder.to_owned(),
            error,
        })?,
    }
    Ok(())
}
