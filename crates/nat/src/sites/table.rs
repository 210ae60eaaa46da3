//! Table of sites and terminals, which workers read.

use super::index::Index;
use super::keyed::{Secret, fold};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use sluice_wire::Context;

/// Maximum number of terminals of all sites. The width of terminal numbers in records limits this number.
pub const MAX_TERMINALS: u32 = (1 << 20) - 1;

/// Set if the site has a public address. The flag shares a word with this address and with the site's router.
const PUBLIC: u64 = 1 << 63;

/// Set if the site has a pool. The flag shares a word with the number of this pool.
const HAS_POOL: u32 = 1 << 31;

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;

/// Kind of request that terminals send to the gateway. Each site has a separate rate limit for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// ARP.
    Arp,
    /// DHCP.
    Dhcp,
}

impl RequestKind {
    /// Number of request kinds.
    pub(super) const COUNT: usize = 2;

    /// Nanoseconds per request, and maximum burst. These limits prevent a single site from filling the request queue of
    /// all sites. The DHCP relay has stricter limits.
    fn rate(self) -> (u64, u64) {
        match self {
            Self::Arp => (SECOND / 50, 200),
            Self::Dhcp => (SECOND / 100, 200),
        }
    }
}

/// Cache line of a terminal. The key is 0 while the line is free or is being written.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line {
    /// Context and address of the terminal; 0 if the line is free.
    pub key: AtomicU64,
    /// MAC address of the terminal.
    pub mac: AtomicU64,
    /// Virtual MAC of the site; 0 without a virtual MAC.
    pub virtual_mac: AtomicU64,
    /// VLAN tags of the site in frame format, outermost tag first, padded with zeros.
    pub tags: AtomicU64,
    /// Public address of the site, number of VLAN tags, and interface.
    pub place: AtomicU64,
}

impl Line {
    pub fn empty() -> Self {
        Self {
            key: AtomicU64::new(0),
            mac: AtomicU64::new(0),
            virtual_mac: AtomicU64::new(0),
            tags: AtomicU64::new(0),
            place: AtomicU64::new(0),
        }
    }
}

/// Public address, MAC, pool and rate limits of a site, as atomic words.
#[derive(Debug)]
pub(super) struct Site {
    /// Public address and router, with the flag [`PUBLIC`].
    pub public: AtomicU64,
    /// Virtual MAC of the site; 0 without a virtual MAC.
    pub mac: AtomicU64,
    /// Pool of the site, with the flag [`HAS_POOL`].
    pub pool: AtomicU32,
    /// Time in nanoseconds at which the rate limiter's token bucket will be full, for each [`RequestKind`].
    pub calls: [AtomicU64; RequestKind::COUNT],
}

