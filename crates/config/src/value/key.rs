//! Keys of 128 bits.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// A key, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    /// A key from a number.
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The two halves of the key, the upper one first.
    pub const fn words(self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }
}

impl FromStr for Key {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        number.map(Self).ok_or(ValueError::Key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Key {
    /// The digits are not printed, because the output may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

written_as_text!(Key, "a key of 32 hexadecimal digits");
