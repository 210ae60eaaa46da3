//! Announcements of the gateway's addresses: gratuitous ARP and unsolicited neighbour advertisements. The gateway sends
//! announcements at start, when a link comes up, and when an address or the MAC of an interface changes (RFC 5227, 2.3; RFC
//! 4861, 7.2.6).

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHasher;
use sluice_route::Address;

use crate::packet::task::AddressPosition;
use crate::snapshot::{Interface, Snapshot};

/// Number of times that each address is announced, and the interval in nanoseconds between two announcements of an
/// address (RFC 5227: `ANNOUNCE_NUM`, `ANNOUNCE_INTERVAL`).
const ANNOUNCE: (u8, u64) = (2, 2_000_000_000);

/// Limits of one call of [`Announcements::advance`]: maximum number of examined addresses, maximum number of sent
/// announcements, and nanoseconds until the next call.
const STEP: (usize, usize, u64) = (64, 4, 1_000_000);

/// Minimum prefix length of networks that are searched for translated outside addresses. The minimum limits the search
/// to 65,536 addresses.
const SEARCHED: u8 = 16;

impl AddressPosition {
    /// The address at this position; `None` if the address must not be announced.
    pub fn address(self, interface: &Interface, snapshot: &Snapshot) -> Option<Address> {
        let &(own, length) = interface.link.addresses.get(usize::from(self.network))?;
        let Address::V4(v4) = own else {
            return Some(own);
        };
        if length < SEARCHED {
            return Some(own);
        }
        let network = v4 & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let address = network.checked_add(self.offset)?;
        let plain = Address::V4(address);
        // If two addresses of the interface are in one network, the network is searched only for the first address.
        let before = interface.link.addresses.iter().take(usize::from(self.network));
        let is_known = |&(other, bits): &(Address, u8)| {
            bits >= SEARCHED
                && sluice_route::Prefix::new(other, bits).contains(plain)
                && matches!(other, Address::V4(_))
        };
        let is_local = interface.link.owns(plain) || proxies_for(interface, snapshot, address);
        (is_local && !before.copied().any(|one| is_known(&one))).then_some(plain)
    }

    /// The next position to examine.
    fn next(self, interface: &Interface) -> Self {
        let entry = interface.link.addresses.get(usize::from(self.network));
        let size = match entry {
            Some(&(Address::V4(_), length)) if (SEARCHED..=32).contains(&length) => 1 << (32 - length),
            _ => 1,
        };
        match self.offset + 1 < size {
            true => Self {
                offset: self.offset + 1,
                ..self
            },
            false => Self {
                network: self.network + 1,
                offset: 0,
            },
        }
    }

    fn is_end(self, interface: &Interface) -> bool {
        usize::from(self.network) >= interface.link.addresses.len()
    }
}

/// State of the announcements of an interface.
#[derive(Clone, Debug, Default)]
struct Announcing {
    /// The commit for which the digest was last computed.
    committed: Option<u32>,
    /// Digest of the MAC address and the addresses that were announced.
    announced: u64,
    /// How often the link had come up until the last check.
    ups: u32,
    /// Number of remaining announcements of each address. `next` is the time of the next step in nanoseconds.
    remaining: u8,
    next: u64,
    started: u64,
    place: AddressPosition,
}

/// State of the announcements of all interfaces.
#[derive(Debug)]
pub struct Announcements {
    of_interface: Vec<Announcing>,
    ups: Arc<[AtomicU32]>,
}

impl Announcements {
    /// Creates the state. `ups` counts how often the link of each interface has come up.
    pub fn new(ups: Arc<[AtomicU32]>) -> Self {
        Self {
            of_interface: vec![Announcing::default(); ups.len()],
            ups,
        }
    }

    /// Sends the announcements that are due.
    pub fn advance(&mut self, snapshot: &Snapshot, now: u64, mut announce: impl FnMut(u16, AddressPosition)) {
        for &number in snapshot.announcing.iter() {
            let (Some(interface), Some(one), Some(ups)) = (
                snapshot.interface(number),
                self.of_interface.get_mut(usize::from(number)),
                self.ups.get(usize::from(number)),
            ) else {
                continue;
            };
            let ups = ups.load(Ordering::Relaxed);
            if one.committed != Some(snapshot.committed) {
                one.committed = Some(snapshot.committed);
                let current = digest(interface, snapshot);
                if current != one.announced {
                    one.announced = current;
                    one.start(now);
                }
            }
            if ups != one.ups {
                one.ups = ups;
                one.start(now);
            }
            if one.remaining > 0 && now >= one.next {
                one.step((interface, snapshot), now, |place| announce(number, place));
            }
        }
    }
}

/// A digest of the MAC and of all addresses that must be announced.
fn digest(interface: &Interface, snapshot: &Snapshot) -> u64 {
    let mut hasher = FxHasher::default();
    interface.mac.hash(&mut hasher);
    for (address, length) in &interface.link.addresses {
        (address.number(), address.bits(), length).hash(&mut hasher);
    }
    if interface.outside {
        snapshot.leases.generation.hash(&mut hasher);
    }
    // A digest of 0 means that nothing was announced, so the result is never 0.
    hasher.finish() | 1
}

impl Announcing {
    fn start(&mut self, now: u64) {
        (self.remaining, self.next, self.started, self.place) = (ANNOUNCE.0, now, now, AddressPosition::default());
    }

    fn step(
        &mut self,
        (interface, snapshot): (&Interface, &Snapshot),
        now: u64,
        mut announce: impl FnMut(AddressPosition),
    ) {
        let (looks, mut remaining, pause) = STEP;
        for _ in 0..looks {
            if self.place.is_end(interface) {
                self.remaining -= 1;
                self.started = now.max(self.started + ANNOUNCE.1);
                (self.next, self.place) = (self.started, AddressPosition::default());
                return;
            }
            if self.place.address(interface, snapshot).is_some() {
                announce(self.place);
                remaining -= 1;
            }
            self.place = self.place.next(interface);
            if remaining == 0 {
                self.next = now + pause;
                return;
            }
        }
    }
}

/// Whether the gateway answers ARP requests and neighbour solicitations for an address with the MAC of the interface.
/// It answers if NAT uses the address as an outside address on the link.
pub fn proxies_for(interface: &Interface, snapshot: &Snapshot, address: u32) -> bool {
    let (nat, context) = (&snapshot.nat4, interface.context);
    interface.outside && (nat.pools.owner(context, address).is_some() || nat.rules.proxies_for(context, address))
}
