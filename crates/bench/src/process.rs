//! Processes that a benchmark starts: commands that set up the machine, processes that reply to messages, and processes
//! that run until they are dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::netns;
use crate::role::Role;
use crate::rows::Failure;

/// Time that a process has to exit before it is killed.
const END: Duration = Duration::from_secs(10);

/// Adds to an error message the name of the file or process that the error concerns.
pub fn of<E: std::fmt::Display>(what: impl ToString) -> impl FnOnce(E) -> Failure {
    let what = what.to_string();
    move |source| format!("{what}: {source}").into()
}

/// Run a command and return its output.
pub fn run(line: &str) -> Result<String, Failure> {
    feed(line, "")
}

/// Runs a shell script, which ends at the first command that fails, and returns its output. `prefix` is the command
/// prefix of the script's namespace.
pub fn script(prefix: &str, text: &str) -> Result<String, Failure> {
    feed(&format!("{prefix} sh -e"), text)
}

/// Run a command with `input` on its standard input, and return its output.
pub fn feed(line: &str, input: &str) -> Result<String, Failure> {
    let missing = |source: std::io::Error| format!("{line}: {source} (is it installed?)");
    let mut child = command(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    // A program that does not read its input fails with its own error, which is reported below.
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(missing)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = format!("{} {}", text(&output.stdout), text(&output.stderr));
    let from = said.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    Err(format!("{line}: {}: {}", output.status, said[from..].trim()).into())
}

/// Builds a command from a line that is split at spaces. No argument may contain a space.
pub fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("true"));
    command.args(words);
    command
}

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

/// A process of `sluice-bench` with a [`Role`], which reads messages from its standard input and replies to some of
/// them: each message and reply is a line of JSON. The process exits at the end of its input.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the process on a core of a namespace, and waits until it reports that it is ready.
    pub fn start(host: &str, core: usize, role: &Role) -> Result<Self, Failure> {
        let mut command = netns::command(host, core);
        let program = command.arg(std::env::current_exe()?).arg("role");
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or("a process has no output")?);
        let mut process = Self { child, input, output };
        process.ask::<()>(role)?;
        Ok(process)
    }

    pub fn tell(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let input = self.input.as_mut().ok_or("a process has no input")?;
        writeln!(input, "{}", serde_json::to_string(message)?)?;
        Ok(input.flush()?)
    }

    /// Sends a message, and returns the reply.
    pub fn ask<T: DeserializeOwned>(&mut self, message: &impl Serialize) -> Result<T, Failure> {
        self.tell(message)?;
        self.hear()
    }

    /// Reads the next reply; skips lines that DPDK prints before it.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let (mut line, mut last) = (String::new(), String::new());
        while self.output.read_line(&mut line)? > 0 {
            match serde_json::from_str(&line) {
                Ok(reply) => return Ok(reply),
                Err(_) => last = std::mem::take(&mut line),
            }
        }
        Err(format!("a process ended without a reply; its last line: {:?}", last.trim()).into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        end(&mut self.child);
    }
}

/// Prints a line of JSON for the parent process; errors are ignored, because the pipe of a parent that has exited has
/// no reader.
pub fn answer(message: &impl Serialize) {
    let mut output = std::io::stdout();
    let line = serde_json::to_string(message).unwrap_or_default();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Reads the next message of the parent process; `None` at the end of the input.
pub fn message<T: DeserializeOwned>() -> Result<Option<T>, Failure> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// Messages of the parent process, for a thread that must not wait for its input. The channel is closed at the end of
/// the input.
pub fn messages<T: DeserializeOwned + Send + 'static>() -> Receiver<T> {
    let (tell, messages) = channel();
    std::thread::spawn(move || {
        loop {
            match message() {
                Ok(Some(message)) => {
                    if tell.send(message).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return eprintln!("sluice-bench: {error}"),
            }
        }
    });
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_gives_its_output_and_takes_input() {
        assert_eq!("two words", run("echo two words").expect("echo runs"));
        assert_eq!("fed", feed("cat", "fed").expect("cat runs"));
    }

    #[test]
    fn command_that_fails_says_what_and_why() {
        let missing = run("no-such-program-at-all x")
            .expect_err("it is not there")
            .to_string();
        assert!(missing.starts_with("no-such-program-at-all x: "), "{missing}");
        let failed = run("ls /no/such/folder").expect_err("nothing there").to_string();
        assert!(failed.contains("/no/such/folder"), "{failed}");
    }

    #[test]
    fn script_ends_at_the_first_command_that_fails() {
        let failed = script("env", "echo one\nfalse\necho two\n")
            .expect_err("false fails")
            .to_string();
        assert!(failed.ends_with("exit status: 1: one"), "{failed}");
    }
}
