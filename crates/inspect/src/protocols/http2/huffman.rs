//! The Huffman code of HPACK (RFC 7541, appendix B). The code is canonical: codes of one length are consecutive in the
//! order of their symbols, and longer codes follow shorter codes. The lengths therefore determine the code.

/// Code length of each symbol in bits. The last symbol marks the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LONGEST: usize = 30;
const END: u16 = 256;

struct Code {
    /// Symbols ordered by code length, then by number.
    symbols: [u16; 257],
    /// For each code length, the first code and the index of its symbol.
    first: [u32; LONGEST + 1],
    place: [u16; LONGEST + 1],
    count: [u16; LONGEST + 1],
}

const CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        symbols: [0; 257],
        first: [0; LONGEST + 1],
        place: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
    };
    let (mut length, mut next, mut at) = (1, 0, 0);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.place[length] = at as u16;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[at] = symbol as u16;
                code.count[length] += 1;
                at += 1;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// Decodes a string. Returns false if the string is invalid. The padding must be shorter than a byte, and all ones (RFC
/// 7541, section 5.2).
pub(super) fn decode(bytes: &[u8], write: &mut impl FnMut(u8)) -> bool {
    let (mut value, mut length) = (0u32, 0);
    for &byte in bytes {
        for bit in (0..8).rev() {
            value = value << 1 | u32::from(byte >> bit & 1);
            length += 1;
            if length > LONGEST {
                return false;
            }
            let offset = value.wrapping_sub(CODE.first[length]);
            if offset < u32::from(CODE.count[length]) {
                match CODE.symbols[usize::from(CODE.place[length]) + offset as usize] {
                    END => return false,
                    symbol => write(symbol as u8),
                }
                (value, length) = (0, 0);
            }
        }
    }
    length < 8 && value == (1 << length) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Option<String> {
        let mut text = Vec::new();
        decode(bytes, &mut |byte| text.push(byte)).then(|| String::from_utf8(text).unwrap())
    }

    #[test]
    fn strings_of_the_document_are_decoded() {
        for (bytes, expected) in [
            (
                &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..],
                "www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (b"", ""),
        ] {
            assert_eq!(Some(expected), decoded(bytes).as_deref());
        }
    }

    #[test]
    fn padding_that_is_none_is_refused() {
        assert_eq!(None, decoded(b"\xff"));
        assert_eq!(None, decoded(b"\x00"));
        assert_eq!(None, decoded(b"\xff\xff\xff\xff\xff"));
    }
}
