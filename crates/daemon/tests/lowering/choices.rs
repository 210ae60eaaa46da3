//! Choices of a generated configuration.

use std::fmt::Display;

/// Random numbers that decide what a generated configuration contains. A number that is missing or 0 selects the first
/// or simplest alternative, so that failing cases shrink to short texts.
pub struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    pub fn new(numbers: Vec<u32>) -> Self {
        Self(numbers.into_iter())
    }

    /// A number below `count`, which must not be 0.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.next().unwrap_or(0) as usize % count
    }

    /// True in one of `count` cases.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) + 1 == count
    }

    pub fn of<'l>(&mut self, list: &[&'l str]) -> &'l str {
        list[self.below(list.len())]
    }

    /// In one of `count` cases, the line `key = value` with one of these values.
    pub fn line(&mut self, text: &mut String, count: usize, key: &str, values: &[&str]) {
        if self.one_in(count) {
            let value = self.of(values);
            *text += &format!("{key} = {value}\n");
        }
    }

    /// In one of `count` cases, the item `key = value` of an inline table, with one of these values.
    pub fn item(&mut self, items: &mut Vec<String>, count: usize, key: &str, values: &[&str]) {
        if self.one_in(count) {
            items.push(format!("{key} = {}", self.of(values)));
        }
    }
}

/// An inline table.
pub fn table(items: &[String]) -> String {
    format!("{{ {} }}", items.join(", "))
}

/// The line `key = [ … ]` with inline tables, if there are any.
pub fn list(key: impl Display, tables: &[String]) -> String {
    match tables {
        [] => String::new(),
        tables => format!("{key} = [\n  {},\n]\n", tables.join(",\n  ")),
    }
}
