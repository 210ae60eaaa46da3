//! When routes changed, for whoever keeps what they said.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_table::prefix::{MAX_ROUTERS, RouterIndex};

use crate::{Address, Prefix};

/// Groups of prefixes that share a generation, per router and family. Groups beyond it share by hash, which makes
/// sessions decide again too often, never too seldom.
const GROUPS: usize = 1024;

/// Generations by group; none before the first change.
#[derive(Debug, Default)]
struct Groups(OnceLock<Box<[AtomicU32]>>);

impl Groups {
    #[inline(always)]
    fn get(&self, place: usize) -> u32 {
        let group = self.0.get().and_then(|groups| groups.get(place));
        group.map_or(0, |group| group.load(Ordering::Acquire))
    }

    /// Raise `count` groups in a row.
    fn raise(&self, first: usize, count: usize) {
        let groups = self.0.get_or_init(|| (0..GROUPS).map(|_| AtomicU32::new(0)).collect());
        for group in groups.iter().skip(first).take(count) {
            group.fetch_add(1, Ordering::Release);
        }
    }
}

/// Generations of one router's routes.
#[derive(Debug, Default)]
struct OfRouter {
    all: AtomicU32,
    groups4: Groups,
    groups6: Groups,
}

/// Generations of routes, by router: one over all its routes, and one per group of destinations (/16 in IPv4, /32 in
/// IPv6). A session whose group's generation is not the one it was decided under is decided again.
#[derive(Debug)]
pub struct Generations(Box<[OfRouter]>);

impl Generations {
    /// Of routers without routes.
    pub(crate) fn new() -> Self {
        Self((0..MAX_ROUTERS).map(|_| OfRouter::default()).collect())
    }

    /// Raised by every change of the router's routes: while it stands still, so do the groups.
    #[inline(always)]
    pub fn all(&self, router: RouterIndex) -> u32 {
        self.of(router).map_or(0, |router| router.all.load(Ordering::Acquire))
    }

    /// Generation of the group of an IPv4 destination.
    #[inline(always)]
    pub fn group4(&self, router: RouterIndex, destination: u32) -> u32 {
        let place = Self::place4(destination);
        self.of(router).map_or(0, |router| router.groups4.get(place))
    }

    /// Generation of the group of an IPv6 destination.
    #[inline(always)]
    pub fn group6(&self, router: RouterIndex, destination: u128) -> u32 {
        let place = Self::place6(destination);
        self.of(router).map_or(0, |router| router.groups6.get(place))
    }

    #[inline(always)]
    fn of(&self, router: RouterIndex) -> Option<&OfRouter> {
        self.0.get(router as usize)
    }

    #[inline(always)]
    fn place4(destination: u32) -> usize {
        (destination >> 16) as usize % GROUPS
    }

    #[inline(always)]
    fn place6(destination: u128) -> usize {
        let high = (destination >> 96) as u32;
        (high ^ high >> 16) as usize % GROUPS
    }

    /// The groups that a changed route covers, after the change is published.
    pub(crate) fn raise(&self, router: RouterIndex, prefix: Prefix) {
        let Some(router) = self.of(router) else { return };
        match prefix.address() {
            // A shorter prefix covers a power of two of groups, in a row.
            Address::V4(bits) => {
                let count = 1usize << 16u8.saturating_sub(prefix.length());
                let first = if count >= GROUPS { 0 } else { Self::place4(bits) };
                router.groups4.raise(first, count);
            }
            Address::V6(_) if prefix.length() < 32 => router.groups6.raise(0, GROUPS),
            Address::V6(bits) => router.groups6.raise(Self::place6(bits), 1),
        }
        router.all.fetch_add(1, Ordering::Release);
    }

    /// All groups of a router.
    pub(crate) fn raise_all(&self, router: RouterIndex) {
        let Some(router) = self.of(router) else { return };
        router.groups4.raise(0, GROUPS);
        router.groups6.raise(0, GROUPS);
        router.all.fetch_add(1, Ordering::Release);
    }
}
