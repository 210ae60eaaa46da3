//! Prints the result of an import as a configuration file.

use std::fmt::Write;

use toml::{Table, Value};

use super::{Imported, Leftover};
use crate::schema::{Filter, Interface, Nat, Pool, Router};

impl Imported {
    /// The configuration without default values. Comments before the configuration list the lines that were not
    /// converted.
    ///
    /// # Errors
    /// Returns the errors of the serialiser.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        let whole = Table::try_from(&self.document)?;
        let mut kept = Table::new();
        for (key, value) in whole {
            let Value::Table(mut table) = value else { continue };
            match key.as_str() {
                "interfaces" => each(&mut table, &Table::try_from(Interface::default())?, &["device"]),
                "routers" => each(&mut table, &Table::try_from(Router::default())?, &["daemon"]),
                "nat" => nat(&mut table)?,
                "filter" => prune(
                    &mut table,
                    &Table::try_from(Filter::default())?,
                    &["default", "sessions"],
                ),
                _ => continue,
            }
            if !table.is_empty() {
                kept.insert(key, Value::Table(table));
            }
        }
        Ok(self.head() + &toml::to_string(&kept)?)
    }

    fn head(&self) -> String {
        let mut head = String::new();
        for remark in &self.remarks {
            let _ = writeln!(head, "# {}", printable(remark));
        }
        listed(&mut head, "Not converted:", &self.leftovers);
        listed(&mut head, "Converted to another form:", &self.notes);
        if !head.is_empty() {
            head.push('\n');
        }
        head
    }
}

impl Leftover {
    /// Position in the listing: file and line, or file and rule.
    pub fn at(&self) -> String {
        match (&self.line, &self.place) {
            (Some(line), _) => format!("{}:{line}", self.file),
            (None, Some(place)) => format!("{}: {place}", self.file),
            (None, None) => self.file.clone(),
        }
    }
}

fn listed(head: &mut String, title: &str, leftovers: &[Leftover]) {
    if leftovers.is_empty() {
        return;
    }
    let _ = writeln!(head, "# {title}");
    for leftover in leftovers {
        let (at, text, reason) = (leftover.at(), printable(&leftover.text), printable(&leftover.reason));
        let _ = writeln!(head, "#   {}: {text}\n#     {reason}", printable(&at));
    }
}

/// Convert a text so that it fits on a single comment line.
fn printable(text: &str) -> String {
    crate::text::escaped(text).into_owned()
}

fn nat(table: &mut Table) -> Result<(), toml::ser::Error> {
    if let Some(Value::Table(pools)) = table.get_mut("pools") {
        each(pools, &Table::try_from(Pool::of(Vec::new()))?, &["addresses"]);
    }
    prune(table, &Table::try_from(Nat::default())?, &[]);
    Ok(())
}

fn each(tables: &mut Table, default: &Table, kept: &[&str]) {
    for (_, value) in tables.iter_mut() {
        if let Value::Table(table) = value {
            prune(table, default, kept);
        }
    }
}

/// Remove values that equal the default, except the values of the keys in `kept`.
fn prune(table: &mut Table, default: &Table, kept: &[&str]) {
    table.retain(|key, value| kept.contains(&key) || default.get(key) != Some(value));
}
