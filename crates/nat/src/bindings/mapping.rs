//! Mappings from an inside address and port to an outside address and port (the BIB of RFC 6146).
//!
//! A mapping can be looked up by its inside or its outside address and port. A mapping counts its sessions and is
//! removed with its last session. With address-dependent filtering, the mapping table also contains permissions. A
//! permission allows one remote address to send to an outside port.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use sluice_table::compact::CompactIndex;
use sluice_table::memory::Line;
use sluice_table::reserve::Reserve;
use sluice_table::slab::{Linked, Slab};

use crate::Address;
use crate::keyed::{Secret, fold};
use crate::ports::{Lease, PortClass};

/// Maximum number of sessions of a mapping.
const MAX: u32 = (1 << 29) - 1;

/// Mapping between an inside and an outside address and port.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Mapping<A> {
    inside: A,
    outside: A,
    inside_port: u16,
    outside_port: u16,
    /// Number of the subscriber's record; unused in a permission.
    subscriber: u32,
    /// Bits 0–28: number of sessions. Bits 29–30: port class. Bit 31: set if the record is a permission.
    state: u32,
}

const PERMISSION: u32 = 1 << 31;

impl<A: Address> Linked for Mapping<A> {
    fn link(&self) -> u32 {
        self.subscriber
    }
    fn set_link(&mut self, link: u32) {
        self.subscriber = link;
    }
}

impl<A: Address> Mapping<A> {
    /// Inside address and port.
    pub fn inside(&self) -> (A, u16) {
        (self.inside, self.inside_port)
    }

    /// Outside address and port.
    pub fn outside(&self) -> Lease<A> {
        Lease {
            address: self.outside,
            port: self.outside_port,
        }
    }

    /// Port class.
    pub fn class(&self) -> PortClass {
        PortClass::ALL[(self.state >> 29 & 3) as usize % PortClass::ALL.len()]
    }

    /// Number of the subscriber's record.
    pub fn subscriber(&self) -> u32 {
        self.subscriber
    }

    /// Number of sessions that use the mapping.
    pub fn sessions(&self) -> u32 {
        self.state & MAX
    }

    /// Decrements the number of sessions.
    #[inline(always)]
    pub(super) fn remove_session(&mut self) {
        self.state -= 1;
    }

    /// Whether the record maps this inside address and port to this outside address and port.
    #[inline(always)]
    fn is_exact(&self, outside: Lease<A>, class: PortClass, inside: (A, u16)) -> bool {
        self.is_mapping() && self.class() == class && self.outside() == outside && self.inside() == inside
    }

    /// Whether the record is a mapping instead of a permission or a free record.
    pub fn is_mapping(&self) -> bool {
        self.state & PERMISSION == 0 && self.sessions() > 0
    }
}

/// Mapping records with their indexes. A shard's table consists of one or more parts.
#[derive(Debug)]
pub struct Part<'m, A: Address> {
    /// Index by inside address and port. The index also contains permissions.
    inside: CompactIndex<'m>,
    /// Index by outside address and port.
    outside: CompactIndex<'m>,
    records: Slab<'m, Mapping<A>>,
    /// Number of the first record of this part.
    base: u32,
}

/// Number of memory lines that a part with `mappings` mappings needs.
pub const fn lines_for<A: Address>(mappings: usize) -> usize {
    2 * CompactIndex::lines_for(mappings) + Slab::<Mapping<A>>::lines_for(mappings)
}

impl<'m, A: Address> Part<'m, A> {
    /// Creates an empty part in `memory` for `mappings` mappings.
    pub fn new(memory: &'m mut [Line], mappings: usize) -> Self {
        let index = CompactIndex::lines_for(mappings);
        let (inside, rest) = memory.split_at_mut(index.min(memory.len()));
        let (outside, rest) = rest.split_at_mut(index.min(rest.len()));
        Self {
            inside: CompactIndex::new(inside, mappings as u32),
            outside: CompactIndex::new(outside, mappings as u32),
            records: Slab::new(rest, mappings),
            base: 0,
        }
    }

    #[inline(always)]
    fn get(&self, number: u32) -> Option<&Mapping<A>> {
        self.records.get(number.wrapping_sub(self.base))
    }

