//! The files that a server's leases are in.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Format;

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Of the file with a name; none where there is none.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What Kea calls the file that it put aside to clean it up, see its `lfc-interval`.
pub fn rotated(path: &Path) -> PathBuf {
    beside(path, ".1")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The files to read before the one that is written to, as Kea does at its start: what its clean-up has completed, or
/// else what it made the last time and what it was to clean up.
fn earlier(format: Format, path: &Path) -> io::Result<Vec<(PathBuf, File)>> {
    let names: &[&[&str]] = match format {
        Format::Kea => &[&[".completed"], &[".2", ".1"]],
        Format::Dhcpd => &[],
    };
    let mut found = Vec::new();
    for endings in names {
        for ending in *endings {
            let path = beside(path, ending);
            match File::open(&path) {
                Ok(file) => found.push((path, file)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// All files of a server, open: none of them is renamed or removed between two of the openings.
#[derive(Debug)]
pub struct Chain {
    /// Those that are not written to any more, the oldest one first.
    pub earlier: Vec<(PathBuf, File)>,
    /// The one that is.
    pub last: File,
}

impl Chain {
    /// Open them. None where there is no file, or the server moves them about just now.
    pub fn open(format: Format, path: &Path) -> io::Result<Option<Self>> {
        let before = names(format, path)?;
        let earlier = earlier(format, path)?;
        let last = match File::open(path) {
            Ok(last) => last,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let still = before == names(format, path)? && before.first() == Some(&Some(Identity::of(&last.metadata()?)));
        Ok(still.then_some(Self { earlier, last }))
    }
}

fn names(format: Format, path: &Path) -> io::Result<Vec<Option<Identity>>> {
    let endings: &[&str] = match format {
        Format::Kea => &["", ".1", ".2", ".completed"],
        Format::Dhcpd => &[""],
    };
    endings
        .iter()
        .map(|ending| Identity::at(&beside(path, ending)))
        .collect()
}
