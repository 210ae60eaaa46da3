//! Conversion of negated interfaces. A filter rule lists interfaces, so the condition "any interface except one" must
//! be converted.

use super::ConversionReport;
use super::listing::{Action, Decision, Listing};
use super::packets::{Field, Packets, remains};
use super::ranges::Ranges;

/// Maximum number of hyperrectangles that may remain in a comparison.
const MAX_HYPERRECTANGLES: usize = 256;
/// Maximum number of decisions that are compared in pairs. The maximum limits the run time.
const MAX_COMPARISONS: usize = 10_000;

/// Whether a field includes the interfaces that do not occur in rules, but excludes some other interfaces.
pub fn is_open(packets: &Packets, field: Field, known: usize) -> bool {
    let last = packets.get(field).and_then(super::ranges::Ranges::last);
    last.is_some_and(|last| last >= known as u128)
}

fn open(packets: &Packets, known: usize) -> Vec<Field> {
    let both = [Field::In, Field::Out].into_iter();
    both.filter(|&field| is_open(packets, field, known)).collect()
}

/// The loopback interface, from which Sluice receives no packets.
const LOOPBACK: &str = "lo";

/// Note for lines that match the loopback interface. Forwarded packets never match lines for the loopback interface.
pub const NOT_FORWARDED: &str = "no packets are forwarded from or to the loopback interface";

/// Removes the loopback interface from decisions. Decisions that match only the loopback interface are removed with the
/// note `why`. Decisions that match all interfaces except the loopback interface then match any interface.
pub fn without_loopback(
    decisions: Vec<Decision>,
    listing: &Listing,
    report: &mut ConversionReport,
    why: &str,
) -> Vec<Decision> {
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
            let max = decision.packets.max(field);
            decision.packets = match is_open(&decision.packets, field, known) {
                true => {
                    let others = values.not(max).without(&loopback);
                    decision.packets.with_any(field).with(field, &others.not(max))
                }
                false => decision.packets.with(field, &values.without(&loopback)),
            };
        }
        match decision.packets.is_empty() {
            true => report.note(decision.line, why),
            false => kept.push(decision),
        }
    }
    kept
}

/// Extends decisions with a negated interface to any interface, if other decisions have the same effect on packets of
/// the excluded interfaces.
pub fn widen(decisions: Vec<Decision>, end: &dyn Fn(bool) -> Action, known: usize) -> Vec<Decision> {
    let mut decisions = decisions;
    if decisions.len() > MAX_COMPARISONS {
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

/// Whether the decision can be extended to `wide`: earlier decisions match the packets that the extension adds, or
/// later decisions have the same action on these packets.
fn alike(decisions: &[Decision], at: usize, wide: &Packets, end: &dyn Fn(bool) -> Action, known: usize) -> bool {
    let own = &decisions[at];
    // Decisions that can't be converted are ignored in this comparison.
    let carried = |decision: &&Decision| decision.decides() && open(&decision.packets, known).is_empty();
    let before = decisions[..at]
        .iter()
        .filter(carried)
        .map(|decision| decision.packets.clone());
    let before: Vec<_> = before.collect();
    let Some(mut more) = remains(wide.without(&own.packets), &before, MAX_HYPERRECTANGLES) else {
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
        match remains(more, std::slice::from_ref(&decision.packets), MAX_HYPERRECTANGLES) {
            Some(left) => more = left,
            None => return false,
        }
    }
    more.is_empty() || end(wide.v6) == own.action
}
