//! Selection of outside ports whose answers RSS delivers to the flow's own shard, if NICs hash addresses and ports. The
//! hash is linear, so that a table contains the matching ports of each 64-port word as a mask.

use sluice_table::toeplitz::{Key, ParityRows};

use crate::ports::PortClass;
use crate::{Address, Tuple};

/// Number of ports in a word.
const WORD: u64 = 64;

/// Table of matching ports, built from the RSS key of outside interfaces. NICs hash the answers in this order: remote
/// address, outside address, remote port, outside port.
#[derive(Debug)]
pub struct RssPorts {
    four: ParityRows<2>,
    six: ParityRows<5>,
    /// For IPv4 and for IPv6: the ports of a word, as a mask, that contribute a value to the hash. Indexed by the part
    /// of that value that the low 6 port bits must contribute.
    words: [Box<[u64]>; 2],
}

impl RssPorts {
    /// Creates the table from a key of [`sluice_table::toeplitz::draw_for_flows`] and the binary logarithm of the
    /// number of shards.
    pub fn new(key: &Key, bits: u32) -> Self {
        let (four, six) = (ParityRows::new(key, bits), ParityRows::new(key, bits));
        let mut words = [(); 2].map(|()| vec![0u64; 1 << bits].into_boxed_slice());
        for port in 0..WORD {
            words[0][four.of([0, port << 32]) as usize] |= 1 << port;
            words[1][six.of([0, 0, 0, 0, port << 32]) as usize] |= 1 << port;
        }
        Self { four, six, words }
    }

    /// Value that an outside address and port must contribute to the hash of a flow's answers, so that RSS delivers the
    /// answers to a shard. `None` for flows whose ports NICs don't hash.
    #[inline(always)]
    pub(crate) fn required_hash<T: Tuple>(&self, class: PortClass, shard: u32, key: &T) -> Option<u32> {
        let hashed = matches!(class, PortClass::Tcp | PortClass::Udp);
        let ports = u64::from(key.destination_port()) << 48;
        hashed.then(|| shard ^ self.of(key.destination(), T::Address::from_number(0), ports))
    }

    /// Ports of the word at `first`, as a mask, that contribute the value `wanted` together with an outside address.
    #[inline(always)]
    pub(crate) fn of_word<A: Address>(&self, wanted: u32, outside: A, first: u32) -> u64 {
        let rest = wanted ^ self.of(A::from_number(0), outside, u64::from(first & 0xffff) << 32);
        let words = &self.words[usize::from(A::BITS != 32)];
        words.get(rest as usize).copied().unwrap_or_default()
    }

    /// Shard to which RSS delivers the answers from `remote` to an outside address.
    #[inline(always)]
    fn of<A: Address>(&self, remote: A, outside: A, ports: u64) -> u32 {
        let ([r0, r1], [o0, o1]) = (remote.words(), outside.words());
        if A::BITS == 32 {
            self.four.of([r1 << 32 | o1, ports])
        } else {
            self.six.of([r0, r1, o0, o1, ports])
        }
    }

    /// Shard to which RSS delivers the answers of a flow from inside, if the flow has this outside address and port.
    pub fn shard_of<T: Tuple>(&self, outside: T::Address, port: u16, key: &T) -> u32 {
        let ports = u64::from(key.destination_port()) << 48 | u64::from(port) << 32;
        self.of(key.destination(), outside, ports)
    }
}
