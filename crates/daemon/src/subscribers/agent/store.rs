//! Leases on disk, so that they outlive the process: a text file, a line for each, which is replaced as a whole.
//!
//! Each line carries its checksum, and the first says how many there are: of a file that is damaged, what can be read
//! is taken. Times are those of the wall clock, as nothing else goes on while the machine is off.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sluice_wire::Mac;

use super::{Event, Lease, NEVER, Nanoseconds, SECOND};
use crate::files;
use crate::subscribers::MOST_SITES;
use crate::subscribers::virtual_mac::text;

/// What the first line begins with.
const TITLE: &str = "sluice-public-leases 1";
/// Longest file that is read, in bytes.
const LONGEST: u64 = MOST_SITES as u64 * 160;
/// Shortest time between two writes.
const PAUSE: Nanoseconds = SECOND;
/// How long a lease's new end may be missing in the file: what is known there is shorter, and is asked for anyway.
const PATIENCE: Nanoseconds = 30 * SECOND;
/// How long after a failure the next try is.
const RETRY: Nanoseconds = 10 * SECOND;
/// How far the wall clock may go astray, in seconds, before the file is written anew.
const ASTRAY: u64 = 2;

/// The present, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// As the agent counts.
    pub now: Nanoseconds,
    /// In seconds since 1970.
    pub unix: u64,
}

impl Present {
    /// When the agent's clock began, in seconds since 1970.
    fn beginning(self) -> u64 {
        self.unix.wrapping_sub(self.now / SECOND)
    }
}

/// What is wrong with the file of leases.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It can't be read or written.
    #[error("{}: {error}: leases do not outlive a restart", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is something else, or another version's.
    #[error("{}: line 1 is not that of a file of public leases of this version; it is left out, and written anew", path.display())]
    Title {
        /// Its path.
        path: PathBuf,
    },
    /// Some of it is damaged.
    #[error("{}: {lines} lines are damaged or missing, the first of them line {first}; the others are taken", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// How many lines.
        lines: usize,
        /// The first, from 1.
        first: usize,
    },
}

/// What was kept.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Leases that still run, by the MACs of their sites.
    pub leases: Vec<(Mac, Lease)>,
    /// Leases that ran out meanwhile.
    pub expired: usize,
    /// What is wrong with the file.
    pub problem: Option<StoreError>,
}

/// The file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    due: Nanoseconds,
    /// When it was written last, and what [`Present::beginning`] was then.
    written: Option<(Nanoseconds, u64)>,
}

impl Store {
    /// Open the file, and read what it holds. There may be none yet.
    pub fn load(path: &Path, present: Present) -> (Self, Loaded) {
        let store = Self {
            path: path.to_owned(),
            due: NEVER,
            written: None,
        };
        let loaded = match read(path) {
            Ok(bytes) => parse(path, &bytes, present),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Loaded::default(),
            Err(error) => Loaded {
                problem: Some(store.error(error)),
                ..Loaded::default()
            },
        };
        (store, loaded)
    }

    /// What happened, which may be a reason to write.
    pub fn note(&mut self, event: &Event, now: Nanoseconds) {
        let latest = match event {
            Event::Bound(..) | Event::Changed { .. } | Event::Lost { .. } => now,
            Event::Renewed(..) => now.saturating_add(PATIENCE),
            Event::Fault { .. } | Event::Servers(_) => return,
        };
        let earliest = self.written.map_or(0, |(written, _)| written.saturating_add(PAUSE));
        self.due = self.due.min(latest.max(earliest));
    }

    /// When it is to be written; none where nothing changed.
    pub fn due(&self) -> Option<Nanoseconds> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Whether it is to be written now: something changed, or the wall clock was set.
    pub fn is_due(&self, present: Present) -> bool {
        let set = self.written.is_some_and(|(written, beginning)| {
            present.now >= written.saturating_add(PAUSE) && beginning.abs_diff(present.beginning()) > ASTRAY
        });
        set || present.now >= self.due
    }

    /// Write all leases: those of [`super::Agent::leases`].
    ///
    /// # Errors
    /// The file can't be written: what it held before stays, and the next try is due in ten seconds.
    pub fn write(&mut self, leases: impl Iterator<Item = (Mac, Lease)>, present: Present) -> Result<(), StoreError> {
        match self.replace(leases, present) {
            Ok(()) => {
                self.due = NEVER;
                self.written = Some((present.now, present.beginning()));
                Ok(())
            }
            Err(error) => {
                self.due = present.now.saturating_add(RETRY);
                Err(self.error(error))
            }
        }
    }

