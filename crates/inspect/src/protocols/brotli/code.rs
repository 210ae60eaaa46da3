//! Prefix codes (RFC 7932, section 3): reads their descriptions and builds the decoding tables.

use super::Stop;
use super::bits::{ROOT, Reader};

/// Number of symbols of the largest alphabet.
pub const ALPHABET: usize = 704;
/// A table has one entry per symbol and at most this many further entries: the 256 of the root table, and the unused ones
/// of second-level tables.
pub const EXTRA_ENTRIES: usize = 376;

const CODE_LENGTHS: usize = 18;
const ORDER: [u8; CODE_LENGTHS] = [1, 2, 3, 4, 0, 5, 17, 6, 16, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Decoding table of the code of code lengths, indexed by the next four bits. An entry contains the length and the
/// number of bits that encode the length.
const LENGTHS: [u16; 16] = {
    const VALUES: [u16; 16] = [0, 4, 3, 2, 0, 4, 3, 1, 0, 4, 3, 2, 0, 4, 3, 5];
    const BITS: [u16; 16] = [2, 2, 2, 3, 2, 2, 2, 4, 2, 2, 2, 3, 2, 2, 2, 4];
    let (mut table, mut at) = ([0; 16], 0);
    while at < 16 {
        table[at] = VALUES[at] << 4 | BITS[at];
        at += 1;
    }
    table
};
/// Number of bits of the longest code of a code length.
const SHORT_ROOT: u32 = 5;
const REPEAT_LAST: u32 = 16;
/// Total code space for codes of up to 15 bits.
const FULL_CODE_SPACE: i32 = 1 << 15;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Kind,
    /// Reading the nth length of the code of code lengths.
    Lengths {
        at: usize,
        codes: u32,
        space: i32,
    },
    /// Reading the length of the nth symbol.
    Symbols {
        at: usize,
        space: i32,
        last: u8,
        repeated: u8,
        repeat: usize,
    },
}

/// Reads the descriptions of prefix codes, one at a time.
#[derive(Debug)]
pub struct Code {
    stage: Stage,
    lengths: [u8; ALPHABET],
    code_lengths: [u8; CODE_LENGTHS],
    table: [u16; 1 << SHORT_ROOT],
}

impl Code {
    /// Creates a reader before the first code.
    pub fn new() -> Self {
        Self {
            stage: Stage::Kind,
            lengths: [0; ALPHABET],
            code_lengths: [0; CODE_LENGTHS],
            table: [0; 1 << SHORT_ROOT],
        }
    }

    /// Discards a code that was not read completely.
    pub fn reset(&mut self) {
        self.stage = Stage::Kind;
    }

    /// Reads a code of `alphabet` symbols into a table with [`EXTRA_ENTRIES`] additional entries. Returns the number of
    /// used entries.
    pub fn read(&mut self, reader: &mut Reader<'_>, alphabet: usize, table: &mut [u16]) -> Result<usize, Stop> {
        loop {
            match self.stage {
                Stage::Kind => match reader.peek(0, 2)? {
                    1 => return simple(reader, alphabet, table),
                    skipped => {
                        reader.skip(2);
                        self.code_lengths.fill(0);
                        self.stage = Stage::Lengths {
                            at: skipped as usize,
                            codes: 0,
                            space: 32,
                        };
                    }
                },
                Stage::Lengths { at, codes, space } if at < CODE_LENGTHS && space > 0 => {
                    let (length, bits) = reader.short(0, &LENGTHS)?;
                    reader.skip(bits);
                    self.code_lengths[usize::from(ORDER[at])] = length as u8;
                    let (codes, space) = match length {
                        0 => (codes, space),
                        _ => (codes + 1, space - (32 >> length)),
                    };
                    self.stage = Stage::Lengths {
                        at: at + 1,
                        codes,
                        space,
                    };
                }
                Stage::Lengths { codes, space, .. } => {
                    if codes != 1 && space != 0 {
                        return Err(Stop::Broken);
                    }
                    build(&mut self.table, &self.code_lengths, SHORT_ROOT);
                    self.lengths[..alphabet].fill(0);
                    self.stage = Stage::Symbols {
                        at: 0,
                        space: FULL_CODE_SPACE,
                        last: 8,
                        repeated: 0,
                        repeat: 0,
                    };
                }
                // Like other decoders, this decoder continues to read if the description has more lengths than the code
                // space allows.
                Stage::Symbols { at, space, .. } if at < alphabet && space != 0 => self.length(reader, alphabet)?,
                Stage::Symbols { space, .. } => {
                    if space != 0 {
                        return Err(Stop::Broken);
                    }
                    self.stage = Stage::Kind;
                    return Ok(build(table, &self.lengths[..alphabet], ROOT));
                }
            }
        }
    }

