//! Writes EVE lines on a separate thread, so that a slow disk or reader does not block the control thread.

use std::io::{Error, ErrorKind, Write};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sluice_config::config::EveTarget;

use crate::files::{Log, Rotation};

/// Maximum time for which a write may block the thread, and interval between attempts to connect.
const PATIENCE: Duration = Duration::from_millis(250);

/// Maximum time at the end of the process for writing the remaining lines.
const FAREWELL: Duration = Duration::from_secs(2);

/// Queue to the writer thread. Lines that do not fit into the queue are counted as lost.
#[derive(Debug)]
pub struct Writer {
    lines: Option<SyncSender<Vec<u8>>>,
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    /// Number of lines lost because a write to the file failed.
    failed: AtomicU64,
    reopen: AtomicBool,
    ending: AtomicBool,
}

impl Writer {
    /// Start a writer to a target, with a queue of `capacity` lines. A file is rotated as `rotation` specifies.
    ///
    /// # Errors
    /// The file can't be opened, the socket's name is invalid, or the thread can't be started.
    pub fn start(target: EveTarget, rotation: Rotation, capacity: usize) -> std::io::Result<Self> {
        let sink = match &target {
            EveTarget::File(path) => Sink::File(Log::open(path, rotation)?),
            EveTarget::Stream(path) | EveTarget::Datagram(path) => {
                SocketAddr::from_pathname(path)?;
                Sink::None
            }
        };
        let (lines, taken) = sync_channel(capacity.max(1));
        let (done, ended) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let mut thread = Thread {
            target,
            rotation,
            sink,
            shared: shared.clone(),
            warned: false,
        };
        std::thread::Builder::new().name("eve".into()).spawn(move || {
            thread.run(&taken);
            let _ = done.send(());
        })?;
        let lines = Some(lines);
        Ok(Self { lines, shared, ended })
    }

