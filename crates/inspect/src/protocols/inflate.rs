//! Decoders of the content encodings `gzip` (RFC 1952), `deflate` (RFC 1950, or raw RFC 1951 as some servers send) and
//! `br` (RFC 7932), which may be nested. The decoders are allocated from a pool, and decode bytes as they arrive.
//!
//! Like clients, this decoder determines the encoding from the first bytes rather than from its name: a zlib header of
//! `deflate` is optional, and the names `gzip` and `deflate` may be confused.

use std::ops::Range;

use arrayvec::ArrayVec;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress_with_limit};

use super::Anomaly;
use super::anomaly::AnomalySet;
use super::brotli::{Brotli, PAGE, Pages, Stop};
use crate::source_quota::{POOL_MULTIPLE, SlotOwners, Source};
use crate::work_budget::WorkBudget;

/// Maximum number of nested encodings of a body, equal to the limit of curl.
pub(super) const MAX_LAYERS: usize = 5;

const WINDOW: usize = 32768;
/// The limits are computed at multiples of this number of encoded bytes, so that the limits don't depend on the segmentation.
const STRIDE: u64 = 256;
const ALWAYS_ALLOWED: u64 = 64 << 10;
/// Number of decoded bytes between two charges of the work budget.
const STEP: usize = 4096;
/// Units of work of a deflate block, in addition to its bytes. Each block builds new tables, although it may take only ten bytes of input.
const BLOCK: u32 = 1024;
/// Number of pages for windows and tables of Brotli. With these pages and some pages per decoder, one source can decode
/// a body of the default maximum length.
const PAGES: u32 = (10 << 20) / PAGE as u32;
const PAGES_EACH: u32 = 2;

struct Inflater {
    state: DecompressorOxide,
    window: Box<[u8]>,
    at: usize,
    brotli: Brotli,
    layer: Layer,
}

/// Limits of a decoded body.
struct Allowance {
    bytes: u64,
    ratio: u64,
    work: WorkBudget,
}

impl Allowance {
    /// Maximum number of decoded bytes after `taken` encoded bytes.
    fn bytes(&self, taken: u64) -> u64 {
        taken.saturating_mul(self.ratio).max(ALWAYS_ALLOWED).min(self.bytes)
    }
}

/// A pool of decoders.
pub struct Inflaters {
    /// Decoders. An entry is taken out while it decodes, so that the next decoder of the chain can process its output.
    all: Box<[Option<Box<Inflater>>]>,
    free: Box<[u16]>,
    available: usize,
    holders: SlotOwners,
    pages: Pages,
    allowance: Allowance,
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
    pub(super) fn new(count: u16, bytes: u64, ratio: u32, work: WorkBudget) -> Self {
        let one = |_| {
            Some(Box::new(Inflater {
                state: DecompressorOxide::new(),
                window: vec![0; WINDOW].into(),
                at: 0,
                brotli: Brotli::new(),
                layer: Layer::new(Format::Gzip),
            }))
        };
        Self {
            all: (0..count).map(one).collect(),
            free: (0..count).rev().collect(),
            available: count as usize,
            holders: SlotOwners::new(count.into(), POOL_MULTIPLE),
            pages: Pages::new(match u32::from(count) {
                0 => 0,
                count => PAGES + PAGES_EACH * count,
            }),
            allowance: Allowance {
                bytes,
                ratio: ratio.into(),
                work,
            },
        }
    }

    /// Number of free decoders.
    pub fn available(&self) -> usize {
        self.available
    }

    /// Number of free pages for windows and tables of Brotli.
    pub fn pages(&self) -> usize {
        self.pages.places.available()
    }

    /// Sets the source to which later allocations are accounted.
    pub(super) fn take_for(&mut self, source: Source) {
        self.holders.source = source;
        self.pages.places.owners.source = source;
    }

    fn take(&mut self, format: Format) -> Option<u16> {
        self.available = self.available.checked_sub(1)?;
        let index = self.free[self.available];
        self.holders.assign(index.into());
        if let Some(inflater) = &mut self.all[index as usize] {
            match format {
                Format::Brotli => inflater.brotli.reset(&mut self.pages),
                _ => inflater.state.init(),
            }
            (inflater.at, inflater.layer) = (0, Layer::new(format));
        }
        Some(index)
    }

