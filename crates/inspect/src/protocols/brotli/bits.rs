//! Bits of a stream that arrives in pieces: the first bit is the lowest one of its byte (RFC 7932 section 1.5.1).

use super::Stop;

/// Bits of the root of a table of [`super::code`].
pub const ROOT: u32 = 8;

/// Bits that were taken and not used yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bits {
    held: u64,
    count: u32,
}

/// Reads bits of a piece behind those that are held. A read that fails has taken all of the piece, and uses all that is held
/// once the rest has come: so what is made of the bytes up to one does not depend on how they are cut.
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
    /// At the begin of a piece.
    pub fn new(bits: Bits, input: &'a [u8]) -> Self {
        Self {
            held: bits.held,
            count: bits.count,
            input,
            at: 0,
        }
    }

    /// What is held at the end of the piece, and how many bytes of it were taken.
    pub fn suspend(self) -> (Bits, usize) {
        let Self { held, count, at, .. } = self;
        let held = held & mask(count);
        (Bits { held, count }, at)
    }

    /// Returns whole bytes to the piece.
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

    /// `bits` bits behind the next `skip`, which stay; 56 together at most.
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

    /// The next bits are used.
    #[inline]
    pub fn skip(&mut self, bits: u32) {
        self.held >>= bits;
        self.count -= bits;
    }

    /// The next bits.
    #[inline]
    pub fn read(&mut self, bits: u32) -> Result<u32, Stop> {
        let value = self.peek(0, bits)?;
        self.skip(bits);
        Ok(value)
    }

    /// The entry of a short table that the bits behind `skip` lead to, if all of its bits are there: its value and its bits.
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

    /// The symbol that the bits behind `skip` stand for by a table of [`super::code`], and its bits.
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

    /// The next symbol.
    #[inline]
    pub fn symbol(&mut self, table: &[u16]) -> Result<u32, Stop> {
        let (value, length) = self.peek_symbol(0, table)?;
        self.skip(length);
        Ok(value)
    }

    /// Skips to the begin of a byte; false where a bit on the way is set.
    pub fn align(&mut self) -> bool {
        let bits = self.count % 8;
        let clear = self.held & mask(bits) == 0;
        self.skip(bits);
        clear
    }

    /// Up to `most` of the bytes that follow, at the begin of a byte; none where the piece is at its end.
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
