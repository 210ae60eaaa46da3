//! Content encodings `gzip` (RFC 1952) and `deflate` (RFC 1950, or RFC 1951 bare as some servers send it), decoded as
//! the bytes arrive by decoders from a pool.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress_with_limit};

use super::Anomaly;
use crate::work::Work;

const WINDOW: usize = 32768;
/// Limits grow where so many encoded bytes begin, so that they do not depend on how the stream is cut.
const STRIDE: u64 = 256;
const ALWAYS_ALLOWED: u64 = 64 << 10;
/// Bytes that are made between two charges of the account.
const STEP: usize = 4096;
/// Units of work of a block of deflate, beside its bytes: its tables are made anew, from as little as ten bytes.
const BLOCK: u32 = 1024;

struct Inflater {
    state: DecompressorOxide,
    window: Box<[u8]>,
    at: usize,
}

/// A pool of decoders.
pub struct Inflaters {
    all: Box<[Inflater]>,
    free: Box<[u16]>,
    available: usize,
    bytes: u64,
    ratio: u64,
    work: Work,
}

impl std::fmt::Debug for Inflaters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflaters")
            .field("all", &self.all.len())
            .field("available", &self.available)
            .finish()
    }
}

impl Inflaters {
    pub(super) fn new(count: u16, bytes: u64, ratio: u32, work: Work) -> Self {
        let one = |_| Inflater {
            state: DecompressorOxide::new(),
            window: vec![0; WINDOW].into(),
            at: 0,
        };
        Self {
            all: (0..count).map(one).collect(),
            free: (0..count).rev().collect(),
            available: count as usize,
            bytes,
            ratio: ratio.into(),
            work,
        }
    }

    /// Decoders that are free.
    pub fn available(&self) -> usize {
        self.available
    }

    fn take(&mut self) -> Option<u16> {
        self.available = self.available.checked_sub(1)?;
        let index = self.free[self.available];
        self.all[index as usize].state.init();
        self.all[index as usize].at = 0;
        Some(index)
    }

    /// Bytes that so many encoded ones may decode to.
    fn allowed(&self, taken: u64) -> u64 {
        taken.saturating_mul(self.ratio).max(ALWAYS_ALLOWED).min(self.bytes)
    }

    fn give_back(&mut self, index: u16) {
        self.free[self.available] = index;
        self.available += 1;
    }
}

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Deflate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The nth byte of gzip's fixed header.
    Header(u8),
    ExtraLength(u8),
    Extra,
    Name,
    Comment,
    HeaderSum(u8),
    /// The nth byte of zlib's header; the first one is kept.
    Zlib(Option<u8>),
    Data,
    Trailer,
    /// Broken: nothing to the end of the stride.
    Lost,
    /// As sent.
    Raw,
}

/// One encoded body.
#[derive(Debug)]
pub(super) struct Decoding {
    index: u16,
    format: Format,
    stage: Stage,
    flags: u8,
    left: u16,
    zlib: bool,
    members: bool,
    taken: u64,
    made: u64,
}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_SUM: u8 = 2;
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

impl Decoding {
    pub fn new(format: Format, pool: &mut Inflaters) -> Option<Self> {
        let stage = match format {
            Format::Gzip => Stage::Header(0),
            Format::Deflate => Stage::Zlib(None),
        };
        let index = pool.take()?;
        Some(Self {
            index,
            format,
            stage,
            flags: 0,
            left: 0,
            zlib: false,
            members: false,
            taken: 0,
            made: 0,
        })
    }

    pub fn release(self, pool: &mut Inflaters) {
        pool.give_back(self.index);
    }

    /// Decodes what arrived; returns what is wrong with it, if anything is.
    pub fn feed(&mut self, pool: &mut Inflaters, mut bytes: &[u8], out: &mut impl FnMut(&[u8])) -> Option<Anomaly> {
        let mut anomaly = None;
        while !bytes.is_empty() {
            if self.stage == Stage::Raw {
                out(bytes);
                break;
            }
            let stride = (STRIDE - self.taken % STRIDE) as usize;
            let piece = &bytes[..bytes.len().min(stride)];
            let taken = match self.stage {
                Stage::Data => self.inflate(pool, piece, out, &mut anomaly),
                Stage::Lost => piece.len(),
                Stage::Zlib(Some(first)) => {
                    self.stage = Stage::Data;
                    self.zlib = (u16::from(first) << 8 | u16::from(piece[0])).is_multiple_of(31);
                    if !self.zlib {
                        self.inflate(pool, &[first], out, &mut anomaly);
                    }
                    self.zlib.into()
                }
                _ => self.framing(piece[0], out, &mut anomaly),
            };
            self.taken += taken as u64;
            bytes = &bytes[taken..];
            if taken > 0 && self.taken.is_multiple_of(STRIDE) {
                if self.stage == Stage::Lost {
                    self.stage = Stage::Raw;
                }
            }
        }
        anomaly
    }

