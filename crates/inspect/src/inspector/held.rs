//! Packets that wait for what comes before them in their stream: their tickets are kept, given back in order, and given up
//! when they have waited too long.

use sluice_wire::Direction;

use super::asking::Fate;
use super::{FlowHandle, Inspector, Overdue, Settings};
use crate::reason::{Reason, Skipped};
use crate::stream::{self, Ahead, Exception, Policy};

impl Inspector<'_> {
    /// Keep the ticket of a packet that waits. False, and it stays with the caller, where it can't be kept.
    pub fn held(&mut self, handle: FlowHandle, direction: Direction, ahead: Ahead, ticket: u32, now: u64) -> bool {
        let Some((flow, _)) = self.flows.get(handle) else {
            return false;
        };
        let stream = flow.stream;
        self.streams.held(stream, direction, ahead, ticket, now)
    }

    /// The ticket of a packet that waits no longer.
    pub fn next_held(&mut self, handle: FlowHandle, direction: Direction) -> Option<u32> {
        let (flow, _) = self.flows.get(handle)?;
        match flow.fate {
            Fate::Open => self.streams.next_held(flow.stream, direction),
            _ => self.streams.take_held(flow.stream, direction),
        }
    }

    /// Let go of packets that waited too long, of one stream. `give` gets the ticket of each, and why it is to be dropped,
    /// where it is. False where none has.
    pub fn overdue(&mut self, now: u64, settings: &Settings, mut give: impl FnMut(u32, Option<Overdue>)) -> bool {
        let Some((stream, direction)) = self.streams.overdue(now) else {
            return false;
        };
        let owner = self.owners.get(self.streams.place(stream)).copied();
        let policy = settings.policies.of(Exception::GapOverdue);
        if policy == Policy::Pass {
            self.streams.skip(stream, direction);
            while let Some(ticket) = self.streams.next_held(stream, direction) {
                give(ticket, None);
            }
            return true;
        }
        let (fate, drops) = match policy {
            Policy::Bypass => (Some(Fate::Passed(Skipped::GapOverdue)), false),
            Policy::DropFlow => (Some(Fate::Dropped), true),
            Policy::DropPacket | Policy::Pass => (None, true),
        };
        let story = owner.and_then(|owner| self.story(owner));
        let dropped = |direction| {
            drops.then_some(Overdue {
                reason: Reason::GapOverdue,
                story,
                direction,
            })
        };
        if let (Some(fate), Some((flow, _))) = (fate, owner.and_then(|owner| self.flows.get(owner))) {
            flow.fate = fate;
        }
        self.give_held_of(stream, direction, |ticket| give(ticket, dropped(direction)));
        if fate.is_some() {
            let other = direction.opposite();
            self.give_held_of(stream, other, |ticket| give(ticket, dropped(other)));
        }
        true
    }

    fn give_held_of(&mut self, stream: stream::Handle, direction: Direction, mut give: impl FnMut(u32)) {
        while let Some(ticket) = self.streams.take_held(stream, direction) {
            give(ticket);
        }
    }

    /// Let go of all packets that wait: `give` gets their tickets.
    pub fn give_held(&mut self, mut give: impl FnMut(u32)) {
        while let Some((stream, direction)) = self.streams.overdue(u64::MAX) {
            self.give_held_of(stream, direction, &mut give);
        }
    }
}