    fn release(&mut self, index: u16) {
        if let Some(inflater) = &mut self.all[index as usize] {
            inflater.brotli.reset(&mut self.pages);
        }
        self.free[self.available] = index;
        self.available += 1;
        self.holders.release(index.into());
    }

    /// Decodes with all decoders of a chain, starting with the last decoder.
    fn feed(&mut self, chain: &[u16], bytes: &[u8], out: &mut dyn FnMut(&[u8]), odd: &mut AnomalySet) {
        let Some((&last, inner)) = chain.split_last() else {
            return out(bytes);
        };
        let Some(mut inflater) = self.all.get_mut(last as usize).and_then(Option::take) else {
            return;
        };
        inflater.feed(self, bytes, inner, out, odd);
        self.all[last as usize] = Some(inflater);
    }
}

/// Encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Deflate,
    Brotli,
}

/// Encodings of a body, in the order in which they were applied.
pub(super) type Formats = ArrayVec<Format, MAX_LAYERS>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The nth byte of gzip's fixed header.
    Header(u8),
    ExtraLength(u8),
    Extra,
    Name,
    Comment,
    HeaderSum(u8),
    /// The header of zlib, with its first byte if that was received.
    Zlib(Option<u8>),
    Data,
    Trailer,
    /// Decoding was given up. The bytes up to the end of the current stride are discarded.
    Lost,
    /// Data is passed on as sent, without decoding.
    Raw,
}

/// One encoding of a body.
#[derive(Debug)]
struct Layer {
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

/// Decoders of one body, in the order in which the encodings were applied; the last decoder receives the bytes of the body.
#[derive(Debug)]
pub(super) struct Decoding(ArrayVec<u16, MAX_LAYERS>);

impl Decoding {
    /// Allocates decoders. Returns `None` if too few decoders are free.
    pub fn new(formats: &[Format], pool: &mut Inflaters) -> Option<Self> {
        if formats.len() > MAX_LAYERS || !pool.holders.permits(formats.len(), pool.available) {
            return None;
        }
        Some(Self(formats.iter().filter_map(|&format| pool.take(format)).collect()))
    }

    /// Ends the body, and returns whether it is complete.
    pub fn release(self, pool: &mut Inflaters) -> bool {
        let mut whole = true;
        for index in self.0 {
            whole &= pool.all[index as usize]
                .as_ref()
                .is_none_or(|inflater| inflater.layer.is_whole());
            pool.release(index);
        }
        whole
    }

    /// Decodes the next bytes, and returns the anomalies.
    pub fn feed(&mut self, pool: &mut Inflaters, bytes: &[u8], out: &mut dyn FnMut(&[u8])) -> AnomalySet {
        let mut odd = AnomalySet::default();
        pool.feed(&self.0, bytes, out, &mut odd);
        odd
    }
}

impl Inflater {
    fn feed(
        &mut self,
        pool: &mut Inflaters,
        mut bytes: &[u8],
        inner: &[u16],
        out: &mut dyn FnMut(&[u8]),
        odd: &mut AnomalySet,
    ) {
        while !bytes.is_empty() {
            if self.layer.stage == Stage::Raw {
                pool.feed(inner, bytes, out, odd);
                break;
            }
            let stride = (STRIDE - self.layer.taken % STRIDE) as usize;
            let piece = &bytes[..bytes.len().min(stride)];
            let taken = match self.layer.stage {
                Stage::Data => self.inflate(pool, piece, inner, out, odd),
                Stage::Lost => piece.len(),
                Stage::Zlib(Some(first)) => self.second_byte([first, piece[0]], pool, inner, out, odd),
                _ => {
                    let mut framing = |bytes: &[u8]| pool.feed(inner, bytes, out, odd);
                    let (taken, broken) = self.layer.framing(piece[0], &mut framing);
                    if broken {
                        odd.insert(Anomaly::BadEncoding);
                    }
                    taken
                }
            };
            self.layer.taken += taken as u64;
            bytes = &bytes[taken..];
            if taken > 0 && self.layer.taken.is_multiple_of(STRIDE) && self.layer.stage == Stage::Lost {
                self.layer.stage = Stage::Raw;
            }
        }
    }

