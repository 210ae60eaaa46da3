//! Headers of the stream and of its meta-blocks (RFC 7932 section 9).

use super::bits::Reader;
use super::code::{ALPHABET, EXTRA_ENTRIES};
use super::pages::WORDS;
use super::tables::{BLOCK_COUNTS, Range};
use super::{
    Blocks, Brotli, COMMAND, COMMANDS, COUNTS, DISTANCE_CONTEXTS, DISTANCES, Io, LITERAL_CONTEXTS, LITERALS, Pages,
    State, Stop,
};

/// Units of work for the inverse move-to-front transform of one context map entry.
const MOVE: u32 = 8;
/// Number of entries transformed at a time.
const MOVES: usize = 128;
/// Number of distance symbols that refer to recent distances.
pub const NEAR_DISTANCES: usize = 16;
/// Number of symbols of the largest distance alphabet.
pub const DISTANCE_ALPHABET: usize = NEAR_DISTANCES + (15 << 3) + (48 << 3);

/// Reads a count of 1 to 256 (section 9.2).
fn small_count(reader: &mut Reader<'_>) -> Result<usize, Stop> {
    if reader.peek(0, 1)? == 0 {
        reader.skip(1);
        return Ok(1);
    }
    let bits = reader.peek(1, 3)?;
    let more = reader.peek(4, bits)?;
    reader.skip(4 + bits);
    Ok((1 << bits) + more as usize + 1)
}

/// Returns the block count after `skip` bits, and the number of bits that `skip`, the count's symbol and its extra bits
/// take together.
pub fn block_count(reader: &mut Reader<'_>, skip: u32, code: &[u16]) -> Result<(u32, u32), Stop> {
    let (symbol, used) = reader.peek_symbol(skip, code)?;
    let Range { base, bits } = BLOCK_COUNTS[symbol as usize];
    let more = reader.peek(skip + used, bits)?;
    Ok((base + more, skip + used + bits))
}

impl Brotli {
    pub(super) fn window_bits(&mut self, reader: &mut Reader<'_>) -> Result<State, Stop> {
        let (bits, used) = match reader.peek(0, 1)? {
            0 => (16, 1),
            _ => match reader.peek(1, 3)? {
                0 => match reader.peek(4, 3)? {
                    0 => (17, 7),
                    // The window is larger than 16 MiB, which HTTP clients also reject.
                    1 => return Err(Stop::Broken),
                    more => (8 + more, 7),
                },
                more => (17 + more, 4),
            },
        };
        reader.skip(used);
        self.window = 1 << bits;
        Ok(State::MetaBlock)
    }

    pub(super) fn meta_block(&mut self, io: &mut Io<'_>) -> Result<State, Stop> {
        let reader = &mut io.reader;
        let last = reader.peek(0, 1)?;
        let mut at = 1 + last;
        if last == 1 && reader.peek(1, 1)? == 1 {
            reader.skip(at);
            self.last = true;
            return Ok(State::End);
        }
        let size = reader.peek(at, 2)?;
        at += 2;
        let (unit, units) = match size {
            3 => {
                if reader.peek(at, 1)? == 1 {
                    return Err(Stop::Broken);
                }
                at += 3;
                (8, reader.peek(at - 2, 2)?)
            }
            _ => (4, 4 + size),
        };
        let mut remaining = 0;
        for index in 0..units {
            let more = reader.peek(at, unit)?;
            // The most significant digit must not be 0 if a shorter form exists.
            if more == 0 && index + 1 == units && units > if size == 3 { 1 } else { 4 } {
                return Err(Stop::Broken);
            }
            remaining |= more << (unit * index);
            at += unit;
        }
        let uncompressed = size != 3 && last == 0 && reader.peek(at, 1)? == 1;
        if size != 3 && last == 0 {
            at += 1;
        }
        reader.skip(at);
        io.work += COMMAND;
        self.last = last == 1;
        self.remaining = remaining as usize + 1;
        if (size == 3 || uncompressed) && !reader.align() {
            return Err(Stop::Broken);
        }
        Ok(match size {
            3 => State::Metadata(if units == 0 { 0 } else { self.remaining }),
            _ if uncompressed => State::Uncompressed,
            _ => {
                self.used = 0;
                State::Types(LITERALS)
            }
        })
    }

