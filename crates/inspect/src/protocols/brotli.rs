//! Decoder for Brotli (RFC 7932). The decoder processes the bytes as they arrive, in steps of a few thousand bytes, so that
//! each step can be charged to the work budget before the next step begins.
//!
//! The dictionary and the transforms are taken from `brotli-decompressor`. The decoder of that crate is not used,
//! because 12 bytes of input can make it produce a whole window of 16 MiB before it accepts the next segment (decision
//! 0023).

mod bits;
mod code;
mod data;
mod header;
mod pages;
mod tables;
#[cfg(test)]
mod tests;

use arrayvec::ArrayVec;
use bits::{Bits, Reader};
use code::{Code, EXTRA_ENTRIES};
pub use pages::{PAGE, Pages};
use tables::BLOCK_COUNTS;

/// Maximum units of work of a step, in addition to the decoded bytes.
const STEP: u32 = 4096;
/// Units of work charged for a meta-block, a command, or a change of the block type.
const COMMAND: u32 = 6;
/// Units of work charged for a literal, in addition to its byte.
const LITERAL: u32 = 1;
/// Number of pages of the largest window, which has 16 MiB.
const WINDOW_PAGES: usize = (1 << 24) / PAGE;
/// Maximum number of pages with tables. The pages hold 256 codes of each kind; a code does not cross a page boundary.
const TABLE_PAGES: usize = 24;
const _: () = {
    let all = 256 * (256 + code::ALPHABET + header::DISTANCE_ALPHABET + 3 * EXTRA_ENTRIES);
    assert!(all <= TABLE_PAGES * (pages::WORDS - code::ALPHABET - EXTRA_ENTRIES));
};
/// Maximum number of bytes of a transformed word, including the bytes that the transforms write after it.
const WORD: usize = 64;

const LITERALS: usize = 0;
const COMMANDS: usize = 1;
const DISTANCES: usize = 2;

/// Bits of the context of a literal, and of a distance.
const LITERAL_CONTEXTS: u32 = 6;
const DISTANCE_CONTEXTS: u32 = 2;

const BLOCK_TYPES: usize = 258;
const COUNTS: usize = BLOCK_COUNTS.len();
const MAP_CODES: usize = 256 + 16;

/// Why decoding stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The work limit of a step is reached, or the output is full.
    Step,
    /// The input is consumed.
    Input,
    /// The stream is complete.
    Done,
    Broken,
    /// No page is free.
    Memory,
}

/// Result of a step.
#[derive(Debug)]
pub struct Step {
    pub stop: Stop,
    /// Number of consumed input bytes.
    pub taken: usize,
    /// Number of decoded bytes.
    pub made: usize,
    /// Units of work, not counting the decoded bytes.
    pub work: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    WindowBits,
    MetaBlock,
    Uncompressed,
    Metadata(usize),
    Types(usize),
    TypeCode(usize),
    CountCode(usize),
    FirstCount(usize),
    Parameters,
    Mode(usize),
    /// The next element is the number of trees of a context map: the map for literals if the index is 0, or for
    /// distances if it is 1.
    MapTrees(usize),
    MapRuns(usize),
    MapCode(usize),
    MapEntries {
        map: usize,
        at: usize,
    },
    MapMoves(usize),
    Moves {
        map: usize,
        at: usize,
    },
    Trees {
        kind: usize,
        at: usize,
    },
    Command,
    Lengths(u32),
    Literals,
    Distance,
    Copy(usize),
    /// Remaining range of a dictionary word that is being copied.
    Word(usize, usize),
    /// The next element is a block type of this category.
    Switch(usize),
    End,
    Done,
}

/// State of the blocks of one category.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    types: usize,
    /// Remaining symbols of the block.
    remaining: u32,
    current: usize,
    previous: usize,
}

/// Input and output of a step.
struct Io<'a> {
    reader: Reader<'a>,
    out: &'a mut [u8],
    made: usize,
    work: u32,
}

/// A decoder of one stream.
pub struct Brotli {
    bits: Bits,
    state: State,
    window: usize,
    /// Number of decoded bytes.
    at: usize,
    /// The last decoded byte, and the byte before it.
    before: [u8; 2],
    last: bool,
    /// Remaining bytes of the meta-block.
    remaining: usize,
    blocks: [Blocks; 3],
    postfix: u32,
    direct: usize,
    insert: usize,
    copy: usize,
    /// Whether the command repeats the last distance.
    repeats: bool,
    distances: [usize; 4],
    map_trees: [usize; 2],
    runs: u32,
    code: Code,
    type_codes: [[u16; BLOCK_TYPES + EXTRA_ENTRIES]; 3],
    count_codes: [[u16; COUNTS + EXTRA_ENTRIES]; 3],
    map_code: [u16; MAP_CODES + EXTRA_ENTRIES],
    modes: [u8; 256],
    literal_map: [u8; 256 << LITERAL_CONTEXTS],
    distance_map: [u8; 256 << DISTANCE_CONTEXTS],
    front: [u8; 256],
    /// Offsets of the tables of each category.
    trees: [[u32; 256]; 3],
    word: [u8; WORD],
    pages: ArrayVec<u32, WINDOW_PAGES>,
    tables: ArrayVec<u32, TABLE_PAGES>,
    /// Number of used entries in the pages with tables.
    used: usize,
}

