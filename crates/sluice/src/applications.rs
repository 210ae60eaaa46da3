//! `sluice show applications`.

use std::io::Write;

use clap::Args;
use sluice_daemon::config::api::{ApplicationsStatus, operation};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::ShowAnswer;

use Align::{Left, Right};

/// Options of `show applications`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ApplicationOptions {
    /// Include applications without sessions.
    #[arg(long)]
    all: bool,
}

impl ShowAnswer for operation::Applications {
    type Options = ApplicationOptions;

    fn text(
        status: &ApplicationsStatus,
        options: &ApplicationOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let mut columns = Columns::new(&[("SESSIONS", Left), ("", Right)]);
        for (name, count) in &status.counters.0 {
            columns.row([name.clone(), grouped(count.total())]);
        }
        for result in &status.results {
            columns.row([result.result.clone(), grouped(result.sessions)]);
        }
        columns.flush(output)?;
        let listed = status.applications.iter().filter(|one| options.all || one.sessions > 0);
        let mut listed = listed.peekable();
        if listed.peek().is_some() {
            writeln!(output)?;
            let mut columns = Columns::new(&[("APPLICATION", Left), ("SESSIONS", Right)]);
            for application in listed {
                columns.row([application.application.clone(), grouped(application.sessions)]);
            }
            columns.flush(output)?;
        }
        Ok(())
    }
}
