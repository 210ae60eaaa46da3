//! Reads numbers from the inspected data.

use super::{BufferSource, Cursor, Evaluator, RuleResult};
use crate::signature::{ByteTest, Comparison, NumberField, NumberFormat};

impl Evaluator {
    /// Reads a number. Returns the number and the end offset of its bytes.
    pub(super) fn read(
        &self,
        number: &NumberField,
        at: Cursor,
        buffers: &impl BufferSource,
    ) -> Result<(i64, i64), RuleResult> {
        let decoded;
        let view = match number.buffer {
            crate::signature::Buffer::Base64 => {
                decoded = self.decoded.clone();
                super::BufferView {
                    bytes: &decoded,
                    base: 0,
                    complete: true,
                    is_final: true,
                }
            }
            buffer => buffers.view(buffer).ok_or(RuleResult::NoMatch)?,
        };
        let from = if number.relative { at.on(number.buffer) } else { 0 };
        let begin = from.saturating_add(self.value(number.offset));
        let end = begin.saturating_add(i64::from(number.count));
        if begin < view.begin() {
            return Err(RuleResult::NoMatch);
        }
        if end > view.end() {
            return Err(RuleResult::or_incomplete(!view.complete));
        }
        let bytes = view.slice(begin, end);
        let (value, length) = match number.form {
            NumberFormat::Big => (
                bytes.iter().fold(0u64, |all, &byte| all << 8 | u64::from(byte)),
                bytes.len(),
            ),
            NumberFormat::Little => (
                bytes.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte)),
                bytes.len(),
            ),
            NumberFormat::Text(base) => text(bytes, base).ok_or(RuleResult::NoMatch)?,
        };
        let value = match number.mask {
            Some(mask) => (value & u64::from(mask)) >> mask.trailing_zeros().min(63),
            None => value,
        };
        Ok((value.min(i64::MAX as u64) as i64, begin + length as i64))
    }

    pub(super) fn compare(&self, test: &ByteTest, at: Cursor, buffers: &impl BufferSource) -> RuleResult {
        let (number, _) = match self.read(&test.number, at, buffers) {
            Ok(read) => read,
            Err(answer) => return answer,
        };
        let value = self.value(test.value);
        let holds = match test.comparison {
            Comparison::Less => number < value,
            Comparison::LessOrEqual => number <= value,
            Comparison::Equal => number == value,
            Comparison::GreaterOrEqual => number >= value,
            Comparison::Greater => number > value,
            Comparison::And => number & value != 0,
            Comparison::Xor => number ^ value != 0,
        };
        if holds != test.negated {
            RuleResult::Match
        } else {
            RuleResult::NoMatch
        }
    }
}

/// Parses digits. Returns the number, and its length in bytes including leading blanks and `0x`.
fn text(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let blanks = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut digits = &bytes[blanks..];
    if base == 16 && digits.len() > 2 && digits[..2].eq_ignore_ascii_case(b"0x") {
        digits = &digits[2..];
    }
    let (mut value, mut count) = (0u64, 0);
    for digit in digits.iter().map_while(|&byte| char::from(byte).to_digit(base)) {
        value = value.saturating_mul(u64::from(base)).saturating_add(u64::from(digit));
        count += 1;
    }
    (count > 0).then_some((value, bytes.len() - digits.len() + count))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn text_is_read_up_to_the_first_foreign_byte() {
        assert_eq!(Some((123, 4)), text(b" 123 4", 10));
        assert_eq!(Some((0x1f, 4)), text(b"0x1fg", 16));
        assert_eq!(Some((7, 1)), text(b"78", 8));
        assert_eq!(None, text(b"x1", 10));
        assert_eq!(Some((u64::MAX, 21)), text(b"999999999999999999999", 10));
    }
}
