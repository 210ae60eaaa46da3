//! Candidate ports of an address for a session, in the order in which an allocation tries them.

use crate::behaviour::PortSelection;
use crate::bindings::{Bindings, PortRequest};
use crate::deterministic::PortSet;
use crate::keyed::{reduce, sip};
use crate::ports::{EVEN, Lease, PortClass};
use crate::{Address, Tuple};

/// Maximum number of candidate ports that an allocation tries if the pool has no bitmap of free ports.
pub const TRIES: u32 = WORDS + 64;
/// Number of 64-port words that contribute one candidate port each. If a word has ports whose replies RSS delivers to
/// this shard, its candidate is one of them.
const WORDS: u32 = 64;
/// Number of leading 64-port words in which a candidate port must also have the preferred parity.
const PARITY: u32 = 32;

/// Ports of one word in order of preference. A port takes precedence if RSS delivers its replies to this shard, then if
/// it has the parity of the inside port (RFC 4787, REQ-4).
pub(super) struct PreferredPorts {
    /// Ports of the 64-port word that belong to the pool.
    owned: u64,
    /// Ports of the word whose replies RSS delivers to this shard.
    rss_ports: u64,
    parity: u64,
}

impl PreferredPorts {
    /// The most preferred set of ports that is not empty.
    fn first(&self) -> u64 {
        self.rss_ports & self.parity
    }

    /// The `count`-th port of the word in order of preference. Counting starts at bit `from` in each set of equally
    /// preferred ports.
    fn nth(&self, from: u32, mut count: u32) -> Option<u32> {
        let mut remaining = self.owned;
        for some in [self.first(), self.rss_ports, self.parity, u64::MAX] {
            let some = some & remaining;
            if count < some.count_ones() {
                return nth(some, from, count);
            }
            count -= some.count_ones();
            remaining &= !some;
        }
        None
    }
}

/// The `count`-th set bit of the word, counted upwards from bit `from` with wrap-around.
pub(super) fn nth(bits: u64, from: u32, count: u32) -> Option<u32> {
    let rotated = (0..count).fold(bits.rotate_right(from), |remaining, _| {
        remaining & remaining.wrapping_sub(1)
    });
    (rotated != 0).then(|| (from + rotated.trailing_zeros()) % 64)
}

impl<A: Address> Bindings<'_, A> {
    /// The `attempt`-th candidate address and port for a session that may share its port. The caller requests the next
    /// candidate if another session already has the reply key of this session. `None` if the candidate is not
    /// available. No candidates follow after [`TRIES`] attempts.
    pub fn another<T: Tuple<Address = A>>(&self, request: &PortRequest<A>, key: &T, attempt: u32) -> Option<Lease<A>> {
        let number = request
            .host
            .and_then(|host| self.find_subscriber(host, key, request.pool));
        let paired = number.and_then(|number| Some(self.subscribers.get(number)?.paired()));
        // After a migration, the pool may lack the paired address, or another shard may own the address.
        let address = match paired.filter(|&paired| self.is_usable(request.pool, paired)) {
            Some(paired) => paired,
            None => self.pair(key, request.pool)?,
        };
        (attempt < TRIES).then(|| self.candidate(request, address, key, attempt))?
    }

    /// The `attempt`-th candidate port of an address.
    pub(super) fn candidate<T: Tuple<Address = A>>(
        &self,
        request: &PortRequest<A>,
        address: A,
        key: &T,
        attempt: u32,
    ) -> Option<Lease<A>> {
        let (inside, inside_port) = (key.source(), key.source_port());
        let valid = self.pool(request.pool)?;
        if let Some(plan) = valid.plan() {
            let share = plan.outside(inside)?;
            return (attempt < share.count()).then(|| self.deterministic_candidate(request, &share, attempt));
        }
        let preserves = valid.selection() == PortSelection::Preserve;
        if attempt == 0 && preserves && valid.has_port(inside_port) {
            return Some(Lease {
                address,
                port: inside_port,
            });
        }
        // First try one port in each of several random words. Then try all ports of the first word, so that a small
        // port range is searched completely.
        let word = if attempt < WORDS { attempt } else { 0 };
        let random = sip::<1, 3>(self.secret, &[request.flow], word.into());
        let port = self.ports.port_at(request.pool, address, random)?;
        let preference = self.preferred_ports(request, Lease { address, port }, key)?;
        let from = u32::from(port % 64);
        let bit = match attempt {
            0..PARITY => nth(preference.first(), from, 0),
            PARITY..WORDS => nth(preference.rss_ports, from, 0),
            _ => preference.nth(from, attempt - WORDS),
        };
        let port = port & !63 | bit? as u16;
        let low = inside_port < 1024 || request.class == PortClass::Query || valid.ports().1 < 1024;
        (low || port >= 1024).then_some(Lease { address, port })
    }

    /// The pool's ports in one 64-port word of an outside address, in order of preference for a session.
    pub(super) fn preferred_ports<T: Tuple<Address = A>>(
        &self,
        request: &PortRequest<A>,
        near: Lease<A>,
        key: &T,
    ) -> Option<PreferredPorts> {
        let valid = self.pool(request.pool)?;
        let owned = self.ports.owned_ports_of_word(request.pool, near.port);
        let parity = match valid.preserves_parity() && request.class == PortClass::Udp {
            true => EVEN << (key.source_port() & 1),
            false => u64::MAX,
        };
        Some(PreferredPorts {
            owned,
            rss_ports: owned & self.ports.rss_ports_of_word(request.class, near, key),
            parity,
        })
    }

    /// A free port among the ports that deterministic NAT computes for an inside address (RFC 7422).
    pub(super) fn deterministic_port<T: Tuple<Address = A>>(
        &self,
        request: &PortRequest<A>,
        key: &T,
    ) -> Option<Lease<A>> {
        let share = self.pool(request.pool)?.plan()?.outside(key.source())?;
        let mut ports =
            (0..TRIES.min(share.count())).map(|attempt| self.deterministic_candidate(request, &share, attempt));
        ports.find(|lease| self.mappings.find_outside(*lease, request.class).is_none())
    }

    /// The `attempt`-th candidate among the computed ports of a subscriber. The first candidate is random, and the
    /// following ones are in ascending order.
    pub(super) fn deterministic_candidate(
        &self,
        request: &PortRequest<A>,
        share: &PortSet<'_, A>,
        attempt: u32,
    ) -> Lease<A> {
        let first = reduce((request.flow >> 32) as u32, share.count());
        let (address, port) = share.at((first + attempt) % share.count().max(1));
        Lease { address, port }
    }
}
