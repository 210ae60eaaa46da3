//! What workers read of sites and terminals.

use super::index::Index;
use super::keyed::{Secret, fold};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use sluice_wire::Context;

/// Most terminals of all sites: what a hop can name.
pub const MAX_TERMINALS: u32 = (1 << 20) - 1;

/// A site has a public address: above it and its router in its word.
const PUBLIC: u64 = 1 << 63;

/// A site has a pool: above its number.
const HAS_POOL: u32 = 1 << 31;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// What terminals of a site call the gateway by, each with a rate of its own for every site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// ARP.
    Arp,
    /// DHCP.
    Dhcp,
}

impl RequestKind {
    /// How many kinds.
    pub(super) const COUNT: usize = 2;

    /// Nanoseconds for each, and how many may come at once. The relay of DHCP has stricter limits of its own: these keep a
    /// site from filling the queue that all share.
    fn rate(self) -> (u64, u64) {
        match self {
            Self::Arp => (SECOND / 50, 200),
            Self::Dhcp => (SECOND / 100, 200),
        }
    }
}

/// A terminal's line of memory. Its key is 0 while it is nobody's, or being written.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line {
    /// Context and address.
    pub key: AtomicU64,
    /// Its MAC address.
    pub mac: AtomicU64,
    /// The site's virtual MAC; 0 where it has none.
    pub virtual_mac: AtomicU64,
    /// The site's tags as frames have them, the outermost first, behind that nothing.
    pub tags: AtomicU64,
    /// Public address of the site, how many tags, interface.
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

/// A site's words.
#[derive(Debug)]
pub(super) struct Site {
    /// Its public address and router, with [`PUBLIC`].
    pub public: AtomicU64,
    /// Its virtual MAC; 0 where it has none.
    pub mac: AtomicU64,
    /// Its pool, with [`HAS_POOL`].
    pub pool: AtomicU32,
    /// By [`RequestKind`]: nanosecond at which nothing is used up any more.
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

/// A MAC address as a word whose lowest byte is its first: as most processors read it from a frame.
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

/// A terminal as a packet needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its MAC address, as [`word_of`] has it.
    pub mac: u64,
    /// What its site is seen by upstream, likewise; 0 where that is the interface's own address.
    pub virtual_mac: u64,
    /// Its site's tags as frames have them, the first byte lowest: type and control of the outermost, then of the other.
    pub tags: u64,
    /// How many tags.
    pub tag_count: u8,
    /// The interface that it is behind.
    pub interface: u16,
    /// Its site's public address; 0 where it has none.
    pub public: u32,
}

/// The table. Its memory is fixed at start.
#[derive(Debug)]
pub struct Sites {
    pub(super) slots: Box<[Line]>,
    pub(super) sites: Box<[Site]>,
    /// Terminals by context and address.
    pub(super) terminals: Index,
    /// Sites by router and public address.
    pub(super) owners: Box<[Owners]>,
    /// Sites by virtual MAC.
    pub(super) macs: Index,
    /// Terminals that there are.
    pub(super) count: AtomicU32,
    secret: Secret,
}

/// Public addresses that sites may have in a virtual router: the router's context, the first address, the last.
pub type Network = (Context, u32, u32);

/// Whose each address of a network is.
#[derive(Debug)]
pub(super) struct Owners {
    pub network: Network,
    /// By address: the site that has it, or had it last, plus 1.
    pub sites: Box<[AtomicU32]>,
}

impl Owners {
    fn new(network: Network) -> Self {
        let (_, first, last) = network;
        let sites = (first..=last).map(|_| AtomicU32::new(0)).collect();
        Self { network, sites }
    }
}

/// Nobody: more than there can be sites.
pub const NOBODY: u32 = u32::MAX;

/// What finds a terminal.
#[inline(always)]
pub(super) fn key_of(context: u32, address: u32) -> u64 {
    u64::from(context) << 32 | u64::from(address)
}

