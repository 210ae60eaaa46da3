//! File transfers over HTTP, several of them concurrent, half of them in each direction: checks that files arrive
//! correctly and in time.
//!
//! The contents of a file are generated from its number, so that both ends can compute them. The SHA-256 digests are
//! compared; the receiver computes its digest over the bytes read from the socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Failure;
use super::hosts::{CLIENT, Hosts, SERVER, Way};
use crate::process::{Answering, answer as tell};
use crate::rig::frames::Mixed;
use crate::rows::Runs;

const PORT: u16 = 8_080;
const SIZES: std::ops::Range<u64> = 64 << 10..(1 << 20) + 1;
/// Number of bytes per write.
const PIECE: usize = 16 << 10;

/// Arguments of the server or the client process.
#[derive(Args, Clone, Debug)]
pub struct TransfersArguments {
    /// Serve files at this address until the input ends.
    #[arg(long)]
    serve: Option<SocketAddr>,
    /// Transfer files with the server at this address.
    #[arg(long)]
    server: Option<SocketAddr>,
    /// Number of files.
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Number of concurrent transfers.
    #[arg(long, default_value_t = 1)]
    at_once: u32,
    /// Seconds after which a transfer counts as stalled.
    #[arg(long, default_value_t = 30)]
    patience: u32,
    /// Number of the first file; further files have consecutive numbers.
    #[arg(long, default_value_t = 1)]
    first: u64,
}

/// Contents of a file, generated from its number.
struct Content {
    state: Mixed,
    left: u64,
}

impl Content {
    fn new(number: u64) -> Self {
        let mut content = Self {
            state: Mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            left: 0,
        };
        content.left = SIZES.start + content.state.next() % (SIZES.end - SIZES.start);
        content
    }

    /// Returns the next bytes; empty at the end.
    fn piece<'b>(&mut self, room: &'b mut [u8; PIECE]) -> &'b [u8] {
        let length = self.left.min(PIECE as u64) as usize;
        self.left -= length as u64;
        for word in room[..length.next_multiple_of(8)].as_chunks_mut::<8>().0 {
            *word = self.state.next().to_le_bytes();
        }
        &room[..length]
    }

    fn digest(mut self) -> String {
        let (mut hash, mut room) = (Sha256::new(), [0; PIECE]);
        while self.left > 0 {
            hash.update(self.piece(&mut room));
        }
        text(hash)
    }

    fn write(mut self, to: &mut impl Write) -> std::io::Result<()> {
        let mut room = [0; PIECE];
        while self.left > 0 {
            to.write_all(self.piece(&mut room))?;
        }
        to.flush()
    }
}

fn text(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digest of the next `length` bytes that are received.
fn received(from: &mut impl Read, length: u64) -> std::io::Result<String> {
    let (mut hash, mut room, mut left) = (Sha256::new(), [0; PIECE], length);
    while left > 0 {
        let most = left.min(PIECE as u64) as usize;
        let count = from.read(&mut room[..most])?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        hash.update(&room[..count]);
        left -= count as u64;
    }
    Ok(text(hash))
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
fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    tell("ready");
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
        let digest = received(&mut from, length)?;
        write!(to, "{kind} {}\r\n\r\n{digest}", digest.len())
    } else {
        let content = Content::new(number);
        write!(to, "{kind} {}\r\n\r\n", content.left)?;
        content.write(&mut to)
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
        let expected = Content::new(number).digest();
        let digest = if number.is_multiple_of(2) {
            write!(timed, "GET /{number} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
            let mut from = BufReader::new(timed);
            let (_, length) = head(&mut from)?;
            received(&mut from, length)?
        } else {
            let content = Content::new(number);
            write!(
                timed,
                "PUT /{number} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
                content.left
            )?;
            content.write(&mut timed)?;
            let mut from = BufReader::new(timed);
            let (_, length) = head(&mut from)?;
            let mut digest = String::new();
            from.by_ref().take(length).read_to_string(&mut digest)?;
            let _ = from.get_ref().stream.shutdown(Shutdown::Both);
            digest
        };
        std::io::Result::Ok(digest == expected)
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

/// Transfer files, and report the outcomes.
fn transfer_all(server: SocketAddr, arguments: &TransfersArguments) {
    let (next, began) = (AtomicU32::new(0), Instant::now());
    let patience = Duration::from_secs(arguments.patience.into());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= arguments.count {
                        return;
                    }
                    let from = Instant::now();
                    let ended = transfer(server, arguments.first + u64::from(number), patience);
                    if let Ok(mut results) = results.lock() {
                        results.push((ended, from.elapsed().as_secs_f64()));
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_default();
    let count = |ended| results.iter().filter(|(other, _)| *other == ended).count();
    let longest = results.iter().map(|(_, took)| *took).fold(0.0, f64::max);
    let told = serde_json::json!({
        "whole": count(Ended::Whole), "differ": count(Ended::Differs), "stalled": count(Ended::Stalled),
        "failed": count(Ended::Failed), "longest_s": longest, "seconds": began.elapsed().as_secs_f64(),
    });
    println!("{told}");
}

pub fn run(arguments: &TransfersArguments) -> Result<(), Failure> {
    match (arguments.serve, arguments.server) {
        (Some(address), _) => serve(address),
        (None, Some(server)) => {
            transfer_all(server, arguments);
            Ok(())
        }
        (None, None) => Err("--serve or --server".into()),
    }
}

pub fn server(hosts: &Hosts, way: Way) -> Result<Answering, Failure> {
    let address = format!("{}:{PORT}", way.server());
    let mut command = hosts.command(SERVER, &std::env::current_exe()?);
    Answering::start(command.args(["transfers", "--serve", &address]))
}

/// Figures of transfers: numbers of correct, incorrect, stalled and failed ones; then the duration of the slowest
/// transfer and the total duration, in seconds.
const FIGURES: [&str; 6] = ["whole", "differ", "stalled", "failed", "longest_s", "seconds"];

/// Transfers files between the client's host and the server; file numbers start at `first`.
pub fn run_between(hosts: &Hosts, way: Way, arguments: &super::LossArguments, first: u64) -> Result<Runs, Failure> {
    let mut command = hosts.command(CLIENT, &std::env::current_exe()?);
    command.args(["transfers", "--server", &format!("{}:{PORT}", way.server())]);
    for (name, value) in [
        ("--count", arguments.transfers.into()),
        ("--at-once", arguments.at_once.into()),
        ("--patience", arguments.patience.into()),
        ("--first", first),
    ] {
        command.args([name, &value.to_string()]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    let number = |name: &str| told.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let mut runs = Runs::default();
    runs.extend(FIGURES.map(|name| (name, number(name))));
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
        assert_ne!(Content::new(1).digest(), Content::new(2).digest());
    }
}
