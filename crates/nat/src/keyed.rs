//! Keyed hash of a flow. SipHash is used so that outside ports are hard to guess (RFC 6056, section 3.3.3).

/// Secret of the installation: 128 random bits that the caller provides.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u64; 2]);

impl core::fmt::Debug for Secret {
    /// Does not print the secret, because outside ports can be guessed from it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// SipHash-2-4 of 64-bit words. The hash is unpredictable without the secret.
    pub fn hash(self, words: &[u64]) -> u64 {
        sip::<2, 4>(self, words, 0)
    }
}

/// SipHash of 64-bit words and a tail of up to 7 bytes, with `C` rounds per word and `D` final rounds.
#[inline(always)]
pub(crate) fn sip<const C: usize, const D: usize>(secret: Secret, words: &[u64], tail: u64) -> u64 {
    let [k0, k1] = secret.0;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let last = ((words.len() as u64 * 8) << 56) | tail;
    for &word in words.iter().chain([&last]) {
        v[3] ^= word;
        for _ in 0..C {
            round(&mut v);
        }
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..D {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// Keyed hash of two words by folded multiplication. This weaker hash selects the outside address of a host, which
/// every remote host sees anyway.
#[inline(always)]
pub(crate) fn fold(secret: Secret, a: u64, b: u64) -> u64 {
    let [k0, k1] = secret.0;
    let product = u128::from(a ^ k0 ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ k1 ^ 0xd1b5_4a32_d192_ed03);
    let folded = (product >> 64) as u64 ^ product as u64;
    let product = u128::from(folded ^ k1) * u128::from(k0 | 1 << 63 | 1);
    (product >> 64) as u64 ^ product as u64
}

/// Maps `hash` to `0..count`. The high bits of `hash` determine the result, so the results are evenly distributed.
#[inline(always)]
pub(crate) fn reduce(hash: u32, count: u32) -> u32 {
    ((u64::from(hash) * u64::from(count)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_reference_vectors_match() {
        let secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        // Reference vectors of SipHash-2-4 for input lengths 0, 8 and 16.
        assert_eq!(0x726f_db47_dd0e_0e31, sip::<2, 4>(secret, &[], 0));
        assert_eq!(0x93f5_f579_9a93_2462, sip::<2, 4>(secret, &[0x0706_0504_0302_0100], 0));
        assert_eq!(
            0x3f2a_cc7f_57c2_9bdb,
            sip::<2, 4>(secret, &[0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908], 0)
        );
    }

    #[test]
    fn spread_extremes_stay_inside() {
        assert_eq!(0, reduce(0, 1008));
        assert_eq!(1007, reduce(u32::MAX, 1008));
    }
}
