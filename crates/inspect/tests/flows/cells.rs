//! Bytes of a buffer under construction, and numbers in the bytes.

use sluice_inspect::signature::{NumberField, NumberFormat};

/// Bytes of a buffer. `None` means that any byte is allowed.
#[derive(Clone, Debug)]
pub struct Cells {
    pub bytes: Vec<Option<u8>>,
    pub longest: usize,
}

impl Cells {
    /// Extends the buffer to at least this length.
    pub fn reach(&mut self, length: usize) -> Option<()> {
        if length > self.longest {
            return None;
        }
        self.bytes.resize(self.bytes.len().max(length), None);
        Some(())
    }

    pub fn lay(&mut self, at: usize, bytes: &[u8], nocase: bool) -> Option<()> {
        let bytes: Vec<Option<u8>> = bytes.iter().copied().map(Some).collect();
        self.lay_text(at, &bytes, nocase)
    }

    pub fn lay_text(&mut self, at: usize, bytes: &[Option<u8>], nocase: bool) -> Option<()> {
        if !self.takes(at, bytes, nocase) {
            return None;
        }
        self.reach(at + bytes.len())?;
        for (cell, &byte) in self.bytes[at..].iter_mut().zip(bytes) {
            *cell = cell.or(byte);
        }
        Some(())
    }

    pub fn takes(&self, at: usize, bytes: &[Option<u8>], nocase: bool) -> bool {
        let same = |one: u8, other: u8| one == other || nocase && one.eq_ignore_ascii_case(&other);
        at + bytes.len() <= self.longest
            && bytes.iter().enumerate().all(|(place, &byte)| {
                let there = self.bytes.get(at + place).copied().flatten();
                there.zip(byte).is_none_or(|(one, other)| same(one, other))
            })
    }

    /// Number of bytes in this range that are set.
    pub fn laid(&self, at: usize, count: usize) -> usize {
        (at..at + count)
            .filter(|&place| self.bytes.get(place).copied().flatten().is_some())
            .count()
    }

    pub fn ends_at(&mut self, end: usize) -> Option<()> {
        self.longest = self.longest.min(end);
        (self.bytes.len() <= self.longest).then_some(())?;
        self.reach(end)
    }
}

/// Value of the bytes, or `None` if the bytes are not a number.
pub fn read(number: &NumberField, bytes: &[u8]) -> Option<i64> {
    let all = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = match number.form {
        NumberFormat::Big => bytes.iter().fold(0, all),
        NumberFormat::Little => bytes.iter().rev().fold(0, all),
        NumberFormat::Text(base) => u64::from_str_radix(std::str::from_utf8(bytes).ok()?, base).ok()?,
    };
    let value = number
        .mask
        .map_or(value, |mask| (value & u64::from(mask)) >> mask.trailing_zeros());
    i64::try_from(value).ok()
}

/// Encodes a number. Returns `None` if the number is too large for its field.
pub fn written(number: &NumberField, value: i64) -> Option<Vec<u8>> {
    let value = u64::try_from(value).ok()? << number.mask.map_or(0, u32::trailing_zeros).min(31);
    let count = usize::from(number.count);
    let binary = value.to_be_bytes();
    let bytes = match number.form {
        NumberFormat::Text(8) => format!("{value:0count$o}").into_bytes(),
        NumberFormat::Text(16) => format!("{value:0count$x}").into_bytes(),
        NumberFormat::Text(_) => format!("{value:0count$}").into_bytes(),
        _ if count > 8 || count < 8 && value >> (8 * count) != 0 => return None,
        NumberFormat::Big => binary[8 - count..].to_vec(),
        NumberFormat::Little => binary[8 - count..].iter().rev().copied().collect(),
    };
    (bytes.len() == count).then_some(bytes)
}
