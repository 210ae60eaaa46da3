//! All functions that write to files. Other modules write files only through this module.
//!
//! | kind | how | mode |
//! | --- | --- | --- |
//! | appended lines ([`Log`]) | whole lines only, rotated by size, reopened on request | 0640 |
//! | state ([`replace`]) | a new file in the same folder, synced to disk, renamed | set by the caller |
//! | output of a command ([`output`]) | truncated, links followed: the user named the file | 0666 less the umask |
//! | kernel setting ([`set`]) | one write | unchanged |
//!
//! Files are owned by the user that runs the process. Other programs do not inherit the descriptors (`O_CLOEXEC`). If
//! the daemon chooses the path, the last component of the path must not be a symbolic link (`O_NOFOLLOW`).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Error, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Mode of new files: programs of the same group may read them.
const MODE: u32 = 0o640;

/// Number of bytes at the end of the file that are searched for the start of an incomplete line.
const LONGEST_LINE: u64 = 1 << 20;

fn flags(options: &mut OpenOptions, flags: OFlags) -> &mut OpenOptions {
    options.custom_flags(flags.bits() as i32)
}

/// When a file of lines is rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Maximum size in bytes. `None` disables rotation.
    pub bytes: Option<u64>,
    /// Number of old files that are kept. `NAME.1` is the most recent.
    pub kept: u32,
}

/// A file to which lines are appended. A line is written completely or not at all.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    rotation: Rotation,
}

