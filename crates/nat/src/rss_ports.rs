//! Selection of outside ports for which RSS delivers replies to the flow's own shard. Applies if NICs hash addresses
//! and ports. Because the RSS hash is linear, the matching ports of a 64-port word can be read from a table of masks.

use sluice_table::toeplitz::{Key, ParityRows};

use crate::ports::PortClass;
use crate::{Address, Tuple};

/// Number of ports in a word.
const WORD: u64 = 64;

/// Table of matching ports, built from the RSS key of outside interfaces. NICs hash the fields of a reply in this
/// order: remote address, outside address, remote port, outside port.
#[derive(Debug)]
pub struct RssPorts {
    v4: ParityRows<2>,
    v6: ParityRows<5>,
    /// For IPv4 and for IPv6: masks of the ports in a 64-port word, indexed by the contribution of the low 6 port bits
    /// to the RSS hash.
    words: [Box<[u64]>; 2],
}

impl RssPorts {
    /// Creates the table from a key of [`sluice_table::toeplitz::draw_for_flows`] and the binary logarithm of the
    /// number of shards.
    pub fn new(key: &Key, bits: u32) -> Self {
        let (v4, v6) = (ParityRows::new(key, bits), ParityRows::new(key, bits));
        let mut words = [(); 2].map(|()| vec![0u64; 1 << bits].into_boxed_slice());
        for port in 0..WORD {
            words[0][v4.of([0, port << 32]) as usize] |= 1 << port;
            words[1][v6.of([0, 0, 0, 0, port << 32]) as usize] |= 1 << port;
        }
        Self { v4, v6, words }
    }

    /// Value that outside address and port must together contribute to the RSS hash so that RSS delivers a flow's
    /// replies to a shard. `None` if NICs don't hash the ports of the flow.
    #[inline(always)]
    pub(crate) fn required_hash<T: Tuple>(&self, class: PortClass, shard: u32, key: &T) -> Option<u32> {
        let hashed = matches!(class, PortClass::Tcp | PortClass::Udp);
        let ports = u64::from(key.destination_port()) << 48;
        hashed.then(|| shard ^ self.of(key.destination(), T::Address::from_number(0), ports))
    }

    /// Mask of the ports in the word at `first` for which address and port together contribute `wanted` to the RSS
    /// hash.
    #[inline(always)]
    pub(crate) fn of_word<A: Address>(&self, wanted: u32, outside: A, first: u32) -> u64 {
        let rest = wanted ^ self.of(A::from_number(0), outside, u64::from(first & 0xffff) << 32);
        let words = &self.words[usize::from(A::BITS != 32)];
        words.get(rest as usize).copied().unwrap_or_default()
    }

    /// Shard to which RSS delivers the replies from `remote` to an outside address.
    #[inline(always)]
    fn of<A: Address>(&self, remote: A, outside: A, ports: u64) -> u32 {
        let ([r0, r1], [o0, o1]) = (remote.words(), outside.words());
        if A::BITS == 32 {
            self.v4.of([r1 << 32 | o1, ports])
        } else {
            self.v6.of([r0, r1, o0, o1, ports])
        }
    }

    /// Shard to which RSS delivers the replies of a flow from inside, given the flow's outside address and port.
    pub fn shard_of<T: Tuple>(&self, outside: T::Address, port: u16, key: &T) -> u32 {
        let ports = u64::from(key.destination_port()) << 48 | u64::from(port) << 32;
        self.of(key.destination(), outside, ports)
    }
}