    /// Handles the first two bytes of a possible zlib header. Returns the number of bytes consumed in addition to the first.
    fn second_byte(
        &mut self,
        head: [u8; 2],
        pool: &mut Inflaters,
        inner: &[u16],
        out: &mut dyn FnMut(&[u8]),
        odd: &mut AnomalySet,
    ) -> usize {
        let layer = &mut self.layer;
        layer.zlib = head[0] & 0x0f == 8 && u16::from_be_bytes(head).is_multiple_of(31);
        match (layer.format, layer.zlib) {
            // No deflate block begins with the first byte of a gzip header.
            (Format::Deflate, _) if head == MAGIC[..2] => {
                odd.insert(Anomaly::MislabelledEncoding);
                (layer.format, layer.stage) = (Format::Gzip, Stage::Header(2));
                1
            }
            (_, true) => {
                if layer.format == Format::Gzip {
                    odd.insert(Anomaly::MislabelledEncoding);
                    layer.format = Format::Deflate;
                }
                layer.stage = Stage::Data;
                1
            }
            (Format::Deflate, false) => {
                layer.stage = Stage::Data;
                self.inflate(pool, &head[..1], inner, out, odd);
                0
            }
            (_, false) => {
                odd.insert(Anomaly::BadEncoding);
                layer.stage = Stage::Raw;
                pool.feed(inner, &head[..1], out, odd);
                0
            }
        }
    }

    /// Decodes compressed data: deflate or Brotli.
    fn inflate(
        &mut self,
        pool: &mut Inflaters,
        bytes: &[u8],
        inner: &[u16],
        out: &mut dyn FnMut(&[u8]),
        odd: &mut AnomalySet,
    ) -> usize {
        let allowed = pool.allowance.bytes(self.layer.taken / STRIDE * STRIDE);
        let mut used = 0;
        let mut paid = pool.allowance.work.charge(bytes.len() as u32);
        loop {
            // If decoding is given up, the remaining bytes of the stride are discarded, because the number of bytes
            // that the decoder has read ahead depends on the segmentation.
            let exceeded = match paid {
                false => Some(Anomaly::WorkExceeded),
                true => (self.layer.made > allowed).then_some(Anomaly::BodyBomb),
            };
            if let Some(anomaly) = exceeded {
                return self.give_up(bytes, anomaly, odd);
            }
            // Decode one byte more than allowed, to detect whether the limit is exceeded.
            let capacity = STEP.min(usize::try_from((allowed - self.layer.made).saturating_add(1)).unwrap_or(STEP));
            let step = match self.layer.format {
                Format::Brotli => self.brotli_step(&mut pool.pages, &bytes[used..], capacity),
                _ => self.deflate_step(&bytes[used..], capacity),
            };
            used += step.taken;
            self.layer.made += step.made.len() as u64;
            paid = pool.allowance.work.charge(step.made.len() as u32);
            pool.feed(inner, &self.window[step.made], out, odd);
            let layer = &mut self.layer;
            match step.stop {
                _ if !paid || layer.made > allowed => {}
                Stop::Step => paid = pool.allowance.work.charge(step.work),
                Stop::Input => {
                    // The result is ignored: if the budget is exhausted, only the following data is not decoded.
                    let _ = pool.allowance.work.charge(step.work);
                    return bytes.len();
                }
                Stop::Done => {
                    // The next member has at least one block, which is charged here. If the budget is exhausted, only the
                    // following data is not decoded.
                    let _ = pool.allowance.work.charge(step.work);
                    // Checksums are not verified, because some receivers don't verify checksums either.
                    layer.left = match layer.format {
                        Format::Gzip => 8,
                        Format::Deflate if layer.zlib => 4,
                        Format::Deflate | Format::Brotli => 0,
                    };
                    layer.stage = if layer.left > 0 { Stage::Trailer } else { Stage::Raw };
                    return used;
                }
                Stop::Broken => return self.give_up(bytes, Anomaly::BadEncoding, odd),
                Stop::Memory => return self.give_up(bytes, Anomaly::NoInflater, odd),
            }
        }
    }

