//! Bit reader for a stream that arrives in segments. The first bit is the lowest bit of its byte (RFC 7932 section
//! 1.5.1).

use super::Stop;

/// Number of index bits of the root table of a code (see [`super::code`]).
pub const ROOT: u32 = 8;

/// Bits that were loaded from the input and are not consumed yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bits {
    held: u64,
    count: u32,
}

/// Reads the stored bits, and then the bits of a segment. A failed read loads the whole segment, and is repeated with
/// all stored bits when the next segment arrives. The output up to a given byte therefore does not depend on the
/// segmentation.
pub struct Reader<'a> {
    held: u64,
    count: u32,
    input: &'a [u8],
    at: usize,
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of a segment.
    pub fn new(bits: Bits, input: &'a [u8]) -> Self {
        Self {
            held: bits.held,
            count: bits.count,
            input,
            at: 0,
        }
    }

    /// Returns the stored bits at the end of the segment, and the number of loaded bytes of the segment.
    pub fn suspend(self) -> (Bits, usize) {
        let Self { held, count, at, .. } = self;
        let held = held & mask(count);
        (Bits { held, count }, at)
    }

    /// Gives whole bytes that were loaded but not consumed back to the segment.
    pub fn unload(&mut self) {
        let bytes = (self.count as usize / 8).min(self.at);
        self.at -= bytes;
        self.count -= 8 * bytes as u32;
        self.held &= mask(self.count);
    }

    fn fill(&mut self) {
        if let Some(word) = self.input.get(self.at..).and_then(|rest| rest.first_chunk()) {
            self.held |= u64::from_le_bytes(*word) << self.count;
            let bytes = (63 - self.count) / 8;
            self.at += bytes as usize;
            self.count += 8 * bytes;
            return;
        }
        self.held &= mask(self.count);
        while self.count < 56
            && let Some(&byte) = self.input.get(self.at)
        {
            self.held |= u64::from(byte) << self.count;
            self.count += 8;
            self.at += 1;
        }
    }

    /// Returns the `bits` bits after the next `skip` bits, without consuming them. `skip` and `bits` together are at most
    /// 56.
    #[inline]
    pub fn peek(&mut self, skip: u32, bits: u32) -> Result<u32, Stop> {
        if self.count < skip + bits {
            self.fill();
            if self.count < skip + bits {
                return Err(Stop::Input);
            }
        }
        Ok((self.held >> skip & mask(bits)) as u32)
    }

    /// Consumes bits.
    #[inline]
    pub fn skip(&mut self, bits: u32) {
        self.held >>= bits;
        self.count -= bits;
    }

    /// Reads bits.
    #[inline]
    pub fn read(&mut self, bits: u32) -> Result<u32, Stop> {
        let value = self.peek(0, bits)?;
        self.skip(bits);
        Ok(value)
    }

    /// Looks up the bits after `skip` in a short table, if enough bits are available. Returns the value of the entry and its
    /// number of bits.
    pub fn short<const N: usize>(&mut self, skip: u32, table: &[u16; N]) -> Result<(u32, u32), Stop> {
        const { assert!(N.is_power_of_two()) };
        if self.count < skip + N.ilog2() {
            self.fill();
        }
        let entry = u32::from(table[(self.held >> skip) as usize % N]);
        let (value, length) = (entry >> 4, entry & 15);
        if skip + length > self.count {
            return Err(Stop::Input);
        }
        Ok((value, length))
    }

    /// Looks up the bits after `skip` in a table of [`super::code`]. Returns the symbol and the length of its code in bits.
    #[inline]
    pub fn peek_symbol(&mut self, skip: u32, table: &[u16]) -> Result<(u32, u32), Stop> {
        if self.count < skip + 15 {
            self.fill();
        }
        let bits = self.held >> skip;
        let entry = u32::from(table[(bits & mask(ROOT)) as usize]);
        let (mut value, mut length) = (entry >> 4, entry & 15);
        if length > ROOT {
            if self.count < skip + ROOT {
                return Err(Stop::Input);
            }
            let index = value + (bits >> ROOT & mask(length - ROOT)) as u32;
            let entry = u32::from(table[index as usize]);
            (value, length) = (entry >> 4, ROOT + (entry & 15));
        }
        if skip + length > self.count {
            return Err(Stop::Input);
        }
        Ok((value, length))
    }

    /// Reads a symbol.
    #[inline]
    pub fn symbol(&mut self, table: &[u16]) -> Result<u32, Stop> {
        let (value, length) = self.peek_symbol(0, table)?;
        self.skip(length);
        Ok(value)
    }

    /// Skips to the next byte boundary; false if a skipped bit is set.
    pub fn align(&mut self) -> bool {
        let bits = self.count % 8;
        let clear = self.held & mask(bits) == 0;
        self.skip(bits);
        clear
    }

    /// Returns up to `max` of the following bytes, at a byte boundary. The result is empty at the end of the segment.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        self.unload();
        debug_assert_eq!(0, self.count, "what is held belongs to a read that was not over");
        let rest = &self.input[self.at..];
        let bytes = &rest[..rest.len().min(max)];
        self.at += bytes.len();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_across_pieces_and_what_was_not_needed_goes_back() {
        let bytes: Vec<u8> = (1..=40).collect();
        let mut bits = Bits::default();
        let (mut read, mut taken) = (Vec::new(), 0);
        for piece in bytes.chunks(3) {
            let mut reader = Reader::new(bits, piece);
            loop {
                match reader.read(20) {
                    Ok(value) => read.push(value),
                    Err(stop) => break assert_eq!(Stop::Input, stop),
                }
            }
            let (held, count) = reader.suspend();
            (bits, taken) = (held, taken + count);
        }
        let expected: Vec<u32> = bytes
            .chunks_exact(5)
            .flat_map(|five| {
                let all = five.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte));
                [all as u32 & 0xf_ffff, (all >> 20) as u32]
            })
            .collect();
        assert_eq!((expected, 40), (read, taken));
        let mut reader = Reader::new(Bits::default(), &bytes);
        assert_eq!(Ok(0x201), reader.read(12));
        reader.unload();
        assert_eq!(2, reader.suspend().1);
    }

    #[test]
    fn alignment_tells_a_bit_that_is_set() {
        for (byte, clear) in [(0b0000_0111, true), (0b0000_1111, false), (0b1000_0111, false)] {
            let mut reader = Reader::new(Bits::default(), std::slice::from_ref(&byte));
            assert_eq!(Ok(7), reader.read(3));
            assert_eq!(clear, reader.align());
        }
    }
}