    /// Looks up a record in an index by hash.
    #[inline(always)]
    fn found(&self, index: &CompactIndex<'m>, hash: u64, is_shared: impl Fn(&Mapping<A>) -> bool) -> Option<u32> {
        let found = index.find(hash, |number| self.records.get(number).is_some_and(&is_shared))?;
        Some(self.base + found)
    }

    /// Stores a record and adds it to the inside index under `hash`; `None` if the part is full.
    #[inline(always)]
    fn put(&mut self, hash: u64, record: Mapping<A>) -> Option<u32> {
        let number = self.records.allocate(record)?;
        self.records.prefetch_allocate();
        if self.inside.insert(hash, number).is_err() {
            self.records.release(number);
            return None;
        }
        Some(self.base + number)
    }
}

/// Mapping table of a shard. If its fixed part is full, the table takes further parts from a reserve that all shards
/// share.
#[derive(Debug)]
pub struct Mappings<'m, A: Address> {
    home: Part<'m, A>,
    /// Further parts, sorted by record number.
    further: Vec<Part<'m, A>>,
    reserve: Option<Arc<Reserve<Part<'m, A>>>>,
    secret: Secret,
}

impl<'m, A: Address> Mappings<'m, A> {
    /// Creates an empty table in `memory` for `mappings` mappings.
    pub fn new(memory: &'m mut [Line], mappings: usize, secret: Secret) -> Self {
        Self {
            home: Part::new(memory, mappings),
            further: Vec::new(),
            reserve: None,
            secret,
        }
    }

    /// Sets the reserve from which a full table takes further parts. All parts have the size of the fixed part. The
    /// table returns empty parts to the reserve.
    pub fn share(&mut self, reserve: Arc<Reserve<Part<'m, A>>>) {
        self.further.reserve(reserve.available());
        self.reserve = Some(reserve);
    }

