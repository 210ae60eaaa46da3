//! What happens in a TCP connection, and rules that ask for it.

use super::asking::Asking;
use super::known::Known;
use super::{Fate, FlowHandle, Inspector, Round, Seen};
use crate::evaluate::View;
use crate::stream::{Step, StreamEvent};

impl Inspector<'_> {
    /// What a segment is to its stream, for the rules that ask for it.
    #[inline(always)]
    pub(super) fn step_events(&mut self, handle: FlowHandle, seen: &Seen<'_>, step: Step, round: &mut Round<'_>) {
        let rewritten = match step {
            Step::Fresh { rewritten, .. } | Step::Ahead { rewritten, .. } => rewritten,
            Step::Repeat { rewritten } => {
                if seen.segment.len() > seen.payload {
                    self.stream_event(handle, seen, StreamEvent::Retransmission, round);
                }
                rewritten
            }
            Step::Exception(exception) => {
                if let Some(event) = StreamEvent::of(exception) {
                    self.stream_event(handle, seen, event, round);
                }
                return;
            }
        };
        if rewritten > 0 {
            self.stream_event(handle, seen, StreamEvent::Differs, round);
        }
    }

    /// Ask the rules that ask for an event about the packet with which it happens.
    pub(super) fn stream_event(
        &mut self,
        handle: FlowHandle,
        seen: &Seen<'_>,
        event: StreamEvent,
        round: &mut Round<'_>,
    ) {
        let Some((flow, place)) = self.flows.get(handle) else {
            return;
        };
        let (rules, _, notes, lists) = self.books.of(flow, place, round.now).parts(place);
        let of_event = rules.of_stream_event(event);
        if of_event.is_empty() || flow.fate != Fate::Open {
            return;
        }
        let known = Known {
            payload: View {
                bytes: seen.segment.get(seen.payload..).unwrap_or_default(),
                base: 0,
                complete: true,
                ends_here: true,
            },
            slot: None,
            unknown: false,
            ended: false,
        };
        let mut ends = seen.ends;
        ends.service = flow.service;
        let mut asking = Asking {
            rules,
            rates: round.rates,
            second: (round.now / 1_000_000_000) as u32,
            ends: &ends,
            facts: &seen.facts,
            tools: round.tools,
            notes,
            waiting: &mut flow.waiting[seen.direction as usize],
            lists,
            fate: &mut flow.fate,
            stream: None,
            unknown: false,
            by_packet: true,
        };
        asking.ask_all(of_event, &known);
        asking.ask_blocked(&known);
    }
}
