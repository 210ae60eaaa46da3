//! The single writer of the neighbour table. The writer implements the state machine of RFC 4861, section 7.3, for both
//! address families. IPv4 uses the ARP cache rules of RFC 826 and RFC 1122, section 2.3.2. The caller passes the
//! current time and a callback for actions.

mod event;
mod order;

use std::sync::Arc;

use sluice_table::token_bucket::TokenBucket;

pub use self::event::{Action, Advertisement, NeighbourMessage, Resolution};
use self::order::{DisplacementScope, NONE, Order, Which};
use super::conflict::{Conflict, Conflicts};
use super::deadlines::Deadlines;
use super::quota::Quotas;
use super::table::{Mac, Neighbour, NeighbourIndex, NeighbourTableWriter, Neighbours, OTHER_END, State};
use super::timing::Timing;
use crate::{Address, InterfaceIndex, Reason, RouterIndex, Time};

/// Writer-only data of an entry.
#[derive(Clone, Copy, Debug)]
struct Record {
    attempts: u8,
    /// Time at which the current state began.
    since: Time,
    /// The displacement order that contains the entry.
    order: Option<Which>,
    older: u32,
    newer: u32,
    /// MAC that announced the entry, if the entry is unconfirmed.
    mac: Mac,
}

/// The writer of a [`Neighbours`] table. Exactly one worker owns the writer.
#[derive(Debug)]
pub struct NeighbourWriter {
    table: Arc<Neighbours>,
    writer: NeighbourTableWriter,
    timing: Timing,
    records: Box<[Record]>,
    free: Vec<u32>,
    deadlines: Deadlines,
    requests: TokenBucket,
    quotas: Quotas,
    conflicts: Arc<Conflicts>,
    /// Displacement orders, by [`Which`].
    orders: [Order; 2],
}

impl NeighbourWriter {
    /// Creates the writer of an empty table. A table may have only one writer.
    pub fn new(table: Arc<Neighbours>, timing: Timing, now: Time) -> Self {
        let capacity = table.capacity();
        let record = Record {
            attempts: 0,
            since: 0,
            order: None,
            older: NONE,
            newer: NONE,
            mac: [0; 6],
        };
        let rate = timing.requests_per_second.max(1);
        Self {
            writer: NeighbourTableWriter::new(table.clone()),
            table,
            timing,
            records: vec![record; capacity].into(),
            free: (0..capacity as u32).rev().collect(),
            deadlines: Deadlines::new(capacity),
            requests: TokenBucket::new(rate, rate.div_ceil(10), now),
            quotas: Quotas::new(&timing, capacity, now),
            conflicts: Arc::default(),
            orders: [Order::EMPTY; 2],
        }
    }

    /// Sets the router of each interface, and the maximum number of neighbours of each router. If there are several
    /// routers, each may use at most half of the requests and half of the unresolved entries. If there are several
    /// interfaces, each may use at most half of the unresolved entries, and unconfirmed entries of an interface may
    /// occupy at most half of the table.
    pub fn set_quotas(&mut self, interfaces: impl Iterator<Item = RouterIndex>, max: impl Iterator<Item = u32>) {
        self.quotas.set(interfaces, max);
        for index in (0..self.records.len() as u32).map(NeighbourIndex) {
            let Some(known) = self.table.snapshot(index).filter(|known| known.state != State::Free) else {
                continue;
            };
            self.quotas.count(known.interface, true);
            let record = &self.records[index.0 as usize];
            match record.order {
                Some(Which::Unresolved) => self.quotas.count_unresolved(known.interface, true),
                Some(Which::Unconfirmed) => self.quotas.count_unconfirmed(known.interface, record.mac, true),
                None => {}
            }
        }
    }

    /// Queue to which address conflicts are reported.
    pub fn conflicts(&self) -> &Arc<Conflicts> {
        &self.conflicts
    }

    /// The neighbour table.
    pub fn table(&self) -> &Arc<Neighbours> {
        &self.table
    }

