//! Runs programs that set up the machine (ip, iptables, nft and others).

use crate::rows::Failure;
use std::io::Write;
use std::process::{Command, Stdio};

pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Run a command and return its output.
pub fn run(line: &str) -> Result<String, Failure> {
    feed(line, "")
}

/// Run a command with `input` on its standard input, and return its output.
pub fn feed(line: &str, input: &str) -> Result<String, Failure> {
    let words = words(line);
    let (program, arguments) = words
        .split_first()
        .map_or(("true", [].as_slice()), |(p, a)| (p.as_str(), a));
    let missing = |source: std::io::Error| format!("{line}: {source} (is it installed?)");
    let mut child = Command::new(program)
        .args(arguments)
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
}
