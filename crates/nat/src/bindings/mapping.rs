//! Mappings: which outside address and port an inside address and port has (the BIB of RFC 6146).
//!
//! A mapping is found from both sides, counts the sessions that use it, and goes with the last of them. With
//! address-dependent filtering the same table holds permissions: that an outside port may hear of a remote address.

use bytemuck::{Pod, Zeroable};
use sluice_table::compact::Compact;
use sluice_table::memory::Line;
use sluice_table::slab::{Linked, Slab};

use crate::Address;
use crate::keyed::{Secret, spot};
use crate::ports::{Lease, PortClass};

/// Sessions that one mapping counts at most.
const MOST: u32 = (1 << 29) - 1;

/// An inside address and port with its outside ones.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Mapping<A> {
    inside: A,
    outside: A,
    inside_port: u16,
    outside_port: u16,
    /// Number of the subscriber's record; of a permission, what it belongs to does not matter.
    subscriber: u32,
    /// Sessions in the low 29 bits, class in the next two, then whether it is a permission.
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

    /// What the ports are of.
    pub fn class(&self) -> PortClass {
        PortClass::ALL[(self.state >> 29 & 3) as usize % PortClass::ALL.len()]
    }

    /// Number of the subscriber's record.
    pub fn subscriber(&self) -> u32 {
        self.subscriber
    }

    /// Sessions that use it.
    pub fn sessions(&self) -> u32 {
        self.state & MOST
    }

    /// One session less.
    #[inline(always)]
    pub(super) fn leave(&mut self) {
        self.state -= 1;
    }

    /// Whether it is a mapping, in use: not a permission, nor a free record.
    pub fn is_mapping(&self) -> bool {
        self.state & PERMISSION == 0 && self.sessions() > 0
    }
}

/// The mappings of a shard.
#[derive(Debug)]
pub struct Mappings<'m, A: Address> {
    /// From the inside, and of permissions.
    inside: Compact<'m>,
    /// From the outside.
    outside: Compact<'m>,
    records: Slab<'m, Mapping<A>>,
    secret: Secret,
}

/// Lines of memory for so many mappings.
pub const fn lines_for<A: Address>(mappings: usize) -> usize {
    2 * Compact::lines_for(mappings) + Slab::<Mapping<A>>::lines_for(mappings)
}

impl<'m, A: Address> Mappings<'m, A> {
    /// No mapping yet; room for so many in `memory`.
    pub fn new(memory: &'m mut [Line], mappings: usize, secret: Secret) -> Self {
        let index = Compact::lines_for(mappings);
        let (inside, rest) = memory.split_at_mut(index.min(memory.len()));
        let (outside, rest) = rest.split_at_mut(index.min(rest.len()));
        Self {
            inside: Compact::new(inside, mappings as u32),
            outside: Compact::new(outside, mappings as u32),
            records: Slab::new(rest, mappings),
            secret,
        }
    }

    /// How many, permissions among them.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Most.
    pub fn capacity(&self) -> usize {
        self.records.capacity()
    }

    /// The record of a number.
    pub fn get(&self, number: u32) -> Option<&Mapping<A>> {
        self.records.get(number)
    }

    /// The same, to write.
    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Mapping<A>> {
        self.records.get_mut(number)
    }

    /// Numbers below this one may be in use.
    pub fn reach(&self) -> u32 {
        self.records.reach()
    }

