//! Numbers and ranges of numbers.

use std::ops::RangeInclusive;

use super::{Dialect, RuleError};

/// Parses an unsigned number such as `10` or `0x0a`.
pub(super) fn unsigned(text: &str) -> Result<u64, RuleError> {
    let text = text.trim();
    let (digits, base) = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .map_or((text, 10), |digits| (digits, 16));
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(RuleError::NotANumber(text.into()));
    }
    u64::from_str_radix(digits, base).map_err(|_| RuleError::OutOfRange(text.into()))
}

/// A signed number.
pub(super) fn signed(text: &str) -> Result<i64, RuleError> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = i64::try_from(unsigned(digits).map_err(|fault| match fault {
        RuleError::NotANumber(_) => RuleError::NotANumber(text.into()),
        fault => fault,
    })?);
    number
        .map(|number| if negative { -number } else { number })
        .map_err(|_| RuleError::OutOfRange(text.into()))
}

/// A number that fits its field.
pub(super) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, RuleError> {
    unsigned(text)?
        .try_into()
        .map_err(|_| RuleError::OutOfRange(text.into()))
}

/// Meaning of `<>` between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// The range includes both limits.
    Inclusive,
    /// The range excludes both limits.
    Exclusive,
}

impl Between {
    /// Default meaning of `<>` in a dialect.
    pub fn of(dialect: Dialect) -> Between {
        match dialect {
            Dialect::Snort2 => Between::Inclusive,
            Dialect::Suricata | Dialect::Snort3 => Between::Exclusive,
        }
    }
}

/// Range of values that a field must have or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    text: Box<str>,
    range: RangeInclusive<u64>,
    negated: bool,
}

/// `5`, `!5`, `=5`, `<5`, `>=5`, `2<>5`; `2<=>5` of Snort 3; `2-5`, `-5` and `2-` of Snort 2 and Suricata.
pub(super) fn values(text: &str, dialect: Dialect, between: Between, max: u64) -> Result<Values, RuleError> {
    let impossible = || RuleError::OutOfRange(text.into());
    let (negated, plain) = match text.trim().strip_prefix('!') {
        Some(rest) => (true, rest.strip_prefix('=').unwrap_or(rest).trim()),
        None => (false, text.trim()),
    };
    let exclusive = |first: u64, last: u64| {
        let last = last.checked_sub(1).ok_or_else(impossible)?;
        Ok::<_, RuleError>((first.checked_add(1).ok_or_else(impossible)?, last))
    };
    let (first, last) = if let Some((first, last)) = plain.split_once("<=>").filter(|_| dialect == Dialect::Snort3) {
        (unsigned(first)?, unsigned(last)?)
    } else if let Some((first, last)) = plain.split_once("<>") {
        match between {
            Between::Inclusive => (unsigned(first)?, unsigned(last)?),
            Between::Exclusive => exclusive(unsigned(first)?, unsigned(last)?)?,
        }
    } else if let Some((first, last)) = plain.split_once('-').filter(|_| dialect != Dialect::Snort3) {
        let first_number = if first.trim().is_empty() { 0 } else { unsigned(first)? };
        let last_number = if last.trim().is_empty() { max } else { unsigned(last)? };
        match dialect {
            Dialect::Suricata if first.trim().is_empty() || last.trim().is_empty() => {
                return Err(RuleError::NotARange(text.into()));
            }
            Dialect::Suricata => exclusive(first_number, last_number)?,
            _ => (first_number, last_number),
        }
    } else if let Some(last) = plain.strip_prefix("<=") {
        (0, unsigned(last)?)
    } else if let Some(first) = plain.strip_prefix(">=") {
        (unsigned(first)?, max)
    } else if let Some(last) = plain.strip_prefix('<') {
        (0, unsigned(last)?.checked_sub(1).ok_or_else(impossible)?)
    } else if let Some(first) = plain.strip_prefix('>') {
        (unsigned(first)?.checked_add(1).ok_or_else(impossible)?, max)
    } else {
        let one = unsigned(plain.strip_prefix('=').unwrap_or(plain))?;
        if one > max {
            return Err(impossible());
        }
        (one, one)
    };
    if first > last || first > max {
        return Err(impossible());
    }
    Ok(Values {
        text: text.into(),
        range: first..=last.min(max),
        negated,
    })
}

impl Values {
    /// The range, and whether it is negated.
    pub fn negatable<T: TryFrom<u64>>(self) -> Result<(RangeInclusive<T>, bool), RuleError> {
        let narrow = |value: u64| T::try_from(value).map_err(|_| RuleError::OutOfRange(self.text.clone()));
        Ok((narrow(*self.range.start())?..=narrow(*self.range.end())?, self.negated))
    }

    /// The range without negation, if the negation can be expressed by another range.
    pub fn plain<T: TryFrom<u64>>(mut self, max: u64) -> Result<RangeInclusive<T>, RuleError> {
        if self.negated {
            self.range = match (*self.range.start(), *self.range.end()) {
                (0, last) if last >= max => return Err(RuleError::NeverTrue),
                (0, last) => last + 1..=max,
                (first, last) if last >= max => 0..=first - 1,
                _ => return Err(RuleError::Gap(self.text)),
            };
        }
        Ok(self.negatable()?.0)
    }

    /// The single value of the range.
    pub fn one<T: TryFrom<u64>>(self) -> Result<T, RuleError> {
        if self.negated || self.range.start() != self.range.end() {
            return Err(RuleError::PartNotInspected(self.text));
        }
        let value = *self.range.start();
        T::try_from(value).map_err(|_| RuleError::OutOfRange(self.text))
    }
}
