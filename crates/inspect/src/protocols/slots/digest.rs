//! Computes the hashes of files that rules test, while the data of the files arrives.
//!
//! A file with a missing part has no hash.

use arrayvec::ArrayVec;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use super::{Field, SlotHandle, Slots, State};
use crate::signature::Buffer;
use crate::work_budget::WorkBudget;

/// Set of hashes that rules test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileHashes(u8);

impl FileHashes {
    /// No hashes.
    pub const NONE: Self = Self(0);

    /// Adds the hash of a hash buffer. Other buffers have no effect.
    pub fn insert(&mut self, buffer: Buffer) {
        self.0 |= HASHES
            .iter()
            .position(|&hash| hash == buffer)
            .map_or(0, |place| 1 << place);
    }

    fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    fn units(self) -> usize {
        (0..)
            .zip(UNITS)
            .filter(|(place, _)| self.has(*place))
            .map(|(_, units)| units)
            .sum()
    }
}

/// Buffers for file hashes.
const HASHES: [Buffer; 3] = [Buffer::FileMd5, Buffer::FileSha1, Buffer::FileSha256];
/// Units of work charged for each [`BYTES`] hashed bytes, for each hash.
const UNITS: [usize; 3] = [3, 1, 1];
const BYTES: usize = 4;

/// State of the hashes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// No byte was received.
    #[default]
    Begins,
    /// The hashes cover all bytes received so far.
    Open(FileHashes),
    /// The hashes are complete, or the hashes can't be computed.
    Over,
}

/// Hash states of a file.
#[derive(Clone, Debug, Default)]
struct Digests {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
    /// The line end at the current end of the file. In a mail, this line end may belong to the boundary that follows.
    line_end: ArrayVec<u8, 2>,
}

impl Digests {
    fn update(&mut self, hashes: FileHashes, bytes: &[u8]) {
        if bytes == b"\n" && *self.line_end == *b"\r" {
            self.line_end.push(b'\n');
            return;
        }
        let line_end = match bytes {
            [] => return,
            [.., b'\r', b'\n'] => 2,
            [.., b'\r' | b'\n'] => 1,
            _ => 0,
        };
        let (bytes, line_end) = bytes.split_at(bytes.len() - line_end);
        self.feed_line_end(hashes);
        self.feed(hashes, bytes);
        self.line_end.extend(line_end.iter().copied());
    }

    fn feed_line_end(&mut self, hashes: FileHashes) {
        let line_end = std::mem::take(&mut self.line_end);
        self.feed(hashes, &line_end);
    }

    fn feed(&mut self, hashes: FileHashes, bytes: &[u8]) {
        if hashes.has(0) {
            self.md5.update(bytes);
        }
        if hashes.has(1) {
            self.sha1.update(bytes);
        }
        if hashes.has(2) {
            self.sha256.update(bytes);
        }
    }
}

/// Hashes of the files of all slots of a pool.
#[derive(Debug)]
pub(super) struct Hashing {
    digests: Box<[Digests]>,
    /// Hashes that the rules of the current flow test.
    wanted: FileHashes,
    work: WorkBudget,
}

impl Hashing {
    pub fn new(count: u32, work: WorkBudget) -> Self {
        Self {
            digests: vec![Digests::default(); count as usize].into(),
            wanted: FileHashes::NONE,
            work,
        }
    }
}

impl Slots {
    /// Enables these hashes from now on. Only hashes that were enabled for all bytes of a file are computed.
    pub(in crate::protocols) fn hash_files(&mut self, wanted: FileHashes) {
        if let Some(hashing) = &mut self.hashing {
            hashing.wanted = wanted;
        }
    }

    fn open(&mut self, handle: SlotHandle) -> Option<&mut State> {
        let state = self.states.get_mut(handle.index as usize);
        state.filter(|state| state.open && state.serial == handle.serial)
    }

    /// Begins a file.
    pub(in crate::protocols) fn start_file(&mut self, handle: SlotHandle) {
        if let Some(state) = self.open(handle) {
            state.hashes = Progress::Begins;
            HASHES
                .iter()
                .for_each(|&hash| state.fields[hash as usize] = Default::default());
        }
    }

    /// Marks the file as incomplete.
    pub(in crate::protocols) fn file_incomplete(&mut self, handle: SlotHandle) {
        if let Some(state) = self.open(handle) {
            state.hashes = Progress::Over;
        }
    }

    /// Excludes from the hashes of a file the line end at the current end of the file.
    pub(in crate::protocols) fn file_ends_before_line_end(&mut self, handle: SlotHandle) {
        let hashing = self.hashing.as_mut();
        if let Some(digests) = hashing.and_then(|hashing| hashing.digests.get_mut(handle.index as usize)) {
            digests.line_end.clear();
        }
    }

    /// Hashes the new bytes of a file's window, starting at an offset. When the file is complete, the hashes of the
    /// file are stored.
    pub(in crate::protocols) fn file_grows(&mut self, handle: SlotHandle, from: usize) {
        let Some(Hashing { digests, wanted, work }) = &mut self.hashing else {
            return;
        };
        let index = handle.index as usize;
        let state = self.states.get_mut(index);
        let Some(state) = state.filter(|state| state.open && state.serial == handle.serial) else {
            return;
        };
        let slot = index * self.layout.bytes as usize;
        let start = slot + self.layout.places[Buffer::FileData as usize].0 as usize;
        let Field { shown, complete, .. } = state.fields[Buffer::FileData as usize];
        let bytes = self.bytes.get(start + from..start + shown as usize).unwrap_or_default();
        let Some(digests) = digests.get_mut(index) else { return };
        match state.hashes {
            Progress::Begins if bytes.is_empty() => return,
            Progress::Begins if *wanted == FileHashes::NONE => state.hashes = Progress::Over,
            Progress::Begins => {
                *digests = Digests::default();
                state.hashes = Progress::Open(*wanted);
            }
            _ => {}
        }
        let Progress::Open(hashes) = state.hashes else { return };
        let hashes = FileHashes(hashes.0 & wanted.0);
        let units = bytes.len() / BYTES * hashes.units();
        if hashes == FileHashes::NONE || !work.charge(units as u32) {
            state.hashes = Progress::Over;
            return;
        }
        state.hashes = Progress::Open(hashes);
        digests.update(hashes, bytes);
        if !complete {
            return;
        }
        state.hashes = Progress::Over;
        digests.feed_line_end(hashes);
        let Digests { md5, sha1, sha256, .. } = std::mem::take(digests);
        let digests: [&[u8]; 3] = [&md5.finalize(), &sha1.finalize(), &sha256.finalize()];
        for (place, (buffer, digest)) in HASHES.into_iter().zip(digests).enumerate() {
            if hashes.has(place) {
                let start = slot + self.layout.places[buffer as usize].0 as usize;
                self.bytes[start..start + digest.len()].copy_from_slice(digest);
                let field = &mut state.fields[buffer as usize];
                (field.written, field.shown, field.complete) = (digest.len() as u32, digest.len() as u32, true);
                state.dirty |= 1 << buffer as u64;
            }
        }
    }
}