    /// First pass of [`Mappings::find`]: `hash` is a keyed function of context, inside address, port and class.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.inside.prefetch(hash);
    }

    /// Second pass: asks for the record that it may be.
    #[inline(always)]
    pub fn approach(&self, hash: u64) {
        if let Some(number) = self.inside.candidate(hash) {
            self.records.prefetch(number);
        }
    }

    /// The mapping of a subscriber's inside address and port.
    #[inline(always)]
    pub fn find(&self, hash: u64, subscriber: u32, inside: (A, u16), class: PortClass) -> Option<u32> {
        let state = u32::from(class as u8) << 29;
        self.inside.find(hash, |number| {
            self.records.get(number).is_some_and(|record| {
                record.subscriber == subscriber
                    && (record.inside, record.inside_port) == inside
                    && record.state & !MOST == state
            })
        })
    }

    /// The mapping that has an outside address and port.
    #[inline]
    pub fn find_outside(&self, outside: Lease<A>, class: PortClass) -> Option<u32> {
        let state = u32::from(class as u8) << 29;
        self.outside.find(self.outside_hash(outside, class), |number| {
            self.records
                .get(number)
                .is_some_and(|record| record.outside() == outside && record.state & !MOST == state)
        })
    }

    /// The mapping of an inside address and port that has an outside one; `hash` is [`Mappings::outside_hash`].
    #[inline(always)]
    pub fn find_exact(&self, hash: u64, outside: Lease<A>, class: PortClass, inside: (A, u16)) -> Option<u32> {
        self.outside
            .find(hash, |number| self.is_exact(number, outside, class, inside))
    }

    /// Is a number that mapping's?
    #[inline(always)]
    pub fn is_exact(&self, number: u32, outside: Lease<A>, class: PortClass, inside: (A, u16)) -> bool {
        self.records.get(number).is_some_and(|record| {
            record.is_mapping() && record.class() == class && record.outside() == outside && record.inside() == inside
        })
    }

    /// Make a mapping with its first session; none where there is no room. From outside it is found only after
    /// [`Mappings::publish`].
    #[inline]
    pub fn make(
        &mut self,
        hash: u64,
        subscriber: u32,
        inside: (A, u16),
        outside: Lease<A>,
        class: PortClass,
    ) -> Option<u32> {
        let number = self.records.take(Mapping {
            inside: inside.0,
            outside: outside.address,
            inside_port: inside.1,
            outside_port: outside.port,
            subscriber,
            state: u32::from(class as u8) << 29 | 1,
        })?;
        self.records.prefetch_take();
        if self.inside.insert(hash, number).is_err() {
            self.records.give_back(number);
            return None;
        }
        Some(number)
    }

    /// Ask for what [`Mappings::publish`] will write; returns the hash that it takes.
    #[inline(always)]
    pub fn prepare(&self, outside: Lease<A>, class: PortClass) -> u64 {
        let hash = self.outside_hash(outside, class);
        self.prefetch_outside(hash);
        hash
    }

    /// Let a new mapping be found from outside; false where its hash has no place left.
    #[inline(always)]
    pub fn publish(&mut self, number: u32, hash: u64) -> bool {
        self.outside.insert(hash, number).is_ok()
    }

    /// One more session; false where a mapping can't count it.
    #[inline]
    pub fn hold(&mut self, number: u32) -> bool {
        let record = self.records.get_mut(number).filter(|record| record.sessions() < MOST);
        record.map(|record| record.state += 1).is_some()
    }

    /// A mapping or permission goes with its last session.
    #[inline]
    pub fn remove(&mut self, number: u32, inside: u64, outside: u64) {
        self.inside.remove(inside, number);
        self.outside.remove(outside, number);
        self.records.give_back(number);
    }

    /// The last session has ended, but the port stays taken: from outside nobody is behind it, and inside nobody finds
    /// it.
    pub fn let_sleep(&mut self, number: u32, hash: u64) {
        if let Some(record) = self.records.get_mut(number) {
            record.state -= 1;
            self.inside.remove(hash, number);
        }
    }

    /// What slept goes.
    pub fn wake(&mut self, number: u32) {
        if let Some(record) = self.records.get(number) {
            let hash = self.outside_hash(record.outside(), record.class());
            self.outside.remove(hash, number);
            self.records.give_back(number);
        }
    }

    /// Second pass: asks for the record that it probably is, and says which.
    #[inline(always)]
    pub fn approach_outside(&self, hash: u64) -> Option<u32> {
        let number = self.outside.candidate(hash)?;
        self.records.prefetch(number);
        Some(number)
    }

    /// First pass of [`Mappings::find_exact`].
    #[inline(always)]
    pub fn prefetch_outside(&self, hash: u64) {
        self.outside.prefetch(hash);
    }

    /// The permission of a remote address to send to an outside address and port, where it has one.
    pub fn permission(&self, outside: Lease<A>, class: PortClass, remote: A) -> Option<u32> {
        let state = PERMISSION | u32::from(class as u8) << 29;
        self.inside
            .find(self.permission_hash(outside, class, remote), |number| {
                self.records.get(number).is_some_and(|record| {
                    let remotes = record.inside;
                    remotes == remote && record.outside() == outside && record.state & !MOST == state
                })
            })
    }

    /// A session with a remote address gives it permission to send; false where there is no room.
    pub fn permit(&mut self, outside: Lease<A>, class: PortClass, remote: A) -> bool {
        if let Some(number) = self.permission(outside, class, remote) {
            return self.hold(number);
        }
        let record = Mapping {
            inside: remote,
            outside: outside.address,
            inside_port: 0,
            outside_port: outside.port,
            subscriber: 0,
            state: PERMISSION | u32::from(class as u8) << 29 | 1,
        };
        let Some(number) = self.records.take(record) else {
            return false;
        };
        let hash = self.permission_hash(outside, class, remote);
        let made = self.inside.insert(hash, number).is_ok();
        if !made {
            self.records.give_back(number);
        }
        made
    }

    /// A session with a remote address has ended.
    pub fn forbid(&mut self, outside: Lease<A>, class: PortClass, remote: A) {
        if let Some(number) = self.permission(outside, class, remote) {
            let hash = self.permission_hash(outside, class, remote);
            if let Some(record) = self.records.get_mut(number) {
                record.leave();
                if record.sessions() == 0 {
                    self.inside.remove(hash, number);
                    self.records.give_back(number);
                }
            }
        }
    }

    /// Keyed function of an outside address and port.
    #[inline(always)]
    pub fn outside_hash(&self, outside: Lease<A>, class: PortClass) -> u64 {
        let [high, low] = outside.address.words();
        let place = u64::from(outside.port) << 8 | class as u64;
        spot(self.secret, low ^ high.rotate_left(32), place)
    }

    fn permission_hash(&self, outside: Lease<A>, class: PortClass, remote: A) -> u64 {
        let [high, low] = remote.words();
        spot(
            self.secret,
            self.outside_hash(outside, class),
            low.rotate_left(17) ^ high,
        )
    }
}
