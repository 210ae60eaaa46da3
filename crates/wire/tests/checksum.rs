//! Tests of checksums against known values and a simple reference implementation.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_wire::checksum::{self, Delta, add, pseudo4, pseudo6, sum};

/// Direct implementation of RFC 1071 as a reference.
fn plain(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]) as u32;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn sum_of_the_example_in_rfc_1071_is_its() {
    assert_eq!(0xddf2, sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]));
}

#[test]
fn checksum_of_a_known_header_is_right() {
    let header = [
        0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7,
    ];
    assert_eq!(0xb861, checksum::checksum(&header));
}

#[test]
fn delta_of_the_example_in_rfc_1624_is_its() {
    assert_eq!(0x0000, Delta::default().word(0x5555, 0x3285).apply(0xdd2f));
}

proptest! {
    #[test]
    fn sum_of_any_bytes_equals_the_plain_one(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(plain(&bytes), sum(&bytes));
    }

    #[test]
    fn sum_of_parts_is_the_sum_of_the_whole(bytes in vec(any::<u8>(), 0..300), at: prop::sample::Index) {
        let at = at.index(bytes.len() / 2 + 1) * 2;
        prop_assert_eq!(sum(&bytes), add(sum(&bytes[..at]), sum(&bytes[at..])));
    }

    #[test]
    fn pseudo_headers_equal_their_bytes(s: u128, d: u128, protocol: u8, length: u16) {
        let bytes = [&s.to_be_bytes()[..], &d.to_be_bytes(), &[0, 0], &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
        prop_assert_eq!(plain(&bytes), pseudo6(s, d, protocol, length));
        let (s, d) = (s as u32, d as u32);
        let bytes = [&s.to_be_bytes()[..], &d.to_be_bytes(), &[0, protocol], &length.to_be_bytes()].concat();
        prop_assert_eq!(plain(&bytes), pseudo4(s, d, protocol, length));
    }

    #[test]
    fn delta_of_replaced_words_gives_the_recomputed_checksum(
        bytes in vec(any::<u8>(), 24..64), word: u16, double: u32, quad: u64,
    ) {
        let mut changed = bytes.clone();
        // A checksum is 0 only if every word is 0 or 0xffff. These bytes contain other words.
        changed[22] = 1;
        let mut bytes = bytes;
        bytes[22] = 1;
        let at = |b: &[u8], from: usize, to: usize| b[from..to].iter().fold(0u64, |n, b| n << 8 | *b as u64);
        let delta = Delta::default()
            .word(at(&bytes, 0, 2) as u16, word)
            .double(at(&bytes, 2, 6) as u32, double)
            .and(Delta::default().quad(at(&bytes, 8, 16), quad));
        changed[0..2].copy_from_slice(&word.to_be_bytes());
        changed[2..6].copy_from_slice(&double.to_be_bytes());
        changed[8..16].copy_from_slice(&quad.to_be_bytes());
        let (old, new) = (!plain(&bytes), !plain(&changed));
        prop_assert_eq!(new, delta.apply(old));
        prop_assert_eq!(old, delta.inverse().apply(new));
        // The incremental update preserves the error of an incorrect checksum.
        let wrong = old ^ 0x0100;
        prop_assert_ne!(new, delta.apply(wrong));
        let undone = delta.inverse().apply(delta.apply(wrong));
        prop_assert!(undone == wrong || undone ^ wrong == 0xffff);
    }
}

#[test]
fn count_down_keeps_the_checksum_right_whatever_it_was() {
    for (ttl, protocol) in [(64, 6), (2, 17), (255, 1)] {
        for field in 0..=u16::MAX {
            let mut header = [0; sluice_wire::ipv4::LENGTH];
            (header[8], header[9]) = (ttl, protocol);
            header[10..12].copy_from_slice(&field.to_be_bytes());
            sluice_wire::ipv4::decrement_header_ttl(&mut header);
            let words = |ttl| u16::from_be_bytes([ttl, protocol]);
            let expected = Delta::default().word(words(ttl), words(ttl - 1)).apply(field);
            assert_eq!(expected.to_be_bytes(), header[10..12], "{field:#06x}");
            assert_eq!(ttl - 1, header[8]);
        }
    }
}