    /// Queue a line, including its line feed.
    pub fn write(&self, line: Vec<u8>) {
        let taken = self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        if !taken {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reopen the file, or reconnect the socket.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
    }

    /// Number of lines written, and number of lines lost.
    pub fn counts(&self) -> [u64; 2] {
        [&self.shared.written, &self.shared.lost].map(|count| count.load(Ordering::Relaxed))
    }

    /// Number of lines lost because a write to the file failed.
    pub fn failures(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.lines = None;
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

#[derive(Debug)]
enum Sink {
    File(Log),
    Stream(UnixStream),
    Datagram(UnixDatagram),
    /// The socket is not connected.
    None,
}

struct Thread {
    target: EveTarget,
    rotation: Rotation,
    sink: Sink,
    shared: Arc<Shared>,
    /// Whether the present failure has been logged. Reset after a successful write.
    warned: bool,
}

impl Thread {
    fn run(&mut self, lines: &Receiver<Vec<u8>>) {
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.follow();
                    let count = match self.deliver(&line) {
                        true => &self.shared.written,
                        false => &self.shared.lost,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => self.follow(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reopen the file if a reopen was requested.
    fn follow(&mut self) {
        if !self.shared.reopen.swap(false, Ordering::Relaxed) {
            return;
        }
        match &mut self.sink {
            Sink::File(file) => {
                if let Err(error) = file.reopen() {
                    tracing::error!("{} can't be reopened: {error}", path(&self.target).display());
                }
            }
            _ => self.sink = Sink::None,
        }
    }

    /// Write a line, and wait if the reader is slow. Returns `false` if the line was lost.
    fn deliver(&mut self, line: &[u8]) -> bool {
        let mut at = 0;
        loop {
            let error = match self.push(&line[at..]) {
                Ok(taken) => {
                    at += taken;
                    if at == line.len() {
                        self.warned = false;
                        return true;
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                // The reader is slow, so the write is repeated.
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ if matches!(self.sink, Sink::File(_)) || is_too_long(&error) => {
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                    self.log_error(&error);
                    return false;
                }
                // The reader has disconnected. The next reader gets the line from its beginning.
                _ => {
                    (self.sink, at) = (Sink::None, 0);
                    self.log_error(&error);
                    if !self.is_ending() {
                        std::thread::sleep(PATIENCE);
                    }
                }
            }
            if self.is_ending() {
                return false;
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.shared.ending.load(Ordering::Relaxed)
    }

    /// Write as many bytes as the target accepts without waiting.
    fn push(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if matches!(self.sink, Sink::None) {
            self.sink = connect(&self.target, self.rotation)?;
        }
        match &mut self.sink {
            Sink::File(file) => file.write_line(bytes).map(|()| bytes.len()),
            Sink::Stream(stream) => match stream.write(bytes)? {
                0 => Err(Error::from(ErrorKind::WriteZero)),
                taken => Ok(taken),
            },
            // Each datagram contains one line, so the line feed is omitted.
            Sink::Datagram(socket) => socket.send(bytes.trim_ascii_end()).map(|_| bytes.len()),
            Sink::None => Err(Error::from(ErrorKind::NotConnected)),
        }
    }

    fn log_error(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::error!(
                "inspection records can't be written to {}: {error}",
                path(&self.target).display()
            );
        }
    }
}

fn is_too_long(error: &Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

fn path(target: &EveTarget) -> &PathBuf {
    let (EveTarget::File(path) | EveTarget::Stream(path) | EveTarget::Datagram(path)) = target;
    path
}

fn connect(target: &EveTarget, rotation: Rotation) -> std::io::Result<Sink> {
    Ok(match target {
        EveTarget::File(path) => Sink::File(Log::open(path, rotation)?),
        EveTarget::Stream(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Sink::Stream(stream)
        }
        EveTarget::Datagram(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Sink::Datagram(socket)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn until(description: &str, met: impl Fn() -> bool) {
        for _ in 0..2_000 {
            if met() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited in vain for {description}");
    }

    #[test]
    fn lines_are_appended_to_a_file_and_to_another_one_once_it_was_moved_away() {
        let folder = folder();
        let [path, moved] = ["eve.json", "eve.json.1"].map(|name| folder.path().join(name));
        std::fs::write(&path, "older\n").unwrap();
        let writer = Writer::start(EveTarget::File(path.clone()), Rotation::default(), 8).unwrap();
        writer.write(b"one\n".to_vec());
        until("the line", || writer.counts() == [1, 0]);
        std::fs::rename(&path, &moved).unwrap();
        writer.reopen();
        until("the file", || path.exists());
        writer.write(b"two\n".to_vec());
        drop(writer);
        assert_eq!("older\none\n", std::fs::read_to_string(&moved).unwrap());
        assert_eq!("two\n", std::fs::read_to_string(&path).unwrap());
    }

    #[test]
    fn lines_wait_for_who_reads_a_stream_and_for_who_comes_after() {
        let folder = folder();
        let path = folder.path().join("socket");
        let writer = Writer::start(EveTarget::Stream(path.clone()), Rotation::default(), 8).unwrap();
        writer.write(b"one\n".to_vec());
        for line in ["one\n", "two\n"] {
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let mut read = String::new();
            reader.read_line(&mut read).unwrap();
            assert_eq!(line, read);
            drop((reader, listener));
            writer.write(b"two\n".to_vec());
        }
        assert_eq!(0, writer.counts()[1]);
    }

    #[test]
    fn datagram_is_a_line_without_its_end() {
        let folder = folder();
        let path = folder.path().join("socket");
        let reader = UnixDatagram::bind(&path).unwrap();
        let writer = Writer::start(EveTarget::Datagram(path), Rotation::default(), 8).unwrap();
        writer.write(b"{\"a\":1}\n".to_vec());
        let mut bytes = [0; 100];
        let length = reader.recv(&mut bytes).unwrap();
        assert_eq!(b"{\"a\":1}", &bytes[..length]);
        until("the count", || writer.counts() == [1, 0]);
    }

    #[test]
    fn queue_that_is_full_loses_lines_and_nobody_waits() {
        let folder = folder();
        let path = folder.path().join("socket");
        // The reader listens at the socket but never reads.
        let listener = UnixListener::bind(&path).unwrap();
        let writer = Writer::start(EveTarget::Stream(path), Rotation::default(), 4).unwrap();
        let line = vec![b'x'; 64 << 10];
        let sent = 1_000;
        for _ in 0..sent {
            writer.write(line.clone());
        }
        let [written, lost] = writer.counts();
        // Lines in the queue, and the line that the thread is writing, count neither as written nor as lost.
        assert!(lost > 0 && written + lost + 5 >= sent, "{written} {lost}");
        drop(writer);
        drop(listener);
    }

    #[test]
    fn line_that_the_file_does_not_take_is_counted_and_the_next_one_is_tried() {
        let folder = folder();
        let [path, moved] = ["eve.json", "away"].map(|name| folder.path().join(name));
        let rotation = Rotation {
            bytes: Some(4),
            kept: 1,
        };
        let writer = Writer::start(EveTarget::File(path.clone()), rotation, 8).unwrap();
        // A directory at the path of the rotated file makes the rotation fail.
        let old = folder.path().join("eve.json.1");
        std::fs::create_dir(&old).unwrap();
        for line in ["{1}\n", "{2}\n"] {
            writer.write(line.into());
        }
        until("the counts", || (writer.counts(), writer.failures()) == ([1, 1], 1));
        std::fs::rename(&old, &moved).unwrap();
        writer.write(b"{3}\n".to_vec());
        drop(writer);
        assert_eq!("{3}\n", std::fs::read_to_string(&path).unwrap());
        assert_eq!("{1}\n", std::fs::read_to_string(&old).unwrap());
    }

    #[test]
    fn target_that_can_not_be_is_an_error_at_once() {
        assert!(Writer::start(EveTarget::File("/nowhere/at/all".into()), Rotation::default(), 4).is_err());
        assert!(Writer::start(EveTarget::Stream("x".repeat(200).into()), Rotation::default(), 4).is_err());
    }
}