    /// Decodes a part of the header of a compressed meta-block.
    pub(super) fn header(&mut self, io: &mut Io<'_>) -> Result<State, Stop> {
        let reader = &mut io.reader;
        io.work += 1;
        Ok(match self.state {
            State::Types(kind) if kind > DISTANCES => State::Parameters,
            State::Types(kind) => {
                let types = small_count(reader)?;
                self.blocks[kind] = Blocks {
                    types,
                    remaining: u32::MAX,
                    current: 0,
                    previous: 1,
                };
                match types {
                    1 => State::Types(kind + 1),
                    _ => State::TypeCode(kind),
                }
            }
            State::TypeCode(kind) => {
                let alphabet = self.blocks[kind].types + 2;
                io.work += self.code.read(reader, alphabet, &mut self.type_codes[kind])? as u32;
                State::CountCode(kind)
            }
            State::CountCode(kind) => {
                io.work += self.code.read(reader, COUNTS, &mut self.count_codes[kind])? as u32;
                State::FirstCount(kind)
            }
            State::FirstCount(kind) => {
                let (count, used) = block_count(reader, 0, &self.count_codes[kind])?;
                reader.skip(used);
                self.blocks[kind].remaining = count;
                State::Types(kind + 1)
            }
            State::Parameters => {
                let bits = reader.read(6)?;
                self.postfix = bits & 3;
                self.direct = (bits as usize >> 2) << self.postfix;
                State::Mode(0)
            }
            State::Mode(at) if at == self.blocks[LITERALS].types => State::MapTrees(0),
            State::Mode(at) => {
                self.modes[at] = reader.read(2)? as u8;
                State::Mode(at + 1)
            }
            State::MapTrees(map) => {
                let trees = small_count(reader)?;
                self.map_trees[map] = trees;
                match trees {
                    1 => {
                        self.map(map).fill(0);
                        self.behind_map(map)
                    }
                    _ => State::MapRuns(map),
                }
            }
            State::MapRuns(map) => {
                self.runs = 0;
                let used = match reader.peek(0, 1)? {
                    0 => 1,
                    _ => {
                        self.runs = reader.peek(1, 4)? + 1;
                        5
                    }
                };
                reader.skip(used);
                State::MapCode(map)
            }
            State::MapCode(map) => {
                let alphabet = self.map_trees[map] + self.runs as usize;
                io.work += self.code.read(reader, alphabet, &mut self.map_code)? as u32;
                State::MapEntries { map, at: 0 }
            }
            State::MapEntries { map, at } => {
                let (symbol, used) = match at < self.map(map).len() {
                    true => reader.peek_symbol(0, &self.map_code)?,
                    false => return Ok(State::MapMoves(map)),
                };
                let runs = self.runs;
                let (count, tree, used) = match symbol {
                    0 => (1, 0, used),
                    _ if symbol <= runs => {
                        let more = reader.peek(used, symbol)?;
                        ((1 << symbol) + more as usize, 0, used + symbol)
                    }
                    _ => (1, symbol - runs, used),
                };
                reader.skip(used);
                let entries = self.map(map).get_mut(at..at + count).ok_or(Stop::Broken)?;
                entries.fill(tree as u8);
                State::MapEntries { map, at: at + count }
            }
            State::MapMoves(map) => match reader.read(1)? {
                0 => self.behind_map(map),
                _ => {
                    self.front = std::array::from_fn(|at| at as u8);
                    State::Moves { map, at: 0 }
                }
            },
            State::Moves { map, at } => {
                let mut front = self.front;
                let all = self.map(map);
                let end = all.len().min(at + MOVES);
                for entry in &mut all[at..end] {
                    let index = usize::from(*entry);
                    *entry = front[index];
                    front.copy_within(..index, 1);
                    front[0] = *entry;
                }
                let whole = end == all.len();
                self.front = front;
                io.work += MOVE * (end - at) as u32;
                match whole {
                    true => self.behind_map(map),
                    false => State::Moves { map, at: end },
                }
            }
            other => other,
        })
    }

    /// The context map of literals (0) or of distances (1).
    fn map(&mut self, map: usize) -> &mut [u8] {
        match map {
            0 => &mut self.literal_map[..self.blocks[LITERALS].types << LITERAL_CONTEXTS],
            _ => &mut self.distance_map[..self.blocks[DISTANCES].types << DISTANCE_CONTEXTS],
        }
    }

    fn behind_map(&self, map: usize) -> State {
        match map {
            0 => State::MapTrees(1),
            _ => State::Trees { kind: LITERALS, at: 0 },
        }
    }

    /// Reads the code of a tree.
    pub(super) fn tree(&mut self, kind: usize, at: usize, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        let (count, alphabet) = match kind {
            LITERALS => (self.map_trees[0], 256),
            COMMANDS => (self.blocks[COMMANDS].types, ALPHABET),
            _ => (self.map_trees[1], NEAR_DISTANCES + self.direct + (48 << self.postfix)),
        };
        if at == count {
            return Ok(match kind {
                DISTANCES => State::Command,
                _ => State::Trees { kind: kind + 1, at: 0 },
            });
        }
        // A table must not cross a page boundary.
        let max = alphabet + EXTRA_ENTRIES;
        if self.used % WORDS + max > WORDS {
            self.used = self.used.next_multiple_of(WORDS);
        }
        if self.used / WORDS == self.tables.len() {
            let page = pages.places.allocate().ok_or(Stop::Memory)?;
            if self.tables.try_push(page).is_err() {
                pages.places.release(page);
                return Err(Stop::Memory);
            }
        }
        let start = self.tables[self.used / WORDS] as usize * WORDS + self.used % WORDS;
        let size = self
            .code
            .read(&mut io.reader, alphabet, &mut pages.words_mut()[start..start + max])?;
        self.trees[kind][at] = start as u32;
        self.used += size;
        io.work += size as u32 / 2;
        Ok(State::Trees { kind, at: at + 1 })
    }
}
