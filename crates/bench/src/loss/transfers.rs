//! File transfers over HTTP, to check that files arrive correctly and in time. Several transfers run concurrently; half
//! of all transfers go in each direction.
//!
//! The contents of a file are generated from its number, so that both ends can compute them. The SHA-256 digests are
//! compared; the receiver computes its digest over the bytes read from the socket.

use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hosts::{CLIENT, Hosts, SERVER, Way};
use super::{Failure, LossArguments};
use crate::process::{Peer, answer as tell};
use crate::rig::frames::Mixed;
use crate::role::Role;
use crate::rows::Runs;

const PORT: u16 = 8_080;
const SIZES: std::ops::Range<u64> = 64 << 10..(1 << 20) + 1;
/// Number of bytes per write.
const PIECE: usize = 16 << 10;

/// Settings of the client process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Address of the server.
    server: SocketAddr,
    /// Number of files.
    count: u32,
    /// Number of concurrent transfers.
    at_once: u32,
    /// Time after which a transfer counts as stalled.
    patience: Duration,
    /// Number of the first file; further files have consecutive numbers.
    first: u64,
}

/// Contents of a file, generated from its number.
struct Content {
    state: Mixed,
    left: u64,
}

impl Content {
    fn new(number: u64) -> Self {
        let mut state = Mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let left = SIZES.start + state.next() % (SIZES.end - SIZES.start);
        Self { state, left }
    }
}

impl Read for Content {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        // Each random number fills eight bytes, except at the end.
        let most = match into.len() {
            short @ ..8 => short,
            long => long & !7,
        };
        let length = self.left.min(most as u64) as usize;
        self.left -= length as u64;
        for word in into[..length].chunks_mut(8) {
            word.copy_from_slice(&self.state.next().to_le_bytes()[..word.len()]);
        }
        Ok(length)
    }
}

/// Digest of `length` bytes.
fn digest(from: &mut impl Read, length: u64) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    match std::io::copy(&mut from.take(length), &mut hash)? {
        read if read < length => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

/// Writes the contents of a file.
fn put(mut content: Content, to: &mut impl Write) -> std::io::Result<()> {
    let mut to = BufWriter::with_capacity(PIECE, to);
    std::io::copy(&mut content, &mut to)?;
    to.flush()
}

/// Reads the header of an HTTP message; returns its first line and its content length.
fn head(from: &mut impl BufRead) -> std::io::Result<(String, u64)> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    from.read_line(&mut first)?;
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        }
        if line.trim().is_empty() {
            return Ok((first, length));
        }
    }
}

/// Serve files until the input ends.
pub fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    tell(&());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    Ok(())
}

/// Answers one request with a file, or with the digest of the received data. Errors are ignored, because the client
/// reports them.
fn answer(stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let (mut from, mut to) = (BufReader::new(stream.try_clone()?), stream);
    let (request, length) = head(&mut from)?;
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let number: u64 = path.trim_matches('/').parse().map_err(|_| ErrorKind::InvalidData)?;
    let kind = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\nContent-Length:";
    if method == "PUT" {
        let digest = digest(&mut from, length)?;
        write!(to, "{kind} {}\r\n\r\n{digest}", digest.len())
    } else {
        let content = Content::new(number);
        write!(to, "{kind} {}\r\n\r\n", content.left)?;
        put(content, &mut to)
    }
}

/// Outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Differs,
    Stalled,
    Failed,
}

/// Figures of transfers: numbers of transfers with each outcome; then the duration of the slowest transfer and the total
/// duration, in seconds.
const FIGURES: [&str; 6] = ["whole", "differ", "stalled", "failed", "longest_s", "seconds"];

