//! JA3 is the MD5 of `version,ciphers,extensions,groups,point formats`. Each field is a list of decimal numbers
//! separated by dashes, without the values that RFC 8701 reserves.

use arrayvec::ArrayVec;
use md5::{Digest, Md5};

/// A fingerprint under construction. Groups and point formats are stored: they arrive within the extensions, but the
/// fingerprint's text contains them after the list of extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Ja3 {
    text: Md5,
    /// Number of started lists. The first list contains the ciphers, and the second list the extensions.
    lists: u8,
    between: bool,
    groups: ArrayVec<u16, 64>,
    formats: ArrayVec<u8, 16>,
    cut: bool,
}

pub(super) fn is_reserved(value: u16) -> bool {
    let [high, low] = value.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

impl Ja3 {
    pub fn version(&mut self, version: u16) {
        self.decimal(version);
    }

    pub fn cipher(&mut self, cipher: u16) {
        self.list(1);
        self.element(cipher);
    }

    pub fn extension(&mut self, extension: u16) {
        self.list(2);
        self.element(extension);
    }

    pub fn group(&mut self, group: u16) {
        if !is_reserved(group) {
            self.cut |= self.groups.try_push(group).is_err();
        }
    }

    pub fn format(&mut self, format: u8) {
        self.cut |= self.formats.try_push(format).is_err();
    }

    /// Whether more groups or formats were offered than can be stored. The fingerprint then covers only the stored
    /// groups and formats.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The fingerprint in hexadecimal digits.
    pub fn hash(&mut self) -> [u8; 32] {
        self.list(3);
        for group in std::mem::take(&mut self.groups) {
            self.element(group);
        }
        self.list(4);
        for format in std::mem::take(&mut self.formats) {
            self.element(format.into());
        }
        digits(&mut self.text)
    }

    fn list(&mut self, list: u8) {
        while self.lists < list {
            self.text.update(b",");
            self.lists += 1;
            self.between = false;
        }
    }

    fn element(&mut self, value: u16) {
        if !is_reserved(value) {
            if std::mem::replace(&mut self.between, true) {
                self.text.update(b"-");
            }
            self.decimal(value);
        }
    }

    fn decimal(&mut self, value: u16) {
        decimal(&mut self.text, value);
    }
}

fn decimal(text: &mut Md5, mut value: u16) {
    let (mut digits, mut at) = ([0; 5], 5);
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.update(&digits[at..]);
}

/// The digest in hexadecimal digits.
fn digits(text: &mut Md5) -> [u8; 32] {
    let mut digits = [0; 32];
    for (byte, pair) in std::mem::take(text).finalize().iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

/// JA3S of a ServerHello: the MD5 of `version,cipher,extensions`.
#[derive(Clone, Debug, Default)]
pub(super) struct Ja3s {
    text: Md5,
    extensions: bool,
}

impl Ja3s {
    pub fn version(&mut self, version: u16) {
        decimal(&mut self.text, version);
        self.text.update(b",");
    }

    pub fn cipher(&mut self, cipher: u16) {
        decimal(&mut self.text, cipher);
        self.text.update(b",");
    }

    pub fn extension(&mut self, extension: u16) {
        if std::mem::replace(&mut self.extensions, true) {
            self.text.update(b"-");
        }
        decimal(&mut self.text, extension);
    }

    /// The fingerprint in hexadecimal digits.
    pub fn hash(&mut self) -> [u8; 32] {
        digits(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(version: u16, ciphers: &[u16], extensions: &[u16], groups: &[u16], formats: &[u8]) -> String {
        let mut ja3 = Ja3::default();
        ja3.version(version);
        ciphers.iter().for_each(|&cipher| ja3.cipher(cipher));
        groups.iter().for_each(|&group| ja3.group(group));
        extensions.iter().for_each(|&extension| ja3.extension(extension));
        formats.iter().for_each(|&format| ja3.format(format));
        String::from_utf8(ja3.hash().to_vec()).unwrap()
    }

    #[test]
    fn ja3_published_examples_have_their_published_hashes() {
        let ciphers = [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
        assert_eq!(
            "ada70206e40642a3e4461f35503241d5",
            hash(769, &ciphers, &[0, 10, 11], &[23, 24, 25], &[0])
        );
        let ciphers = [4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99];
        assert_eq!("de350869b8c85de67a350c8d186f11e6", hash(769, &ciphers, &[], &[], &[]));
    }

    #[test]
    fn ja3s_is_the_digest_of_its_text() {
        let mut ja3s = Ja3s::default();
        ja3s.version(769);
        ja3s.cipher(47);
        [65281, 0, 11, 35, 5, 16]
            .into_iter()
            .for_each(|kind| ja3s.extension(kind));
        assert_eq!(
            Md5::digest(b"769,47,65281-0-11-35-5-16")[..2],
            [
                u8::from_str_radix(&String::from_utf8_lossy(&ja3s.clone().hash()[..2]), 16).unwrap(),
                u8::from_str_radix(&String::from_utf8_lossy(&ja3s.hash()[2..4]), 16).unwrap()
            ]
        );
    }

    #[test]
    fn ja3_reserved_values_are_left_out() {
        let plain = hash(771, &[4865], &[0, 10], &[29], &[0]);
        assert_eq!(
            plain,
            hash(771, &[0x0a0a, 4865], &[0xfafa, 0, 10, 0x1a1a], &[0x8a8a, 29], &[0])
        );
    }
}
