//! Bytes in bytes.

use arrayvec::ArrayVec;
use memchr::{memchr2, memmem};

/// Where `needle` first lies in `hay`; with `nocase`, ASCII letters in either case.
pub fn find(hay: &[u8], needle: &[u8], nocase: bool) -> Option<usize> {
    if !nocase {
        return memmem::find(hay, needle);
    }
    let last = hay.len().checked_sub(needle.len())?;
    // The byte that candidates are found by: rather no letter that is everywhere.
    let by = needle
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b' ' | 0 | b'/' | b'.' | b'='))
        .unwrap_or(0);
    let Some(&byte) = needle.get(by) else { return Some(0) };
    let mut start = 0;
    while start <= last {
        let found = memchr2(
            byte.to_ascii_lowercase(),
            byte.to_ascii_uppercase(),
            &hay[start + by..=last + by],
        )?;
        let place = start + found;
        if hay[place..place + needle.len()].eq_ignore_ascii_case(needle) {
            return Some(place);
        }
        start = place + 1;
    }
    None
}

/// Decode base64 (RFC 4648) as far as it goes: up to padding, a foreign byte, or as much as fits. Line ends are skipped.
pub fn decode_base64<const N: usize>(text: &[u8], into: &mut ArrayVec<u8, N>) {
    into.clear();
    let (mut bits, mut held) = (0u32, 0);
    for &byte in text {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'\r' | b'\n' => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(six);
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

    #[test]
    fn either_case_is_found_at_the_first_place() {
        assert_eq!(Some(2), find(b"xxUnIoN+select", b"union+SELECT", true));
        assert_eq!(None, find(b"xxUnIoN+select", b"union+SELECT", false));
        assert_eq!(Some(0), find(b"ab", b"AB", true));
        assert_eq!(None, find(b"a", b"ab", true));
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
