//! Parser of the start of an X.509 certificate (RFC 5280, section 4.1): serial number, issuer and subject. These fields
//! precede the key and the signature, so an incomplete certificate suffices. The parser allocates no memory and reads
//! every byte once.

/// Maximum number of elements of a name that are written to the buffer.
const ELEMENTS: usize = 32;

/// Parsed fields of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// Serial number, as encoded.
    pub serial: &'a [u8],
    /// Issuer: a sequence of relative names, as encoded.
    pub issuer: &'a [u8],
    /// Subject: a sequence of relative names, as encoded.
    pub subject: &'a [u8],
}

/// The next element (X.690, section 8.1): tag, content, and the bytes after it. If `whole` is false, the content may extend
/// beyond the available bytes.
fn element(bytes: &[u8], whole: bool) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (length, rest) = crate::protocols::probe::length(rest)?;
    match rest.split_at_checked(length) {
        Some((content, behind)) => Some((tag, content, behind)),
        None if whole => None,
        None => Some((tag, rest, &[])),
    }
}

fn tagged(bytes: &[u8], tag: u8, whole: bool) -> Option<(&[u8], &[u8])> {
    let (found, content, behind) = element(bytes, whole)?;
    (found == tag).then_some((content, behind))
}

const INTEGER: u8 = 2;
const OBJECT: u8 = 6;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

impl<'a> Certificate<'a> {
    /// Parses the start of a certificate. Returns `None` if the certificate is invalid, or if the data ends before the
    /// end of the subject.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (certificate, _) = tagged(bytes, SEQUENCE, false)?;
        let (mut fields, _) = tagged(certificate, SEQUENCE, false)?;
        if fields.first() == Some(&VERSION) {
            (_, fields) = tagged(fields, VERSION, true)?;
        }
        let (serial, fields) = tagged(fields, INTEGER, true)?;
        let (_, fields) = tagged(fields, SEQUENCE, true)?;
        let (issuer, fields) = tagged(fields, SEQUENCE, true)?;
        let (_, fields) = tagged(fields, SEQUENCE, true)?;
        let (subject, _) = tagged(fields, SEQUENCE, true)?;
        Some(Self {
            serial,
            issuer,
            subject,
        })
    }
}

/// Names of attributes (RFC 4519, RFC 2985).
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (b"\x55\x04\x03", "CN"),
    (b"\x55\x04\x04", "SN"),
    (b"\x55\x04\x05", "serialNumber"),
    (b"\x55\x04\x06", "C"),
    (b"\x55\x04\x07", "L"),
    (b"\x55\x04\x08", "ST"),
    (b"\x55\x04\x09", "STREET"),
    (b"\x55\x04\x0a", "O"),
    (b"\x55\x04\x0b", "OU"),
    (b"\x55\x04\x0c", "title"),
    (b"\x55\x04\x2a", "GN"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01", "emailAddress"),
    (b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01", "UID"),
    (b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19", "DC"),
];

/// Writes a name as `C=US, O=Example, CN=example.org`, with ` + ` between the elements of one relative name.
pub fn name(mut names: &[u8], write: &mut impl FnMut(&[u8])) {
    let mut count = 0;
    while let Some((mut relative, behind)) = tagged(names, SET, true) {
        names = behind;
        let mut between: &[u8] = b", ";
        while let Some((attribute, behind)) = tagged(relative, SEQUENCE, true) {
            relative = behind;
            if count >= ELEMENTS {
                return;
            }
            let value = tagged(attribute, OBJECT, true).and_then(|(kind, rest)| Some((kind, element(rest, true)?)));
            let Some((kind, (tag, value, _))) = value else { return };
            if count > 0 {
                write(between);
            }
            (count, between) = (count + 1, b" + ");
            match ATTRIBUTES.iter().find(|(known, _)| *known == kind) {
                Some((_, name)) => write(name.as_bytes()),
                None => object(kind, write),
            }
            write(b"=");
            match tag {
                // UTF-16 strings: only ASCII characters are written.
                0x1e => value
                    .chunks_exact(2)
                    .for_each(|pair| write(&[if pair[0] == 0 { pair[1] } else { b'?' }])),
                _ => write(value),
            }
        }
    }
}

/// Writes an object identifier with dots.
fn object(mut kind: &[u8], write: &mut impl FnMut(&[u8])) {
    let mut first = true;
    while !kind.is_empty() {
        let bytes = kind
            .iter()
            .position(|byte| byte & 0x80 == 0)
            .map_or(kind.len(), |end| end + 1);
        let number = kind[..bytes]
            .iter()
            .fold(0u64, |all, &byte| all << 7 | u64::from(byte & 0x7f));
        kind = &kind[bytes..];
        if std::mem::take(&mut first) {
            let top = (number / 40).min(2);
            decimal(top, write);
            write(b".");
            decimal(number - top * 40, write);
        } else {
            write(b".");
            decimal(number, write);
        }
    }
}

fn decimal(mut value: u64, write: &mut impl FnMut(&[u8])) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    write(&digits[at..]);
}

/// Writes bytes as pairs of hexadecimal digits separated by colons.
pub fn pairs(bytes: &[u8], digits: &[u8; 16], write: &mut impl FnMut(&[u8])) {
    for (place, byte) in bytes.iter().enumerate() {
        if place > 0 {
            write(b":");
        }
        write(&[digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 0x80);
        [&[tag, content.len() as u8], content].concat()
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(OBJECT, kind), der(tag, value)].concat())
    }

    fn written(names: &[u8]) -> String {
        let mut text = Vec::new();
        name(names, &mut |bytes| text.extend_from_slice(bytes));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn names_are_written_in_their_order() {
        let both = [
            attribute(b"\x55\x04\x0a", 12, b"A, B"),
            attribute(b"\x55\x04\x03", 30, b"\0c\0d\x12\x34"),
        ]
        .concat();
        let names = [
            der(SET, &attribute(b"\x55\x04\x06", 19, b"DE")),
            der(SET, &both),
            der(SET, &attribute(b"\x2b\x06\x01\x04\x01\x82\x37", 12, b"x")),
        ]
        .concat();
        assert_eq!("C=DE, O=A, B + CN=cd?, 1.3.6.1.4.1.311=x", written(&names));
        for cut in 0..names.len() {
            assert!("C=DE, O=A, B + CN=cd?, 1.3.6.1.4.1.311=x".starts_with(&written(&names[..cut])));
        }
    }

    #[test]
    fn certificate_cut_behind_its_subject_is_read() {
        let subject = der(SET, &attribute(b"\x55\x04\x03", 12, b"s"));
        let issuer = der(SET, &attribute(b"\x55\x04\x03", 12, b"i"));
        let fields = [
            der(VERSION, &[2, 1, 2]),
            der(INTEGER, &[0, 0xab, 1]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &issuer),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &subject),
        ]
        .concat();
        // The key and the signature are missing in this certificate.
        let inner = [&[SEQUENCE, 0x82, 1, 0][..], &fields].concat();
        let whole = [&[SEQUENCE, 0x82, 2, 0][..], &inner].concat();
        let expected = Certificate {
            serial: &[0, 0xab, 1],
            issuer: &issuer,
            subject: &subject,
        };
        assert_eq!(Some(expected), Certificate::read(&whole));
        for cut in 0..whole.len() {
            assert_eq!(None, Certificate::read(&whole[..cut]));
        }
    }
}
