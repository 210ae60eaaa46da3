//! Initial packets (RFC 9000, section 17.2.2): their header, their protection (RFC 9001, section 5), and their frames.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce, Tag};
use hkdf::Hkdf;
use sha2::Sha256;

/// Maximum size of a packet that is decrypted. Longer packets are ignored.
pub const PACKET: usize = 2048;
const TAG: usize = 16;

/// Parameters that differ between QUIC versions.
#[derive(Clone, Copy, Debug)]
struct Version {
    salt: &'static [u8; 20],
    labels: [&'static [u8]; 3],
    /// Type of an Initial packet.
    initial: u8,
}

const LABELS: [&[u8]; 3] = [b"quic key", b"quic iv", b"quic hp"];

/// Version 1 (RFC 9001, section 5.2).
const V1: Version = Version {
    salt: b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
    labels: LABELS,
    initial: 0,
};

/// Drafts 29 to 32 of version 1.
const DRAFT: Version = Version {
    salt: b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99",
    labels: LABELS,
    initial: 0,
};

/// Version 2 (RFC 9369, section 3).
const V2: Version = Version {
    salt: b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
    labels: [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
    initial: 1,
};

fn version(number: u32) -> Option<Version> {
    match number {
        1 | 0xff00_0021 | 0xff00_0022 => Some(V1),
        0x6b33_43cf => Some(V2),
        0xff00_001d..=0xff00_0020 => Some(DRAFT),
        _ => None,
    }
}

/// The header of an Initial packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    version: Version,
    /// The destination connection ID.
    pub destination: &'a [u8],
    /// Offsets of the packet number and of the end of the packet.
    number: usize,
    end: usize,
}

/// A variable-length integer (RFC 9000, section 16).
fn integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = number[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |all, &byte| all << 8 | u64::from(byte));
    Some((value, rest))
}

fn take(bytes: &[u8], count: u64) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(count).ok()?)
}

impl<'a> Header<'a> {
    /// Parses the first Initial packet in a datagram. Returns the header of this packet and the bytes after the packet.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let &[first, a, b, c, d, ref rest @ ..] = bytes else {
            return None;
        };
        let version = version(u32::from_be_bytes([a, b, c, d]))?;
        if first & 0xc0 != 0xc0 || first >> 4 & 3 != version.initial {
            return None;
        }
        let (&length, rest) = rest.split_first()?;
        let (destination, rest) = take(rest, length.into())?;
        let (&length, rest) = rest.split_first()?;
        let (_, rest) = take(rest, length.into())?;
        let (token, rest) = integer(rest)?;
        let (_, rest) = take(rest, token)?;
        let (length, rest) = integer(rest)?;
        let number = bytes.len() - rest.len();
        let (_, behind) = take(rest, length)?;
        let header = Self {
            version,
            destination,
            number,
            end: bytes.len() - behind.len(),
        };
        (destination.len() <= 20).then_some((header, behind))
    }
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
fn expand(secret: &Hkdf<Sha256>, label: &[u8], key: &mut [u8]) {
    let length = (key.len() as u16).to_be_bytes();
    let labels = [(label.len() + 6) as u8];
    // The result is ignored, because the output is shorter than the limit.
    let _ = secret.expand_multi_info(&[&length, &labels, b"tls13 ", label, &[0]], key);
}

/// Keys for the packets of the client.
struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    header: [u8; 16],
}

fn keys(version: &Version, id: &[u8]) -> Keys {
    let mut client = [0; 32];
    expand(&Hkdf::new(Some(version.salt), id), b"client in", &mut client);
    let mut keys = Keys {
        key: [0; 16],
        iv: [0; 12],
        header: [0; 16],
    };
    if let Ok(secret) = Hkdf::from_prk(&client) {
        let [key, iv, header] = version.labels;
        expand(&secret, key, &mut keys.key);
        expand(&secret, iv, &mut keys.iv);
        expand(&secret, header, &mut keys.header);
    }
    keys
}

/// Decrypts a packet with the keys of a connection ID. Returns the length of the packet's frames. `into` has space for
/// [`PACKET`] bytes.
pub(super) fn open(bytes: &[u8], header: &Header<'_>, id: &[u8], into: &mut [u8]) -> Option<usize> {
    let keys = keys(&header.version, id);
    let packet = bytes.get(..header.end)?;
    let into = into.get_mut(..packet.len())?;
    into.copy_from_slice(packet);
    // Header protection (RFC 9001, section 5.4).
    let mut mask = <[u8; 16]>::try_from(packet.get(header.number + 4..header.number + 20)?)
        .ok()?
        .into();
    Aes128::new(&keys.header.into()).encrypt_block(&mut mask);
    into[0] ^= mask[0] & 0x0f;
    let length = usize::from(into[0] & 3) + 1;
    let mut nonce = keys.iv;
    for place in 0..length {
        let byte = &mut into[header.number + place];
        *byte ^= mask[1 + place];
        nonce[12 - length + place] ^= *byte;
    }
    let (associated, content) = into.split_at_mut(header.number + length);
    let (content, tag) = content.split_at_mut_checked(content.len().checked_sub(TAG)?)?;
    let tag: [u8; TAG] = (&*tag).try_into().ok()?;
    Aes128Gcm::new(&keys.key.into())
        .decrypt_in_place_detached(&Nonce::from(nonce), associated, content, &Tag::from(tag))
        .ok()?;
    let (start, length) = (header.number + length, content.len());
    into.copy_within(start..start + length, 0);
    Some(length)
}

