//! Turns `notrack` statements into rules that create no sessions.

use super::ConversionReport;
use super::chains::Flat;
use super::interfaces::{NOT_FORWARDED, without_loopback};
use super::listing::{Action, Decision, Hook, LineIndex, Listing};
use super::packets::{Field, Packets, remains, state};

/// Maximum number of hyperrectangles that may remain in a comparison.
const MAX_HYPERRECTANGLES: usize = 64;
/// Maximum number of decisions on untracked packets.
const MAX_DECISIONS: usize = 1 << 12;

/// Decisions on untracked packets, and the lines that exclude these packets from tracking.
#[derive(Default)]
pub struct Untracked {
    decisions: Vec<Decision>,
    lines: Vec<LineIndex>,
}

/// Decisions of forward chains on packets that previous chains exclude from tracking.
pub fn untracked(
    listing: &Listing,
    decisions: &[Decision],
    end: &dyn Fn(bool) -> Action,
    report: &mut ConversionReport,
) -> Untracked {
    let without = without_loopback(left_out(listing, report), listing, report, NOT_FORWARDED);
    let lines: Vec<LineIndex> = without.iter().map(|decision| decision.line).collect();
    let mut found = Vec::new();
    for decision in decisions {
        if !decision.packets.values(Field::State).holds(state::UNTRACKED) {
            continue;
        }
        let packets = decision.packets.with_any(Field::State);
        found.extend(without.iter().filter_map(|untracked| {
            Some(Decision {
                packets: packets.and(&untracked.packets)?,
                action: of_untracked(&decision.action),
                ..decision.clone()
            })
        }));
        if found.len() > MAX_DECISIONS {
            for line in lines {
                report.leave(line, "the packets that this line leaves untracked need too many rules");
            }
            return Untracked::default();
        }
    }
    // The remaining rules apply only to tracked packets.
    found.extend(without.into_iter().map(|untracked| Decision {
        action: of_untracked(&end(untracked.packets.v6)),
        ..untracked
    }));
    Untracked {
        decisions: found,
        lines,
    }
}

impl Untracked {
    /// Puts these decisions before the decisions on tracked packets, if any rule depends on tracking.
    pub fn before(self, decisions: Vec<Decision>, stateful: bool, report: &mut ConversionReport) -> Vec<Decision> {
        let Self {
            decisions: mut all,
            lines,
        } = self;
        for line in lines {
            report.note(
                line,
                match stateful {
                    true => {
                        "converted to rules with `track = false`; flows that [nat] translates are tracked \
                         nevertheless"
                    }
                    false => "not needed: with `sessions = false`, only translated flows are tracked",
                },
            );
        }
        if !stateful {
            return decisions;
        }
        all.extend(decisions);
        all
    }
}

fn of_untracked(action: &Action) -> Action {
    match action {
        Action::Accept => Action::AcceptUntracked,
        other => other.clone(),
    }
}

/// Packets that are excluded from tracking, as hyperrectangles that don't overlap.
fn left_out(listing: &Listing, report: &mut ConversionReport) -> Vec<Decision> {
    let chains = listing
        .tables
        .iter()
        .flat_map(|table| table.chains.iter().map(move |(name, chain)| (table, name, chain)));
    let mut found: Vec<Decision> = Vec::new();
    for (table, name, chain) in chains.filter(|(.., chain)| chain.hook == Some(Hook::Raw)) {
        let mut flat = Flat::default();
        flat.base(table, chain, &Action::Accept);
        report.reached.extend(&flat.reached);
        for (line, why) in flat.leftovers {
            report.leave(line, why);
        }
        let none = format!(
            "except for `notrack`, chain `{name}` of table {} has no counterpart",
            table.name
        );
        if chain.policy != crate::schema::Verdict::Accept {
            report.leave(chain.line, none.as_str());
        }
        let mut decided: Vec<Packets> = found.iter().map(|decision| decision.packets.clone()).collect();
        for decision in flat.decisions {
            match decision.action {
                Action::Notrack => match remains(vec![decision.packets.clone()], &decided, MAX_HYPERRECTANGLES) {
                    Some(left) => {
                        decided.extend(left.iter().cloned());
                        found.extend(left.into_iter().map(|packets| Decision {
                            packets,
                            ..decision.clone()
                        }));
                    }
                    None => report.leave(
                        decision.line,
                        "the packets that this line leaves untracked need too many \
                         rules",
                    ),
                },
                Action::Accept => decided.push(decision.packets),
                _ => report.leave(decision.line, none.as_str()),
            }
        }
    }
    found
}
