//! Reads a lease file continuously, also across rotation, replacement and rewriting.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chain::{Chain, Identity, rotated};
use super::fault::{Fault, Reason};
use super::fault_log::FaultLog;
use super::full_read::FullRead;
use super::table::Table;
use super::{Change, Entry, Format, Lost, Reader};

/// Bytes per read.
const READ: usize = 128 * 1024;

/// Number of bytes before the read position that are compared with the file to detect a rewritten file.
const MARK: usize = 64;

/// The current time of two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Unix time in seconds, as in lease files.
    pub unix: u64,
    /// Monotonic time in nanoseconds.
    pub monotonic: u64,
}

/// Why a lease file can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}: the leases read before stay valid; check the permissions of the file and its folder",
     path.display())]
pub struct SourceError {
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the kernel.
    pub error: io::Error,
}

/// Counters of a lease file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFileCounters {
    /// Entries read.
    pub entries: u64,
    /// Faulty parts that were skipped, in the order of [`Reason::ALL`].
    pub faults: [u64; Reason::ALL.len()],
    /// Leases added.
    pub gained: u64,
    /// Leases that changed to another terminal or location.
    pub changed: u64,
    /// Leases that were extended or got a different host name.
    pub renewed: u64,
    /// Leases lost, in the order of [`Lost::ALL`].
    pub lost: [u64; Lost::ALL.len()],
    /// Number of times that the file was read from its beginning.
    pub readings: u64,
    /// Number of rotations by Kea.
    pub rotations: u64,
}

/// Reader of one lease file.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    format: Format,
    limit: usize,
    table: Table,
    reader: Reader,
    there: bool,
    open: Option<Open>,
    full_read: Option<FullRead>,
    counts: LeaseFileCounters,
    fault_log: FaultLog,
    buffer: Vec<u8>,
    read: Vec<Result<Entry, Fault>>,
    ending: Arc<AtomicBool>,
}

/// The file that is currently read.
#[derive(Debug)]
struct Open {
    file: File,
    identity: Identity,
    /// Number of bytes read.
    offset: u64,
    mark: Vec<u8>,
}

impl Open {
    /// Whether the file still begins with the bytes that were read before.
    fn is_continued(&self) -> io::Result<bool> {
        let mut mark = [0; MARK];
        let mark = &mut mark[..self.mark.len()];
        match self.file.read_exact_at(mark, self.offset - mark.len() as u64) {
            Ok(()) => Ok(mark == self.mark),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        let excess = (self.mark.len() + bytes.len().min(MARK)).saturating_sub(MARK);
        self.mark.drain(..excess);
        self.mark.extend_from_slice(&bytes[bytes.len().saturating_sub(MARK)..]);
    }
}

impl Source {
    /// Create a reader of the file at `path`, for at most `limit` leases. The file need not exist yet. `ending` aborts
    /// a reading in progress.
    pub fn new(path: &Path, format: Format, limit: usize, ending: Arc<AtomicBool>) -> Self {
        Self {
            path: path.to_owned(),
            format,
            limit,
            table: Table::new(limit),
            reader: Reader::new(format),
            there: false,
            open: None,
            full_read: None,
            counts: LeaseFileCounters::default(),
            fault_log: FaultLog::default(),
            buffer: vec![0; READ],
            read: Vec::new(),
            ending,
        }
    }

    /// The current leases.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Counters since the start.
    pub fn counts(&self) -> &LeaseFileCounters {
        &self.counts
    }

    /// Whether the file existed at the last check.
    pub fn exists(&self) -> bool {
        self.there
    }

    /// Whether a rewritten file is still being read, so that leases missing in the file are not reported as lost yet.
    pub fn is_unsettled(&self) -> bool {
        self.full_read.is_some()
    }

    /// Read the file from its beginning at the next check.
    pub fn forget(&mut self) {
        (self.open, self.full_read) = (None, None);
    }

    /// Read new entries.
    ///
    /// # Errors
    /// The file exists but can't be read. The next call tries again.
    pub fn look(&mut self, now: Now, changes: &mut Vec<Change>) -> Result<(), SourceError> {
        let first = changes.len();
        self.table.expire(now.unix, changes);
        let looked = self.follow(now, changes);
        if let Some(full_read) = self
            .full_read
            .take_if(|full_read| full_read.is_settled(now.monotonic) && self.reader.is_complete())
        {
            let refused = full_read.settle(&mut self.table, now.unix, changes);
            self.count_full(refused);
        }
        self.fault_log.flush(&self.path, now.monotonic);
        for change in &changes[first..] {
            match change {
                Change::Gained(_) => self.counts.gained += 1,
                Change::Changed { .. } => self.counts.changed += 1,
                Change::Renewed(_) => self.counts.renewed += 1,
                Change::Lost { why, .. } => self.counts.lost[*why as usize] += 1,
            }
        }
        looked.map_err(|error| SourceError {
            path: self.path.clone(),
            error,
        })
    }