    fn replace(&self, leases: impl Iterator<Item = (Mac, Lease)>, present: Present) -> io::Result<()> {
        let lines: Vec<String> = leases.map(|(mac, lease)| line(mac, lease, present)).collect();
        files::replace(&self.path, 0o640, |file| {
            writeln!(file, "{}", sealed(format!("{TITLE} {} {}", present.unix, lines.len())))?;
            lines.iter().try_for_each(|line| writeln!(file, "{line}"))
        })
    }

    fn error(&self, error: io::Error) -> StoreError {
        let path = self.path.clone();
        StoreError::File { path, error }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, LONGEST), &mut bytes)?;
    Ok(bytes)
}

/// FNV-1a: finds what disks and people do to a line.
fn checksum(text: &str) -> u32 {
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

fn sealed(text: String) -> String {
    format!("{text} {:08x}", checksum(&text))
}

/// A line without its checksum, where that is right.
fn unsealed(line: &str) -> Option<&str> {
    let (text, sum) = line.rsplit_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == checksum(text)).then_some(text)
}

fn line(mac: Mac, lease: Lease, present: Present) -> String {
    let unix = |time: Nanoseconds| match time {
        NEVER => u64::MAX,
        _ => present.unix.saturating_add(time.saturating_sub(present.now) / SECOND),
    };
    let router = lease.router.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let times = [lease.renew, lease.rebind, lease.expires].map(unix);
    sealed(format!(
        "{} {}/{} {router} {} {} {} {}",
        text(mac),
        lease.address,
        lease.prefix_length,
        lease.server,
        times[0],
        times[1],
        times[2],
    ))
}

fn parse(path: &Path, bytes: &[u8], present: Present) -> Loaded {
    let content = String::from_utf8_lossy(bytes);
    let mut lines = content.lines();
    let title = lines
        .next()
        .and_then(unsealed)
        .and_then(|line| line.strip_prefix(TITLE));
    let numbers = title.and_then(|title| {
        let (written, count) = title.trim().split_once(' ')?;
        Some((written.parse::<u64>().ok()?, count.parse::<usize>().ok()?))
    });
    let mut loaded = Loaded::default();
    // Without its title the lines may still be right, and those are what counts.
    let (written, count) = numbers.unwrap_or((0, 0));
    // A clock that was set back since tells nothing about the time that passed.
    let unix = present.unix.max(written);
    let (mut damaged, mut first, mut read) = (0, None, 0);
    for (number, line) in (2..).zip(lines) {
        read += 1;
        match unsealed(line).and_then(|line| lease(line, unix, present.now)) {
            None => {
                damaged += 1;
                first.get_or_insert(number);
            }
            Some((_, lease)) if lease.expires <= present.now => loaded.expired += 1,
            Some(kept) => loaded.leases.push(kept),
        }
    }
    let missing = count.saturating_sub(read);
    loaded.problem = if damaged + missing > 0 {
        Some(StoreError::Damaged {
            path: path.to_owned(),
            lines: damaged + missing,
            first: first.unwrap_or(read + 2),
        })
    } else {
        let path = path.to_owned();
        numbers.is_none().then_some(StoreError::Title { path })
    };
    loaded
}

fn lease(line: &str, unix: u64, now: Nanoseconds) -> Option<(Mac, Lease)> {
    let mut words = line.split(' ');
    let mut mac = [0; 6];
    let mut digits = words.next()?.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(digits.next()?, 16).ok()?;
    }
    let (address, prefix_length) = words.next()?.split_once('/')?;
    let (router, server) = (words.next()?, words.next()?);
    let mut time = || -> Option<Nanoseconds> {
        Some(match words.next()?.parse::<u64>().ok()? {
            u64::MAX => NEVER,
            time => now.saturating_add(time.saturating_sub(unix).min(u64::from(u32::MAX)) * SECOND),
        })
    };
    let lease = Lease {
        address: address.parse().ok()?,
        prefix_length: prefix_length.parse().ok().filter(|length| *length <= 32)?,
        router: Some(router.parse().ok()?).filter(|router: &Ipv4Addr| !router.is_unspecified()),
        server: server.parse().ok()?,
        renew: time()?,
        rebind: time()?,
        expires: time()?,
    };
    (digits.next().is_none() && words.next().is_none()).then_some((mac, lease))
}

#[cfg(test)]
mod tests;
