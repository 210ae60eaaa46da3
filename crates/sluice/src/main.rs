//! `sluice`: see `sluice help`.

#![forbid(unsafe_code)]

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use sluice_command::{arguments::Arguments, execute};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut output = BufWriter::new(io::stdout().lock());
    let done = execute(&arguments, &mut output).and_then(|()| Ok(output.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = output.flush();
            let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let width = terminal_size::terminal_size_of(io::stderr()).map_or(100, |(width, _)| usize::from(width.0));
            eprint!("{}", error.render(width.max(40), colour));
            ExitCode::from(error.status())
        }
    }
}