    fn follow(&mut self, now: Now, changes: &mut Vec<Change>) -> io::Result<()> {
        let named = Identity::at(&self.path)?;
        self.there = named.is_some();
        let Some(open) = &self.open else {
            return match named {
                Some(_) => self.start(now, changes),
                None => Ok(()),
            };
        };
        let identity = open.identity;
        if !open.is_continued()? {
            return self.start(now, changes);
        }
        // Read the data that was written before the file was renamed or removed.
        self.drain(now, changes)?;
        match named {
            Some(named) if named == identity => Ok(()),
            // The file is missing. The leases remain until the file is created again.
            None => Ok(()),
            Some(_) if self.format == Format::Kea && Identity::at(&rotated(&self.path))? == Some(identity) => {
                self.read_on(now, changes)
            }
            Some(_) => self.start(now, changes),
        }
    }

    /// Read all files from the beginning. An aborted read starts again at the next check.
    fn start(&mut self, now: Now, changes: &mut Vec<Change>) -> io::Result<()> {
        self.forget();
        let read = self.read_all(now, changes);
        if read.is_err() {
            self.forget();
        }
        read
    }

    fn read_all(&mut self, now: Now, changes: &mut Vec<Change>) -> io::Result<()> {
        let Some(Chain { earlier, last }) = Chain::open(self.format, &self.path)? else {
            return Ok(());
        };
        self.counts.readings += 1;
        self.full_read = Some(FullRead::start(self.limit, now.monotonic));
        for (_, file) in earlier {
            self.open_at_start(file)?;
            self.drain(now, changes)?;
        }
        self.open_at_start(last)?;
        self.drain(now, changes)?;
        if let Some(full_read) = &mut self.full_read {
            full_read.catch_up(&mut self.table, now.unix, changes);
        }
        Ok(())
    }

    /// Continue with the new file after a rotation by Kea.
    fn read_on(&mut self, now: Now, changes: &mut Vec<Change>) -> io::Result<()> {
        let file = File::open(&self.path)?;
        self.counts.rotations += 1;
        self.open_at_start(file)?;
        self.drain(now, changes)
    }

    fn open_at_start(&mut self, file: File) -> io::Result<()> {
        let identity = Identity::of(&file.metadata()?);
        if let Some(fault) = self.reader.unfinished().filter(|_| self.open.is_some()) {
            self.fault(fault);
        }
        self.reader = Reader::new(self.format);
        self.open = Some(Open {
            file,
            identity,
            offset: 0,
            mark: Vec::with_capacity(2 * MARK),
        });
        Ok(())
    }

    /// Read to the current end of the file.
    fn drain(&mut self, now: Now, changes: &mut Vec<Change>) -> io::Result<()> {
        while let Some(open) = &mut self.open
            && !self.ending.load(Ordering::Relaxed)
        {
            let length = match open.file.read_at(&mut self.buffer, open.offset) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = &self.buffer[..length];
            open.advance(bytes);
            self.reader.read(bytes, &mut self.read);
            if let Some(full_read) = &mut self.full_read {
                full_read.grow(now.monotonic);
            }
            for read in std::mem::take(&mut self.read) {
                match read {
                    Ok(entry) => self.add(entry, now, changes),
                    Err(fault) => self.fault(fault),
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: Entry, now: Now, changes: &mut Vec<Change>) {
        self.counts.entries += 1;
        let applied = match &mut self.full_read {
            Some(full_read) => full_read.add(entry, &mut self.table, now.unix, changes),
            None => self.table.apply(entry, now.unix, changes),
        };
        self.count_full(usize::from(applied.is_err()));
    }

    fn fault(&mut self, fault: Fault) {
        self.counts.faults[fault.reason as usize] += 1;
        self.fault_log.add(fault);
    }

    /// Count leases that were rejected because of the maximum number.
    fn count_full(&mut self, refused: usize) {
        if refused > 0 {
            self.counts.faults[Reason::Full as usize] += refused as u64;
            let (line, reason) = (self.reader.line(), Reason::Full);
            self.fault_log.add(Fault { line, reason });
        }
    }
}