impl Site {
    pub fn empty() -> Self {
        Self {
            public: AtomicU64::new(0),
            mac: AtomicU64::new(0),
            pool: AtomicU32::new(0),
            calls: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

/// A MAC address as a word. The first byte of the address is the lowest byte, as little-endian processors load an
/// address from a frame.
#[inline(always)]
pub fn word_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline(always)]
fn mac_of(word: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
    [a, b, c, d, e, f]
}

pub(super) fn public_word(router: u16, address: u32) -> u64 {
    PUBLIC | u64::from(router) << 32 | u64::from(address)
}

pub(super) fn pool_word(pool: Option<u16>) -> u32 {
    pool.map_or(0, |pool| HAS_POOL | u32::from(pool))
}

pub(super) fn place_word(public: u32, tags: u8, interface: u16) -> u64 {
    u64::from(public) << 32 | u64::from(tags) << 16 | u64::from(interface)
}

/// Snapshot of a terminal with the data for forwarding packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// MAC address in the form of [`word_of`].
    pub mac: u64,
    /// Source MAC of the site's packets towards the network, in the form of [`word_of`]; 0 means the MAC of the
    /// interface.
    pub virtual_mac: u64,
    /// VLAN tags of the site in frame format, first byte lowest. The word contains TPID and TCI of the outermost tag,
    /// then TPID and TCI of the inner tag.
    pub tags: u64,
    /// Number of tags.
    pub tag_count: u8,
    /// Interface through which the terminal can be reached.
    pub interface: u16,
    /// Public address of the terminal's site; 0 without a public address.
    pub public: u32,
}

/// Table of sites and terminals. All memory is allocated at start.
#[derive(Debug)]
pub struct Sites {
    pub(super) slots: Box<[Line]>,
    pub(super) sites: Box<[Site]>,
    /// Terminals by context and address.
    pub(super) terminals: Index,
    /// Sites by router and public address.
    pub(super) owners: Box<[Owners]>,
    /// Sites by their virtual MAC.
    pub(super) macs: Index,
    /// Number of terminals.
    pub(super) count: AtomicU32,
    secret: Secret,
}

/// Range of public addresses for the sites of a virtual router: context of the router, first address, last address.
pub type Network = (Context, u32, u32);

/// Sites that own the addresses of a network.
#[derive(Debug)]
pub(super) struct Owners {
    pub network: Network,
    /// For each address: the number of a site plus 1. The site is the owner of the address, or was its last owner.
    pub sites: Box<[AtomicU32]>,
}

impl Owners {
    fn new(network: Network) -> Self {
        let (_, first, last) = network;
        let sites = (first..=last).map(|_| AtomicU32::new(0)).collect();
        Self { network, sites }
    }
}

/// Value for "no site", larger than any site number.
pub const NO_SITE: u32 = u32::MAX;

/// Key of a terminal.
#[inline(always)]
pub(super) fn key_of(context: u32, address: u32) -> u64 {
    u64::from(context) << 32 | u64::from(address)
}

/// Allocates the lines of terminals. Large tables use huge pages, because packets access the lines in random order.
fn lines(terminals: u32) -> Box<[Line]> {
    let mut slots = Vec::with_capacity(terminals as usize);
    sluice_table::pages::prefer_huge(slots.spare_capacity_mut());
    slots.extend((0..terminals).map(|_| Line::empty()));
    slots.into()
}

impl Sites {
    pub(super) fn new(sites: u32, terminals: u32, networks: &[Network], secret: [u64; 2]) -> Self {
        Self {
            slots: lines(terminals),
            sites: (0..sites).map(|_| Site::empty()).collect(),
            terminals: Index::new(terminals as usize),
            owners: networks.iter().copied().map(Owners::new).collect(),
            macs: Index::new(sites as usize),
            count: AtomicU32::new(0),
            secret: Secret(secret),
        }
    }

    /// Size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        let owners = self.owners.iter().map(|owners| size_of_val(&*owners.sites));
        let indexes = self.terminals.bytes() + self.macs.bytes() + owners.sum::<usize>();
        size_of_val(&*self.slots) + size_of_val(&*self.sites) + indexes
    }

    /// Maximum number of sites.
    pub fn capacity(&self) -> u32 {
        self.sites.len() as u32
    }

    /// Number of terminals, and maximum number of terminals.
    pub fn terminals(&self) -> (u32, u32) {
        (self.count.load(Ordering::Relaxed), self.slots.len() as u32)
    }

    pub(super) fn hash(&self, word: u64) -> u64 {
        fold(self.secret, word, 0)
    }

    /// Prefetches the line of a terminal.
    #[inline(always)]
    pub fn prefetch(&self, terminal: u32) {
        if let Some(slot) = self.slots.get(terminal as usize) {
            sluice_table::prefetch::prefetch_read(slot);
        }
    }

