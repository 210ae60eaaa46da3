//! Finds and opens the files that contain a server's leases.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Format;

/// Identity of a file. The identity does not depend on the file's name.
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

    /// Identity of the file at a path. `None` if no file exists at the path.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Name to which Kea renames the lease file before its lease file cleanup (`lfc-interval`).
pub fn rotated(path: &Path) -> PathBuf {
    beside(path, ".1")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Files that must be read before the current file: the completed output of Kea's lease file cleanup. If this output
/// does not exist, these files are the previous output and the input of the cleanup. Kea reads the same files when it
/// starts.
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

/// All lease files of a server. While the files were opened, no file was renamed or removed.
#[derive(Debug)]
pub struct Chain {
    /// Files to which the server no longer writes. The oldest comes first.
    pub earlier: Vec<(PathBuf, File)>,
    /// The current file.
    pub last: File,
}

impl Chain {
    /// Open the files. `None` if no file exists, or if the server is rotating its files.
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
