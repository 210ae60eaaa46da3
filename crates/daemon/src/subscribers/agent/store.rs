//! Persistent storage of leases: a text file with one line per lease. The whole file is replaced at each write.
//!
//! Each line has a checksum, and the first line contains the number of leases. The intact lines of a damaged file are
//! used. Times are wall-clock times, because no other clock continues while the machine is off.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sluice_wire::Mac;

use super::{Event, LeaseChange, NEVER, Nanoseconds, PublicLease, SECOND};
use crate::files;
use crate::subscribers::MAX_SITES;
use crate::subscribers::virtual_mac::text;

/// Beginning of the first line.
const TITLE: &str = "sluice-public-leases 1";
/// Maximum size of the file in bytes.
const LONGEST: u64 = MAX_SITES as u64 * 160;
/// Minimum interval between two writes.
const PAUSE: Nanoseconds = SECOND;
/// Maximum delay before the extension of a lease is written. An outdated file only contains an earlier end of the
/// lease. After a restart, leases are confirmed with the server anyway.
const PATIENCE: Nanoseconds = 30 * SECOND;
/// Interval between a failed write and the next attempt.
const RETRY: Nanoseconds = 10 * SECOND;
/// Maximum jump of the wall clock, in seconds, that does not require a new write of the file.
const MAX_BOOT_SKEW: u64 = 2;

/// The current time of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// Time on the agent's clock.
    pub now: Nanoseconds,
    /// Unix time in seconds.
    pub unix: u64,
}

impl Present {
    /// Unix time in seconds at which the agent's clock started.
    fn boot_time(self) -> u64 {
        self.unix.wrapping_sub(self.now / SECOND)
    }
}

/// Why the file, or a part of it, can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file can't be read or written.
    #[error("{}: {error}: public leases can't be stored, and a restart loses them", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The file has a different format or version.
    #[error(
        "{} is not a public-lease file in the format of this Sluice version; the file is ignored and will be overwritten",
        path.display()
    )]
    Title {
        /// Path of the file.
        path: PathBuf,
    },
    /// Some lines are damaged.
    #[error("{}: {lines} lines are damaged or missing, beginning with line {first}; the other lines are used",
         path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Number of damaged or missing lines.
        lines: usize,
        /// Number of the first damaged line, from 1.
        first: usize,
    },
}

/// Contents of the file.
#[derive(Debug, Default)]
pub struct StoredLeases {
    /// Leases that are still valid, by the MACs of their sites.
    pub leases: Vec<(Mac, PublicLease)>,
    /// Number of leases that have expired.
    pub expired: usize,
    /// Error in the file.
    pub problem: Option<StoreError>,
}

/// The file of leases.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    due: Nanoseconds,
    /// Time of the last write, with the value of [`Present::boot_time`] at that time.
    written: Option<(Nanoseconds, u64)>,
}

impl Store {
    /// Read the file. The file need not exist yet.
    pub fn load(path: &Path, present: Present) -> (Self, StoredLeases) {
        let store = Self {
            path: path.to_owned(),
            due: NEVER,
            written: None,
        };
        let loaded = match read(path) {
            Ok(bytes) => parse(path, &bytes, present),
            Err(error) if error.kind() == io::ErrorKind::NotFound => StoredLeases::default(),
            Err(error) => StoredLeases {
                problem: Some(store.error(error)),
                ..StoredLeases::default()
            },
        };
        (store, loaded)
    }

    /// Schedule a write if an event requires one.
    pub fn note(&mut self, event: &Event, now: Nanoseconds) {
        let latest = match event.lease_change() {
            Some((_, LeaseChange::Gained(_) | LeaseChange::Ended(_))) => now,
            Some((_, LeaseChange::Extended(_))) => now.saturating_add(PATIENCE),
            None => return,
        };
        let earliest = self.written.map_or(0, |(written, _)| written.saturating_add(PAUSE));
        self.due = self.due.min(latest.max(earliest));
    }

    /// Time of the next write. `None` if nothing has changed.
    pub fn due(&self) -> Option<Nanoseconds> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Whether a write is due, because a lease has changed or the wall clock was set.
    pub fn is_due(&self, present: Present) -> bool {
        let set = self.written.is_some_and(|(written, boot_time)| {
            present.now >= written.saturating_add(PAUSE) && boot_time.abs_diff(present.boot_time()) > MAX_BOOT_SKEW
        });
        set || present.now >= self.due
    }

    /// Write all leases, as listed by [`super::Agent::leases`].
    ///
    /// # Errors
    /// The file can't be written. The previous content of the file remains, and the next attempt is due in ten seconds.
    pub fn write(
        &mut self,
        leases: impl Iterator<Item = (Mac, PublicLease)>,
        present: Present,
    ) -> Result<(), StoreError> {
        match self.replace(leases, present) {
            Ok(()) => {
                self.due = NEVER;
                self.written = Some((present.now, present.boot_time()));
                Ok(())
            }
            Err(error) => {
                self.due = present.now.saturating_add(RETRY);
                Err(self.error(error))
            }
        }
    }

    fn replace(&self, leases: impl Iterator<Item = (Mac, PublicLease)>, present: Present) -> io::Result<()> {
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

/// FNV-1a checksum. The checksum detects disk errors and manual edits.
fn checksum(text: &str) -> u32 {
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

fn sealed(text: String) -> String {
    format!("{text} {:08x}", checksum(&text))
}

/// Returns a line without its checksum. `None` if the checksum is wrong.
fn unsealed(line: &str) -> Option<&str> {
    let (text, sum) = line.rsplit_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == checksum(text)).then_some(text)
}

fn line(mac: Mac, lease: PublicLease, present: Present) -> String {
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

fn parse(path: &Path, bytes: &[u8], present: Present) -> StoredLeases {
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
    let mut loaded = StoredLeases::default();
    // If the first line is invalid, the other lines may still be valid and are used.
    let (written, count) = numbers.unwrap_or((0, 0));
    // If the clock was set back after the write, the elapsed time is unknown and assumed to be zero.
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
            Some(restored) => loaded.leases.push(restored),
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

fn lease(line: &str, unix: u64, now: Nanoseconds) -> Option<(Mac, PublicLease)> {
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
    let lease = PublicLease {
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
