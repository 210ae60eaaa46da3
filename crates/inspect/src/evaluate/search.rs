//! Search for bytes in data.

use arrayvec::ArrayVec;
use memchr::{memchr2, memmem};

/// Bytes to search for, prepared once.
#[derive(Debug)]
pub struct Needle(Kind);

#[derive(Debug)]
enum Kind {
    Exact(Box<memmem::Finder<'static>>),
    /// ASCII letters match in either case. The byte at offset `by` selects candidate positions.
    Caseless {
        bytes: Box<[u8]>,
        by: usize,
    },
}

/// Number of skipped bytes charged as one unit of work.
const SCANNED_PER_UNIT: usize = 32;
/// Units of work charged for a compared position.
const COMPARE_COST: u32 = 4;

impl Needle {
    pub fn new(bytes: &[u8], nocase: bool) -> Self {
        if !nocase {
            return Self(Kind::Exact(Box::new(memmem::Finder::new(bytes).into_owned())));
        }
        // Prefer a byte other than a letter or a common separator, because such a byte is rarer in data.
        let by = bytes
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b' ' | 0 | b'/' | b'.' | b'='))
            .unwrap_or(0);
        Self(Kind::Caseless {
            bytes: bytes.into(),
            by,
        })
    }

    /// First position of the bytes in `haystack`, and the units of work that the search took.
    pub fn find(&self, haystack: &[u8]) -> (Option<usize>, u32) {
        match &self.0 {
            Kind::Exact(finder) => {
                let found = finder.find(haystack);
                (found, (found.unwrap_or(haystack.len()) / SCANNED_PER_UNIT) as u32)
            }
            Kind::Caseless { bytes, by } => caseless(bytes, *by, haystack),
        }
    }
}

fn caseless(needle: &[u8], by: usize, haystack: &[u8]) -> (Option<usize>, u32) {
    let Some(last) = haystack.len().checked_sub(needle.len()) else {
        return (None, 0);
    };
    let Some(&byte) = needle.get(by) else {
        return (Some(0), 0);
    };
    let (low, high) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
    let (mut start, mut units) = (0, 0);
    while start <= last
        && let Some(found) = memchr2(low, high, &haystack[start + by..=last + by])
    {
        let place = start + found;
        units += COMPARE_COST + (found / SCANNED_PER_UNIT) as u32;
        if haystack[place..place + needle.len()].eq_ignore_ascii_case(needle) {
            return (Some(place), units);
        }
        start = place + 1;
    }
    (
        None,
        units + ((last + 1).saturating_sub(start) / SCANNED_PER_UNIT) as u32,
    )
}

/// Decodes Base64 (RFC 4648) up to padding, an invalid byte, or the capacity of `into`. Line ends are skipped.
pub fn decode_base64<const N: usize>(text: &[u8], into: &mut ArrayVec<u8, N>) {
    into.clear();
    let (mut bits, mut held) = (0u32, 0);
    for &byte in text {
        let v6 = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'\r' | b'\n' => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(v6);
        held += 6;
        if held >= 8 {
            held -= 8;
            if into.try_push((bits >> held) as u8).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(haystack: &[u8], needle: &[u8], nocase: bool) -> Option<usize> {
        Needle::new(needle, nocase).find(haystack).0
    }

    #[test]
    fn each_place_that_is_compared_and_each_byte_that_is_passed_over_is_work() {
        let units = |haystack: &[u8], nocase| Needle::new(b"ab", nocase).find(haystack).1;
        for nocase in [false, true] {
            assert_eq!(0, units(b"ab", nocase) / COMPARE_COST / 2);
            assert!((20..=25).contains(&units(&[b'z'; 800], nocase)), "{nocase}");
        }
        assert!(units(&[b'A'; 800], true) >= 799 * COMPARE_COST);
    }

    #[test]
    fn either_case_is_found_at_the_first_place() {
        assert_eq!(Some(2), find(b"xxUnIoN+select", b"union+SELECT", true));
        assert_eq!(None, find(b"xxUnIoN+select", b"union+SELECT", false));
        assert_eq!(Some(0), find(b"ab", b"AB", true));
        assert_eq!(None, find(b"a", b"ab", true));
        assert_eq!(
            (Some(1), None),
            (find(b"xab", b"ab", false), find(b"xAb", b"ab", false))
        );
        assert_eq!(Some(3), find(b"aab/aab", b"/AAB", true));
    }

    #[test]
    fn base64_ends_at_padding_and_foreign_bytes() {
        let mut into = ArrayVec::<u8, 8>::new();
        decode_base64(b"aGVsbG8=tail", &mut into);
        assert_eq!(b"hello", into.as_slice());
        decode_base64(b"aGVs\r\nbG8gd29ybGQgYW5k", &mut into);
        assert_eq!(b"hello wo", into.as_slice());
    }
}