/// A socket whose reads and writes fail after a deadline.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> std::io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Transfers one file: downloads it if its number is even, uploads it if it is odd.
fn transfer(server: SocketAddr, number: u64, patience: Duration) -> Ended {
    let until = Instant::now() + patience;
    let all = || {
        let stream = TcpStream::connect_timeout(&server, patience)?;
        let mut timed = Timed { stream, until };
        let length = Content::new(number).left;
        let expected = digest(&mut Content::new(number), length)?;
        let arrived = if number.is_multiple_of(2) {
            write!(timed, "GET /{number} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
            let mut from = BufReader::new(timed);
            let (_, length) = head(&mut from)?;
            digest(&mut from, length)?
        } else {
            write!(
                timed,
                "PUT /{number} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n",
            )?;
            put(Content::new(number), &mut timed)?;
            let mut from = BufReader::new(timed);
            let (_, length) = head(&mut from)?;
            let mut arrived = String::new();
            from.by_ref().take(length).read_to_string(&mut arrived)?;
            let _ = from.get_ref().stream.shutdown(Shutdown::Both);
            arrived
        };
        std::io::Result::Ok(arrived == expected)
    };
    match all() {
        Ok(true) => Ended::Whole,
        Ok(false) => Ended::Differs,
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => Ended::Stalled,
        Err(error) => {
            eprintln!("transfer {number}: {error}");
            Ended::Failed
        }
    }
}

/// Transfer files, and report the figures.
pub fn transfer_all(settings: &Settings) -> Result<(), Failure> {
    tell(&());
    let (next, began) = (AtomicU64::new(0), Instant::now());
    let results = Mutex::new(Vec::new());
    let work = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        for number in numbers.take_while(|&number| number < settings.count.into()) {
            let from = Instant::now();
            let ended = transfer(settings.server, settings.first + number, settings.patience);
            if let Ok(mut results) = results.lock() {
                results.push((ended, from.elapsed().as_secs_f64()));
            }
        }
    };
    std::thread::scope(|scope| (0..settings.at_once).for_each(|_| drop(scope.spawn(work))));
    let results = results.into_inner().unwrap_or_default();
    let count = |ended| results.iter().filter(|(other, _)| *other == ended).count() as f64;
    let [whole, differ, stalled, failed] = [Ended::Whole, Ended::Differs, Ended::Stalled, Ended::Failed].map(count);
    let longest = results.iter().map(|(_, took)| *took).fold(0.0, f64::max);
    tell(&[whole, differ, stalled, failed, longest, began.elapsed().as_secs_f64()]);
    Ok(())
}

fn address(way: Way) -> SocketAddr {
    (way.server(), PORT).into()
}

pub fn server(hosts: &Hosts, way: Way) -> Result<Peer, Failure> {
    Peer::start(SERVER, hosts.cores.traffic, &Role::Serve(address(way)))
}

/// Transfers files between the client's host and the server; file numbers start at the seed.
pub fn run_between(hosts: &Hosts, way: Way, arguments: &LossArguments) -> Result<Runs, Failure> {
    let settings = Settings {
        server: address(way),
        count: arguments.transfers,
        at_once: arguments.at_once,
        patience: Duration::from_secs(arguments.patience.into()),
        first: arguments.seed,
    };
    let mut client = Peer::start(CLIENT, hosts.cores.traffic, &Role::Transfer(settings))?;
    let values: [f64; FIGURES.len()] = client.hear()?;
    let mut runs = Runs::default();
    runs.extend(FIGURES.into_iter().zip(values));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(answer: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
        address
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn files_of_both_ways_arrive_whole() {
        let address = server(|stream| drop(answer(stream)));
        for number in 0..6 {
            assert_eq!(Ended::Whole, transfer(address, number, PATIENCE), "{number}");
        }
    }

    #[test]
    fn file_that_is_another_differs() {
        let address = server(|mut stream| {
            let mut from = BufReader::new(stream.try_clone().expect("a socket"));
            let _ = head(&mut from);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
        });
        assert_eq!(Ended::Differs, transfer(address, 2, PATIENCE));
    }

    #[test]
    fn server_that_says_nothing_stalls_its_client() {
        let address = server(std::mem::forget);
        assert_eq!(Ended::Stalled, transfer(address, 2, Duration::from_millis(200)));
    }

    #[test]
    fn sizes_are_within_their_range() {
        for number in 0..100 {
            assert!(SIZES.contains(&Content::new(number).left));
        }
        let digests = [1, 2].map(|number| digest(&mut Content::new(number), SIZES.start).expect("contents"));
        assert_ne!(digests[0], digests[1]);
    }
}
