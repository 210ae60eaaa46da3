//! Processes that a benchmark starts: processes that reply to commands, and processes that run until they are dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::rows::Failure;

/// Time that a process has to exit before it is killed.
const END: Duration = Duration::from_secs(10);

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a process that was told to exit has exited.
pub fn end(child: &mut Child) {
    let ended = await_some(END, || Ok(child.try_wait()?));
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Calls `look` every 20 ms until it returns a value; returns `None` when the time has expired.
pub fn await_some<T>(time: Duration, look: impl FnMut() -> Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    await_every(Duration::from_millis(20), time, look)
}

/// Like [`await_some`], but with a configurable interval, because each call of `look` may take CPU time from the
/// measured component.
pub fn await_every<T>(
    pause: Duration,
    time: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let began = Instant::now();
    loop {
        let (is_last, found) = (began.elapsed() > time, look()?);
        if found.is_some() || is_last {
            return Ok(found);
        }
        std::thread::sleep(pause);
    }
}

/// A process of `sluice-bench` that reads commands from its standard input, one per line, and replies to some of them;
/// it exits at the end of its input.
#[derive(Debug)]
pub struct Answering {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Answering {
    /// Starts the process, and waits until it reports that it is ready.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or("a process has no output")?);
        let mut process = Self { child, input, output };
        process.expect("ready")?;
        Ok(process)
    }

    pub fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let input = self.input.as_mut().ok_or("a process has no input")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// Sends a command line, and returns the number in the reply; the reply must start with the given word.
    pub fn ask(&mut self, line: &str, expected: &str) -> Result<u64, Failure> {
        self.tell(line)?;
        let answer = self.expect(expected)?;
        let number = answer.rsplit(' ').next().and_then(|count| count.parse().ok());
        number.ok_or_else(|| unexpected(&answer, expected))
    }

    /// Reads the next reply, which must start with the given word; skips lines that DPDK prints before it.
    pub fn expect(&mut self, expected: &str) -> Result<String, Failure> {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(unexpected(&answer, expected));
            }
            answer = line.trim().into();
            if answer.split(' ').next() == Some(expected) {
                return Ok(answer);
            }
        }
    }
}

fn unexpected(answer: &str, expected: &str) -> Failure {
    format!("a process answered {answer:?}, not {expected:?}").into()
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.input.take());
        end(&mut self.child);
    }
}

/// Prints a line for the parent process; errors are ignored, because the pipe of a parent that has exited has no
/// reader.
pub fn answer(line: impl std::fmt::Display) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