impl Log {
    /// Open a file for appending, or create it. An incomplete last line, left by a killed process, is removed.
    ///
    /// # Errors
    /// The file can't be opened, or is not a regular file.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(MODE);
        // Without `NONBLOCK`, opening a named pipe would block until a reader opens it.
        let file = flags(&mut options, OFlags::NOFOLLOW | OFlags::NONBLOCK).open(path)?;
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "the path is not a regular file"));
        }
        let mut log = Self {
            path: path.into(),
            file,
            bytes: data.len(),
            rotation,
        };
        log.mend()?;
        Ok(log)
    }

    /// Ensure that the file ends with a complete line.
    fn mend(&mut self) -> io::Result<()> {
        let from = self.bytes.saturating_sub(LONGEST_LINE);
        let mut tail = vec![0; (self.bytes - from) as usize];
        self.file.read_exact_at(&mut tail, from)?;
        let line_start = tail.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        match line_start {
            _ if tail.is_empty() => Ok(()),
            Some(line_start) if line_start == tail.len() => Ok(()),
            // An incomplete record of this program is removed. A line of another program is kept and terminated.
            Some(line_start) if tail[line_start] == b'{' => self.cut(from + line_start as u64),
            None if from == 0 && tail[0] == b'{' => self.cut(0),
            _ => self.append(b"\n"),
        }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Remove the part of the line that was written before the disk became full.
                let _ = self.file.set_len(self.bytes);
                Err(error)
            }
        }
    }

    /// Append a line, including its line feed. A full file is rotated before the line is written.
    ///
    /// # Errors
    /// The line can't be written; no part of it remains in the file.
    pub fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let full = |most| self.bytes > 0 && self.bytes.saturating_add(line.len() as u64) > most;
        if self.rotation.bytes.is_some_and(full) {
            self.rotate()?;
        }
        self.append(line)
    }

    fn rotate(&mut self) -> io::Result<()> {
        for old in (1..self.rotation.kept).rev() {
            renamed(&numbered(&self.path, old), &numbered(&self.path, old + 1))?;
        }
        match self.rotation.kept {
            0 => fs::remove_file(&self.path)?,
            _ => renamed(&self.path, &numbered(&self.path, 1))?,
        }
        self.reopen()
    }

    /// Reopen the file after another program has moved it.
    ///
    /// # Errors
    /// Returns the errors of [`Log::open`]. After an error, lines are still written to the previous file.
    pub fn reopen(&mut self) -> io::Result<()> {
        *self = Self::open(&self.path, self.rotation)?;
        Ok(())
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Rename a file. A missing source file is not an error.
fn renamed(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replace the content of a file atomically: readers see either the previous or the new content, even after a crash.
///
/// # Errors
/// The function `write` fails, or the file can't be created. After an error, the file has its previous content.
pub fn replace(path: &Path, mode: u32, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut fresh = OsString::from(".");
    fresh.push(name);
    fresh.push(".new");
    let fresh = folder.join(fresh);
    // If an earlier process was killed at this point, its temporary file still exists.
    let _ = fs::remove_file(&fresh);
    let written = create_new(&fresh, mode).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.into_inner()?.sync_all()?;
        fs::rename(&fresh, path)
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    // The rename is durable only after the directory is synced.
    File::open(folder)?.sync_all()
}

/// Create a file. The file must not exist yet.
///
/// # Errors
/// The file exists or can't be created.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    flags(&mut options, OFlags::NOFOLLOW).open(path)
}

/// Create or truncate a file that the user of a command has named.
///
/// # Errors
/// The file can't be created.
pub fn output(path: &Path) -> io::Result<File> {
    File::create(path)
}

/// Write a kernel setting.
///
/// # Errors
/// The kernel has no such setting, or rejects the value.
pub fn set(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    const NEVER: Rotation = Rotation { bytes: None, kept: 0 };

    #[test]
    fn lines_are_appended_to_a_file_for_its_owner_and_its_group() {
        let folder = folder();
        let path = folder.path().join("log");
        for text in ["{1}\n", "{2}\n"] {
            Log::open(&path, NEVER).unwrap().write_line(text.as_bytes()).unwrap();
        }
        assert_eq!("{1}\n{2}\n", fs::read_to_string(&path).unwrap());
        assert_eq!(0o640, mode(&path) | 0o040);
    }

    #[test]
    fn line_that_was_cut_off_is_taken_out_and_text_of_others_gets_its_end() {
        let folder = folder();
        let path = folder.path().join("log");
        for (before, after) in [
            ("{1}\n{2", "{1}\n{3}\n"),
            ("{1", "{3}\n"),
            ("{1}\n", "{1}\n{3}\n"),
            ("", "{3}\n"),
            ("a\nb", "a\nb\n{3}\n"),
        ] {
            fs::write(&path, before).unwrap();
            Log::open(&path, NEVER).unwrap().write_line(b"{3}\n").unwrap();
            assert_eq!(after, fs::read_to_string(&path).unwrap());
        }
        let long = "{".repeat(2 << 20);
        fs::write(&path, &long).unwrap();
        Log::open(&path, NEVER).unwrap();
        assert_eq!(long.len() as u64 + 1, fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn file_that_is_full_gives_way_and_so_many_old_ones_are_kept() {
        let folder = folder();
        let path = folder.path().join("log");
        let rotation = Rotation {
            bytes: Some(8),
            kept: 2,
        };
        let mut log = Log::open(&path, rotation).unwrap();
        for line in ["{1}\n", "{2}\n", "{3}\n", "{4}\n", "{5}\n", "{6}\n", "{7}\n"] {
            log.write_line(line.as_bytes()).unwrap();
        }
        let text = |number| fs::read_to_string(numbered(&path, number)).unwrap();
        assert_eq!("{7}\n", fs::read_to_string(&path).unwrap());
        assert_eq!(
            ["{5}\n{6}\n", "{3}\n{4}\n"],
            [text(1), text(2)].each_ref().map(String::as_str)
        );
        assert!(!numbered(&path, 3).exists());
        // A line that exceeds the maximum file size is written to a separate file.
        log.write_line(b"{123456789}\n").unwrap();
        assert_eq!("{123456789}\n", fs::read_to_string(&path).unwrap());
    }

    #[test]
    fn link_pipe_and_device_are_refused() {
        let folder = folder();
        let [link, pipe] = ["link", "pipe"].map(|name| folder.path().join(name));
        symlink(folder.path().join("elsewhere"), &link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for path in [&link, &pipe, Path::new("/dev/null"), folder.path()] {
            assert!(Log::open(path, NEVER).is_err(), "{}", path.display());
        }
        assert!(create_new(&link, MODE).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn line_that_a_full_disk_takes_half_is_not_left_behind() {
        if std::env::var_os("SLUICE_FULL_DISK").is_none() {
            // Exceeding a file size limit raises a fatal signal unless the signal is ignored, so the test runs a
            // separate process.
            let limited = std::process::Command::new("sh")
                .args([
                    "-c",
                    "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact \"$1\" --nocapture",
                ])
                .arg(std::env::current_exe().unwrap())
                .arg("files::tests::line_that_a_full_disk_takes_half_is_not_left_behind")
                .env("SLUICE_FULL_DISK", "1")
                .output()
                .unwrap();
            assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
            return;
        }
        let folder = folder();
        let path = folder.path().join("log");
        let mut log = Log::open(&path, NEVER).unwrap();
        let line = [b"{".repeat(99), b"\n".to_vec()].concat();
        let written = (0..100).filter(|_| log.write_line(&line).is_ok()).count();
        let text = fs::read(&path).unwrap();
        assert!((1..100).contains(&written));
        assert_eq!(line.repeat(written), text);
    }

    #[test]
    fn file_replaced_is_the_old_one_where_the_new_one_can_not_be_written() {
        let folder = folder();
        let path = folder.path().join("state");
        replace(&path, 0o600, |file| file.write_all(b"one")).unwrap();
        assert_eq!(0o600, mode(&path));
        let failed = replace(&path, 0o600, |file| {
            file.write_all(b"two")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert!(failed.is_err());
        assert_eq!("one", fs::read_to_string(&path).unwrap());
        assert_eq!(1, fs::read_dir(folder.path()).unwrap().count());
        // A symbolic link at the path is replaced, not followed.
        let [link, other] = ["link", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &link).unwrap();
        replace(&link, 0o600, |file| file.write_all(b"two")).unwrap();
        assert_eq!("kept", fs::read_to_string(&other).unwrap());
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
    }

    /// The part of a source file before its unit tests.
    fn shipped(text: &str) -> &str {
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            match path.is_dir() {
                _ if ["tests", "faults", "files"].contains(&stem) => {}
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn no_file_is_opened_to_be_written_elsewhere() {
        let mut found = Vec::new();
        sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        assert!(found.len() > 50);
        for path in found {
            let text = fs::read_to_string(&path).unwrap();
            for function in [
                "File::create",
                "OpenOptions",
                "File::options",
                "fs::write(",
                "fs::rename(",
            ] {
                // The control socket is created in a separate folder and renamed.
                let is_socket = path.ends_with("src/socket.rs") && function == "fs::rename(";
                assert!(
                    is_socket || !shipped(&text).contains(function),
                    "{function} in {}",
                    path.display()
                );
            }
        }
    }
}
