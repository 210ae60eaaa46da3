//! Commands of a meta-block and their output (RFC 7932 sections 4 to 8).

use brotli_decompressor::dictionary::{
    kBrotliDictionary, kBrotliDictionaryOffsetsByLength, kBrotliDictionarySizeBitsByLength,
};
use brotli_decompressor::transform::{TransformDictionaryWord, kNumTransforms};

use super::header::{NEAR_DISTANCES, block_count};
use super::tables::{CONTEXTS, REPEATS, command};
use super::{
    Brotli, COMMAND, COMMANDS, DISTANCE_CONTEXTS, DISTANCES, Io, LITERAL, LITERAL_CONTEXTS, LITERALS, PAGE, Pages,
    State, Stop,
};

/// Number of literals decoded at a time.
const RUN: usize = 512;
/// The size of a window is a power of two minus this number.
const GAP: usize = 16;
/// A copy command up to this length always copies this number of bytes. The excess bytes overwrite only memory outside
/// of the window.
const SHORT: usize = GAP;

impl Brotli {
    /// Returns how many of `bytes` bytes fit in the output and in the current page. Allocates the current page if
    /// necessary.
    pub(super) fn capacity(&mut self, bytes: usize, pages: &mut Pages, io: &Io<'_>) -> Result<usize, Stop> {
        let at = self.place(self.at);
        if at / PAGE == self.pages.len() {
            self.pages.push(pages.places.allocate().ok_or(Stop::Memory)?);
        }
        Ok(bytes.min(io.out.len() - io.made).min(PAGE - at % PAGE))
    }

    /// Index of a byte of the stream in the window. The window's memory is at least one page.
    fn place(&self, at: usize) -> usize {
        at & (self.window.max(PAGE) - 1)
    }

    /// Copies bytes of the output into the window, after [`Brotli::capacity`] has ensured the space.
    pub(super) fn made(&mut self, count: usize, pages: &mut Pages, io: &mut Io<'_>) {
        let all = &io.out[io.made..];
        let bytes = &all[..count];
        match *bytes {
            [] => return,
            [only] => self.before = [only, self.before[0]],
            [.., before, last] => self.before = [last, before],
        }
        let at = self.place(self.at);
        let page = &mut pages.bytes_mut(self.pages[at / PAGE])[at % PAGE..];
        match (page.first_chunk_mut::<SHORT>(), all.first_chunk::<SHORT>()) {
            (Some(page), Some(all)) if count <= SHORT => *page = *all,
            _ => page[..count].copy_from_slice(bytes),
        }
        self.at += count;
        io.made += count;
    }

