//! A compiled prefilter in a file.
//!
//! All numbers are little-endian. The header identifies the library, the processor and the signatures from which the
//! file was made, and ends with the digest of the payload. The payload is parsed only if the whole header is as
//! expected. This rejects damaged content and content from another program, processor or user.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::bytes::{Reader, Truncated, Writer};
use super::{Fingerprint, PatternClass, PatternGroup, Prefilter, Search};
use crate::bindings::vectorscan::{self, Database, Platform};

const MAGIC: &[u8; 8] = b"SLUICEPF";
/// Version of the file format. The version is incremented with every change of the format.
const FORMAT: u32 = 2;
/// Size in bytes of the field that contains the library's version.
const VERSION: usize = 64;
const HEADER: usize = 8 + 4 + VERSION + 4 + 8 + 32 + 8 + 32;

/// Why a cache file is not used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file does not exist.
    #[error("the cache file does not exist")]
    Missing,
    /// The file could not be read or written.
    #[error("the cache: {0}")]
    Io(#[from] io::Error),
    /// The path is not a regular file.
    #[error("the cache is not a regular file")]
    Kind,
    /// The file belongs to another user.
    #[error("the cache belongs to user {uid}")]
    Owner {
        /// User that owns the file.
        uid: u32,
    },
    /// Other users may write the file.
    #[error("users other than the owner may write the cache (mode {mode:o})")]
    Writable {
        /// Permissions of the file.
        mode: u32,
    },
    /// The file does not begin with the magic number of a cache.
    #[error("the file is not a cache of compiled patterns")]
    Magic,
    /// The file has a different format version.
    #[error("the cache has format {found}, not {FORMAT}")]
    Format {
        /// Format version of the file.
        found: u32,
    },
    /// The file was compiled by a different version of Vectorscan.
    #[error("the cache was compiled by another version of Vectorscan ({found:?})")]
    Library {
        /// Version of Vectorscan that compiled the file.
        found: Box<str>,
    },
    /// The file was compiled for a different processor.
    #[error("the cache was compiled for another processor")]
    Processor,
    /// The file was compiled from different signatures.
    #[error("the cache was compiled from other signatures")]
    Signatures,
    /// The length of the file differs from its header.
    #[error("the cache has {found} bytes instead of {expected} bytes")]
    Length {
        /// Length in bytes according to the header.
        expected: u64,
        /// Actual length in bytes.
        found: u64,
    },
    /// The digest does not match the payload.
    #[error("the cache is damaged")]
    Digest,
    /// The payload is invalid although its digest matches.
    #[error("the content of the cache can't be decoded")]
    Content,
    /// Vectorscan returned an error.
    #[error("the cache: {0}")]
    Vectorscan(#[from] vectorscan::Error),
}

impl From<Truncated> for CacheError {
    fn from(_: Truncated) -> Self {
        Self::Content
    }
}

impl Prefilter {
    /// Writes the prefilter to a file that only this user may write. The file is replaced atomically: a reader of the
    /// path sees either the old or the new file.
    pub fn store(&self, path: &Path) -> Result<(), CacheError> {
        let payload = self.payload()?;
        let header = header(self.fingerprint, &payload)?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        let written = write(&fresh, &[&header, &payload]).and_then(|()| std::fs::rename(&fresh, path));
        if written.is_err() {
            // An error of the removal is ignored, because the preceding error is returned.
            let _ = std::fs::remove_file(&fresh);
        }
        written?;
        File::open(folder)?.sync_all()?;
        Ok(())
    }

    /// Loads a file that [`Prefilter::store`] wrote. The file is accepted only if its content equals the result of
    /// compiling the signatures on this machine.
    pub fn load(path: &Path, expected: Fingerprint) -> Result<Prefilter, CacheError> {
        let file = read(path)?;
        let mut reader = Reader(&file);
        let length = |expected: usize| CacheError::Length {
            expected: expected as u64,
            found: file.len() as u64,
        };
        let short = |_: Truncated| length(HEADER);
        if reader.take(MAGIC.len()).map_err(short)? != MAGIC {
            return Err(CacheError::Magic);
        }
        let format = reader.number().map_err(short)?;
        if format != FORMAT {
            return Err(CacheError::Format { found: format });
        }
        let library = reader.take(VERSION).map_err(short)?;
        if library != version() {
            let text = library.split(|&byte| byte == 0).next().unwrap_or_default();
            return Err(CacheError::Library {
                found: String::from_utf8_lossy(text).into(),
            });
        }
        let here = Platform::here()?;
        let platform = (reader.number().map_err(short)?, reader.long().map_err(short)?);
        if platform != (here.tune, here.features) {
            return Err(CacheError::Processor);
        }
        if reader.take(32).map_err(short)? != expected.0 {
            return Err(CacheError::Signatures);
        }
        let bytes = reader.long().map_err(short)?;
        let digest = reader.take(32).map_err(short)?;
        if reader.0.len() as u64 != bytes {
            return Err(CacheError::Length {
                expected: bytes.saturating_add(HEADER as u64),
                found: file.len() as u64,
            });
        }
        if Sha256::digest(reader.0)[..] != *digest {
            return Err(CacheError::Digest);
        }
        reader.prefilter(expected)
    }

    fn payload(&self) -> Result<Vec<u8>, CacheError> {
        let mut out = Writer(Vec::new());
        out.number(self.groups().count() as u32);
        for group in self.groups() {
            out.number(group.class.index() as u32);
            out.number(group.shortest);
            out.number(group.longest);
            out.list(&group.starts);
            out.list(&group.rules);
            out.bytes(&match &group.search {
                Search::Block(database) => database.serialise()?,
                Search::Stream(database) => database.serialise()?,
            });
        }
        out.number(self.unconditional.len() as u32);
        for (protocol, rules) in &self.unconditional {
            out.protocol(*protocol);
            out.list(rules);
        }
        self.without_pattern.iter().for_each(|rules| out.list(rules));
        Ok(out.0)
    }
}

fn version() -> [u8; VERSION] {
    let mut bytes = [0; VERSION];
    for (to, from) in bytes.iter_mut().zip(vectorscan::version().bytes()) {
        *to = from;
    }
    bytes
}

fn header(fingerprint: Fingerprint, payload: &[u8]) -> Result<Vec<u8>, CacheError> {
    let here = Platform::here()?;
    let mut out = Writer(MAGIC.to_vec());
    out.number(FORMAT);
    out.0.extend(version());
    out.number(here.tune);
    out.0.extend(here.features.to_le_bytes());
    out.0.extend(fingerprint.0);
    out.0.extend((payload.len() as u64).to_le_bytes());
    out.0.extend(Sha256::digest(payload));
    Ok(out.0)
}

fn write(path: &PathBuf, parts: &[&[u8]]) -> io::Result<()> {
    // An earlier process with the same process identifier may have left this file.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

/// Reads a file that no other user can have written.
fn read(path: &Path) -> Result<Vec<u8>, CacheError> {
    // Don't follow a symbolic link, and don't block on a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => CacheError::Missing,
        _ if path.is_symlink() => CacheError::Kind,
        _ => error.into(),
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(CacheError::Kind);
    }
    trusted(about.uid(), about.mode())?;
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0).saturating_add(1));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Files of root are trusted, because root can write any file.
pub fn trusted(uid: u32, mode: u32) -> Result<(), CacheError> {
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(CacheError::Owner { uid });
    }
    match mode & 0o7777 {
        mode if mode & 0o022 != 0 => Err(CacheError::Writable { mode }),
        _ => Ok(()),
    }
}

