//! JA4 of a ClientHello, as specified by FoxIO. The fingerprint consists of a summary of the hello in ten characters,
//! and the first digits of two SHA-256 digests over the sorted ciphers and extensions. Values that RFC 8701 reserves
//! are ignored.

use arrayvec::ArrayVec;
use sha2::{Digest, Sha256};

use super::ja3::is_reserved;

/// Number of characters of a fingerprint.
pub(super) const LENGTH: usize = 36;
/// Extensions.
const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;

/// A fingerprint under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Ja4 {
    ciphers: ArrayVec<u16, 99>,
    extensions: ArrayVec<u16, 64>,
    signatures: ArrayVec<u16, 32>,
    version: u16,
    /// Whether the supported_versions extension was received, so that the version field of the hello is ignored.
    listed: bool,
    named: bool,
    /// First and last byte of the first protocol.
    protocol: Option<(u8, u8)>,
    cut: bool,
}

impl Ja4 {
    pub fn version(&mut self, version: u16) {
        self.version = version;
    }

    pub fn offered_version(&mut self, version: u16) {
        if is_reserved(version) {
            return;
        }
        self.version = match self.listed {
            true => self.version.max(version),
            false => version,
        };
        self.listed = true;
    }

    pub fn cipher(&mut self, cipher: u16) {
        if !is_reserved(cipher) {
            self.cut |= self.ciphers.try_push(cipher).is_err();
        }
    }

    pub fn extension(&mut self, extension: u16) {
        if !is_reserved(extension) {
            self.named |= extension == SERVER_NAME;
            self.cut |= self.extensions.try_push(extension).is_err();
        }
    }

    pub fn signature(&mut self, signature: u16) {
        if !is_reserved(signature) {
            self.cut |= self.signatures.try_push(signature).is_err();
        }
    }

    /// Adds a byte of the name of the first protocol.
    pub fn protocol(&mut self, byte: u8) {
        let first = self.protocol.map_or(byte, |(first, _)| first);
        self.protocol = Some((first, byte));
    }

    /// Whether more values were offered than can be stored. The fingerprint then covers only the stored values.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the fingerprint of a hello over TCP (`t`) or QUIC (`q`).
    pub fn hash(&mut self, transport: u8) -> [u8; LENGTH] {
        let mut text = [b'0'; LENGTH];
        text[0] = transport;
        text[1..3].copy_from_slice(match self.version {
            0x0304 => b"13",
            0x0303 => b"12",
            0x0302 => b"11",
            0x0301 => b"10",
            0x0300 => b"s3",
            0x0002 => b"s2",
            0xfeff => b"d1",
            0xfefd => b"d2",
            0xfefc => b"d3",
            _ => b"00",
        });
        text[3] = if self.named { b'd' } else { b'i' };
        for (at, count) in [(4, self.ciphers.len()), (6, self.extensions.len())] {
            let count = count.min(99) as u8;
            (text[at], text[at + 1]) = (b'0' + count / 10, b'0' + count % 10);
        }
        if let Some((first, last)) = self.protocol {
            let plain = first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric();
            let shown = match plain {
                true => (first, last),
                false => (digit(first >> 4), digit(last & 15)),
            };
            (text[8], text[9]) = shown;
        }
        (text[10], text[23]) = (b'_', b'_');
        self.ciphers.sort_unstable();
        if !self.ciphers.is_empty() {
            let mut sum = Sha256::new();
            list(&mut sum, &self.ciphers);
            write_prefix(sum, &mut text[11..23]);
        }
        if !self.extensions.is_empty() {
            self.extensions.retain(|kind| !matches!(*kind, SERVER_NAME | PROTOCOLS));
            self.extensions.sort_unstable();
            let mut sum = Sha256::new();
            list(&mut sum, &self.extensions);
            if !self.signatures.is_empty() {
                sum.update(b"_");
                list(&mut sum, &self.signatures);
            }
            write_prefix(sum, &mut text[24..]);
        }
        text
    }
}

fn digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value & 15)]
}

fn list(sum: &mut Sha256, values: &[u16]) {
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            sum.update(b",");
        }
        sum.update([12, 8, 4, 0].map(|bits| digit((value >> bits) as u8)));
    }
}

/// Writes the first digits of a digest, up to the length of `digits`.
fn write_prefix(sum: Sha256, digits: &mut [u8]) {
    for (byte, pair) in sum.finalize().iter().zip(digits.chunks_exact_mut(2)) {
        (pair[0], pair[1]) = (digit(byte >> 4), digit(*byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ja4_published_example_has_its_published_hash() {
        let mut ja4 = Ja4::default();
        ja4.version(0x0303);
        for version in [0x0a0a, 0x0304, 0x0303] {
            ja4.offered_version(version);
        }
        for cipher in [
            0xfafa, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c,
            0x009d, 0x002f, 0x0035,
        ] {
            ja4.cipher(cipher);
        }
        for extension in [
            0x1a1a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012, 0x002b,
            0xff01, 0x000b, 0x000a, 0x0015,
        ] {
            ja4.extension(extension);
        }
        for signature in [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601] {
            ja4.signature(signature);
        }
        b"h2".iter().for_each(|&byte| ja4.protocol(byte));
        assert_eq!(
            "t13d1516h2_8daaf6152771_e5627efa2ab1",
            String::from_utf8_lossy(&ja4.hash(b't'))
        );
    }

    #[test]
    fn ja4_of_nothing_is_zeros() {
        let mut ja4 = Ja4::default();
        ja4.version(0x0301);
        [0xab, 0x1d].into_iter().for_each(|byte| ja4.protocol(byte));
        assert_eq!(
            "q10i0000ad_000000000000_000000000000",
            String::from_utf8_lossy(&ja4.hash(b'q'))
        );
    }
}
