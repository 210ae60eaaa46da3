//! Tables of RFC 7932: values of the symbols of block counts and commands (sections 5 and 6), and contexts of literals
//! (section 7.1).

/// A range of values that starts at `base`; `bits` extra bits select the value.
#[derive(Clone, Copy)]
pub struct Range {
    pub base: u32,
    pub bits: u32,
}

/// Contiguous ranges.
const fn ranges<const N: usize>(mut base: u32, bits: [u32; N]) -> [Range; N] {
    let (mut all, mut at) = ([Range { base: 0, bits: 0 }; N], 0);
    while at < N {
        all[at] = Range { base, bits: bits[at] };
        base += 1 << bits[at];
        at += 1;
    }
    all
}

pub const BLOCK_COUNTS: [Range; 26] = ranges(
    1,
    [
        2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 7, 8, 9, 10, 11, 12, 13, 24,
    ],
);

pub const INSERTS: [Range; 24] = ranges(
    0,
    [
        0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 12, 14, 24,
    ],
);

pub const COPIES: [Range; 24] = ranges(
    2,
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 24],
);

/// Command symbols below this number repeat the last distance.
pub const REPEATS: u32 = 128;

/// Ranges of the insert length and the copy length of a command symbol.
pub fn command(symbol: u32) -> (Range, Range) {
    const CELLS: [(u8, u8); 11] = [
        (0, 0),
        (0, 8),
        (0, 0),
        (0, 8),
        (8, 0),
        (8, 8),
        (0, 16),
        (16, 0),
        (8, 16),
        (16, 8),
        (16, 16),
    ];
    let (insert, copy) = CELLS[symbol as usize / 64];
    (
        INSERTS[usize::from(insert) + (symbol as usize >> 3 & 7)],
        COPIES[usize::from(copy) + (symbol as usize & 7)],
    )
}

/// Contributions of the last byte and of the byte before it to the context of a literal, for each context mode.
pub static CONTEXTS: [[[u8; 256]; 2]; 4] = {
    let (mut all, mut byte) = ([[[0; 256]; 2]; 4], 0);
    while byte < 256 {
        all[0][0][byte] = byte as u8 & 0x3f;
        all[1][0][byte] = byte as u8 >> 2;
        all[2][0][byte] = utf8_last(byte as u8);
        all[2][1][byte] = utf8_before(byte as u8);
        all[3][0][byte] = signed(byte as u8) << 3;
        all[3][1][byte] = signed(byte as u8);
        byte += 1;
    }
    all
};

const fn utf8_last(byte: u8) -> u8 {
    match byte {
        b'\t' | b'\n' | b'\r' => 4,
        0..b' ' | 0x7f => 0,
        b' ' => 8,
        b'"' => 16,
        b'%' => 20,
        b'\'' => 16,
        b'(' | b'<' | b'[' | b'{' => 24,
        b')' | b'>' | b']' | b'}' => 28,
        b',' | b':' | b';' => 32,
        b'.' => 36,
        b'=' => 40,
        b'0'..=b'9' => 44,
        b'A' | b'E' | b'I' | b'O' | b'U' => 48,
        b'B'..=b'Z' => 52,
        b'a' | b'e' | b'i' | b'o' | b'u' => 56,
        b'b'..=b'z' => 60,
        0x80..=0xbf => byte & 1,
        0xc0..=0xff => 2 + (byte & 1),
        _ => 12,
    }
}

const fn utf8_before(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' | b'A'..=b'Z' | 0xe0..=0xff => 2,
        b'a'..=b'z' => 3,
        b'!'..=b'~' => 1,
        _ => 0,
    }
}

const fn signed(byte: u8) -> u8 {
    match byte {
        0 => 0,
        1..=15 => 1,
        16..=63 => 2,
        64..=127 => 3,
        128..=191 => 4,
        192..=239 => 5,
        240..=254 => 6,
        255 => 7,
    }
}