    /// The table of the nth tree.
    fn table<'a>(&self, kind: usize, tree: usize, pages: &'a Pages) -> &'a [u16] {
        &pages.words()[self.trees[kind][tree] as usize..]
    }

    pub(super) fn switch(&mut self, kind: usize, io: &mut Io<'_>) -> Result<State, Stop> {
        let reader = &mut io.reader;
        let (symbol, used) = reader.peek_symbol(0, &self.type_codes[kind])?;
        let (count, used) = block_count(reader, used, &self.count_codes[kind])?;
        reader.skip(used);
        let blocks = &mut self.blocks[kind];
        let next = match symbol {
            0 => blocks.previous,
            1 => blocks.current + 1,
            _ => symbol as usize - 2,
        };
        (blocks.previous, blocks.current, blocks.remaining) = (blocks.current, next % blocks.types, count);
        io.work += COMMAND;
        Ok(match kind {
            LITERALS => State::Literals,
            COMMANDS => State::Command,
            _ => State::Distance,
        })
    }

    pub(super) fn command(&mut self, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        let blocks = &self.blocks[COMMANDS];
        if self.remaining == 0 {
            return Ok(State::End);
        }
        if blocks.remaining == 0 {
            return Ok(State::Switch(COMMANDS));
        }
        let symbol = io.reader.symbol(self.table(COMMANDS, blocks.current, pages))?;
        self.blocks[COMMANDS].remaining -= 1;
        io.work += COMMAND;
        self.state = State::Lengths(symbol);
        self.lengths(symbol, pages, io)
    }

    pub(super) fn lengths(&mut self, symbol: u32, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        let (insert, copy) = command(symbol);
        let more = io.reader.peek(0, insert.bits)?;
        self.copy = (copy.base + io.reader.peek(insert.bits, copy.bits)?) as usize;
        io.reader.skip(insert.bits + copy.bits);
        self.insert = (insert.base + more) as usize;
        self.repeats = symbol < REPEATS;
        self.remaining = self.remaining.checked_sub(self.insert).ok_or(Stop::Broken)?;
        match self.insert {
            0 if self.remaining > 0 => {
                self.state = State::Distance;
                self.distance(pages, io)
            }
            _ => Ok(State::Literals),
        }
    }

    pub(super) fn literals(&mut self, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        if self.insert == 0 {
            return Ok(if self.remaining == 0 {
                State::End
            } else {
                State::Distance
            });
        }
        let blocks = self.blocks[LITERALS];
        if blocks.remaining == 0 {
            return Ok(State::Switch(LITERALS));
        }
        let max = self.capacity(self.insert.min(blocks.remaining as usize).min(RUN), pages, io)?;
        let words = pages.words();
        let trees = &self.trees[LITERALS];
        let out = &mut io.out[io.made..io.made + max];
        let (mut count, mut failed) = (0, None);
        if self.map_trees[0] == 1 {
            let table = &words[trees[0] as usize..];
            for byte in out {
                match io.reader.symbol(table) {
                    Ok(literal) => *byte = literal as u8,
                    Err(stop) => {
                        failed = Some(stop);
                        break;
                    }
                }
                count += 1;
            }
        } else {
            let [of_last, of_before] = &CONTEXTS[usize::from(self.modes[blocks.current])];
            let map = &self.literal_map[blocks.current << LITERAL_CONTEXTS..][..1 << LITERAL_CONTEXTS];
            let [mut last, mut before] = self.before.map(usize::from);
            for byte in out {
                let tree = map[usize::from(of_last[last] | of_before[before])];
                match io.reader.symbol(&words[trees[usize::from(tree)] as usize..]) {
                    Ok(literal) => *byte = literal as u8,
                    Err(stop) => {
                        failed = Some(stop);
                        break;
                    }
                }
                (last, before) = (usize::from(*byte), last);
                count += 1;
            }
        }
        io.work += LITERAL * count as u32;
        self.insert -= count;
        self.blocks[LITERALS].remaining -= count as u32;
        self.made(count, pages, io);
        failed.map_or(Ok(State::Literals), Err)
    }

    pub(super) fn distance(&mut self, pages: &Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        let symbol = if self.repeats {
            0
        } else {
            let blocks = &self.blocks[DISTANCES];
            if blocks.remaining == 0 {
                return Ok(State::Switch(DISTANCES));
            }
            let context = (self.copy - 2).min(3);
            let tree = self.distance_map[(blocks.current << DISTANCE_CONTEXTS) + context];
            let table = self.table(DISTANCES, tree.into(), pages);
            let (symbol, used) = io.reader.peek_symbol(0, table)?;
            let symbol = symbol as usize;
            match symbol.checked_sub(NEAR_DISTANCES + self.direct) {
                None => io.reader.skip(used),
                Some(code) => {
                    let bits = 1 + (code >> (self.postfix + 1)) as u32;
                    let more = io.reader.peek(used, bits)? as usize;
                    io.reader.skip(used + bits);
                    let high = ((2 + (code >> self.postfix & 1)) << bits) - 4 + more;
                    let low = code & ((1 << self.postfix) - 1);
                    self.blocks[DISTANCES].remaining -= 1;
                    return self.reach((high << self.postfix) + low + self.direct + 1, true);
                }
            }
            self.blocks[DISTANCES].remaining -= 1;
            symbol
        };
        let near = |nth: usize, by: isize| self.distances[nth].checked_add_signed(by);
        let distance = match symbol {
            0..4 => near(symbol, 0),
            4..10 => near(0, BY[symbol - 4]),
            10..16 => near(1, BY[symbol - 10]),
            _ => Some(symbol - NEAR_DISTANCES + 1),
        };
        let distance = distance.filter(|&distance| distance > 0).ok_or(Stop::Broken)?;
        self.reach(distance, symbol > 0)
    }

    /// Starts a copy from this distance. If `new`, the distance is added to the recent distances.
    fn reach(&mut self, distance: usize, new: bool) -> Result<State, Stop> {
        let far = self.at.min(self.window - GAP);
        if distance <= far {
            if new {
                self.distances = [distance, self.distances[0], self.distances[1], self.distances[2]];
            }
            self.remaining = self.remaining.checked_sub(self.copy).ok_or(Stop::Broken)?;
            return Ok(State::Copy(distance));
        }
        let length = self.copy;
        let bits = match kBrotliDictionarySizeBitsByLength.get(length) {
            Some(&bits) if bits > 0 => bits,
            _ => return Err(Stop::Broken),
        };
        let word = distance - far - 1;
        let transform = word >> bits;
        if transform >= kNumTransforms as usize {
            return Err(Stop::Broken);
        }
        let at = kBrotliDictionaryOffsetsByLength[length] as usize + (word & ((1 << bits) - 1)) * length;
        let made = TransformDictionaryWord(
            &mut self.word,
            &kBrotliDictionary[at..at + length],
            length as i32,
            transform as i32,
        ) as usize;
        self.remaining = self.remaining.checked_sub(made).ok_or(Stop::Broken)?;
        Ok(State::Word(0, made))
    }

    pub(super) fn copy(&mut self, distance: usize, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        let count = self.capacity(self.copy, pages, io)?;
        let at = self.place(self.at - distance);
        let page = &pages.bytes(self.pages[at / PAGE])[at % PAGE..];
        if count <= SHORT.min(distance)
            && let Some(from) = page.first_chunk::<SHORT>()
            && let Some(to) = io.out[io.made..].first_chunk_mut::<SHORT>()
        {
            *to = *from;
            return Ok(self.copied(count, distance, pages, io));
        }
        let out = &mut io.out[io.made..io.made + count];
        // For an overlapping copy, only the first period is copied from the window.
        let mut done = 0;
        while done < count.min(distance) {
            let at = self.place(self.at - distance + done);
            let page = &pages.bytes(self.pages[at / PAGE])[at % PAGE..];
            let max = page.len().min(count.min(distance) - done);
            out[done..done + max].copy_from_slice(&page[..max]);
            done += max;
        }
        while done < count {
            let max = done.min(count - done);
            out.copy_within(..max, done);
            done += max;
        }
        Ok(self.copied(count, distance, pages, io))
    }

    /// Completes a part of a copy after the bytes were written to the output.
    fn copied(&mut self, count: usize, distance: usize, pages: &mut Pages, io: &mut Io<'_>) -> State {
        self.made(count, pages, io);
        self.copy -= count;
        match self.copy {
            0 => State::Command,
            _ => State::Copy(distance),
        }
    }
}

/// Offsets that certain distance symbols add to a recent distance.
const BY: [isize; 6] = [-1, 1, -2, 2, -3, 3];