    /// Stops decoding. Returns the number of discarded bytes.
    fn give_up(&mut self, bytes: &[u8], anomaly: Anomaly, odd: &mut AnomalySet) -> usize {
        odd.insert(anomaly);
        self.layer.stage = Stage::Lost;
        bytes.len()
    }

    fn deflate_step(&mut self, bytes: &[u8], capacity: usize) -> Step {
        let at = self.at;
        let mut flags = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
        if at as u64 == self.layer.made {
            // Before the window is full, copies must refer to decoded data, because the unused part of the buffer
            // contains data of another flow.
            flags |= TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        }
        let (status, taken, made) =
            decompress_with_limit(&mut self.state, bytes, &mut self.window, at, capacity, flags);
        self.at = (at + made) % WINDOW;
        let (stop, work) = match status {
            TINFLStatus::HasMoreOutput => (Stop::Step, 0),
            TINFLStatus::BlockBoundary => (Stop::Step, BLOCK),
            TINFLStatus::NeedsMoreInput => (Stop::Input, 0),
            TINFLStatus::Done => {
                self.state.init();
                (Stop::Done, BLOCK)
            }
            _ => (Stop::Broken, 0),
        };
        Step {
            stop,
            taken,
            made: at..at + made,
            work,
        }
    }

    fn brotli_step(&mut self, pages: &mut Pages, bytes: &[u8], capacity: usize) -> Step {
        let step = self.brotli.step(pages, bytes, &mut self.window[..capacity]);
        Step {
            stop: step.stop,
            taken: step.taken,
            made: 0..step.made,
            work: step.work,
        }
    }
}

/// Result of a decoder step.
struct Step {
    stop: Stop,
    taken: usize,
    /// Range of the decoded bytes in the window.
    made: Range<usize>,
    /// Units of work, not counting the decoded bytes.
    work: u32,
}

impl Layer {
    fn new(format: Format) -> Self {
        let stage = match format {
            Format::Gzip => Stage::Header(0),
            Format::Deflate => Stage::Zlib(None),
            Format::Brotli => Stage::Data,
        };
        Self {
            format,
            stage,
            flags: 0,
            left: 0,
            zlib: false,
            members: false,
            taken: 0,
            made: 0,
        }
    }

    /// Whether the data is complete or empty, or its decoding was given up.
    fn is_whole(&self) -> bool {
        match self.stage {
            Stage::Trailer | Stage::Lost | Stage::Raw => true,
            Stage::Header(0) => self.taken == 0 || self.members,
            Stage::Zlib(None) | Stage::Data => self.taken == 0,
            // Data after the last member may be something other than a member.
            _ => self.members,
        }
    }

    /// Handles one byte of a header or trailer. The returned count is 0 if the byte belongs to neither a header nor a
    /// trailer. The returned flag is true if the byte is an anomaly.
    fn framing(&mut self, byte: u8, out: &mut dyn FnMut(&[u8])) -> (usize, bool) {
        self.stage = match self.stage {
            Stage::Header(0) if byte & 0x0f == 8 && !self.members => Stage::Zlib(Some(byte)),
            Stage::Header(at) if (at as usize) < MAGIC.len() => {
                if byte != MAGIC[at as usize] {
                    out(&MAGIC[..at as usize]);
                    self.stage = Stage::Raw;
                    return (0, !self.members);
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
            Stage::Zlib(None) => Stage::Zlib(Some(byte)),
            Stage::Trailer => {
                self.left -= 1;
                match self.format {
                    _ if self.left > 0 => Stage::Trailer,
                    Format::Gzip => {
                        self.members = true;
                        Stage::Header(0)
                    }
                    Format::Deflate | Format::Brotli => Stage::Raw,
                }
            }
            other => other,
        };
        (1, false)
    }

    /// The first optional part of the gzip header that the flags select, starting at part `from`.
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
