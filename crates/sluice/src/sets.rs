//! `sluice set`: adds elements to sets of the filter, and removes them.

use std::io::Write;
use std::path::Path;

use sluice_daemon::config::api::{Set, SetAnswer, SetRequest, Sets, operation};
use sluice_daemon::config::schema::SetType;
use sluice_daemon::config::value::SetElement;

use crate::arguments::SetEdit;
use crate::client::Client;
use crate::columns::{Align, Columns, Table, grouped};
use crate::exit::CommandError;
use crate::show::pretty;

use Align::{Left, Right};

/// Change the elements of a set, or list sets.
///
/// # Errors
/// The set does not exist or is full, or the daemon does not answer.
pub fn edit(socket: &Path, edit: &SetEdit, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut client = Client::connect(socket)?;
    let request = |name: &str, elements: &[SetElement]| SetRequest {
        name: name.to_owned(),
        elements: elements.to_vec(),
        timeout: None,
    };
    let (answer, done, json): (SetAnswer, _, _) = match edit {
        SetEdit::List { filter, json } => {
            let sets = client.ask::<operation::Sets>(filter)?;
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
            (client.ask::<operation::AddToSet>(&request)?, "added", json)
        }
        SetEdit::Remove { name, elements, json } => {
            let request = request(name, elements);
            (client.ask::<operation::RemoveFromSet>(&request)?, "removed", json)
        }
        SetEdit::Flush { name, json } => (client.ask::<operation::FlushSet>(&request(name, &[]))?, "removed", json),
    };
    if *json {
        return pretty(&answer, output);
    }
    let (changed, count) = (grouped(answer.changed), grouped(answer.count));
    Ok(writeln!(output, "{changed} {done}, {count} elements in total")?)
}

fn list(sets: &Sets, is_one: bool, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    if json {
        return pretty(sets, output);
    }
    match sets.sets.as_slice() {
        [one] if is_one => elements(one, output),
        sets => Ok(Table::write(sets, output)?),
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