    #[inline(always)]
    fn parts(&self) -> impl Iterator<Item = &Part<'m, A>> {
        core::iter::once(&self.home).chain(&self.further)
    }

    /// The part that contains a record number.
    #[inline(always)]
    fn part(&self, number: u32) -> Option<&Part<'m, A>> {
        match self.further.first() {
            Some(first) if number >= first.base => self.further.get(self.place_of(number)?),
            _ => Some(&self.home),
        }
    }

    #[inline(always)]
    fn part_mut(&mut self, number: u32) -> Option<&mut Part<'m, A>> {
        match self.place_of(number) {
            Some(place) => self.further.get_mut(place),
            None => Some(&mut self.home),
        }
    }

    /// Position in `further` of the part that contains a record number; `None` for the fixed part.
    #[inline(always)]
    fn place_of(&self, number: u32) -> Option<usize> {
        let first = self.further.first()?;
        Some(number.checked_sub(first.base)? as usize / first.records.capacity().max(1))
    }

    /// Number of records, including permissions.
    pub fn len(&self) -> usize {
        self.parts().map(|part| part.records.len()).sum()
    }

    /// Number of mappings for which the shard's parts have space, excluding parts in the reserve.
    pub fn capacity(&self) -> usize {
        self.parts().map(|part| part.records.capacity()).sum()
    }

    /// The mapping record with this number.
    pub fn get(&self, number: u32) -> Option<&Mapping<A>> {
        self.part(number)?.get(number)
    }

    /// The mapping record with this number, mutable.
    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Mapping<A>> {
        let part = self.part_mut(number)?;
        part.records.get_mut(number.wrapping_sub(part.base))
    }

    /// Exclusive upper bound of the record numbers in use.
    pub fn end(&self) -> u32 {
        let last = self.further.last().unwrap_or(&self.home);
        last.base + last.records.high_water()
    }

    /// First pass of [`Mappings::find`]: prefetches the index. `hash` is a keyed hash of context, inside address, port
    /// and class.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.home.inside.prefetch(hash);
    }

    /// Second pass of [`Mappings::find`]: prefetches the record to which the index probably refers.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: u64) {
        if let Some(number) = self.home.inside.candidate(hash) {
            self.home.records.prefetch(number);
        }
    }

    /// Finds the mapping of a subscriber's inside address and port.
    #[inline(always)]
    pub fn find(&self, hash: u64, subscriber: u32, inside: (A, u16), class: PortClass) -> Option<u32> {
        let state = u32::from(class as u8) << 29;
        self.parts().find_map(|part| {
            part.found(&part.inside, hash, |record| {
                record.subscriber == subscriber
                    && (record.inside, record.inside_port) == inside
                    && record.state & !MAX == state
            })
        })
    }

    /// Finds the mapping of an outside address and port.
    #[inline]
    pub fn find_outside(&self, outside: Lease<A>, class: PortClass) -> Option<u32> {
        let (hash, state) = (self.outside_hash(outside, class), u32::from(class as u8) << 29);
        self.parts().find_map(|part| {
            part.found(&part.outside, hash, |record| {
                record.outside() == outside && record.state & !MAX == state
            })
        })
    }

    /// Finds the mapping between an inside and an outside address and port. `hash` is [`Mappings::outside_hash`].
    #[inline(always)]
    pub fn find_exact(&self, hash: u64, outside: Lease<A>, class: PortClass, inside: (A, u16)) -> Option<u32> {
        self.parts()
            .find_map(|part| part.found(&part.outside, hash, |record| record.is_exact(outside, class, inside)))
    }

    /// Whether the record with this number maps this inside address and port to this outside address and port.
    #[inline(always)]
    pub fn is_exact(&self, number: u32, outside: Lease<A>, class: PortClass, inside: (A, u16)) -> bool {
        self.get(number)
            .is_some_and(|record| record.is_exact(outside, class, inside))
    }

    /// Creates a mapping with one session; `None` if the table is full. Lookups from outside find the mapping only
    /// after [`Mappings::publish`].
    #[inline]
    pub fn make(
        &mut self,
        hash: u64,
        subscriber: u32,
        inside: (A, u16),
        outside: Lease<A>,
        class: PortClass,
    ) -> Option<u32> {
        self.put(
            hash,
            Mapping {
                inside: inside.0,
                outside: outside.address,
                inside_port: inside.1,
                outside_port: outside.port,
                subscriber,
                state: u32::from(class as u8) << 29 | 1,
            },
        )
    }

    /// Stores a record in a part that has space.
    #[inline(always)]
    fn put(&mut self, hash: u64, record: Mapping<A>) -> Option<u32> {
        match self.home.records.is_full() {
            false => self.home.put(hash, record),
            true => self.put_further(hash, record),
        }
    }

    #[cold]
    fn put_further(&mut self, hash: u64, record: Mapping<A>) -> Option<u32> {
        let place = match self.further.iter().position(|part| !part.records.is_full()) {
            Some(place) => place,
            None => {
                let mut part = self.reserve.as_ref()?.allocate()?;
                let last = self.further.last().unwrap_or(&self.home);
                part.base = last.base + last.records.capacity() as u32;
                self.further.push(part);
                self.further.len() - 1
            }
        };
        self.further.get_mut(place)?.put(hash, record)
    }

    /// Marks a record as free.
    #[inline(always)]
    fn free_record(&mut self, number: u32) {
        if let Some(part) = self.part_mut(number) {
            part.records.release(number.wrapping_sub(part.base));
        }
        if !self.further.is_empty() {
            self.release_parts();
        }
    }

    /// Returns trailing empty parts to the reserve.
    #[cold]
    fn release_parts(&mut self) {
        let Some(reserve) = &self.reserve else { return };
        while let Some(mut part) = self.further.pop_if(|part| part.records.is_empty()) {
            part.records.reset();
            reserve.release(part);
        }
    }

    /// Prefetches the lines that [`Mappings::publish`] will write. Returns the hash that the caller must pass to
    /// [`Mappings::publish`].
    #[inline(always)]
    pub fn prepare(&self, outside: Lease<A>, class: PortClass) -> u64 {
        let hash = self.outside_hash(outside, class);
        self.prefetch_outside(hash);
        hash
    }

    /// Adds a new mapping to the outside index. Returns false if the index has no free entry for its hash.
    #[inline(always)]
    pub fn publish(&mut self, number: u32, hash: u64) -> bool {
        self.part_mut(number)
            .is_some_and(|part| part.outside.insert(hash, number.wrapping_sub(part.base)).is_ok())
    }

    /// Increments the number of sessions. Returns false if the counter has reached its maximum.
    #[inline]
    pub fn add_session(&mut self, number: u32) -> bool {
        let record = self.get_mut(number).filter(|record| record.sessions() < MAX);
        record.map(|record| record.state += 1).is_some()
    }

    /// Removes a session from a mapping or permission. Removes the record with its last session.
    #[inline]
    pub fn remove(&mut self, number: u32, inside: u64, outside: u64) {
        if let Some(part) = self.part_mut(number) {
            let own = number.wrapping_sub(part.base);
            part.inside.remove(inside, own);
            part.outside.remove(outside, own);
        }
        self.free_record(number);
    }

    /// Quarantines a mapping after its last session. The mapping's port stays occupied, but lookups from inside or
    /// outside don't find the mapping.
    pub fn quarantine(&mut self, number: u32, hash: u64) {
        if let Some(part) = self.part_mut(number) {
            let own = number.wrapping_sub(part.base);
            if let Some(record) = part.records.get_mut(own) {
                record.state -= 1;
                part.inside.remove(hash, own);
            }
        }
    }

    /// Removes a mapping after its quarantine.
    pub fn end_quarantine(&mut self, number: u32) {
        if let Some(record) = self.get(number) {
            let hash = self.outside_hash(record.outside(), record.class());
            if let Some(part) = self.part_mut(number) {
                part.outside.remove(hash, number.wrapping_sub(part.base));
            }
            self.free_record(number);
        }
    }

    /// Second pass of [`Mappings::find_exact`]: prefetches the record to which the index probably refers. Returns the
    /// number of the record.
    #[inline(always)]
    pub fn prefetch_outside_record(&self, hash: u64) -> Option<u32> {
        let number = self.home.outside.candidate(hash)?;
        self.home.records.prefetch(number);
        Some(number)
    }

    /// First pass of [`Mappings::find_exact`]: prefetches the index.
    #[inline(always)]
    pub fn prefetch_outside(&self, hash: u64) {
        self.home.outside.prefetch(hash);
    }

    /// Finds the permission of a remote address to send to an outside address and port.
    pub fn permission(&self, outside: Lease<A>, class: PortClass, remote: A) -> Option<u32> {
        let hash = self.permission_hash(outside, class, remote);
        let state = PERMISSION | u32::from(class as u8) << 29;
        self.parts().find_map(|part| {
            part.found(&part.inside, hash, |record| {
                let remotes = record.inside;
                remotes == remote && record.outside() == outside && record.state & !MAX == state
            })
        })
    }

    /// Permits a remote address to send to an outside port, because a session with the remote address exists. Returns
    /// false if the table is full.
    pub fn permit(&mut self, outside: Lease<A>, class: PortClass, remote: A) -> bool {
        if let Some(number) = self.permission(outside, class, remote) {
            return self.add_session(number);
        }
        let record = Mapping {
            inside: remote,
            outside: outside.address,
            inside_port: 0,
            outside_port: outside.port,
            subscriber: 0,
            state: PERMISSION | u32::from(class as u8) << 29 | 1,
        };
        self.put(self.permission_hash(outside, class, remote), record).is_some()
    }

    /// Removes a session from the permission of a remote address.
    pub fn revoke(&mut self, outside: Lease<A>, class: PortClass, remote: A) {
        let Some(number) = self.permission(outside, class, remote) else {
            return;
        };
        let hash = self.permission_hash(outside, class, remote);
        let Some(record) = self.get_mut(number) else { return };
        record.remove_session();
        if record.sessions() > 0 {
            return;
        }
        if let Some(part) = self.part_mut(number) {
            part.inside.remove(hash, number.wrapping_sub(part.base));
        }
        self.free_record(number);
    }

    /// Keyed hash of an outside address and port.
    #[inline(always)]
    pub fn outside_hash(&self, outside: Lease<A>, class: PortClass) -> u64 {
        let [high, low] = outside.address.words();
        let place = u64::from(outside.port) << 8 | class as u64;
        fold(self.secret, low ^ high.rotate_left(32), place)
    }

    fn permission_hash(&self, outside: Lease<A>, class: PortClass, remote: A) -> u64 {
        let [high, low] = remote.words();
        fold(
            self.secret,
            self.outside_hash(outside, class),
            low.rotate_left(17) ^ high,
        )
    }
}
