//! The writer of the table of sites and terminals.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_wire::Context;
use sluice_wire::vlan::Tag;

use super::context;
use super::sync::{Ordering, fence};
use super::table::{Line, MAX_TERMINALS, Network, Sites, key_of, place_word, pool_word, public_word, word_of};

/// Terminal number that marks the end of a list.
const NONE: u32 = u32::MAX;

/// A terminal of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Context of the site.
    pub context: Context,
    /// Address of the terminal.
    pub address: u32,
    /// MAC address of the terminal.
    pub mac: [u8; 6],
    /// Interface through which the terminal can be reached.
    pub interface: u16,
    /// VLAN tags of the site on that interface, outermost tag first.
    pub tags: [Option<Tag>; 2],
}

/// The table of terminals is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table of terminals is full: raise `terminals` under [subscribers]")]
pub struct TerminalsFull;

/// Another site already has the address or MAC. The value is the number of the other site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address already belongs to site {0}")]
pub struct OtherSite(pub u32);

/// The single writer of a site table.
#[derive(Debug)]
pub struct SiteWriter {
    table: Arc<Sites>,
    /// Free lines. The line that has been free for the longest time is reused first, so that sessions which still refer
    /// to a freed line find the line empty.
    free: VecDeque<u32>,
    /// Number of the first terminal of each site.
    first: Vec<u32>,
    /// Numbers of the next and the previous terminal of the same site, by terminal.
    next: Vec<u32>,
    before: Vec<u32>,
}

impl SiteWriter {
    /// Creates an empty table and its writer. The table has space for `sites` and `terminals`, and owner entries for
    /// the public addresses in `networks`. `secret` is the key of the hashes.
    pub fn new(sites: u32, terminals: u32, networks: &[Network], secret: [u64; 2]) -> (Self, Arc<Sites>) {
        let (sites, terminals) = (sites.min(context::MAX_SITES), terminals.min(MAX_TERMINALS));
        let table = Arc::new(Sites::new(sites, terminals, networks, secret));
        let writer = Self {
            table: table.clone(),
            free: (0..terminals).collect(),
            first: vec![NONE; sites as usize],
            next: vec![NONE; terminals as usize],
            before: vec![NONE; terminals as usize],
        };
        (writer, table)
    }

    /// The table of sites and terminals.
    pub fn sites(&self) -> &Arc<Sites> {
        &self.table
    }

    /// Size in bytes of the memory of the writer, without the table.
    pub fn bytes(&self) -> usize {
        let lists = [&self.first, &self.next, &self.before].map(Vec::capacity);
        size_of::<u32>() * (self.free.capacity() + lists.iter().sum::<usize>())
    }

