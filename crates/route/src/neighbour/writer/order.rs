//! The orders in which entries of the neighbour table are displaced.

use super::{Action, NeighbourWriter, Record};
use crate::neighbour::table::NeighbourIndex;
use crate::{InterfaceIndex, Time};

pub(super) const NONE: u32 = u32::MAX;

/// Kinds of entries that can be displaced. Each kind has a separate order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Incomplete or failed entries.
    Unresolved,
    /// Entries that were learned only from an announcement. Any host can forge an announcement, because ARP has no
    /// authentication.
    Unconfirmed,
}

/// Restriction of the entries that may be displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisplacementScope {
    /// Only entries of this interface.
    Interface(InterfaceIndex),
    /// Only entries of the router to which this interface belongs.
    Router(InterfaceIndex),
}

/// Entries of one kind, sorted by age, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    oldest: u32,
    newest: u32,
    pub(super) count: usize,
}

impl Order {
    pub(super) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
        count: 0,
    };
}

impl NeighbourWriter {
    /// Whether the table has space for another unconfirmed entry. Displaces an entry if necessary.
    pub(super) fn has_room_for(&mut self, interface: InterfaceIndex, emit: &mut impl FnMut(Action)) -> bool {
        let own = Some(DisplacementScope::Interface(interface));
        if self.quotas.is_unconfirmed_full_of(interface) && !self.displace(Which::Unconfirmed, own, emit) {
            return false;
        }
        let router = Some(DisplacementScope::Router(interface));
        if self.quotas.is_full(interface) && !self.displace(Which::Unconfirmed, router, emit) {
            return false;
        }
        !self.free.is_empty()
            || self.displace(Which::Unconfirmed, own, emit)
            || self.displace(Which::Unconfirmed, router, emit)
            || self.displace(Which::Unconfirmed, None, emit)
    }

    /// Displaces the oldest entry without holds in an order. `of` restricts the displacement to an interface or a
    /// router. Examines at most 16 entries.
    pub(super) fn displace(
        &mut self,
        which: Which,
        of: Option<DisplacementScope>,
        emit: &mut impl FnMut(Action),
    ) -> bool {
        let mut slot = self.orders[which as usize].oldest;
        for _ in 0..16 {
            if slot == NONE {
                return false;
            }
            let index = NeighbourIndex(slot);
            let own = self.interface_of(index);
            let is_selected = match of {
                None => true,
                Some(DisplacementScope::Interface(interface)) => own == interface,
                Some(DisplacementScope::Router(interface)) => {
                    self.quotas.router_of(own) == self.quotas.router_of(interface)
                }
            };
            if is_selected && self.table.uses(index) == 0 {
                emit(Action::Failed { index });
                if self.forget(index) {
                    return true;
                }
            }
            slot = self.records[slot as usize].newer;
        }
        false
    }

    /// Removes an entry from its previous order, and appends the entry to this order.
    pub(super) fn join(&mut self, which: Which, index: NeighbourIndex, now: Time) {
        let interface = self.interface_of(index);
        self.leave(index, interface);
        let mac = self.table.snapshot(index).map_or([0; 6], |known| known.mac);
        let order = &mut self.orders[which as usize];
        self.records[index.0 as usize] = Record {
            attempts: 0,
            since: now,
            order: Some(which),
            older: order.newest,
            newer: NONE,
            mac,
        };
        match order.newest {
            NONE => order.oldest = index.0,
            newest => self.records[newest as usize].newer = index.0,
        }
        order.newest = index.0;
        order.count += 1;
        match which {
            Which::Unresolved => self.quotas.count_unresolved(interface, true),
            Which::Unconfirmed => self.quotas.count_unconfirmed(interface, mac, true),
        }
    }

    pub(super) fn is_in(&self, which: Which, index: NeighbourIndex) -> bool {
        self.records[index.0 as usize].order == Some(which)
    }

    /// Removes an entry from its displacement order, if the entry is in one.
    pub(super) fn leave(&mut self, index: NeighbourIndex, interface: InterfaceIndex) {
        let Record {
            order: Some(which),
            older,
            newer,
            mac,
            ..
        } = self.records[index.0 as usize]
        else {
            return;
        };
        match which {
            Which::Unresolved => self.quotas.count_unresolved(interface, false),
            Which::Unconfirmed => self.quotas.count_unconfirmed(interface, mac, false),
        }
        let order = &mut self.orders[which as usize];
        match older {
            NONE => order.oldest = newer,
            older => self.records[older as usize].newer = newer,
        }
        match newer {
            NONE => order.newest = older,
            newer => self.records[newer as usize].older = older,
        }
        order.count -= 1;
        let record = &mut self.records[index.0 as usize];
        (record.order, record.older, record.newer) = (None, NONE, NONE);
    }
}
