//! Interfaces other than those named: a rule lists interfaces, so that "any but one" has to be said otherwise.

use super::Said;
use super::listing::{Action, Decision, Listing};
use super::packets::{Field, Packets, remains};
use super::ranges::Ranges;

/// Boxes of what is left of one comparison.
const MOST_BOXES: usize = 256;
/// Decisions that are compared each with each: beyond them that takes too long.
const MOST_COMPARED: usize = 10_000;

/// Whether a field holds interfaces that nothing names, and not all.
pub fn is_open(packets: &Packets, field: Field, known: usize) -> bool {
    let last = packets.get(field).and_then(super::ranges::Ranges::last);
    last.is_some_and(|last| last >= known as u128)
}

fn open(packets: &Packets, known: usize) -> Vec<Field> {
    let both = [Field::In, Field::Out].into_iter();
    both.filter(|&field| is_open(packets, field, known)).collect()
}

/// The kernel's own interface, which no packet comes by to Sluice.
const LOOPBACK: &str = "lo";

/// Why nothing that is forwarded meets a line.
pub const NOT_FORWARDED: &str = "nothing is forwarded from the loopback interface, or to it";

/// The same decisions without the loopback interface: those about it alone are met by no packet, which `why` says, and those about
/// all others are about all.
pub fn without_loopback(decisions: Vec<Decision>, listing: &Listing, said: &mut Said, why: &str) -> Vec<Decision> {
    let Some(number) = listing.interfaces.get_index_of(LOOPBACK) else {
        return decisions;
    };
    let (known, loopback) = (listing.interfaces.len(), Ranges::of(number as u128, number as u128));
    let mut kept = Vec::new();
    for mut decision in decisions {
        for field in [Field::In, Field::Out] {
            let Some(values) = decision.packets.get(field).cloned() else {
                continue;
            };
            let most = decision.packets.most(field);
            decision.packets = match is_open(&decision.packets, field, known) {
                true => {
                    let others = values.not(most).without(&loopback);
                    decision.packets.with_any(field).with(field, &others.not(most))
                }
                false => decision.packets.with(field, &values.without(&loopback)),
            };
        }
        match decision.packets.is_empty() {
            true => said.note(decision.line, why),
            false => kept.push(decision),
        }
    }
    kept
}

/// The same decisions, for any interface where the excluded ones are decided about in the same way by others.
pub fn widen(decisions: Vec<Decision>, end: &dyn Fn(bool) -> Action, known: usize) -> Vec<Decision> {
    let mut decisions = decisions;
    if decisions.len() > MOST_COMPARED {
        return decisions;
    }
    for at in 0..decisions.len() {
        for field in open(&decisions[at].packets, known) {
            let wide = decisions[at].packets.with_any(field);
            if decisions[at].decides() && alike(&decisions, at, &wide, end, known) {
                decisions[at].packets = wide;
            }
        }
    }
    decisions
}

/// Whether what `wide` has more is decided about before, or in the same way behind.
fn alike(decisions: &[Decision], at: usize, wide: &Packets, end: &dyn Fn(bool) -> Action, known: usize) -> bool {
    let own = &decisions[at];
    // What is not carried over itself decides nothing.
    let carried = |decision: &&Decision| decision.decides() && open(&decision.packets, known).is_empty();
    let before = decisions[..at]
        .iter()
        .filter(carried)
        .map(|decision| decision.packets.clone());
    let before: Vec<_> = before.collect();
    let Some(mut more) = remains(wide.without(&own.packets), &before, MOST_BOXES) else {
        return false;
    };
    for decision in &decisions[at + 1..] {
        if more.is_empty() {
            return true;
        }
        let concerned = more.iter().any(|packets| packets.and(&decision.packets).is_some());
        if concerned && decision.action != own.action {
            return false;
        }
        match remains(more, std::slice::from_ref(&decision.packets), MOST_BOXES) {
            Some(left) => more = left,
            None => return false,
        }
    }
    more.is_empty() || end(wide.six) == own.action
}