/// Lines of so many terminals, on huge pages where they are many: packets go all over them.
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

    /// Bytes of its memory.
    pub fn bytes(&self) -> usize {
        let owners = self.owners.iter().map(|owners| size_of_val(&*owners.sites));
        let indexes = self.terminals.bytes() + self.macs.bytes() + owners.sum::<usize>();
        size_of_val(&*self.slots) + size_of_val(&*self.sites) + indexes
    }

    /// How many sites there is room for.
    pub fn capacity(&self) -> u32 {
        self.sites.len() as u32
    }

    /// How many terminals there are, and at most.
    pub fn terminals(&self) -> (u32, u32) {
        (self.count.load(Ordering::Relaxed), self.slots.len() as u32)
    }

    pub(super) fn hash(&self, word: u64) -> u64 {
        fold(self.secret, word, 0)
    }

    /// Prefetch a terminal's line.
    #[inline(always)]
    pub fn prefetch(&self, terminal: u32) {
        if let Some(slot) = self.slots.get(terminal as usize) {
            sluice_table::prefetch::prefetch_read(slot);
        }
    }

    /// The terminal of a number, where it is still that of a context and address.
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
        // Pairs with the fence of who writes: a word of another terminal comes with another key.
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

    /// The number of a terminal.
    #[inline]
    pub fn find(&self, context: u32, address: u32) -> Option<u32> {
        let key = key_of(context, address);
        let is = |number: u32| {
            let slot = self.slots.get(number as usize);
            slot.is_some_and(|slot| slot.key.load(Ordering::Acquire) == key)
        };
        self.terminals.find(self.hash(key), is)
    }

    /// The public address of a site.
    #[inline]
    pub fn public(&self, site: u32) -> Option<u32> {
        let word = self.sites.get(site as usize)?.public.load(Ordering::Acquire);
        (word & PUBLIC != 0).then_some(word as u32)
    }

    /// Where it is kept whose a public address of a virtual router is; none where sites have no such addresses.
    #[inline(always)]
    pub(super) fn place(&self, router: Context, public: u32) -> Option<&AtomicU32> {
        let mut owners = self.owners.iter();
        owners.find_map(|owners| {
            let (of, first, last) = owners.network;
            let is = of == router && first <= public && public <= last;
            is.then(|| owners.sites.get((public - first) as usize))?
        })
    }

    /// The site that a packet to a public address of a virtual router is for: the one that has the address or had it last, for
    /// its sessions end there by name; [`NOBODY`] where none had it yet. None where sites have no such addresses.
    #[inline(always)]
    pub fn recipient(&self, router: Context, public: u32) -> Option<u32> {
        let place = self.place(router, public)?;
        Some(place.load(Ordering::Acquire).wrapping_sub(1))
    }

    /// The site that has a public address in a virtual router.
    #[inline]
    pub fn owner(&self, router: u16, public: u32) -> Option<u32> {
        let site = self.recipient(router.into(), public)?;
        let record = self.sites.get(site as usize)?;
        let is = record.public.load(Ordering::Acquire) == public_word(router, public);
        is.then_some(site)
    }

    /// Networks of addresses that may be sites' own.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.owners.iter().map(|owners| owners.network)
    }

    /// The virtual MAC of a site.
    pub fn mac(&self, site: u32) -> Option<[u8; 6]> {
        let word = self.sites.get(site as usize)?.mac.load(Ordering::Acquire);
        (word != 0).then(|| mac_of(word))
    }

    /// The site that a virtual MAC is of.
    pub fn site_of_mac(&self, mac: [u8; 6]) -> Option<u32> {
        let word = word_of(mac);
        let is = |site: u32| {
            let site = self.sites.get(site as usize);
            site.is_some_and(|site| site.mac.load(Ordering::Acquire) == word)
        };
        (word != 0).then(|| self.macs.find(self.hash(word), is))?
    }

    /// The pool that a site's outside ports come from.
    pub fn pool(&self, site: u32) -> Option<u16> {
        let word = self.sites.get(site as usize)?.pool.load(Ordering::Acquire);
        (word & HAS_POOL != 0).then_some(word as u16)
    }

    /// Whether a site may call the gateway once more, at a moment in nanoseconds.
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