    /// Sets the site's pool, and the virtual MAC, which is the MAC address that the network sees for the site. Must be
    /// called before terminals of the site are added.
    ///
    /// # Errors
    /// Another site has the MAC. The site is not changed.
    pub fn set_site(&mut self, site: u32, mac: Option<[u8; 6]>, pool: Option<u16>) -> Result<(), OtherSite> {
        let table = &self.table;
        let word = mac.map_or(0, word_of);
        if let Some(other) = mac
            .and_then(|mac| table.site_of_mac(mac))
            .filter(|other| *other != site)
        {
            return Err(OtherSite(other));
        }
        let Some(record) = table.sites.get(site as usize) else {
            return Ok(());
        };
        record.pool.store(pool_word(pool), Ordering::Release);
        let old = record.mac.swap(word, Ordering::AcqRel);
        if old != word {
            if old != 0 {
                table.macs.remove(table.hash(old), site);
            }
            // If both index buckets are full, lookups by MAC don't find the site, and the gateway does not accept
            // frames to this MAC.
            let _ = word != 0 && table.macs.insert(table.hash(word), site);
        }
        for terminal in self.of_site(site).collect::<Vec<_>>() {
            if let Some(slot) = self.table.slots.get(terminal as usize) {
                slot.virtual_mac.store(word, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Removes a site with its terminals and its public address.
    pub fn clear_site(&mut self, site: u32) {
        for terminal in self.of_site(site).collect::<Vec<_>>() {
            self.free_line(terminal);
        }
        self.withdraw(site);
        // Clearing the MAC can't conflict with another site.
        let _ = self.set_site(site, None, None);
    }

    /// Sets, changes or clears the public address of a site in its virtual router.
    ///
    /// # Errors
    /// Another site has the address. `site` then has no public address.
    pub fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite> {
        let Some(address) = address else {
            self.withdraw(site);
            return Ok(());
        };
        let table = &self.table;
        match table.owner(router, address) {
            Some(own) if own == site => return Ok(()),
            Some(other) => {
                self.withdraw(site);
                return Err(OtherSite(other));
            }
            None => {}
        }
        self.withdraw(site);
        let table = &self.table;
        let word = public_word(router, address);
        if let Some(record) = table.sites.get(site as usize) {
            record.public.store(word, Ordering::Release);
            // Only addresses in the configured networks have an owner entry.
            if let Some(place) = table.place(router.into(), address) {
                place.store(site + 1, Ordering::Release);
            }
        }
        self.update_terminals(site, address);
        Ok(())
    }

    fn withdraw(&mut self, site: u32) {
        let table = &self.table;
        let Some(record) = table.sites.get(site as usize) else {
            return;
        };
        let old = record.public.swap(0, Ordering::AcqRel);
        if old != 0 {
            self.update_terminals(site, 0);
        }
    }

    fn update_terminals(&self, site: u32, public: u32) {
        for terminal in self.of_site(site) {
            if let Some(slot) = self.table.slots.get(terminal as usize) {
                let place = slot.place.load(Ordering::Relaxed) as u32;
                slot.place
                    .store(u64::from(public) << 32 | u64::from(place), Ordering::Release);
            }
        }
    }

    /// Numbers of a site's terminals.
    fn of_site(&self, site: u32) -> impl Iterator<Item = u32> + '_ {
        let known = |number: &u32| *number != NONE;
        let first = self.first.get(site as usize).copied().filter(known);
        std::iter::successors(first, move |&number| {
            self.next.get(number as usize).copied().filter(known)
        })
    }

    /// Adds a terminal with an address. Has no effect if an equal terminal exists. A terminal with the same address but
    /// a different MAC, interface or tags is replaced, and its sessions end.
    ///
    /// # Errors
    /// The table is full.
    pub fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull> {
        let Terminal { context, address, .. } = *terminal;
        let (site, table) = (context::site(context), &self.table);
        let known = table.find(context, address);
        if let Some(number) = known {
            if self.is_as(number, terminal) {
                return Ok(());
            }
            self.free_line(number);
        }
        let table = &self.table;
        let Some(first) = self.first.get_mut(site as usize) else {
            return Err(TerminalsFull);
        };
        let number = self.free.pop_front().ok_or(TerminalsFull)?;
        let key = key_of(context, address);
        if !table.terminals.insert(table.hash(key), number) {
            self.free.push_front(number);
            return Err(TerminalsFull);
        }
        if let Some(slot) = table.slots.get(number as usize) {
            let (tags, count) = tags(terminal);
            let public = table.public(site).unwrap_or(0);
            slot.mac.store(word_of(terminal.mac), Ordering::Relaxed);
            let mac = table.sites[site as usize].mac.load(Ordering::Relaxed);
            slot.virtual_mac.store(mac, Ordering::Relaxed);
            slot.tags.store(tags, Ordering::Relaxed);
            let place = place_word(public, count, terminal.interface);
            slot.place.store(place, Ordering::Relaxed);
            slot.key.store(key, Ordering::Release);
        }
        let next = std::mem::replace(first, number);
        self.next[number as usize] = next;
        if let Some(before) = self.before.get_mut(next as usize) {
            *before = number;
        }
        table.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_as(&self, number: u32, terminal: &Terminal) -> bool {
        let (tags, count) = tags(terminal);
        self.table.slots.get(number as usize).is_some_and(|slot| {
            let place = slot.place.load(Ordering::Relaxed);
            slot.mac.load(Ordering::Relaxed) == word_of(terminal.mac)
                && slot.tags.load(Ordering::Relaxed) == tags
                && place as u32 as u64 == place_word(0, count, terminal.interface)
        })
    }

    /// Removes a terminal. Returns false if it does not exist.
    pub fn remove_terminal(&mut self, context: Context, address: u32) -> bool {
        let known = self.table.find(context, address);
        if let Some(number) = known {
            self.free_line(number);
        }
        known.is_some()
    }

    /// Frees a line.
    fn free_line(&mut self, number: u32) {
        let table = &self.table;
        let Some(slot) = table.slots.get(number as usize) else {
            return;
        };
        let key = empty(slot);
        table.terminals.remove(table.hash(key), number);
        let site = context::site((key >> 32) as u32);
        let next = std::mem::replace(&mut self.next[number as usize], NONE);
        let before = std::mem::replace(&mut self.before[number as usize], NONE);
        match self.next.get_mut(before as usize) {
            Some(follows) => *follows = next,
            None => self.first[site as usize] = next,
        }
        if let Some(precedes) = self.before.get_mut(next as usize) {
            *precedes = before;
        }
        self.free.push_back(number);
        self.table.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Marks a line as free and returns its previous key. The fence makes the mark visible to readers before the following
/// writes to the other words.
fn empty(slot: &Line) -> u64 {
    let key = slot.key.swap(0, Ordering::AcqRel);
    fence(Ordering::Release);
    key
}

/// VLAN tags in frame format, and number of tags.
fn tags(terminal: &Terminal) -> (u64, u8) {
    let mut bytes = [0; 8];
    let tags = terminal.tags.iter().flatten();
    let mut count = 0;
    for (place, tag) in bytes.chunks_exact_mut(4).zip(tags) {
        place[..2].copy_from_slice(&tag.protocol.to_be_bytes());
        place[2..].copy_from_slice(&tag.control.to_be_bytes());
        count += 1;
    }
    (u64::from_le_bytes(bytes), count)
}
