//! `sluice set`: elements that come to sets of the filter, and go.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use sluice_daemon::config::api::{Set, SetAnswer, SetRequest, Sets, path};
use sluice_daemon::config::schema::SetType;
use sluice_daemon::config::value::SetElement;

use crate::arguments::SetEdit;
use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

use Align::{Left, Right};

/// Change or list sets.
///
/// # Errors
/// There is no such set, it is full, or the daemon does not answer.
pub fn edit(socket: &Path, edit: &SetEdit, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut client = Client::connect(socket)?;
    let request = |name: &str, elements: &[SetElement]| SetRequest {
        name: name.to_owned(),
        elements: elements.to_vec(),
        timeout: None,
    };
    let (answer, done, json): (SetAnswer, _, _) = match edit {
        SetEdit::List { filter, json } => {
            let sets: Sets = client.ask(path::SETS, filter)?;
            return list(&sets, filter.name.is_some(), *json, output);
        }
        SetEdit::Add {
            name,
            elements,
            timeout,
            json,
        } => {
            let request = SetRequest {
                timeout: *timeout,
                ..request(name, elements)
            };
            (client.post(path::ADD_TO_SET, &request)?, "added", json)
        }
        SetEdit::Remove { name, elements, json } => {
            let request = request(name, elements);
            (client.post(path::REMOVE_FROM_SET, &request)?, "removed", json)
        }
        SetEdit::Flush { name, json } => (client.post(path::FLUSH_SET, &request(name, &[]))?, "removed", json),
    };
    if *json {
        return write_json(&answer, output);
    }
    let (changed, count) = (grouped(answer.changed), grouped(answer.count));
    Ok(writeln!(output, "{changed} {done}, {count} elements in all")?)
}

fn write_json(what: &impl Serialize, output: &mut dyn Write) -> Result<(), CommandError> {
    serde_json::to_writer_pretty(&mut *output, what).map_err(std::io::Error::from)?;
    Ok(writeln!(output)?)
}

fn list(sets: &Sets, is_one: bool, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    if json {
        return write_json(sets, output);
    }
    match sets.sets.as_slice() {
        [one] if is_one => elements(one, output),
        sets => overview(sets, output),
    }
}

fn overview(sets: &[Set], output: &mut dyn Write) -> Result<(), CommandError> {
    let mut columns = Columns::new(&[
        ("NAME", Left),
        ("TYPE", Left),
        ("ELEMENTS", Right),
        ("SIZE", Right),
        ("TIMEOUT", Right),
        ("NOT ADDED", Right),
    ]);
    for set in sets {
        columns.row([
            set.name.clone(),
            type_of(set.kind).into(),
            grouped(set.count),
            grouped(set.size),
            set.timeout.map_or("-".into(), |timeout| timeout.to_string()),
            grouped(set.not_added),
        ]);
    }
    Ok(columns.flush(output)?)
}

fn type_of(kind: SetType) -> &'static str {
    match kind {
        SetType::Addresses => "addresses",
        SetType::Networks => "networks",
        SetType::Ports => "ports",
    }
}

fn heading(kind: SetType) -> &'static str {
    match kind {
        SetType::Addresses => "ADDRESS",
        SetType::Networks => "NETWORK",
        SetType::Ports => "PORTS",
    }
}

fn elements(set: &Set, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut columns = Columns::new(&[(heading(set.kind), Left), ("EXPIRES", Right)]);
    for element in &set.elements {
        columns.row([
            element.element.to_string(),
            element.expires.map_or("-".into(), |seconds| format!("{seconds} s")),
        ]);
    }
    Ok(columns.flush(output)?)
}
