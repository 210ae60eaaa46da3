//! The guest's shell, which is connected to a serial port: receives a command line, and returns the command's output
//! and status.

use crate::rows::Failure;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Default time limit of a command: emulation is slow, especially if the machine is loaded.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Number of bytes of a file that one command writes.
const CHUNK: usize = 2_048;

/// Connection to the guest's shell.
#[derive(Debug)]
pub struct Shell {
    port: UnixStream,
    number: u32,
    answers: Answers,
}

impl Shell {
    /// Connects to the shell at the Unix socket of the guest's serial port.
    pub fn connect(port: &Path) -> Result<Self, Failure> {
        Ok(Self {
            port: UnixStream::connect(port)?,
            number: 0,
            answers: Answers::default(),
        })
    }

    /// Runs a command and returns its output; fails if the command fails.
    pub fn run(&mut self, command: &str) -> Result<String, Failure> {
        self.run_within(command, LIMIT)
    }

    /// Runs a command with a time limit and returns its output; fails if the command fails.
    pub fn run_within(&mut self, command: &str, limit: Duration) -> Result<String, Failure> {
        match self.attempt(command, limit)? {
            (output, 0) => Ok(output),
            (output, status) => Err(format!("in the guest '{}' ended with {status}: {output}", short(command)).into()),
        }
    }

    /// Runs a command, and returns its output and status.
    pub fn attempt(&mut self, command: &str, limit: Duration) -> Result<(String, i32), Failure> {
        self.number += 1;
        self.port.write_all(line(self.number, command).as_bytes())?;
        let (began, mut buffer) = (Instant::now(), [0; 1 << 14]);
        loop {
            if let Some(answer) = self.answers.take(self.number) {
                return Ok(answer);
            }
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(format!("the guest does not end '{}' within {limit:?}", short(command)).into());
            }
            self.port.set_read_timeout(Some(left))?;
            match self.port.read(&mut buffer) {
                Ok(0) => return Err(format!("the guest ended during '{}'", short(command)).into()),
                Ok(count) => self.answers.push(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn put(&mut self, file: &str, content: &[u8]) -> Result<(), Failure> {
        self.run(&format!(": >{file}"))?;
        for chunk in content.chunks(CHUNK) {
            self.run(&format!("printf '{}' >>{file}", escaped(chunk)))?;
        }
        Ok(())
    }
}

/// Shell line that runs a command in a subshell, so that a syntax error ends only the subshell, and then prints the
/// command's number and status.
fn line(number: u32, command: &str) -> String {
    format!(
        "(eval {}) </dev/null; printf '\\n@@%s@@ %s\\n' {number} $?\n",
        quoted(command)
    )
}

/// Quotes a text as one word for the shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Escapes bytes for `printf` in single quotes.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        match byte {
            b'\'' | b'\\' | b'%' => _ = write!(text, "\\{byte:03o}"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => _ = write!(text, "\\{byte:03o}"),
        }
        text
    })
}

/// Beginning of a command, for use in messages.
fn short(command: &str) -> String {
    match command.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.into(),
    }
}

/// Output of the guest that has not been processed yet.
#[derive(Debug, Default)]
struct Answers(Vec<u8>);

impl Answers {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().filter(|&&byte| byte != b'\r'));
    }

    /// Returns the output and status of a command, if complete. Discards late output of earlier commands.
    fn take(&mut self, number: u32) -> Option<(String, i32)> {
        let text = String::from_utf8_lossy(&self.0);
        let mark = format!("\n@@{number}@@ ");
        let end = text.find(&mark)?;
        let (status, rest) = text[end + mark.len()..].split_once('\n')?;
        let before = &text[..end];
        let from = before.rfind("\n@@").map_or(0, |at| {
            let behind = before[at + 1..].find('\n');
            behind.map_or(end, |behind| at + 1 + behind + 1)
        });
        let answer = (
            before.get(from..).unwrap_or_default().trim_end().to_owned(),
            status.parse().ok()?,
        );
        let rest = rest.as_bytes().to_vec();
        self.0 = rest;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_one_word_whatever_the_command() {
        let expected = "(eval 'echo '\\''two words'\\''') </dev/null; printf '\\n@@%s@@ %s\\n' 7 $?\n";
        assert_eq!(expected, line(7, "echo 'two words'"));
    }

    #[test]
    fn line_and_file_are_understood_by_a_shell() {
        let all: Vec<u8> = (0..=255).collect();
        let script = line(3, &format!("printf '{}' | od -An -v -tu1; false", escaped(&all)));
        let output = crate::kernel::command::feed("sh", &script).expect("a shell");
        let mut answers = Answers::default();
        answers.push(output.as_bytes());
        answers.push(b"\n");
        let (bytes, status) = answers.take(3).expect("an answer");
        let bytes: Vec<u8> = bytes.split_whitespace().filter_map(|byte| byte.parse().ok()).collect();
        assert_eq!((all, 1), (bytes, status));
    }

    #[test]
    fn answer_is_taken_when_it_is_whole() {
        let mut answers = Answers::default();
        answers.push(b"up\r\n\r\n@@1@@ ");
        assert_eq!(None, answers.take(1));
        answers.push(b"2\r\nmore");
        assert_eq!(Some(("up".into(), 2)), answers.take(1));
        answers.push(b"\n@@2@@ 0\n");
        assert_eq!(Some(("more".into(), 0)), answers.take(2));
        assert_eq!(None, answers.take(3));
    }

    #[test]
    fn answer_of_a_command_that_was_given_up_is_passed_over() {
        let mut answers = Answers::default();
        answers.push(b"late\n@@1@@ 0\nmine\n\n@@2@@ 0\n");
        assert_eq!(Some(("mine".into(), 0)), answers.take(2));
    }

    #[test]
    fn long_command_is_told_by_its_beginning() {
        assert_eq!(123, short(&"é".repeat(500)).chars().count() + 2);
        assert_eq!("true", short("true"));
    }
}
