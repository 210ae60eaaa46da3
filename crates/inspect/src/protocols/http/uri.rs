//! The target of a request, in raw and in normalised form.
//!
//! Targets are normalised in the same way as by common servers and common inspection engines. Percent escapes are
//! decoded once. `%u` is decoded, too: a full-width form becomes its ASCII letter, and any other character beyond one
//! byte becomes a question mark. `+` is left unchanged. In the path backslashes become slashes, adjacent slashes are
//! joined, `.` and `..` are resolved, and `http://host` is removed. The path becomes visible when it ends, because `..`
//! removes parts of it; the query becomes visible as it arrives.

use arrayvec::ArrayVec;

use crate::protocols::writer::MessageWriter;
use crate::protocols::{Anomaly, MessageEvent, Slot};
use crate::signature::Buffer;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Begin,
    /// A possible scheme with its colon and its first slash.
    Scheme,
    Colon,
    Slash,
    Authority,
    Path,
    /// Query or fragment.
    Rest,
    /// The target of CONNECT.
    Connect,
}

/// A target that is being parsed.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    phase: Phase,
    escape: ArrayVec<u8, 6>,
    /// State after a percent escape was decoded to a percent sign: 1 plus the number of hexadecimal digits after the
    /// percent sign.
    percent: u8,
    /// Whether the target contains a host, which takes precedence over the `Host` field (RFC 9112, section 3.2.2).
    pub names_host: bool,
}

impl Target {
    pub fn start(connect: bool) -> Self {
        let phase = if connect { Phase::Connect } else { Phase::Begin };
        Self {
            phase,
            names_host: connect,
            ..Self::default()
        }
    }

    pub fn byte<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        w.append(Buffer::HttpRawUri, &[byte]);
        match self.phase {
            Phase::Begin if byte.is_ascii_alphabetic() => self.may_be_scheme(Phase::Scheme, byte, w),
            Phase::Scheme if byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) => {
                self.may_be_scheme(Phase::Scheme, byte, w);
            }
            Phase::Scheme if byte == b':' => self.may_be_scheme(Phase::Colon, byte, w),
            Phase::Colon if byte == b'/' => self.may_be_scheme(Phase::Slash, byte, w),
            Phase::Slash if byte == b'/' => {
                w.undo(Buffer::HttpUri);
                self.phase = Phase::Authority;
            }
            Phase::Authority if !b"/\\?#".contains(&byte) => {
                self.names_host = true;
                w.append(Buffer::HttpRawHost, &[byte]);
            }
            Phase::Authority => {
                self.phase = Phase::Path;
                if byte == b'?' || byte == b'#' {
                    w.push(Buffer::HttpUri, b"/");
                }
                self.part(byte, w);
            }
            Phase::Connect => {
                w.push(Buffer::HttpUri, &[byte]);
                w.append(Buffer::HttpRawHost, &[byte]);
            }
            Phase::Rest => self.part(byte, w),
            _ => {
                self.phase = Phase::Path;
                self.part(byte, w);
            }
        }
    }

    /// Whether in this state only the bytes `%`, `?`, `#` and `\` have a special meaning.
    pub fn is_plain(&self) -> bool {
        matches!(self.phase, Phase::Path | Phase::Rest) && self.escape.is_empty() && self.percent == 0
    }

    /// Handles bytes without special meaning.
    pub fn plain_bytes<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, bytes: &[u8], w: &mut MessageWriter<'_, S>) {
        w.append(Buffer::HttpRawUri, bytes);
        w.push(Buffer::HttpUri, bytes);
        if self.phase == Phase::Rest {
            w.show(Buffer::HttpUri);
        }
    }

    /// Ends the target.
    pub fn end<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        self.spill(w);
        match self.phase {
            Phase::Rest | Phase::Connect => {}
            Phase::Authority => w.push(Buffer::HttpUri, b"/"),
            _ => w.edit(Buffer::HttpUri, resolve),
        }
        w.show(Buffer::HttpUri);
        w.complete(&[Buffer::HttpUri, Buffer::HttpRawUri]);
    }

    fn may_be_scheme<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        phase: Phase,
        byte: u8,
        w: &mut MessageWriter<'_, S>,
    ) {
        self.phase = phase;
        w.push(Buffer::HttpUri, &[byte]);
    }

    /// Handles a byte of path or query.
    fn part<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        let hexadecimal = byte.is_ascii_hexdigit();
        let is_continued = match self.escape.as_slice() {
            [] => byte == b'%',
            [_] => hexadecimal || byte | 0x20 == b'u',
            _ => hexadecimal,
        };
        if !is_continued {
            self.spill(w);
            if byte == b'%' {
                self.escape.push(byte);
            } else {
                self.plain(byte, w);
            }
            return;
        }
        self.escape.push(byte);
        let wide = self.escape.get(1).is_some_and(|second| second | 0x20 == b'u');
        let digits = if wide { 2..6 } else { 1..3 };
        if self.escape.len() == digits.end {
            let value = self.escape[digits]
                .iter()
                .fold(0, |value, &digit| value << 4 | nibble(digit));
            self.escape.clear();
            let byte = match value {
                0..=0xff => value as u8,
                0xff01..=0xff5e => (value - 0xff01) as u8 + b'!',
                _ => b'?',
            };
            if wide {
                w.anomaly(Anomaly::WideEscape);
            }
            self.decoded(byte, w);
            if byte == b'%' {
                self.percent = 1;
            }
        }
    }

    /// Writes an invalid escape unchanged.
    fn spill<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        if !self.escape.is_empty() {
            w.anomaly(Anomaly::BadEscape);
            for byte in std::mem::take(&mut self.escape) {
                self.decoded(byte, w);
            }
        }
    }

    fn plain<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        if self.phase == Phase::Path && (byte == b'?' || byte == b'#') {
            w.edit(Buffer::HttpUri, resolve);
            self.phase = Phase::Rest;
        }
        self.decoded(byte, w);
    }

    fn decoded<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        self.percent = match self.percent {
            2 if byte.is_ascii_hexdigit() => {
                w.anomaly(Anomaly::DoubleEscape);
                0
            }
            1 if byte.is_ascii_hexdigit() => 2,
            _ => 0,
        };
        if self.phase == Phase::Path {
            w.push(
                Buffer::HttpUri,
                if byte == b'\\' {
                    b"/"
                } else {
                    std::slice::from_ref(&byte)
                },
            );
        } else {
            w.append(Buffer::HttpUri, &[byte]);
        }
    }
}

