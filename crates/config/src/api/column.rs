//! Columns of the tables that `sluice show` prints. The title and cell of each column are declared with the type of the
//! row.

use serde::Serialize;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// A column of a table with rows of type `T`.
#[derive(Debug)]
pub struct Column<T: 'static> {
    /// Heading.
    pub title: &'static str,
    /// Alignment.
    pub align: Align,
    /// Text of the cell for a row.
    pub cell: fn(&T) -> String,
}

impl<T> Column<T> {
    /// A column of text.
    pub const fn text(title: &'static str, cell: fn(&T) -> String) -> Self {
        let align = Align::Left;
        Self { title, align, cell }
    }

    /// A column of numbers.
    pub const fn number(title: &'static str, cell: fn(&T) -> String) -> Self {
        let align = Align::Right;
        Self { title, align, cell }
    }
}

/// A row of a table.
pub trait Row: Sized + 'static {
    /// Columns of the table, from left to right.
    const COLUMNS: &'static [Column<Self>];
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k != 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in seconds, formatted in its two largest units.
pub fn age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (unit, name) = UNITS[largest];
    let next = UNITS.get(largest + 1).map(|(next, name)| (seconds % unit / next, name));
    match next {
        Some((rest, next)) if rest > 0 => format!("{}{name} {rest}{next}", seconds / unit),
        _ => format!("{}{name}", seconds / unit),
    }
}

/// Name of a value in the notation of the configuration.
pub fn word<T: Serialize>(value: &T) -> String {
    let value = serde_json::to_value(value).ok();
    value
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
}

/// Text of a value, or `-` if the value is absent.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_grouped_has_a_comma_every_three_digits() {
        assert_eq!(
            ["0", "999", "1,000", "12,345,678"],
            [0, 999, 1_000, 12_345_678].map(grouped).each_ref()
        );
    }

    #[test]
    fn age_is_told_in_two_units() {
        assert_eq!(
            ["0s", "59s", "1m", "1m 1s", "2h 5m", "3d", "3d 1h"],
            [0, 59, 60, 61, 7_500, 259_200, 262_900].map(age).each_ref()
        );
    }
}
