//! Inputs that collide under linear hashes.
//!
//! CRC32 and Toeplitz are linear: if the difference of two inputs is in the kernel of the hash, the inputs collide for
//! every initial value. Thus one set of inputs can attack every installation. The common kernel of both hashes is
//! computed by Gaussian elimination.

use std::collections::HashSet;

/// The key of Microsoft's RSS verification suite, long enough for inputs of 36 bytes.
const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

fn toeplitz(bytes: &[u8]) -> u32 {
    let window = |bit: usize| {
        (0..32).fold(0, |word, k| {
            word << 1 | u32::from(TOEPLITZ_KEY[(bit + k) / 8] >> (7 - (bit + k) % 8) & 1)
        })
    };
    let set = (0..bytes.len() * 8).filter(|bit| bytes[bit / 8] >> (7 - bit % 8) & 1 != 0);
    set.fold(0, |hash, bit| hash ^ window(bit))
}

/// CRC-32C, as computed by the x86-64 instruction.
fn crc32(bytes: &[u8], initial: u32) -> u32 {
    bytes.iter().fold(initial, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

/// Basis of the `length`-byte differences that leave CRC32 and Toeplitz unchanged.
fn unseen_differences(length: usize) -> Vec<Vec<u8>> {
    let mut pivots: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut kernel = Vec::new();
    for bit in 0..length * 8 {
        let mut difference = vec![0; length];
        difference[bit / 8] = 1 << (bit % 8);
        let mut image = u64::from(crc32(&difference, 0)) << 32 | u64::from(toeplitz(&difference));
        for (pivot, of) in &pivots {
            if image ^ pivot < image {
                image ^= pivot;
                difference.iter_mut().zip(of).for_each(|(byte, other)| *byte ^= other);
            }
        }
        if image == 0 {
            kernel.push(difference);
        } else {
            pivots.push((image, difference));
            pivots.sort_by_key(|(image, _)| std::cmp::Reverse(*image));
        }
    }
    kernel
}

/// `count` inputs of `length` bytes with equal CRC32 and equal Toeplitz hash.
pub fn colliding(length: usize, count: usize) -> Vec<Vec<u8>> {
    let basis = unseen_differences(length);
    let base: Vec<u8> = (0..length as u8).map(|k| k.wrapping_mul(37).wrapping_add(10)).collect();
    let inputs: Vec<Vec<u8>> = (0..count)
        .map(|number| {
            let chosen = basis.iter().take(16).enumerate().filter(|(k, _)| number >> k & 1 != 0);
            chosen.fold(base.clone(), |mut input, (_, difference)| {
                input
                    .iter_mut()
                    .zip(difference)
                    .for_each(|(byte, other)| *byte ^= other);
                input
            })
        })
        .collect();
    let seen: HashSet<(u32, u32)> = inputs
        .iter()
        .map(|input| (crc32(input, 0x1234_5678), toeplitz(input)))
        .collect();
    assert_eq!(1, seen.len());
    assert_eq!(count, inputs.iter().collect::<HashSet<_>>().len());
    inputs
}