impl Brotli {
    /// Creates a decoder at the start of a stream, without pages.
    pub fn new() -> Self {
        Self {
            bits: Bits::default(),
            state: State::WindowBits,
            window: 0,
            at: 0,
            before: [0; 2],
            last: false,
            remaining: 0,
            blocks: [Blocks::default(); 3],
            postfix: 0,
            direct: 0,
            insert: 0,
            copy: 0,
            repeats: false,
            distances: [0; 4],
            map_trees: [0; 2],
            runs: 0,
            code: Code::new(),
            type_codes: [[0; _]; 3],
            count_codes: [[0; _]; 3],
            map_code: [0; _],
            modes: [0; 256],
            literal_map: [0; _],
            distance_map: [0; _],
            front: [0; 256],
            trees: [[0; 256]; 3],
            word: [0; WORD],
            pages: ArrayVec::new(),
            tables: ArrayVec::new(),
            used: 0,
        }
    }

    /// Resets the decoder for another stream, and releases all pages.
    pub fn reset(&mut self, pages: &mut Pages) {
        let all = self.pages.drain(..).chain(self.tables.drain(..));
        all.for_each(|page| pages.places.release(page));
        self.bits = Bits::default();
        self.state = State::WindowBits;
        (self.at, self.before, self.used) = (0, [0; 2], 0);
        self.distances = [4, 11, 15, 16];
        self.code.reset();
    }

    /// Decodes into `out`, which has space for at least one byte.
    pub fn step(&mut self, pages: &mut Pages, input: &[u8], out: &mut [u8]) -> Step {
        let mut io = Io {
            reader: Reader::new(self.bits, input),
            out,
            made: 0,
            work: 0,
        };
        let stop = loop {
            if io.made == io.out.len() || io.work >= STEP {
                break Stop::Step;
            }
            match self.part(pages, &mut io) {
                Ok(state) => self.state = state,
                Err(stop) => break stop,
            }
        };
        if stop != Stop::Input {
            io.reader.unload();
        }
        let (bits, taken) = io.reader.suspend();
        self.bits = bits;
        Step {
            stop,
            taken,
            made: io.made,
            work: io.work,
        }
    }

    /// Decodes the next element of the stream, and returns the state after the element.
    fn part(&mut self, pages: &mut Pages, io: &mut Io<'_>) -> Result<State, Stop> {
        match self.state {
            State::Command => self.command(pages, io),
            State::Lengths(symbol) => self.lengths(symbol, pages, io),
            State::Literals => self.literals(pages, io),
            State::Distance => self.distance(pages, io),
            State::Copy(distance) => self.copy(distance, pages, io),
            State::Word(from, to) => {
                let count = self.capacity(to - from, pages, io)?;
                io.out[io.made..][..count].copy_from_slice(&self.word[from..from + count]);
                self.made(count, pages, io);
                Ok(match from + count {
                    from if from < to => State::Word(from, to),
                    _ => State::Command,
                })
            }
            State::Switch(kind) => self.switch(kind, io),
            State::WindowBits => self.window_bits(&mut io.reader),
            State::MetaBlock => self.meta_block(io),
            State::Uncompressed => {
                let count = self.capacity(self.remaining, pages, io)?;
                let bytes = io.reader.bytes(count);
                if bytes.is_empty() {
                    return Err(Stop::Input);
                }
                io.out[io.made..][..bytes.len()].copy_from_slice(bytes);
                self.remaining -= bytes.len();
                self.made(bytes.len(), pages, io);
                Ok(if self.remaining > 0 {
                    State::Uncompressed
                } else {
                    State::End
                })
            }
            State::Metadata(0) => Ok(State::End),
            State::Metadata(remaining) => match io.reader.bytes(remaining).len() {
                0 => Err(Stop::Input),
                count => Ok(State::Metadata(remaining - count)),
            },
            State::Trees { kind, at } => self.tree(kind, at, pages, io),
            State::End if !self.last => Ok(State::MetaBlock),
            State::End if io.reader.align() => Ok(State::Done),
            State::End => Err(Stop::Broken),
            State::Done => Err(Stop::Done),
            _ => self.header(io),
        }
    }
}