    /// The terminal with this number; `None` if the line now has another context or address.
    #[inline(always)]
    pub fn view(&self, terminal: u32, context: u32, address: u32) -> Option<View> {
        let slot = self.slots.get(terminal as usize)?;
        let key = key_of(context, address);
        if slot.key.load(Ordering::Acquire) != key {
            return None;
        }
        let mac = slot.mac.load(Ordering::Relaxed);
        let virtual_mac = slot.virtual_mac.load(Ordering::Relaxed);
        let tags = slot.tags.load(Ordering::Relaxed);
        let place = slot.place.load(Ordering::Relaxed);
        // Pairs with the fence of the writer. If a word of another terminal was read, the following read of the key
        // detects it.
        fence(Ordering::Acquire);
        (slot.key.load(Ordering::Relaxed) == key).then_some(View {
            mac,
            virtual_mac,
            tags,
            tag_count: (place >> 16) as u8,
            interface: place as u16,
            public: (place >> 32) as u32,
        })
    }

    /// Number of the terminal that has this context and address.
    #[inline]
    pub fn find(&self, context: u32, address: u32) -> Option<u32> {
        let key = key_of(context, address);
        let is = |number: u32| {
            let slot = self.slots.get(number as usize);
            slot.is_some_and(|slot| slot.key.load(Ordering::Acquire) == key)
        };
        self.terminals.find(self.hash(key), is)
    }

    /// Public address of a site.
    #[inline]
    pub fn public(&self, site: u32) -> Option<u32> {
        let word = self.sites.get(site as usize)?.public.load(Ordering::Acquire);
        (word & PUBLIC != 0).then_some(word as u32)
    }

    /// Owner entry of a public address in a virtual router; `None` if no network of sites contains the address.
    #[inline(always)]
    pub(super) fn place(&self, router: Context, public: u32) -> Option<&AtomicU32> {
        let mut owners = self.owners.iter();
        owners.find_map(|owners| {
            let (of, first, last) = owners.network;
            let is = of == router && first <= public && public <= last;
            is.then(|| owners.sites.get((public - first) as usize))?
        })
    }

    /// The site that receives packets to a public address of a virtual router: the owner or the last owner of the
    /// address. Sessions of the last owner may still use the address. [`NO_SITE`] if the address never had an owner.
    /// `None` if no network of sites contains the address.
    #[inline(always)]
    pub fn recipient(&self, router: Context, public: u32) -> Option<u32> {
        let place = self.place(router, public)?;
        Some(place.load(Ordering::Acquire).wrapping_sub(1))
    }

    /// The site that currently owns a public address in a virtual router.
    #[inline]
    pub fn owner(&self, router: u16, public: u32) -> Option<u32> {
        let site = self.recipient(router.into(), public)?;
        let record = self.sites.get(site as usize)?;
        let is = record.public.load(Ordering::Acquire) == public_word(router, public);
        is.then_some(site)
    }

    /// Ranges of public addresses for sites.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.owners.iter().map(|owners| owners.network)
    }

    /// Virtual MAC of a site.
    pub fn mac(&self, site: u32) -> Option<[u8; 6]> {
        let word = self.sites.get(site as usize)?.mac.load(Ordering::Acquire);
        (word != 0).then(|| mac_of(word))
    }

    /// The site that has this virtual MAC.
    pub fn site_of_mac(&self, mac: [u8; 6]) -> Option<u32> {
        let word = word_of(mac);
        let is = |site: u32| {
            let site = self.sites.get(site as usize);
            site.is_some_and(|site| site.mac.load(Ordering::Acquire) == word)
        };
        (word != 0).then(|| self.macs.find(self.hash(word), is))?
    }

    /// Pool from which a site's outside ports are allocated.
    pub fn pool(&self, site: u32) -> Option<u16> {
        let word = self.sites.get(site as usize)?.pool.load(Ordering::Acquire);
        (word & HAS_POOL != 0).then_some(word as u16)
    }

    /// Whether a site may send another request of this kind at `now` (nanoseconds).
    pub fn admits(&self, site: u32, call: RequestKind, now: u64) -> bool {
        let Some(site) = self.sites.get(site as usize) else {
            return false;
        };
        let (each, burst) = call.rate();
        let next = |full_at: u64| {
            let next = full_at.max(now).saturating_add(each);
            (next - now <= each * burst).then_some(next)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        site.calls[call as usize].fetch_update(set, fetch, next).is_ok()
    }
}