    fn inflate(
        &mut self,
        pool: &mut Inflaters,
        bytes: &[u8],
        out: &mut impl FnMut(&[u8]),
        anomaly: &mut Option<Anomaly>,
    ) -> usize {
        let allowed = pool.allowed(self.taken / STRIDE * STRIDE);
        let (inflater, work) = (&mut pool.all[self.index as usize], &pool.work);
        let mut used = 0;
        let mut paid = work.charge(bytes.len() as u32);
        loop {
            // Where decoding is given up, the rest of the stride is lost: how many bytes of it the decoder had read ahead depends
            // on how they were cut.
            if !paid {
                *anomaly = Some(Anomaly::WorkExceeded);
                self.stage = Stage::Lost;
                return bytes.len();
            }
            if self.made > allowed {
                *anomaly = Some(Anomaly::BodyBomb);
                self.stage = Stage::Lost;
                return bytes.len();
            }
            let (state, window, at) = (&mut inflater.state, &mut inflater.window, inflater.at);
            // One byte more than is allowed tells that there are more.
            let room = STEP.min(usize::try_from((allowed - self.made).saturating_add(1)).unwrap_or(STEP));
            let flags = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
            let (status, taken, made) = decompress_with_limit(state, &bytes[used..], window, at, room, flags);
            used += taken;
            self.made += made as u64;
            out(&inflater.window[at..at + made]);
            inflater.at = (at + made) % WINDOW;
            paid = work.charge(made as u32);
            match status {
                _ if !paid || self.made > allowed => {}
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::BlockBoundary => paid = work.charge(BLOCK),
                TINFLStatus::NeedsMoreInput => return bytes.len(),
                TINFLStatus::Done => {
                    inflater.state.init();
                    // The next member is a block at least. Where that can't be paid, what follows is not decoded either.
                    let _ = work.charge(BLOCK);
                    // Sums are not checked: the receiver may not do so either.
                    self.left = match self.format {
                        Format::Gzip => 8,
                        Format::Deflate if self.zlib => 4,
                        Format::Deflate => 0,
                    };
                    self.stage = if self.left > 0 { Stage::Trailer } else { Stage::Raw };
                    return used;
                }
                _ => {
                    *anomaly = Some(Anomaly::BadEncoding);
                    self.stage = Stage::Lost;
                    return bytes.len();
                }
            }
        }
    }

    /// One byte of a header or trailer; 0 if it is none of theirs.
    fn framing(&mut self, byte: u8, out: &mut impl FnMut(&[u8]), anomaly: &mut Option<Anomaly>) -> usize {
        self.stage = match self.stage {
            Stage::Header(at) if (at as usize) < MAGIC.len() => {
                if byte != MAGIC[at as usize] {
                    if !self.members {
                        *anomaly = Some(Anomaly::BadEncoding);
                    }
                    out(&MAGIC[..at as usize]);
                    self.stage = Stage::Raw;
                    return 0;
                }
                Stage::Header(at + 1)
            }
            Stage::Header(at) => {
                if at == 3 {
                    self.flags = byte;
                }
                if at < 9 {
                    Stage::Header(at + 1)
                } else {
                    self.optional(EXTRA)
                }
            }
            Stage::ExtraLength(0) => {
                self.left = byte.into();
                Stage::ExtraLength(1)
            }
            Stage::ExtraLength(_) => {
                self.left |= u16::from(byte) << 8;
                if self.left > 0 {
                    Stage::Extra
                } else {
                    self.optional(NAME)
                }
            }
            Stage::Extra => {
                self.left -= 1;
                if self.left > 0 {
                    Stage::Extra
                } else {
                    self.optional(NAME)
                }
            }
            Stage::Name if byte == 0 => self.optional(COMMENT),
            Stage::Comment if byte == 0 => self.optional(HEADER_SUM),
            Stage::HeaderSum(0) => Stage::HeaderSum(1),
            Stage::HeaderSum(_) => Stage::Data,
            Stage::Zlib(None) if byte & 0x0f == 8 => Stage::Zlib(Some(byte)),
            Stage::Zlib(None) => {
                self.stage = Stage::Data;
                return 0;
            }
            Stage::Trailer => {
                self.left -= 1;
                match self.format {
                    _ if self.left > 0 => Stage::Trailer,
                    Format::Gzip => {
                        self.members = true;
                        Stage::Header(0)
                    }
                    Format::Deflate => Stage::Raw,
                }
            }
            other => other,
        };
        1
    }

    /// The first part of the gzip header from `from` on that the flags name.
    fn optional(&self, from: u8) -> Stage {
        const PARTS: [(u8, Stage); 4] = [
            (EXTRA, Stage::ExtraLength(0)),
            (NAME, Stage::Name),
            (COMMENT, Stage::Comment),
            (HEADER_SUM, Stage::HeaderSum(0)),
        ];
        let mut parts = PARTS.iter().skip_while(|part| part.0 != from);
        parts
            .find(|part| self.flags & part.0 != 0)
            .map_or(Stage::Data, |part| part.1)
    }
}