/// Passes the offset and data of each CRYPTO frame of a packet (RFC 9000, section 19.6) to `report`. The function stops
/// at a frame that is not allowed in Initial packets.
pub(super) fn frames(mut bytes: &[u8], report: &mut impl FnMut(usize, &[u8])) -> Option<()> {
    while let Some((&kind, rest)) = bytes.split_first() {
        bytes = match kind {
            // PADDING and PING.
            0 | 1 => rest,
            // ACK.
            2 | 3 => {
                let (_, rest) = integer(rest)?;
                let (_, rest) = integer(rest)?;
                let (count, rest) = integer(rest)?;
                let (_, mut rest) = integer(rest)?;
                let counts = if kind == 3 { 3 } else { 0 };
                for _ in 0..count.checked_mul(2)?.checked_add(counts)? {
                    (_, rest) = integer(rest)?;
                }
                rest
            }
            6 => {
                let (offset, rest) = integer(rest)?;
                let (length, rest) = integer(rest)?;
                let (data, rest) = take(rest, length)?;
                report(usize::try_from(offset).ok()?, data);
                rest
            }
            _ => return None,
        };
    }
    Some(())
}

/// Encrypts frames into an Initial packet of a client, for one QUIC version.
#[cfg(test)]
pub(super) fn seal(number: u32, id: &[u8], packet_number: u8, frames: &[u8]) -> Vec<u8> {
    let version = version(number).unwrap();
    let keys = keys(&version, id);
    let length = (frames.len() + 1 + TAG) as u16 | 0x4000;
    let mut packet = [
        &[0xc0 | version.initial << 4][..],
        &number.to_be_bytes(),
        &[id.len() as u8],
        id,
        &[0, 0],
        &length.to_be_bytes(),
        &[packet_number],
    ]
    .concat();
    let place = packet.len() - 1;
    let mut nonce = keys.iv;
    nonce[11] ^= packet_number;
    let mut content = frames.to_vec();
    let tag = Aes128Gcm::new(&keys.key.into())
        .encrypt_in_place_detached(&Nonce::from(nonce), &packet, &mut content)
        .unwrap();
    packet.extend(content);
    packet.extend(tag);
    let mut mask = <[u8; 16]>::try_from(&packet[place + 4..place + 20]).unwrap().into();
    Aes128::new(&keys.header.into()).encrypt_block(&mut mask);
    packet[0] ^= mask[0] & 0x0f;
    packet[place] ^= mask[1];
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &[u8] = b"\x83\x94\xc8\xf0\x3e\x51\x57\x08";

    #[test]
    fn keys_are_those_of_the_document() {
        // Test vector of RFC 9001, appendix A.1.
        let keys = keys(&V1, ID);
        assert_eq!(0x1f36_9613_dd76_d546_7730_efcb_e3b1_a22d, u128::from_be_bytes(keys.key));
        assert_eq!(b"\xfa\x04\x4b\x2f\x42\xa3\xfd\x3b\x46\xfb\x25\x5c", &keys.iv);
        assert_eq!(
            0x9f50_449e_04a0_e810_283a_1e99_33ad_edd2,
            u128::from_be_bytes(keys.header)
        );
    }

    #[test]
    fn sealed_packets_are_opened_and_others_are_not() {
        let frames = [&b"\x06\x00\x05hello"[..], &[0; 40]].concat();
        for version in [1, 0x6b33_43cf, 0xff00_001d] {
            let sealed = seal(version, ID, 7, &frames);
            let datagram = [&sealed[..], b"behind"].concat();
            let mut into = vec![0; PACKET];
            let (header, behind) = Header::read(&datagram).expect("a header");
            assert_eq!((ID, &b"behind"[..]), (header.destination, behind));
            assert_eq!(Some(frames.len()), open(&datagram, &header, ID, &mut into));
            assert_eq!(frames, into[..frames.len()]);
            for place in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[place] ^= 0x10;
                if let Some((header, _)) = Header::read(&changed) {
                    assert_eq!(None, open(&changed, &header, ID, &mut into), "byte {place}");
                }
                if let Some((header, _)) = Header::read(&sealed[..place]) {
                    assert_eq!(None, open(&sealed[..place], &header, ID, &mut into), "cut at {place}");
                }
            }
        }
    }

    #[test]
    fn frames_are_told_up_to_one_that_is_none() {
        let mut reported = Vec::new();
        let bytes = b"\0\x01\x02\x05\x00\x01\x02\x01\x03\x06\x02\x03abc\x06\x41\x00\x01d\x1c\x06\x00\x01e";
        assert_eq!(
            None,
            frames(bytes, &mut |offset, data| reported.push((offset, data.to_vec())))
        );
        assert_eq!(vec![(2, b"abc".to_vec()), (256, b"d".to_vec())], reported);
        for cut in 0..bytes.len() {
            frames(&bytes[..cut], &mut |_, _| {});
        }
    }
}