    /// Number of entries in use.
    pub fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time at which [`NeighbourWriter::advance`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// Looks up a neighbour for a packet, and starts resolution if necessary.
    pub fn resolve(
        &mut self,
        interface: InterfaceIndex,
        address: Address,
        now: Time,
        emit: &mut impl FnMut(Action),
    ) -> Resolution {
        if let Some(found) = self.table.resolve(interface, address) {
            self.table.mac_for_sending(found.index);
            return match found.state {
                State::Incomplete => Resolution::Pending(found.index),
                State::Failed => Resolution::Refused(Reason::NeighbourUnresolved),
                _ => Resolution::Known(found.index),
            };
        }
        if self.table.is_pair(interface) {
            // On a point-to-point link the Ethernet header is removed before transmission, so any MAC can be used.
            let made = self.set_permanent(interface, OTHER_END, [0; 6], now, emit);
            return made.map_or_else(Resolution::Refused, Resolution::Known);
        }
        if !address.is_host() {
            return Resolution::Refused(Reason::NeighbourUnresolved);
        }
        if self.quotas.is_full(interface) {
            return Resolution::Refused(Reason::NeighbourQuota);
        }
        let is_full = self.quotas.is_unresolved_full_of(interface);
        if is_full && !self.displace(Which::Unresolved, Some(DisplacementScope::Interface(interface)), emit) {
            return Resolution::Refused(Reason::NeighbourQuota);
        }
        let is_full = self.quotas.is_unresolved_full(interface);
        if is_full && !self.displace(Which::Unresolved, Some(DisplacementScope::Router(interface)), emit) {
            return Resolution::Refused(Reason::NeighbourQuota);
        }
        if self.unresolved() >= self.timing.unresolved && !self.displace(Which::Unresolved, None, emit) {
            return Resolution::Refused(Reason::NeighbourTableFull);
        }
        if self.free.is_empty() && !self.displace(Which::Unconfirmed, None, emit) {
            self.displace(Which::Unresolved, None, emit);
        }
        let Some(index) = self.create(interface, address, State::Incomplete, [0; 6], emit) else {
            return Resolution::Refused(Reason::NeighbourTableFull);
        };
        self.join(Which::Unresolved, index, now);
        self.send_request(index, now, emit);
        Resolution::Pending(index)
    }

    /// Learns a neighbour from a packet that arrived through `interface`. `on_link` means that `address` belongs to a
    /// subnet of that interface and is not an address of the gateway ([`crate::Interface::has_neighbour`]). An address
    /// outside of the subnets creates no entry. It only updates an entry that exists because a route leads to the
    /// address. MACs that can't belong to a single host are ignored.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a field of the packet, or time, or the way out"
    )]
    pub fn receive(
        &mut self,
        interface: InterfaceIndex,
        address: Address,
        mac: Option<Mac>,
        observed: NeighbourMessage,
        on_link: bool,
        now: Time,
        emit: &mut impl FnMut(Action),
    ) {
        let bad_mac = mac.is_some_and(|mac| mac[0] & 1 != 0 || mac == [0; 6]);
        if bad_mac || !address.is_host() || self.table.is_pair(interface) {
            return;
        }
        let Some(known) = self.table.resolve(interface, address) else {
            if let (NeighbourMessage::Solicitation, Some(mac)) = (observed, mac)
                && on_link
                && !self.quotas.is_full_of(interface, mac)
                && self.has_room_for(interface, emit)
                && let Some(index) = self.create(interface, address, State::Stale, mac, emit)
            {
                self.enter(index, State::Stale, mac, now);
                self.join(Which::Unconfirmed, index, now);
            }
            return;
        };
        if let Some(mac) = mac
            && known.state.has_mac()
            && known.mac != mac
        {
            self.conflicts.add(Conflict {
                interface,
                address,
                mac,
                of: Some(known.mac),
            });
        }
        match observed {
            NeighbourMessage::Solicitation => self.receive_solicitation(known, mac, now, emit),
            NeighbourMessage::Advertisement(flags) => self.receive_advertisement(known, mac, flags, now, emit),
        }
    }

    /// RFC 4861, section 7.2.3: a different MAC makes the entry stale; an equal MAC has no effect.
    fn receive_solicitation(&mut self, known: Neighbour, mac: Option<Mac>, now: Time, emit: &mut impl FnMut(Action)) {
        let Some(mac) = mac else { return };
        if known.state != State::Permanent && (!known.state.has_mac() || known.mac != mac) {
            self.enter(known.index, State::Stale, mac, now);
            self.join(Which::Unconfirmed, known.index, now);
            emit(Action::Resolved { index: known.index });
        }
    }

    /// Processes an advertisement according to RFC 4861, section 7.2.5.
    fn receive_advertisement(
        &mut self,
        known: Neighbour,
        mac: Option<Mac>,
        flags: Advertisement,
        now: Time,
        emit: &mut impl FnMut(Action),
    ) {
        let confirmed = if flags.solicited {
            State::Reachable
        } else {
            State::Stale
        };
        match known.state {
            State::Permanent | State::Free => {}
            State::Incomplete | State::Failed => {
                if let Some(mac) = mac {
                    self.enter(known.index, confirmed, mac, now);
                    emit(Action::Resolved { index: known.index });
                }
            }
            state => {
                let differs = mac.is_some_and(|mac| mac != known.mac);
                if differs && !flags.overrides {
                    if state == State::Reachable {
                        self.enter(known.index, State::Stale, known.mac, now);
                    }
                } else if flags.solicited || differs {
                    self.enter(known.index, confirmed, mac.unwrap_or(known.mac), now);
                    if differs {
                        emit(Action::Resolved { index: known.index });
                    }
                }
            }
        }
    }

    /// Confirms the reachability of a neighbour after upper-layer progress (RFC 4861, section 7.3.1).
    pub fn confirm(&mut self, index: NeighbourIndex, now: Time) {
        if let Some(known) = self.table.snapshot(index)
            && matches!(known.state, State::Reachable | State::Stale | State::Probe)
        {
            self.enter(index, State::Reachable, known.mac, now);
        }
    }

    /// Adds a configured neighbour. A configured neighbour does not change until [`NeighbourWriter::remove`].
    pub fn set_permanent(
        &mut self,
        interface: InterfaceIndex,
        address: Address,
        mac: Mac,
        now: Time,
        emit: &mut impl FnMut(Action),
    ) -> Result<NeighbourIndex, Reason> {
        let known = self.table.find(interface, address);
        if known.is_none() && self.free.is_empty() && !self.displace(Which::Unconfirmed, None, emit) {
            self.displace(Which::Unresolved, None, emit);
        }
        let index = known
            .or_else(|| self.create(interface, address, State::Permanent, mac, emit))
            .ok_or(Reason::NeighbourTableFull)?;
        self.enter(index, State::Permanent, mac, now);
        emit(Action::Resolved { index });
        Ok(index)
    }

    /// Removes an entry. A held entry only loses its MAC, and its next use starts resolution again.
    pub fn remove(&mut self, index: NeighbourIndex, now: Time, emit: &mut impl FnMut(Action)) {
        if self.table.state(index) == State::Free {
            return;
        }
        emit(Action::Failed { index });
        if !self.forget(index) {
            self.fail(index, now);
        }
    }

    /// Processes at most `budget` due entries, and returns their number. A result of `budget` means that more entries
    /// may be due.
    pub fn advance(&mut self, now: Time, budget: usize, emit: &mut impl FnMut(Action)) -> usize {
        for done in 0..budget {
            let Some(slot) = self.deadlines.due(now) else {
                return done;
            };
            self.expire(NeighbourIndex(slot), now, emit);
        }
        budget
    }

    fn expire(&mut self, index: NeighbourIndex, now: Time, emit: &mut impl FnMut(Action)) {
        let Some(known) = self.table.snapshot(index) else {
            return;
        };
        let record = self.records[index.0 as usize];
        match known.state {
            State::Free | State::Permanent => {}
            State::Incomplete | State::Probe if record.attempts >= self.timing.attempts => {
                self.fail(index, now);
                emit(Action::Failed { index });
            }
            State::Incomplete | State::Probe => self.send_request(index, now, emit),
            State::Reachable => self.enter(index, State::Stale, known.mac, now),
            State::Stale => {
                if self.writer.clear_used(index) {
                    self.enter(index, State::Probe, known.mac, now);
                    self.send_request(index, now, emit);
                } else if now.saturating_sub(record.since) < self.timing.stale || !self.forget(index) {
                    self.deadlines.set(index.0, now + self.timing.delay);
                }
            }
            State::Failed => {
                if self.writer.clear_used(index) {
                    self.records[index.0 as usize].attempts = 0;
                    self.writer.set(index, State::Incomplete, [0; 6]);
                    self.send_request(index, now, emit);
                } else if !self.forget(index) {
                    self.deadlines.set(index.0, now + self.timing.failed);
                }
            }
        }
    }

    /// Sends a request or probe if the rate limits permit it. Otherwise sets a deadline for another attempt.
    fn send_request(&mut self, index: NeighbourIndex, now: Time, emit: &mut impl FnMut(Action)) {
        let interface = self.interface_of(index);
        if !self.quotas.may_request(interface, now) || !self.requests.take(now) {
            self.deadlines.set(index.0, now + self.timing.retransmit / 10);
            return;
        }
        self.records[index.0 as usize].attempts += 1;
        self.deadlines.set(index.0, now + self.timing.retransmit);
        emit(match self.table.state(index) {
            State::Probe => Action::Probe { index },
            _ => Action::Request { index },
        });
    }

    /// Creates an entry in a free slot. If the two index buckets of the address are full, displaces an unconfirmed
    /// entry in these buckets.
    fn create(
        &mut self,
        interface: InterfaceIndex,
        address: Address,
        state: State,
        mac: Mac,
        emit: &mut impl FnMut(Action),
    ) -> Option<NeighbourIndex> {
        let slot = NeighbourIndex(self.free.pop()?);
        let mut is_filled = self.writer.fill(slot, interface, address, state, mac);
        if !is_filled {
            let bucket = self.table.bucket_entries(interface, address);
            let is_displaceable =
                |index: &NeighbourIndex| self.is_in(Which::Unconfirmed, *index) && self.table.uses(*index) == 0;
            if let Some(index) = bucket.into_iter().flatten().find(is_displaceable) {
                emit(Action::Failed { index });
                is_filled = self.forget(index) && self.writer.fill(slot, interface, address, state, mac);
            }
        }
        if !is_filled {
            self.free.push(slot.0);
            return None;
        }
        self.quotas.count(interface, true);
        Some(slot)
    }

    /// Sets a state with a MAC.
    fn enter(&mut self, index: NeighbourIndex, state: State, mac: Mac, now: Time) {
        self.leave(index, self.interface_of(index));
        let record = &mut self.records[index.0 as usize];
        record.since = now;
        record.attempts = 0;
        self.writer.set(index, state, mac);
        match state {
            // Multiply the duration by a factor of 0.75 to 1.25 that depends on the slot. Thus entries that were
            // learned at the same time are probed at different times.
            State::Reachable => {
                let spread = index.0.wrapping_mul(0x9e37_79b9) as u64 >> 24;
                self.deadlines
                    .set(index.0, now + self.timing.reachable / 512 * (384 + spread));
            }
            State::Permanent => self.deadlines.clear(index.0),
            _ => {
                self.writer.clear_used(index);
                self.deadlines.set(index.0, now + self.timing.delay);
            }
        }
    }

    fn fail(&mut self, index: NeighbourIndex, now: Time) {
        self.join(Which::Unresolved, index, now);
        self.writer.set(index, State::Failed, [0; 6]);
        self.writer.clear_used(index);
        self.deadlines.set(index.0, now + self.timing.failed);
    }

    /// Frees an entry. Returns false if the entry is held.
    fn forget(&mut self, index: NeighbourIndex) -> bool {
        let Some(known) = self.table.snapshot(index) else {
            return false;
        };
        if !self.writer.clear(index, known.interface, known.address) {
            return false;
        }
        self.leave(index, known.interface);
        self.quotas.count(known.interface, false);
        self.deadlines.clear(index.0);
        self.free.push(index.0);
        true
    }

    fn interface_of(&self, index: NeighbourIndex) -> InterfaceIndex {
        self.table.snapshot(index).map_or(0, |known| known.interface)
    }

    /// Number of incomplete or failed entries.
    pub fn unresolved(&self) -> usize {
        self.orders[Which::Unresolved as usize].count
    }
}
