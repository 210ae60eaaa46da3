//! Converts a file's bytes to text. Invalid text is reported like any other error in the configuration.

use std::io::{self, Read};

use crate::diagnosis::{Diagnosis, Located};
use crate::problem::Problem;

/// Maximum size of a file in bytes. The limit suffices for a configuration with the maximum number of rules, and also
/// bounds reads from device files.
pub const MAX_BYTES: u64 = 256 << 20;

/// Read the bytes of a file.
///
/// # Errors
/// The file can't be read, or exceeds the maximum size.
pub fn bytes(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is longer than 256 MiB",
        )),
        false => Ok(bytes),
    }
}

/// Convert bytes to text.
///
/// # Errors
/// The bytes are not UTF-8, or contain a zero byte.
pub fn text(name: &str, bytes: Vec<u8>) -> Result<String, Diagnosis> {
    let (bytes, at, description) = match String::from_utf8(bytes) {
        Ok(text) => match text.find('\0') {
            None => return Ok(text),
            Some(at) => (
                text.into_bytes(),
                at,
                "the file contains a zero byte, so it is not text",
            ),
        },
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            (error.into_bytes(), at, "the file contains bytes that are not UTF-8")
        }
    };
    // Only the line of the error is shown, so the lines after it are not decoded.
    let end = bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |length| at + length);
    let head = String::from_utf8_lossy(&bytes[..end]);
    let problem = Problem::Form {
        description: description.into(),
        hint: Some("write the file as UTF-8 text".into()),
    };
    let length = head[at..].chars().next().map_or(0, char::len_utf8);
    Err(Diagnosis::new(
        name,
        &head,
        vec![Located::new(problem, at..at + length)],
    ))
}
