//! The guest's shell, which is connected to a serial port: receives a command line, and returns the command's output
//! and status.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::rows::Failure;

/// Time limit of a command: emulation is slow, especially if the machine is loaded.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Number of bytes of a file that one command writes.
const CHUNK: usize = 2_048;

/// Connection to the guest's shell.
#[derive(Debug)]
pub struct Shell {
    port: BufReader<UnixStream>,
    number: u32,
}

impl Shell {
    /// Uses the shell at the Unix socket of the guest's serial port.
    pub fn new(port: UnixStream) -> Self {
        let (port, number) = (BufReader::new(port), 0);
        Self { port, number }
    }

    /// Runs a command and returns its output; fails if the command fails.
    pub fn run(&mut self, command: &str) -> Result<String, Failure> {
        match self.attempt(command, LIMIT)? {
            (output, 0) => Ok(output),
            (output, status) => Err(format!("in the guest '{}' ended with {status}: {output}", short(command)).into()),
        }
    }

    /// Runs a command, and returns its output and status. Discards late output of earlier commands.
    pub fn attempt(&mut self, command: &str, limit: Duration) -> Result<(String, i32), Failure> {
        self.number += 1;
        self.port.get_mut().write_all(line(self.number, command).as_bytes())?;
        let (until, mark) = (Instant::now() + limit, format!("@@{}@@ ", self.number));
        let (mut output, mut bytes) = (String::new(), Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("the guest does not end '{}' within {limit:?}", short(command)).into());
            }
            self.port.get_mut().set_read_timeout(Some(left))?;
            match self.port.read_until(b'\n', &mut bytes) {
                Ok(_) if bytes.last() == Some(&b'\n') => {}
                Ok(_) => return Err(format!("the guest ended during '{}'", short(command)).into()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => return Err(error.into()),
            }
            let text = String::from_utf8_lossy(&std::mem::take(&mut bytes)).replace('\r', "");
            match text.strip_prefix(&mark) {
                Some(status) => return Ok((output.trim_end().into(), status.trim().parse()?)),
                None if text.starts_with("@@") => output.clear(),
                None => output += &text,
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
        "(eval '{}') </dev/null; printf '\\n@@%s@@ %s\\n' {number} $?\n",
        command.replace('\'', "'\\''")
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Shell, UnixStream) {
        let (port, guest) = UnixStream::pair().expect("two sockets");
        (Shell::new(port), guest)
    }

    #[test]
    fn line_has_one_word_whatever_the_command() {
        let expected = "(eval 'echo '\\''two words'\\''') </dev/null; printf '\\n@@%s@@ %s\\n' 7 $?\n";
        assert_eq!(expected, line(7, "echo 'two words'"));
    }

    #[test]
    fn line_and_file_are_understood_by_a_shell() {
        let all: Vec<u8> = (0..=255).collect();
        let script = line(3, &format!("printf '{}' | od -An -v -tu1; false", escaped(&all)));
        let output = crate::process::feed("sh", &script).expect("a shell");
        let (mut shell, mut guest) = pair();
        shell.number = 2;
        guest.write_all(format!("{output}\n").as_bytes()).expect("room");
        let (bytes, status) = shell.attempt("", LIMIT).expect("an answer");
        let bytes: Vec<u8> = bytes.split_whitespace().filter_map(|byte| byte.parse().ok()).collect();
        assert_eq!((all, 1), (bytes, status));
    }

    #[test]
    fn answer_follows_late_ones_of_commands_that_were_given_up() {
        let (mut shell, mut guest) = pair();
        shell.number = 1;
        guest
            .write_all(b"late\n@@1@@ 0\nup\r\n\r\n@@2@@ 2\r\n@@3@@ 0\n")
            .expect("room");
        assert_eq!(("up".into(), 2), shell.attempt("one", LIMIT).expect("an answer"));
        assert_eq!((String::new(), 0), shell.attempt("another", LIMIT).expect("an answer"));
    }

    #[test]
    fn answer_that_is_not_whole_is_none() {
        let (mut shell, mut guest) = pair();
        guest.write_all(b"up\r\n\r\n@@1@@ ").expect("room");
        let failed = shell
            .attempt("one", Duration::from_millis(1))
            .expect_err("no end")
            .to_string();
        assert!(failed.starts_with("the guest does not end 'one' within"), "{failed}");
        guest.shutdown(std::net::Shutdown::Write).expect("an open socket");
        let failed = shell.attempt("two", LIMIT).expect_err("no guest").to_string();
        assert_eq!("the guest ended during 'two'", failed);
    }

    #[test]
    fn long_command_is_told_by_its_beginning() {
        assert_eq!(123, short(&"é".repeat(500)).chars().count() + 2);
        assert_eq!("true", short("true"));
    }
}