impl Reader<'_> {
    fn prefilter(mut self, fingerprint: Fingerprint) -> Result<Prefilter, CacheError> {
        let mut groups = [const { None }; PatternClass::COUNT];
        for _ in 0..self.number()? {
            let group = self.group()?;
            let index = group.class.index();
            groups[index] = Some(group);
        }
        let mut unconditional = Vec::new();
        for _ in 0..self.number()? {
            unconditional.push((self.protocol()?, self.list()?));
        }
        let mut without_pattern: [Box<[u32]>; PatternClass::COUNT] = std::array::from_fn(|_| Box::default());
        for rules in &mut without_pattern {
            *rules = self.list()?;
        }
        match self.0 {
            [] => Ok(Prefilter {
                groups,
                unconditional,
                without_pattern,
                fingerprint,
            }),
            _ => Err(CacheError::Content),
        }
    }

    fn group(&mut self) -> Result<PatternGroup, CacheError> {
        let class = PatternClass::from_index(self.number()? as usize).ok_or(CacheError::Content)?;
        let shortest = self.number()?;
        let longest = self.number()?;
        let starts = self.list()?;
        let rules = self.list()?;
        if !starts.is_sorted() || starts.first() != Some(&0) || starts.last() != Some(&(rules.len() as u32)) {
            return Err(CacheError::Content);
        }
        let database = self.bytes()?;
        Ok(PatternGroup {
            class,
            search: match class {
                PatternClass::Stream(_) => Search::Stream(Arc::new(Database::deserialise(database)?)),
                _ => Search::Block(Database::deserialise(database)?),
            },
            rules,
            starts,
            shortest,
            longest,
        })
    }
}
