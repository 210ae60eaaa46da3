//! Prefixes of virtual Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// Maximum length of a prefix in bytes. The addresses of sites differ in the remaining bytes.
const MAX_LENGTH: usize = 3;

/// The first one to three bytes of locally administered unicast addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MacPrefix(Vec<u8>);

impl MacPrefix {
    /// Bytes of the prefix in network byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for MacPrefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let byte = |part: &str| {
            let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(part, 16).ok().filter(|_| digits)
        };
        let bytes: Option<Vec<_>> = text.split([':', '-']).map(byte).collect();
        let bytes = bytes.filter(|bytes| bytes.len() <= MAX_LENGTH);
        match bytes.as_deref() {
            None | Some([]) => Err(ValueError::MacPrefix(text.into())),
            Some([first, ..]) if first & 0b11 != 0b10 => Err(ValueError::MacPrefixNotLocal(text.into())),
            Some(bytes) => Ok(Self(bytes.to_vec())),
        }
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, byte) in self.0.iter().enumerate() {
            let separator = if k == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

written_as_text!(
    MacPrefix,
    "the first bytes of Ethernet addresses such as \"02\" or \"02:5e:10\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_read_is_written_the_same() {
        for text in ["02", "fe:ff", "02:5e:10"] {
            assert_eq!(
                Ok(text.to_owned()),
                text.parse().map(|prefix: MacPrefix| prefix.to_string())
            );
        }
        let prefix: MacPrefix = "06-AB".parse().expect("a prefix");
        assert_eq!([0x06, 0xab], prefix.bytes());
    }

    #[test]
    fn prefix_too_long_or_of_other_addresses_is_refused() {
        for text in ["", "2", "02:", "02:00:00:00", "0x", "+2", "02.00"] {
            assert_eq!(Err(ValueError::MacPrefix(text.into())), text.parse::<MacPrefix>());
        }
        for text in ["03", "00:16:3e", "01:00:5e"] {
            assert_eq!(
                Err(ValueError::MacPrefixNotLocal(text.into())),
                text.parse::<MacPrefix>()
            );
        }
    }
}