    /// Reads one length, or several equal lengths (section 3.5).
    fn length(&mut self, reader: &mut Reader<'_>, alphabet: usize) -> Result<(), Stop> {
        let Stage::Symbols {
            at,
            space,
            last,
            repeated,
            repeat,
        } = &mut self.stage
        else {
            return Ok(());
        };
        let (symbol, bits) = reader.short(0, &self.table)?;
        if symbol < REPEAT_LAST {
            reader.skip(bits);
            let length = symbol as u8;
            self.lengths[*at] = length;
            *repeat = 0;
            *at += 1;
            if length > 0 {
                *last = length;
                *space -= FULL_CODE_SPACE >> length;
            }
            return Ok(());
        }
        let (extra, length) = match symbol {
            REPEAT_LAST => (2, *last),
            _ => (3, 0),
        };
        let more = reader.peek(bits, extra)? as usize + 3;
        reader.skip(bits + extra);
        if *repeated != length {
            (*repeated, *repeat) = (length, 0);
        }
        // A repetition code after another repetition code multiplies its count.
        let before = *repeat;
        if before > 0 {
            *repeat = (before - 2) << extra;
        }
        *repeat += more;
        let more = *repeat - before;
        let Some(lengths) = self.lengths[..alphabet].get_mut(*at..*at + more) else {
            return Err(Stop::Broken);
        };
        lengths.fill(length);
        *at += more;
        if length > 0 {
            *space -= (more as i32) << (15 - length);
        }
        Ok(())
    }
}

/// Reads a simple code: up to four explicit symbols (section 3.4).
fn simple(reader: &mut Reader<'_>, alphabet: usize, table: &mut [u16]) -> Result<usize, Stop> {
    let count = reader.peek(2, 2)? as usize + 1;
    let width = usize::BITS - (alphabet - 1).leading_zeros();
    let (mut symbols, mut used) = ([0u16; 4], 4);
    let symbols = &mut symbols[..count];
    for symbol in symbols.iter_mut() {
        *symbol = reader.peek(used, width)? as u16;
        used += width;
        if usize::from(*symbol) >= alphabet {
            return Err(Stop::Broken);
        }
    }
    if (1..count).any(|at| symbols[..at].contains(&symbols[at])) {
        return Err(Stop::Broken);
    }
    let skewed = count == 4 && reader.peek(used, 1)? == 1;
    reader.skip(used + u32::from(count == 4));
    // Symbols of equal length are sorted. The pattern of codes repeats every two or three bits.
    let lengths: &[u16] = match count {
        1 => &[0],
        2 => &[1, 1],
        3 => &[1, 2, 2],
        _ if skewed => &[1, 2, 3, 3],
        _ => &[2, 2, 2, 2],
    };
    let sorted = lengths.partition_point(|&length| length < lengths[count - 1]);
    symbols[sorted..].sort_unstable();
    let entry = |at: usize| symbols[at] << 4 | lengths[at];
    let pattern: [usize; 8] = match count {
        1 => [0; 8],
        2 => [0, 1, 0, 1, 0, 1, 0, 1],
        3 => [0, 1, 0, 2, 0, 1, 0, 2],
        _ if skewed => [0, 1, 0, 2, 0, 1, 0, 3],
        _ => [0, 2, 1, 3, 0, 2, 1, 3],
    };
    let pattern = pattern.map(entry);
    let table = &mut table[..1 << ROOT];
    table.as_chunks_mut().0.iter_mut().for_each(|part| *part = pattern);
    Ok(table.len())
}

/// Builds the table of a complete code, or of a code with a single symbol, which takes no bits. The table is indexed by
/// the next `root` bits. An entry has a symbol in its high 12 bits and the number of code bits in its low 4 bits. If
/// that number is greater than `root`, the high bits are the offset of a second-level table, which is indexed by the
/// remaining bits. Returns the number of entries.
fn build(table: &mut [u16], lengths: &[u8], root: u32) -> usize {
    let mut counts = [0u16; 16];
    lengths.iter().for_each(|&length| counts[usize::from(length)] += 1);
    counts[0] = 0;
    let (mut next, mut total) = ([0; 16], 0);
    for (next, count) in next.iter_mut().zip(counts) {
        (*next, total) = (total, total + usize::from(count));
    }
    let mut sorted = [0u16; ALPHABET];
    for (symbol, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let next = &mut next[usize::from(length)];
        sorted[*next] = symbol as u16;
        *next += 1;
    }
    let mut size = 1 << root;
    if total == 1 {
        table[..size].fill(sorted[0] << 4);
        return size;
    }
    let (mut code, mut length) = (0u32, 0);
    let (mut prefix, mut start, mut bits) = (None, 0, 0);
    for &symbol in &sorted[..total] {
        while counts[length as usize] == 0 {
            length += 1;
            code <<= 1;
        }
        let reversed = code.reverse_bits() >> (32 - length);
        if length <= root {
            let entry = symbol << 4 | length as u16;
            let all = table[reversed as usize..1 << root].iter_mut();
            all.step_by(1 << length).for_each(|of| *of = entry);
        } else {
            let low = reversed & ((1 << root) - 1);
            if prefix != Some(low) {
                prefix = Some(low);
                bits = length - root;
                let mut remaining = 1i32 << bits;
                while root + bits < 15 {
                    remaining -= i32::from(counts[(root + bits) as usize]);
                    if remaining <= 0 {
                        break;
                    }
                    bits += 1;
                    remaining <<= 1;
                }
                start = size;
                size += 1 << bits;
                table[low as usize] = (start as u16) << 4 | (root + bits) as u16;
            }
            let entry = symbol << 4 | (length - root) as u16;
            let all = table[start + (reversed >> root) as usize..start + (1 << bits)].iter_mut();
            all.step_by(1 << (length - root)).for_each(|of| *of = entry);
        }
        counts[length as usize] -= 1;
        code += 1;
    }
    size
}
