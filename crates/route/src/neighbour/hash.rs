//! Hash of a neighbour's address. The hash is keyed (SipHash-1-3), because attackers can choose addresses.

use super::address::Address;

/// Secret key; a random value at each start.
pub type Key = [u64; 2];

/// Hash of an address on a link. Inputs of the two address families differ in `link` and in length (one word for IPv4,
/// three words for IPv6).
#[inline]
pub fn hash(key: Key, link: u32, address: Address) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let first = (link as u64) << 32;
    match address {
        Address::V4(bits) => absorb(&mut v, first | bits as u64),
        Address::V6(bits) => {
            absorb(&mut v, first);
            absorb(&mut v, (bits >> 64) as u64);
            absorb(&mut v, bits as u64);
        }
    }
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}