fn nibble(digit: u8) -> u32 {
    match digit {
        b'0'..=b'9' => u32::from(digit - b'0'),
        _ => u32::from((digit | 0x20) - b'a') + 10,
    }
}

/// Joins slashes, removes `.` and resolves `..` (RFC 3986, section 5.2.4). Returns the new length.
fn resolve(path: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < path.len() {
        if path[from] == b'/' {
            if to == 0 || path[to - 1] != b'/' {
                path[to] = b'/';
                to += 1;
            }
            from += 1;
            continue;
        }
        let end = path[from..]
            .iter()
            .position(|&byte| byte == b'/')
            .map_or(path.len(), |length| from + length);
        match &path[from..end] {
            b"." => {}
            b".." => {
                to = to.saturating_sub(1);
                while to > 0 && path[to - 1] != b'/' {
                    to -= 1;
                }
                if to == 0 && path[0] == b'/' {
                    to = 1;
                }
            }
            _ => {
                path.copy_within(from..end, to);
                to += end - from;
            }
        }
        from = end;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_dots_and_slashes_is_resolved() {
        let cases = [
            ("/a/b", "/a/b"),
            ("//a///b/", "/a/b/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/..", "/"),
            ("/a/b/../..", "/"),
            ("/a/...", "/a/..."),
            ("/a/b/../../../c/", "/c/"),
            ("a/../b", "/b"),
            ("*", "*"),
            ("", ""),
        ];
        for (path, expected) in cases {
            let mut bytes = path.as_bytes().to_vec();
            let length = resolve(&mut bytes);
            assert_eq!(expected, String::from_utf8_lossy(&bytes[..length]), "{path}");
        }
    }
}
