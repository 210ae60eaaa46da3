//! Header fields that determine the length, the encoding and the host of a message.

use crate::protocols::Anomaly;
use crate::protocols::inflate::{Format, Formats};
use crate::signature::Buffer;

/// A header field that the parser evaluates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    #[default]
    Other,
    Host,
    UserAgent,
    Cookie,
    ContentLength,
    TransferEncoding,
    ContentEncoding,
    Upgrade,
}

impl Field {
    /// The field with this name, in lower case.
    pub fn of(name: &[u8], client: bool) -> Self {
        match name {
            b"host" if client => Self::Host,
            b"user-agent" if client => Self::UserAgent,
            b"cookie" if client => Self::Cookie,
            b"set-cookie" if !client => Self::Cookie,
            b"content-length" => Self::ContentLength,
            b"transfer-encoding" => Self::TransferEncoding,
            b"content-encoding" => Self::ContentEncoding,
            b"upgrade" if client => Self::Upgrade,
            _ => Self::Other,
        }
    }

    /// Buffer of the field's value.
    pub fn buffer(self) -> Option<Buffer> {
        match self {
            Self::Host => Some(Buffer::HttpRawHost),
            Self::UserAgent => Some(Buffer::HttpUserAgent),
            Self::Cookie => Some(Buffer::HttpCookie),
            _ => None,
        }
    }

    /// Whether the parser itself evaluates the field's value.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::ContentLength | Self::TransferEncoding | Self::ContentEncoding
        )
    }
}

/// Framing and encoding of a message body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Framing {
    pub length: Option<u64>,
    pub chunked: bool,
    transfer: bool,
    content: Formats,
    coding: Formats,
    /// Whether the body has more encodings than are supported.
    too_many: bool,
}

impl Framing {
    /// Evaluates the value of a field. `value` is in lower case and trimmed at its end. `cut`: the value was truncated.
    pub fn field(&mut self, field: Field, value: &[u8], cut: bool, odd: &mut impl FnMut(Anomaly)) {
        match field {
            Field::ContentLength => {
                for part in value.split(|&byte| byte == b',') {
                    self.content_length(part.trim_ascii(), cut, odd);
                }
            }
            Field::TransferEncoding => {
                let alone = value == b"chunked";
                for part in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    match Format::of(part) {
                        _ if part == b"chunked" => self.chunked = true,
                        Some(format) if !cut => {
                            odd(Anomaly::EncodedTransfer);
                            self.too_many |= self.coding.try_push(format).is_err();
                        }
                        _ => {}
                    }
                }
                if cut || !alone || std::mem::replace(&mut self.transfer, true) {
                    odd(Anomaly::OddTransferEncoding);
                }
            }
            Field::ContentEncoding => self.content_encoding(value, cut, odd),
            _ => {}
        }
    }

    fn content_length(&mut self, value: &[u8], cut: bool, odd: &mut impl FnMut(Anomaly)) {
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
        let mut length = None;
        for digit in digits.clone() {
            length = Some(
                length
                    .unwrap_or(0u64)
                    .saturating_mul(10)
                    .saturating_add(u64::from(digit - b'0')),
            );
        }
        if cut || length.is_none() || length == Some(u64::MAX) || digits.count() < value.len() {
            odd(Anomaly::BadContentLength);
        }
        match (self.length, length) {
            (_, None) => {}
            (None, Some(_)) => self.length = length,
            (Some(first), Some(second)) if first == second => odd(Anomaly::RepeatedContentLength),
            _ => odd(Anomaly::ConflictingContentLength),
        }
    }

    fn content_encoding(&mut self, value: &[u8], cut: bool, odd: &mut impl FnMut(Anomaly)) {
        for part in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            match Format::of(part) {
                _ if cut => {}
                Some(format) => {
                    self.too_many |= self.content.try_push(format).is_err();
                    continue;
                }
                None if matches!(part, b"" | b"identity" | b"none") => continue,
                None => {}
            }
            // Encodings that were applied before an unknown encoding can't be decoded.
            odd(Anomaly::UnknownEncoding);
            self.content.clear();
        }
    }

    /// Encodings of the body, in the order in which they were applied.
    pub fn formats(&self, odd: &mut impl FnMut(Anomaly)) -> Formats {
        let mut formats = self.content.clone();
        let all = self.coding.iter().all(|&format| formats.try_push(format).is_ok());
        if self.too_many || !all {
            odd(Anomaly::TooManyEncodings);
            formats.clear();
        }
        if formats.len() > 1 {
            odd(Anomaly::SeveralEncodings);
        }
        formats
    }
}

impl Format {
    /// The encoding with this name, in lower case.
    fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" | b"x-deflate" => Some(Self::Deflate),
            b"br" => Some(Self::Brotli),
            _ => None,
        }
    }
}

/// Extracts the host from a value like `user@HOST:80`, and converts it to lower case. Returns the length of the host.
pub(super) fn host(value: &[u8], into: &mut [u8]) -> usize {
    let value = match value.iter().rposition(|&byte| byte == b'@') {
        Some(at) => &value[at + 1..],
        None => value,
    };
    let digits = value.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let value = match value[..value.len() - digits].split_last() {
        // Colons within brackets belong to the IPv6 address.
        Some((b':', host)) if !host.contains(&b':') || host.ends_with(b"]") => host,
        _ => value,
    };
    let length = value.len().min(into.len());
    into[..length].copy_from_slice(&value[..length]);
    into[..length].make_ascii_lowercase();
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_without_user_and_port() {
        let cases = [
            ("Example.ORG", "example.org"),
            ("example.org:8080", "example.org"),
            ("example.org:", "example.org"),
            ("a:b@example.org:80", "example.org"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("2001:db8::1", "2001:db8::1"),
            ("10.0.0.1", "10.0.0.1"),
            ("", ""),
        ];
        for (value, expected) in cases {
            let mut bytes = [0; 64];
            let length = host(value.as_bytes(), &mut bytes);
            assert_eq!(expected, String::from_utf8_lossy(&bytes[..length]), "{value}");
        }
    }

    #[test]
    fn lengths_that_differ_are_told_and_the_first_is_used() {
        let mut reported = Vec::new();
        let mut framing = Framing::default();
        for value in [&b"5"[..], b"5", b"6", b"+7", b"99999999999999999999999"] {
            framing.field(Field::ContentLength, value, false, &mut |anomaly| {
                reported.push(anomaly)
            });
        }
        use Anomaly::*;
        let expected = [
            RepeatedContentLength,
            ConflictingContentLength,
            BadContentLength,
            BadContentLength,
            ConflictingContentLength,
        ];
        assert_eq!(expected, reported.as_slice());
        assert_eq!(Some(5), framing.length);
    }
}
