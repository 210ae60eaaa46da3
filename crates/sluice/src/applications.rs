//! `sluice show applications`.

use std::io::Write;

use sluice_daemon::config::api::{ApplicationsStatus, path};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

use Align::{Left, Right};

/// How looking for applications goes.
pub fn status(client: &mut Client, all: bool, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let status: ApplicationsStatus = client.get(path::APPLICATIONS, "")?;
    if json {
        serde_json::to_writer_pretty(&mut *output, &status).map_err(std::io::Error::from)?;
        return Ok(writeln!(output)?);
    }
    let mut columns = Columns::new(&[("SESSIONS", Left), ("", Right)]);
    columns.row(["looked at now".into(), grouped(status.sought)]);
    for fate in status.fates {
        columns.row([fate.fate, grouped(fate.sessions)]);
    }
    columns.flush(output)?;
    let listed = status.applications.into_iter().filter(|one| all || one.sessions > 0);
    let mut listed = listed.peekable();
    if listed.peek().is_some() {
        writeln!(output)?;
        let mut columns = Columns::new(&[("APPLICATION", Left), ("SESSIONS", Right)]);
        for application in listed {
            columns.row([application.application, grouped(application.sessions)]);
        }
        columns.flush(output)?;
    }
    Ok(())
}
